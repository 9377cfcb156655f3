"""Recurrent and masked PPO side by side with Stable-Baselines3's contrib: python benchmarks/curve_speed.py

`--first-command` races the first command with Stable-Baselines3's PPO and rl-zoo3's settings, for its page's figure.

As `speed.py` does it: processes of their own, by turns, whole epochs of collecting and learning by the wall clock. The
settings are those of `learning_curves.py`. Three rounds take about eight minutes of two quiet cores.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from curve_contestants import CONTRIB, ONE_THREAD, OURS, SB3, Job
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
    required: dict[str, float | None]
    ours: str = OURS
    rollouts: tuple[int, int] | None = None  # steps of an epoch of ours and of theirs, where they differ

    def job(self, contestant: str) -> Job:
        our_name, their_name = self.chosen
        ours, theirs = self.rollouts or (TASKS[self.task].contestants[our_name].settings["steps_per_epoch"],) * 2
        if contestant == OURS:
            return Job(contestant, self.task, our_name, ours, self.epochs)
        return Job(contestant, self.task, their_name, theirs, max(2, self.epochs * ours // theirs))


@dataclass(frozen=True)
class Arguments(RaceArguments):
    """Measure how many environment steps a second training makes, beside Stable-Baselines3."""

    first_command: bool = False
    """Race the first command instead, each program with its own settings."""


LSTMS, MASKED = ("ours-zoo-lstm", "sb3-contrib-zoo"), ("ours-masked", "sb3-contrib-masked")
AIMS: dict[str, float | None] = {CONTRIB: 1.2, CONTRIB + ONE_THREAD: 1.2}
SETTINGS = (
    Setting("RecurrentPPO, CartPole without speeds", "cartpole-hidden", LSTMS, 10, AIMS),
    Setting("MaskablePPO, Queens", "queens-masked", MASKED, 20, AIMS),
    Setting("MaskablePPO, Taxi", "taxi-masked", MASKED, 10, AIMS),
)
FIRST_COMMAND = Setting(  # as many epochs as are done before it may stop
    "The first command, PPO of rl-zoo3", "walker-ppo", ("ours-first", "sb3-zoo"), 85,
    {SB3: None, SB3 + ONE_THREAD: None}, rollouts=(3072, 65_536),
)  # fmt: skip
NOTES = "Both have layers of the same sizes and settings, those of `peers/tasks.py`, and nothing is scored."


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        name, settings, notes = "curve_speed", SETTINGS, NOTES
        if arguments.first_command:
            name, settings, notes = "first_command_speed", (FIRST_COMMAND,), "Each has settings of its own."
        run_race(arguments, name, settings, notes, "sb3_contrib, Box2D", "curve_contestants.py")


if __name__ == "__main__":
    main()
