"""Power cuts: what of a run's files is on the disk if everything that was not flushed may be lost, torn or undone.

A program's file operations are recorded (`fault_table.disk_trace`). For a cut after any of them the disk is put
together again as the rules allow: a file holds what it held at its last fsync, and of what was written since nothing,
a torn part, zeros or all; a folder lists what it listed at its last fsync or at any moment since.
"""

import json
import random
import shutil
from pathlib import Path

from common.errors import UserError
from common.runs import checkpoint, run_folder, session
from common.state import State
from fault_table import disk_trace, programs
from fault_table.outcome import equal, outcome
from fault_table.tally import Tally
from programs import methods

Listing = dict[str, int]  # name → identity of a file or folder
SURVIVALS = ("oldest entries, no data", "newest entries, no data", "newest entries, torn data", "anything")


class Disk:
    """What was flushed and what was only written, as a record is played back."""

    def __init__(self) -> None:
        self._identities: dict[int, int] = {}  # inode → identity; inodes are used again
        self._born = 0
        self.durable: dict[int, str] = {}  # file → content at its last fsync
        self.now: dict[int, str] = {}  # file → content
        self.listings: dict[int, list[Listing]] = {}  # folder → at its last fsync, and every one since
        self.root = -1

    def play(self, step: dict) -> None:
        """Take up a step of a record."""
        tree: disk_trace.Tree = step["tree"]
        inodes = {inode for inode, _ in tree.values()}
        self._identities = {inode: identity for inode, identity in self._identities.items() if inode in inodes}
        for inode in inodes - self._identities.keys():
            self._identities[inode], self._born = self._born, self._born + 1
        self.root = self._identities[tree[""][0]]
        current: dict[int, Listing] = {}
        for path, (inode, content) in tree.items():
            identity = self._identities[inode]
            if content is None:
                current.setdefault(identity, {})
            else:
                self.now[identity] = content
            if path:
                parent, _, name = path.rpartition("/")
                current.setdefault(self._identities[tree[parent][0]], {})[name] = identity
        for folder, listing in current.items():
            listings = self.listings.setdefault(folder, [{}])
            if listings[-1] != listing:
                listings.append(listing)
        if "fsync" in step and step["fsync"] in self._identities:
            flushed = self._identities[step["fsync"]]
            if flushed in current:
                self.listings[flushed] = [current[flushed]]
            else:
                self.durable[flushed] = self.now[flushed]

    def survivor(self, survival: str, rng: random.Random, contents: Path, target: Path) -> None:
        """Write what a cut at this moment leaves into a new folder."""
        self._write(self.root, survival, rng, contents, target)

    def written(self, contents: Path, target: Path) -> None:
        """Write what a program sees at this moment."""
        self._write(self.root, "", random.Random(0), contents, target)

    def _write(self, folder: int, survival: str, rng: random.Random, contents: Path, target: Path) -> None:
        listings = self.listings[folder]
        chosen = {"oldest entries, no data": listings[0], "anything": rng.choice(listings)}.get(survival, listings[-1])
        target.mkdir()
        for name, identity in chosen.items():
            if identity in self.listings:
                self._write(identity, survival, rng, contents, target / name)
            else:
                (target / name).write_bytes(self._content(identity, survival, rng, contents))

    def _content(self, file: int, survival: str, rng: random.Random, contents: Path) -> bytes:
        whole = (contents / self.now[file]).read_bytes()
        if not survival or self.durable.get(file) == self.now[file]:
            return whole
        flushed = (contents / self.durable[file]).read_bytes() if file in self.durable else b""
        torn = whole[: rng.randint(0, len(whole))]
        if survival == "newest entries, torn data":
            return torn
        if survival == "anything":
            return rng.choice((flushed, torn, torn.ljust(len(whole), b"\0"), bytes(len(whole)), whole))
        return flushed


def power_cuts(wanted: int, work: Path, broken: str = "") -> Tally:
    """A cut after every file operation of a run, in several ways; `wanted` of what is left is resumed to the end.

    A cut is survived if the run's settings and the newest checkpoint that was written before are there and right, a
    resumed run if it ends as the undisturbed one does.
    """
    tally, rng = Tally(), random.Random(4)
    runs, trace = work / "runs", work / "trace.json"
    runs.mkdir()
    command = programs.first_command("PPO", runs / "run")
    with programs.Child(command, runs.parent, broken, trace, traced=runs) as child:
        if child.finish() != 0:
            raise RuntimeError(f"{' '.join(command)} failed undisturbed, {child.said()}")
    whole = outcome(runs / "run")
    steps = json.loads(trace.read_text("utf-8"))
    chosen = {len(steps) - 1, *rng.sample(range(len(steps)), wanted - 1)}  # the end is the worst moment
    left = _look_at_all(steps, disk_trace.contents(trace), work, tally, rng, chosen)
    for step, folder in left:
        _resume(step, folder, whole, work, tally)
    return tally


def _look_at_all(
    steps: list[dict], contents: Path, work: Path, tally: Tally, rng: random.Random, chosen: set[int]
) -> list[tuple[int, Path]]:
    """Count a look at every survivor of every cut; keeps those after chosen steps."""
    disk, states, saved, config, kept = Disk(), {}, 0, None, []
    for i, step in enumerate(steps):
        disk.play(step)
        if step.get("note", "").startswith("saved "):
            saved = int(step["note"].split()[1])
            disk.written(contents, work / f"seen-{i}")
            states[saved] = checkpoint.load_newest(work / f"seen-{i}" / "run" / session.CHECKPOINTS, _silent)[1]
            config = methods.read_config(work / f"seen-{i}" / "run")
    disk, saved = Disk(), 0
    for i, step in enumerate(steps):
        disk.play(step)
        if step.get("note", "").startswith("saved "):
            saved = int(step["note"].split()[1])
        for survival in SURVIVALS:
            folder = work / f"cut-{i}-{SURVIVALS.index(survival)}"
            disk.survivor(survival, rng, contents, folder)
            fault = _fault(folder / "run", saved, states, config)
            tally.count(not fault, f"power cut after file operation {i} of {len(steps)}, {survival}: {fault}")
            if i in chosen and survival == "anything":
                kept.append((i, folder / "run"))
            else:
                shutil.rmtree(folder)
    return kept


def _fault(folder: Path, saved: int, states: dict[int, State], config: object) -> str:
    """What is wrong with what is left of a run whose checkpoint `saved` had been written; 0: none had."""
    try:
        found = methods.read_config(folder)
    except UserError as error:
        if saved:
            return f"settings: {error}"
        return ""
    if found != config:
        return "other settings"
    try:
        number, state = checkpoint.load_newest(folder / session.CHECKPOINTS, _silent)
    except UserError as error:
        return f"checkpoint: {error}" if saved else ""
    if number < saved:
        return f"checkpoint {saved} was written and {number} is the newest that is left"
    return "" if number in states and equal(states[number], state) else f"checkpoint {number} is another one"


def _resume(step: int, folder: Path, whole: dict, work: Path, tally: Tally) -> None:
    """Count a resumed run."""
    begins = not (folder / run_folder.CONFIG).exists() and not checkpoint.generations(folder / session.CHECKPOINTS)
    if begins:
        shutil.rmtree(folder, ignore_errors=True)
    command = (programs.first_command if begins else programs.resume_command)("PPO", folder)
    with programs.Child(command, work) as child:
        child.finish()
        try:
            survived, note = equal(outcome(folder), whole), child.said()
        except (UserError, OSError) as error:
            survived, note = False, f"{error}, {child.said()}"
    tally.count(survived, f"resumed after a power cut at file operation {step}: {note}")


def _silent(_: str) -> None:
    pass
