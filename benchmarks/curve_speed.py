"""Recurrent and masked PPO side by side with Stable-Baselines3's contrib: python benchmarks/curve_speed.py

As `speed.py` does it: processes of their own, by turns, whole epochs of collecting and learning by the wall clock. The
settings are those of `learning_curves.py`. Three rounds take about eight minutes of two quiet cores.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from curve_contestants import CONTRIB, CONTRIB_ONE_THREAD, OURS, Job
from peers.tasks import TASKS
from speed import RaceArguments, run_race

from common.runs.command_line import one_line_errors, parse_settings


@dataclass(frozen=True)
class Setting:
    """One line-up: ours, and against each opponent the ratio of speeds that is required."""

    name: str
    task: str
    chosen: tuple[str, str]  # ours and theirs, in the task
    epochs: int
    required: dict[str, float]
    ours: str = OURS

    def job(self, contestant: str) -> Job:
        our_name, their_name = self.chosen
        steps = TASKS[self.task].contestants[our_name].settings["steps_per_epoch"]
        return Job(contestant, self.task, our_name if contestant == OURS else their_name, steps, self.epochs)


LSTMS, MASKED = ("ours-zoo-lstm", "sb3-contrib-zoo"), ("ours-masked", "sb3-contrib-masked")
AIMS = {CONTRIB: 1.2, CONTRIB_ONE_THREAD: 1.2}
SETTINGS = (
    Setting("RecurrentPPO, CartPole without speeds", "cartpole-hidden", LSTMS, 20, AIMS),
    Setting("RecurrentPPO, LunarLander without speeds", "lander-hidden", LSTMS, 1, AIMS),
    Setting("MaskablePPO, Queens", "queens-masked", MASKED, 20, AIMS),
    Setting("MaskablePPO, Taxi", "taxi-masked", MASKED, 10, AIMS),
)
NOTES = "Both have the same networks and settings, those of `peers/tasks.py`, and nothing is scored."


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(RaceArguments)
        run_race(arguments, "curve_speed", SETTINGS, NOTES, "sb3_contrib, Box2D", "curve_contestants.py")


if __name__ == "__main__":
    main()
