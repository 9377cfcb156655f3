"""The few settings that may be changed while a run goes on, from Python or by editing a file in its folder."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.config import PPOConfig
from common.errors import UserError
from common.run_folder import write_json

FILE = "hyperparameters.json"


class Hyperparameters(NamedTuple):
    """What an update is told besides its batch."""

    learning_rate: float
    critic_learning_rate: float
    passes: int
    clip_range: float
    value_coefficient: float
    entropy_coefficient: float

    @staticmethod
    def of(config: PPOConfig) -> "Hyperparameters":
        """Those that a run starts with."""
        critic = config.learning_rate if config.critic_learning_rate is None else config.critic_learning_rate
        return Hyperparameters(
            config.learning_rate,
            critic,
            config.passes,
            config.clip_range,
            config.value_coefficient,
            config.entropy_coefficient,
        )


class LiveHyperparameters:
    """Values that may change between two updates, each within a range.

    `live["clip_range"] = 0.1` is checked at once and holds from the next update on. A watched file is read
    whenever it was written; if anything in it is wrong, nothing of it is taken.

    Args:
        config: the values to start with; its schedules go on from whatever the values are changed to, and the
            critic's learning rate keeps its ratio to the actor's.
    """

    def __init__(self, config: PPOConfig) -> None:
        self._start = Hyperparameters.of(config)
        self.values: dict[str, float | int] = {
            name: getattr(config, name)
            for name in ("learning_rate", "passes", "clip_range", "value_coefficient", "entropy_coefficient")
        }
        highest = {"learning_rate": 1e-3, "passes": 16}  # 1 for the others; more where the config says more
        self.ranges: dict[str, tuple[float, float]] = {
            name: (1 if name == "passes" else 0, max(highest.get(name, 1.0), value))
            for name, value in self.values.items()
        }
        self._path: Path | None = None
        self._read_at: tuple[int, int] | None = None  # time of writing and size of what was read last

    def __getitem__(self, name: str) -> float | int:
        return self.values[name]

    def __setitem__(self, name: str, value: float | int) -> None:
        """Change a value from the next update on.

        Raises:
            UserError: an unknown name, or a value that is no number or out of its range.
        """
        self.values[name] = self._checked(name, value)
        if self._path is not None:
            self._write()

    def __repr__(self) -> str:
        return "\n".join(
            f"{name:20} {value:<10g} {self.ranges[name][0]:g} to {self.ranges[name][1]:g}"
            for name, value in self.values.items()
        )

    def _checked(self, name: str, value: object) -> float | int:
        if name not in self.values:
            raise UserError(
                f"{name!r} cannot be changed while a run goes on: expected one of {', '.join(self.values)}"
            )
        low, high = self.ranges[name]
        wanted = int if name == "passes" else float
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not (number and low <= value <= high and wanted(value) == value):
            kind = "a whole number" if wanted is int else "a number"
            raise UserError(f"{name} is {value!r}: expected {kind} from {low:g} to {high:g}")
        return wanted(value)

    # -- the file --

    def watch(self, folder: Path) -> None:
        """Keep `hyperparameters.json` in a run folder in step; one that is there already is read by `poll`."""
        self._path = folder / FILE
        if not self._path.exists():
            self._write()

    def _write(self) -> None:
        write_json(self._path, {"values": self.values, "ranges": {n: list(r) for n, r in self.ranges.items()}})
        self._read_at = self._written_at()

    def _written_at(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def poll(self) -> list[str]:
        """Take over what was written into the file since the last time; one line for every change.

        Raises:
            UserError: the file cannot be used; the values stay, and it is not read again before it is rewritten.
        """
        if self._path is None:
            return []
        written = self._written_at()
        if written is None or written == self._read_at:
            return []
        self._read_at = written
        try:
            values = json.loads(self._path.read_text())["values"]
            changed = {name: self._checked(name, value) for name, value in values.items()}
        except UserError as error:
            raise UserError(f"{self._path}: {error}; the values stay as they are") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f'{self._path} cannot be read ({type(error).__name__}): expected {{"values": {{name: number}}}}; '
                "the values stay as they are"
            ) from None
        lines = [f"{name} {self.values[name]:g} → {value:g}" for name, value in changed.items() if value != self[name]]
        self.values |= changed
        return lines

    # -- what an update gets --

    def now(self, learning_rate_left: float = 1.0, clip_range_left: float = 1.0) -> Hyperparameters:
        """The values of this moment, those with a schedule multiplied by what it leaves of them."""
        start, values = self._start, self.values
        ratio = start.critic_learning_rate / start.learning_rate if start.learning_rate else 1.0
        critic = start.critic_learning_rate
        if values["learning_rate"] != start.learning_rate:
            critic = values["learning_rate"] * ratio
        return Hyperparameters(
            learning_rate=values["learning_rate"] * learning_rate_left,
            critic_learning_rate=critic * learning_rate_left,
            passes=int(values["passes"]),
            clip_range=values["clip_range"] * clip_range_left,
            value_coefficient=values["value_coefficient"],
            entropy_coefficient=values["entropy_coefficient"],
        )

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        return {name: np.float64(value) for name, value in self.values.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` returned; a checkpoint of a version without it changes nothing."""
        for name in self.values.keys() & state.keys():
            self.values[name] = int(state[name]) if name == "passes" else float(state[name])
