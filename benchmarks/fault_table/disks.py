"""A disk that is truly full: a small file system in memory, filled up before a run or while it goes on."""

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from fault_table import kills, programs
from fault_table.outcome import differences, outcome
from fault_table.tally import Tally

SIZE = 16 * 2**20  # bytes
BALLAST = "ballast"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of SIZE bytes in a new folder; False where this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, room: int) -> None:
    """Leave so many bytes."""
    left = os.statvfs(disk)
    with open(disk / BALLAST, "wb") as file:
        file.write(bytes(max(0, left.f_bavail * left.f_frsize - room)))


def full_disks(wanted: int, work: Path, broken: str = "") -> Tally:
    """A run whose disk fills up stops with one line, and resumed with room ends as the undisturbed one does."""
    tally, rng = Tally(), random.Random(3)
    programs.complete(programs.first_command("PPO", work / "whole"), work)
    whole = outcome(work / "whole")
    needed = sum(path.stat().st_size for path in (work / "whole").rglob("*") if path.is_file())
    with small_disk(work / "disk") as mounted:
        if not mounted:
            tally.skipped = "no file system can be mounted here: this needs root"
            return tally
        for attempt in range(wanted):
            room = int(needed * (attempt + rng.random()) / wanted)
            _fill_one_disk(work / "disk", room, whole, work, tally, broken)
    return tally


def _fill_one_disk(disk: Path, room: int, whole: dict, work: Path, tally: Tally, broken: str) -> None:
    folder = disk / "run"
    shutil.rmtree(folder, ignore_errors=True)
    fill(disk, room)
    with programs.Child(programs.first_command("PPO", folder), work, broken) as child:
        child.finish()
        faults = _refusal_faults(child)
        phase = child.announced.phase
    (disk / BALLAST).unlink()
    job = kills.Job("PPO", whole, {})
    with programs.Child(job.command(folder), work, broken) as child:
        child.finish()
        faults += kills.ended_faults(child)
    try:
        if differs := differences(outcome(folder), whole):
            faults.append(f"{', '.join(differs[:5])} differ")
    except (UserError, OSError) as error:
        faults.append(str(error))
    tally.count(not faults, f"a disk with room for {room:,} bytes: {'; '.join(faults)}", phase)


def _refusal_faults(child: programs.Child) -> list[str]:
    """Nothing where the run said in one line why it stopped, or had room enough."""
    code, lines = child.process.returncode, child.errors
    if code == 0 or (code == 2 and len(lines) == 1 and lines[0].startswith("error: ")):
        return []
    return [f"{len(lines)} lines, {child.said()}"]
