"""The notebook's training cell: its kernel is killed, or the cell is interrupted, and it is run again."""

import os
import random
import time
from pathlib import Path
from queue import Empty
from subprocess import Popen

from jupyter_client import KernelManager

from fault_table import kills, programs
from fault_table.child import HERE
from fault_table.outcome import outcome
from fault_table.tally import Tally

PHASES = ("starting", "collecting", "updating", "saving", "restoring")
SETTINGS = (
    f"epochs={programs.EPOCHS}, seed=3, num_envs=2, steps_per_epoch=256, minibatch_size=128, max_episode_steps=50, "
    "hidden_sizes=(16,), backend='gymnasium'"
)
CELL = f"""
import sys
if "fault_table.child" not in sys.modules:
    sys.path[:0] = [{str(programs.ROOT)!r}, {str(HERE.parent)!r}]
    from fault_table import child
    from programs import notebook
    child.install()
run = notebook.train(*notebook.choose("pendulum", {SETTINGS}), FOLDER)
"""


class Cell(programs.Child):
    """The training cell in a kernel of its own; it is over when its reply is there, or when the kernel is dead."""

    def _start(self, command: list[str], **_: object) -> Popen:
        self._code, self.status = command[0], ""  # "ok" or what went wrong, once it is over
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(
            env=os.environ | self.environment, cwd=str(programs.ROOT), stdout=self._stdout, stderr=self._stderr
        )
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=programs.PATIENCE)
        self.run()
        return self.manager.provisioner.process

    def run(self) -> None:
        """Execute the cell, once more after it has ended."""
        self.status, self._request = "", self.client.execute(self._code)

    def over(self) -> bool:
        if self.process.poll() is not None:
            self.status = "dead"
        while not self.status:
            try:
                reply = self.client.get_shell_msg(timeout=0.01)
            except Empty:
                break
            if reply["parent_header"].get("msg_id") == self._request:
                content = reply["content"]
                failed = content["status"] == "error"
                self.status = f"{content['ename']}: {content['evalue']}" if failed else content["status"]
        return bool(self.status)

    def interrupt(self) -> None:
        """The stop button."""
        self.manager.interrupt_kernel()

    def __exit__(self, *problem: object) -> None:
        self.client.stop_channels()
        super().__exit__(*problem)
        self.manager.cleanup_resources()


def notebook_cells(wanted: int, work: Path, broken: str = "") -> Tally:
    """By turns the kernel is killed and the cell interrupted; run again, the cell ends as the undisturbed one."""
    tally, rng = Tally(), random.Random(8)
    with Cell([_code(work / "whole")], work) as cell:
        cell.finish()
        if cell.status != "ok":
            raise RuntimeError(f"the training cell failed undisturbed: {cell.status}")
        profile = cell.announced.profile()
    whole = outcome(_run(work / "whole"))
    for attempt in range(wanted):
        phase, runs = PHASES[attempt // 2 % len(PHASES)], work / f"runs{attempt}"
        stop = _kill if attempt % 2 == 0 else _interrupt
        note = stop(runs, phase, profile, work, rng, broken)
        faults = [note] if note else kills.outcome_faults(_run(runs), whole)
        tally.count(not faults, f"{stop.__name__[1:]} while {phase}: {'; '.join(faults)}", phase)
    return tally


def _code(runs: Path) -> str:
    return CELL.replace("FOLDER", repr(str(runs)))


def _run(runs: Path) -> Path:
    """The one run of a runs folder."""
    return runs / "pendulum-seed3"


def _moment(cell: Cell, phase: str, profile: dict[str, tuple[int, float]], rng: random.Random) -> None:
    """Wait for a random moment of a phase."""
    often, seconds = profile.get(phase, (1, 0.05))
    cell.reaches(phase, rng.randint(1, max(1, often // 3)))
    time.sleep(rng.uniform(0, seconds))


def _kill(
    runs: Path, phase: str, profile: dict[str, tuple[int, float]], work: Path, rng: random.Random, broken: str
) -> str:
    """Kill the kernel and run the cell in a new one; returns what went wrong."""
    for moment in ("collecting", phase) if phase == "restoring" else (phase,):
        with Cell([_code(runs)], work, broken) as cell:
            _moment(cell, moment, profile | {"collecting": (3 * programs.EPOCHS, 0.01)}, rng)
            cell.kill()
            cell.finish()
            if cell.status != "dead":
                return f"it was over before it could be killed: {cell.status}"
    with Cell([_code(runs)], work, broken) as cell:
        cell.finish()
        return "" if cell.status == "ok" else cell.status


def _interrupt(
    runs: Path, phase: str, profile: dict[str, tuple[int, float]], work: Path, rng: random.Random, broken: str
) -> str:
    """Press stop and run the cell again in the same kernel; returns what went wrong."""
    with Cell([_code(runs)], work, broken) as cell:
        _moment(cell, phase if phase != "restoring" else "collecting", profile, rng)
        cell.interrupt()
        cell.finish()
        if not cell.status.startswith("StoppedError"):
            return f"the stopped cell ended with {cell.status}"
        cell.run()
        cell.finish()
        if cell.status == "aborted":  # the kernel was still dropping what waited behind the stopped cell
            cell.run()
            cell.finish()
        return "" if cell.status == "ok" else cell.status
