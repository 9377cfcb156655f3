"""PPO on Breakout side by side with Stable-Baselines3: python benchmarks/atari_speed.py

As `speed.py` does it: processes of their own, by turns, whole stretches by the wall clock.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from atari_contestants import CONTESTANTS, Job
from speed import RaceArguments, run_race

from common.runs.command_line import one_line_errors, parse_settings

OURS, SB3, SB3_SUBPROCESSES, STEPPING, PRODUCTS = CONTESTANTS


@dataclass(frozen=True)
class Setting:
    """One line-up: ours, and against each opponent the ratio of speeds that is required (None: none)."""

    name: str
    passes: int
    required: dict[str, float | None]
    ours: str = OURS
    preset: str = "breakout"
    steps_per_epoch: int = Job.steps_per_epoch
    precision: str = Job.precision

    def job(self, contestant: str) -> Job:
        passes = 0 if contestant == STEPPING else self.passes
        precision = self.precision if contestant == self.ours else Job.precision  # so that settings share the others
        return Job(contestant, passes, 1, 2, self.steps_per_epoch, self.preset, precision)


FAST = {STEPPING: 0.55}
SETTINGS = (
    Setting("8 passes", 8, {SB3: 2.0, SB3_SUBPROCESSES: 2.0, STEPPING: None, PRODUCTS: None}),
    Setting("4 passes", 4, {SB3: 1.8, SB3_SUBPROCESSES: 1.8, STEPPING: None}),
    Setting("4 passes, rounded", 4, {SB3: None}, precision="bfloat16"),
    Setting("breakout-fast", 4, FAST, preset="breakout-fast", steps_per_epoch=16_384),
    Setting("breakout-fast, rounded", 4, FAST, preset="breakout-fast", steps_per_epoch=16_384, precision="bfloat16"),
)
NOTES = (
    "Steps are the agent's, four frames each. With 8 and 4 passes: 8 games, 1,024 steps an update, minibatches of "
    "256, the same network of 1.7 million parameters. Rounded: ours multiplies bfloat16, SB3 does not. SB3 plays on "
    "its own wrappers in one process, or in a process for each game. Products alone computes nothing but the matrix "
    "products of acting and of all gradients, by the fastest of TensorFlow, XLA and NumPy."
)


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(RaceArguments)
        run_race(arguments, "atari_speed", SETTINGS, NOTES, "stable_baselines3, ale_py, cv2", "atari_contestants.py")


if __name__ == "__main__":
    main()
