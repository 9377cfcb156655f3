"""Environments in processes of their own: the program is killed, or one of its workers is."""

import contextlib
import os
import random
import signal
from pathlib import Path

from common.errors import UserError
from common.runs import run_folder
from fault_table import kills, programs
from fault_table.tally import Tally

PROGRAM = "PPO in processes"


def workers_killed(wanted: int, work: Path, broken: str = "") -> Tally:
    """A worker is killed while a run goes on: the run says so, goes on, and has all its epochs in the end."""
    tally, rng = Tally(), random.Random(7)
    for attempt in range(wanted):
        folder = work / f"run{attempt}"
        with programs.Child(programs.first_command(PROGRAM, folder), work, broken) as child:
            child.reaches("collecting", rng.randint(2, programs.EPOCHS - 2))
            killed = _kill_a_worker(child, rng)
            phase = child.announced.phase
            child.finish()
            faults = [] if child.process.returncode == 0 else [child.said()]
            if not killed:
                faults.append("no worker was found")
            if "died" not in child.output:
                faults.append("nothing was said of it")
            if left := child.left_behind():
                faults.append(f"{len(left)} of its processes live on")
        try:
            epochs = len(run_folder.read_results(folder)["epoch"])
        except UserError:
            epochs = 0
        if epochs != programs.EPOCHS:
            faults.append(f"it has {epochs} epochs")
        tally.count(not faults, f"a worker killed while {phase}: {'; '.join(faults)}", phase)
    return tally


def _kill_a_worker(child: programs.Child, rng: random.Random) -> bool:
    parents = {number: _parent(number) for number in child.survivors()}
    leaves = [number for number in parents if number not in parents.values() and _is_worker(number)]
    if not leaves:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(leaves), signal.SIGKILL)
    return True


def _parent(number: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return 0


def _is_worker(number: int) -> bool:
    with contextlib.suppress(OSError):
        return b"resource_tracker" not in Path(f"/proc/{number}/cmdline").read_bytes()
    return False


def programs_killed(wanted: int, work: Path, broken: str = "") -> Tally:
    """The program is killed in every phase: no worker lives on, and the resumed run is the undisturbed one."""
    return kills.kills(PROGRAM, wanted, work, broken)
