"""Signals that ask a run to stop: the terminal is closed, Ctrl-C is pressed, the machine shuts down."""

import random
import signal
from pathlib import Path

from fault_table import kills, programs
from fault_table.outcome import outcome
from fault_table.tally import Tally

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
PHASES = ("collecting", "updating", "saving")


def hang_ups(wanted: int, work: Path, broken: str = "") -> Tally:
    """A stopped run has saved the epoch that was under way, says so in its exit code, and is resumed exactly."""
    tally, rng = Tally(), random.Random(6)
    whole = programs.complete(programs.first_command("PPO", work / "whole"), work)
    job = kills.Job("PPO", outcome(work / "whole"), whole.announced.profile(), broken=broken)
    for attempt in range(wanted):
        number, phase = SIGNALS[attempt % len(SIGNALS)], PHASES[attempt // len(SIGNALS) % len(PHASES)]
        folder = work / f"run{attempt}"
        faults = _stop(job, folder, number, phase, rng)
        with programs.Child(job.command(folder), work, broken) as child:
            child.finish()
            faults += kills.ended_faults(child)
        faults += kills.outcome_faults(folder, job.whole)
        tally.count(not faults, f"{number.name} while {phase}: {'; '.join(faults)}", phase)
    return tally


def _stop(job: kills.Job, folder: Path, number: signal.Signals, phase: str, rng: random.Random) -> list[str]:
    often, _ = job.profile[phase]
    with programs.Child(job.command(folder), folder.parent, job.broken) as child:
        child.reaches(phase, rng.randint(1, max(1, often // 2)))
        child.kill(number)
        child.finish()
        rows = child.announced.numbers("row")
        faults = []
        if child.process.returncode != 128 + number:
            faults.append(f"{child.said()}, expected {128 + number}")
        if not rows or kills.newest(folder) != rows[-1]:
            faults.append(f"its newest checkpoint is {kills.newest(folder)} after epochs {rows}")
        return faults
