"""PPO side by side with Stable-Baselines3's, recurrent and masked too: python benchmarks/curve_speed.py

As `speed.py` does it: processes of their own, by turns, whole epochs of collecting and learning by the wall clock. The
settings are those of `learning_curves.py`. Three rounds take about fifteen minutes of two quiet cores.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from curve_contestants import OURS, SB3, SB3_ONE_THREAD, Job
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
    rollouts: tuple[int, int] | None = None  # steps of an epoch of ours and of theirs, where they differ

    def job(self, contestant: str) -> Job:
        our_name, their_name = self.chosen
        ours, theirs = self.rollouts or (TASKS[self.task].contestants[our_name].settings["steps_per_epoch"],) * 2
        if contestant == OURS:
            return Job(contestant, self.task, our_name, ours, self.epochs)
        return Job(contestant, self.task, their_name, theirs, max(2, self.epochs * ours // theirs))


LSTMS, MASKED = ("ours-zoo-lstm", "sb3-contrib-zoo"), ("ours-masked", "sb3-contrib-masked")
FIRST = "The first command, and PPO of rl-zoo3"
AIMS = {SB3: 1.2, SB3_ONE_THREAD: 1.2}
SETTINGS = (
    Setting(FIRST, "walker-ppo", ("ours-first", "sb3-zoo"), 85, AIMS, rollouts=(3072, 65_536)),  # before it may stop
    Setting("RecurrentPPO, CartPole without speeds", "cartpole-hidden", LSTMS, 10, AIMS),
    Setting("MaskablePPO, Queens", "queens-masked", MASKED, 20, AIMS),
    Setting("MaskablePPO, Taxi", "taxi-masked", MASKED, 10, AIMS),
)
NOTES = (
    "Nothing is scored. Settings are those of `peers/tasks.py`. Both have the same networks and settings, except in "
    "the first row: there the first command races with rl-zoo3's settings."
)


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(RaceArguments)
        run_race(arguments, "curve_speed", SETTINGS, NOTES, "sb3_contrib, Box2D", "curve_contestants.py")


if __name__ == "__main__":
    main()
