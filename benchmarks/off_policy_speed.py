"""TD3, SAC, TQC and CrossQ beside Stable-Baselines3 and its Jax edition: python benchmarks/off_policy_speed.py

As `speed.py` does it: processes of their own, by turns, whole stretches by the wall clock.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from off_policy_contestants import CONTESTANTS, Job
from speed import RaceArguments, run_race

from common.runs.command_line import one_line_errors, parse_settings

OURS, OUR_UPDATES, PRODUCTS, SB3, SBX = CONTESTANTS
WALKER, PENDULUM = ("BipedalWalker-v3", (256, 256), 256), ("Pendulum-v1", (32, 32), 32)


@dataclass(frozen=True)
class Setting:
    """One line-up: ours, and against each opponent the ratio of speeds that is required (None: none)."""

    name: str
    problem: tuple[str, tuple[int, ...], int]  # environment, hidden layers, batch size
    train_every: int
    steps_per_epoch: int
    required: dict[str, float | None]
    ours: str = OURS
    method: str = "TD3"
    precision: str = "float32"

    def job(self, contestant: str) -> Job:
        precision = self.precision if contestant == OURS else "float32"
        return Job(contestant, *self.problem, self.train_every, 1, 4, self.steps_per_epoch, self.method, precision)


def in_bfloat16(setting: Setting, required: float) -> Setting:
    """The same with rounded products of ours, beside the same peer."""
    name = setting.name.replace("batch 256", "bfloat16")
    return replace(setting, name=name, required={SBX: required}, precision="bfloat16")


LARGE = (
    Setting("TD3, 256-256, batch 256, an update after every step", WALKER, 1, 500, {SBX: 1.3, SB3: 1.9}),
    Setting("TD3, 256-256, batch 256, 50 steps then 50 updates", WALKER, 50, 750, {SBX: 1.5}),
    Setting("SAC, 256-256, batch 256, an update after every step", WALKER, 1, 300, {SBX: 1.2}, method="SAC"),
    Setting("SAC, 256-256, batch 256, 50 steps then 50 updates", WALKER, 50, 300, {SBX: 1.2}, method="SAC"),
    Setting("TQC, 256-256, batch 256, an update after every step", WALKER, 1, 300, {SBX: 1.2}, method="TQC"),
    Setting("TQC, 256-256, batch 256, 50 steps then 50 updates", WALKER, 50, 300, {SBX: 1.2}, method="TQC"),
)
CROSSQ = Setting("CrossQ, 256-256, batch 256, an update after every step", WALKER, 1, 300, {SBX: 1.0}, method="CrossQ")
SETTINGS = (
    *LARGE,
    CROSSQ,
    in_bfloat16(CROSSQ, 1.0),
    *(in_bfloat16(setting, required) for setting, required in zip(LARGE, (1.2, 1.4, 1.2, 1.2, 1.2, 1.2))),
    Setting("TD3, 32-32, batch 32, 50 steps then 50 updates", PENDULUM, 50, 10_000, {SBX: 3.0}),
    Setting("TD3, 32-32, batch 32, an update after every step", PENDULUM, 1, 3000, {SBX: 1.5}),
    Setting("TD3, 256-256, batch 256, updates alone", WALKER, 50, 1000, {PRODUCTS: 0.85}, OUR_UPDATES),
)


NOTES = (
    "One environment each, a thousand random steps before the clock starts. Products alone are the matrix products "
    "of as many updates and nothing else, by TensorFlow, XLA or NumPy, whichever is fastest. With bfloat16 our "
    "updates round the numbers that they multiply between hidden layers (`--precision bfloat16`); the peers do not."
)


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(RaceArguments)
        run_race(arguments, "off_policy_speed", SETTINGS, NOTES, "sbx, Box2D", "off_policy_contestants.py")


if __name__ == "__main__":
    main()
