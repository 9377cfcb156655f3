"""What `curve_speed.py` races: contestants of `learning_curves.py`, which are not scored here.

Each runs in a process of its own, as those of `contestants.py`: python curve_contestants.py JOB SEED.
"""

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contestants import BEGAN, versions
from peers.tasks import TASKS

OURS, CONTRIB, SB3, ONE_THREAD = "ours", "SB3 contrib", "SB3", ", one thread"


@dataclass(frozen=True)
class Job:
    """One contestant of a task."""

    contestant: str  # OURS, CONTRIB or SB3, the others also with ONE_THREAD
    task: str
    chosen: str  # its name in the task
    steps_per_epoch: int
    epochs: int  # to be measured
    warm_up: int = 2  # epochs before the clock counts: compilation, first allocations

    def __str__(self) -> str:
        return f"{self.task:15}  {self.contestant:23}"

    def tiny(self) -> "Job":
        return replace(self, epochs=1)


class Laps:
    """Stands for a `Curve`: notes the instants at which epochs end, and plays no episodes."""

    validation_steps = 0

    def __init__(self) -> None:
        self.steps, self.instants = 0, list[float]()

    def follow(self, steps: int, *_: Any) -> None:
        if steps > self.steps:  # neither before the first epoch nor twice after the last
            self.steps = steps
            self.instants.append(round(time.perf_counter() - BEGAN, 4))


def main() -> None:
    job, seed, laps = Job(**json.loads(sys.argv[1])), int(sys.argv[2]), Laps()
    task = TASKS[job.task]
    trained = task, task.contestants[job.chosen], seed, (job.warm_up + job.epochs) * job.steps_per_epoch, laps
    if job.contestant == OURS:
        from peers import ours

        ours.train(*trained)
    else:
        from peers import stable_baselines

        stable_baselines.train(*trained, threads=1 if job.contestant.endswith(ONE_THREAD) else None)
    assert len(laps.instants) == job.warm_up + job.epochs, "the training ended before the race"
    print(json.dumps({"instants": laps.instants, "versions": versions()}))


if __name__ == "__main__":
    main()
