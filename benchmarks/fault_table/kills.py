"""kill -9 in every phase of a run, and in every phase of one that is extended to more epochs."""

import random
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.runs import checkpoint, run_folder, session
from fault_table import programs
from fault_table.child import EVERY_PHASE
from fault_table.outcome import Outcome, differences, outcome
from fault_table.tally import Tally

EARLY = ("import", "starting", "collecting", "updating", "saving", "restoring")
TRAINING = ("collecting", "updating", "saving")
LATE = ("evaluating", "filming")
OF_A_CONTROL = ("collecting", "updating", *LATE)  # after the first checkpoints, so that what is broken is needed
ALL_DONE = "all its"  # "RUN has all its N epochs", of a run that was killed after its last step
IMPORT_SECONDS = 2.0
RESTORING_SECONDS = 0.02  # at the least; the run that nothing happens to has no such phase to be measured
EVERY = 2  # epochs between checkpoints, as programs.OPTIONS has it


@dataclass(frozen=True)
class Job:
    """How a run begins, how it goes on, and what it comes to if nothing happens to it."""

    program: str
    whole: Outcome
    profile: dict[str, tuple[int, float]]  # phase → how often, mean seconds
    original: Path | None = None  # a shorter run that is extended; None: a new run
    broken: str = ""

    def command(self, folder: Path) -> list[str]:
        """Begin the run, or go on with it where it has begun."""
        if self.original is not None:
            if not folder.exists():
                shutil.copytree(self.original, folder)
            return programs.resume_command(self.program, folder, 2 * programs.EPOCHS)
        if (folder / run_folder.CONFIG).exists() or newest(folder):
            return programs.resume_command(self.program, folder)
        shutil.rmtree(folder, ignore_errors=True)  # cut off before it wrote anything
        return programs.first_command(self.program, folder)


def newest(folder: Path) -> int:
    """The newest whole checkpoint; 0 without any."""
    try:
        return checkpoint.load_newest(folder / session.CHECKPOINTS, lambda _: None)[0]
    except UserError:
        return 0


def kills(program: str, wanted: int, work: Path, broken: str = "") -> Tally:
    """Kill runs of a program, resume them, and compare their ends with the undisturbed one's."""
    whole = programs.complete(programs.first_command(program, work / "whole"), work)
    job = Job(program, outcome(work / "whole"), whole.announced.profile(), broken=broken)
    return _kill_runs(job, wanted, work)


def extended(wanted: int, work: Path, broken: str = "") -> Tally:
    """The same to runs that were complete and are extended to twice as many epochs."""
    programs.complete(programs.first_command("PPO", work / "short"), work)
    shutil.copytree(work / "short", work / "whole")
    whole = programs.complete(programs.resume_command("PPO", work / "whole", 2 * programs.EPOCHS), work)
    job = Job("PPO", outcome(work / "whole"), whole.announced.profile(), work / "short", broken)
    return _kill_runs(job, wanted, work)


def _kill_runs(job: Job, wanted: int, work: Path) -> Tally:
    tally, rng = Tally(phases=dict.fromkeys(EVERY_PHASE, 0)), random.Random(0)
    run = idle = 0
    while tally.tries < wanted and idle < 3:
        before = tally.tries
        _kill_one_run(job, wanted - tally.tries, work / f"run{run}", tally, rng)
        idle = idle + 1 if tally.tries == before else 0
        shutil.rmtree(work / f"run{run}", ignore_errors=True)
        run += 1
    missed = [phase for phase, count in tally.phases.items() if not count]
    if missed and wanted >= 2 * len(EVERY_PHASE) and not job.broken:
        tally.note(f"no kill fell in: {', '.join(missed)}")
    return tally


def phases_of(kills: int, fallen: dict[str, int], rng: random.Random) -> list[str]:
    """The phases in which one run is to be killed: those with the fewest kills so far, in an order that can happen."""
    chosen = sorted(EVERY_PHASE, key=lambda phase: (fallen.get(phase, 0), rng.random()))[:kills]
    early = [phase for phase in EARLY if phase in chosen and phase != "restoring"]
    rng.shuffle(early)
    if "restoring" in chosen:  # needs a checkpoint, and so a kill in training before it, be it one more
        training = next((phase for phase in early if phase in TRAINING), "collecting")
        early = [phase for phase in early if phase != training] + [training, "restoring"]
    return early + [phase for phase in LATE if phase in chosen]


def _kill_one_run(job: Job, kills: int, folder: Path, tally: Tally, rng: random.Random) -> None:
    """Kill, resume, …, and in the end let it finish; count every kill by whether the run came to what it should."""
    fallen: list[str] = []
    faults: list[str] = []
    done = False
    phases = OF_A_CONTROL[:kills] if job.broken else phases_of(kills, tally.phases, rng)
    for phase, following in zip(phases, (*phases[1:], "")):
        command, before = job.command(folder), newest(folder)
        with programs.Child(command, folder.parent, job.broken) as child:
            unknown = RESTORING_SECONDS if phase == "restoring" else IMPORT_SECONDS
            often, seconds = job.profile.get(phase, (1, unknown))
            after_a_checkpoint = job.broken or following == "restoring"
            nth = often // 3 if after_a_checkpoint else rng.randint(1, max(1, often // 5))
            if killed_in(child, phase, max(1, nth), rng.uniform(0, seconds)):
                fallen.append(child.announced.phase)
            faults += progress_faults(child, before, newest(folder))
            faults += ended_faults(child) + passing_faults(job, folder)
            if left := child.left_behind():
                faults.append(f"{len(left)} of its processes live on")
            done = child.process.returncode >= 0
        if done or faults:
            break
    if not done and not faults:
        command, before = job.command(folder), newest(folder)
        with programs.Child(command, folder.parent, job.broken) as child:
            child.finish()
            faults += progress_faults(child, before, newest(folder)) + ended_faults(child)
    faults = faults or outcome_faults(folder, job.whole)
    note = f"{job.program} killed while {', '.join(fallen)}: {'; '.join(faults)}"
    for phase in fallen:
        tally.count(not faults, note, phase)
    if faults and not fallen:  # it went wrong by itself
        tally.count(False, note)


def killed_in(child: programs.Child, phase: str, nth: int, seconds: float) -> bool:
    """Kill a program so long after it enters a phase for the nth time; False if it ended before.

    The phase may be over by then: what counts is the one that it announced last.
    """
    if phase == "import" or child.reaches(phase, nth):
        try:
            child.process.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
    child.finish()
    return child.process.returncode == -signal.SIGKILL


def progress_faults(child: programs.Child, before: int, after: int) -> list[str]:
    """What a session failed to keep: it goes on after the newest checkpoint, and saves as often as it is asked to.

    Args:
        before, after: newest whole checkpoint before and after it.
    """
    rows, faults = child.announced.numbers("row"), []
    if rows and rows[0] != before + 1:
        faults.append(f"it went on with epoch {rows[0]} after checkpoint {before}")
    due = EVERY * ((rows[-1] - 1) // EVERY) if rows else 0
    if after < max(before, due):
        faults.append(f"its newest checkpoint is {after}, that of epoch {max(before, due)} was written")
    return faults


def passing_faults(job: Job, folder: Path) -> list[str]:
    """Files of a shorter run that pass for those of the longer one that it has become."""
    if job.original is None or newest(folder) <= programs.EPOCHS:
        return []
    names = (run_folder.BEST_AGENT, run_folder.EVALUATION, run_folder.VIDEO)
    same = [name for name in names if (folder / name).exists() and _same_file(folder / name, job.original / name)]
    return [f"{name} of the shorter run passes for the longer one's" for name in same]


def _same_file(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


def ended_faults(child: programs.Child) -> list[str]:
    """Nothing where it was killed, finished, or found that all is done."""
    if child.process.returncode in (0, -9) or ALL_DONE in " ".join(child.errors):
        return []
    return [child.said()]


def outcome_faults(folder: Path, whole: Outcome) -> list[str]:
    """How a run differs from the undisturbed one."""
    try:
        differs = differences(outcome(folder), whole)
    except (UserError, OSError, ValueError, KeyError) as error:
        return [f"its folder cannot be read: {error}"]
    return [f"{', '.join(differs[:5])}{', …' if len(differs) > 5 else ''} differ"] if differs else []
