"""TD3 side by side with Stable-Baselines3 and its Jax edition: python benchmarks/off_policy_speed.py

As `speed.py` does it: processes of their own, by turns, whole stretches by the wall clock.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from off_policy_contestants import CONTESTANTS, Job
from speed import describe, find_peer_python, machine, race, table, write

from common.command_line import one_line_errors, parse_settings
from common.errors import UserError

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

    def job(self, contestant: str) -> Job:
        return Job(contestant, *self.problem, self.train_every, 1, 4, self.steps_per_epoch)


SETTINGS = (
    Setting("256-256, batch 256, an update after every step", WALKER, 1, 1000, {SBX: 1.3, SB3: 1.9}),
    Setting("256-256, batch 256, 50 steps then 50 updates", WALKER, 50, 1500, {SBX: 1.5, SB3: None}),
    Setting("32-32, batch 32, 50 steps then 50 updates", PENDULUM, 50, 10_000, {SBX: 3.0, SB3: None}),
    Setting("32-32, batch 32, an update after every step", PENDULUM, 1, 3000, {SBX: None, SB3: None}),
    Setting("256-256, batch 256, updates alone", WALKER, 50, 2000, {PRODUCTS: 0.85}, OUR_UPDATES),
)


@dataclass(frozen=True)
class Arguments:
    """Measure how many steps (each with an update) a second TD3 makes, beside its peers."""

    repeats: int = 3
    """Rounds; in each, every contestant of every setting runs once."""
    peer_python: Path | None = None
    """Python of an environment with requirements/benchmarks.txt; None makes .venv-benchmarks."""
    quick: bool = False
    """One round of tiny epochs, to see that it works; nothing is written."""


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        if arguments.repeats < 1:
            raise UserError(f"repeats is {arguments.repeats}: expected 1 or more")
        peer_python, where = find_peer_python(arguments.peer_python, "sbx, Box2D"), machine()
        repeats = 1 if arguments.quick else arguments.repeats
        runs = race(SETTINGS, repeats, arguments.quick, peer_python, "off_policy_contestants.py")
        text = table(SETTINGS, runs)
        if arguments.quick:
            print(f"\n{text}\n\ntoo short to mean anything; nothing written")
            return
        flat = [measured for job in runs for measured in runs[job]]
        notes = (
            f"Medians of {repeats} rounds; the column of that name has the lowest and the highest ratio within one. "
            "Required is what this repository sets itself. One environment each, a thousand random steps before the "
            "clock starts. Products alone are the matrix products of as many updates and nothing else, by TensorFlow, "
            "XLA or NumPy, whichever is fastest."
        )
        write("off_policy_speed", where, flat, f"{text}\n\n{notes}\n\n{describe(where, flat)}")


if __name__ == "__main__":
    main()
