"""The few settings that can be changed during a run, from Python or by editing hyperparameters.json in its folder."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common import files
from common.errors import UserError
from ppo.config import PPOConfig

FILE = "hyperparameters.json"
STEP = 1.15  # factor by which the rate changes
TOLERANCE = 1.3  # factor by which the divergence may miss the desired one before the rate changes
MAX_RATE_FACTOR = 20.0  # factor by which the rate may leave the one of its schedule


class Hyperparameters(NamedTuple):
    """The settings of one update, schedules applied; `ppo.config.PPOConfig` explains each."""

    learning_rate: float  # of the actor, or of the shared network
    critic_learning_rate: float
    passes: int
    clip_range: float
    value_coefficient: float
    entropy_coefficient: float

    @staticmethod
    def of(config: PPOConfig) -> "Hyperparameters":
        """The hyperparameters that a run starts with, before its schedules."""
        settings = {name: getattr(config, name) for name in Hyperparameters._fields}
        if config.critic_learning_rate is None:
            settings["critic_learning_rate"] = config.learning_rate
        return Hyperparameters(**settings)


class Polled(NamedTuple):
    """The result of `LiveHyperparameters.poll`."""

    changes: list[str]  # one line per changed value, such as "clip_range 0.2 → 0.1"
    refused: str  # why the file was rejected; empty if it was not


class LiveHyperparameters:
    """Values that may change between two updates, each within a range.

    `live["clip_range"] = 0.1`, from any thread, is checked at once and used from the next update on, by `poll`. A
    watched file is read again after every write; if anything in it is wrong, all of it is rejected.

    Args:
        config: the initial values. Its schedules also scale changed values. The critic's learning rate keeps its
            ratio to the actor's.
    """

    def __init__(self, config: PPOConfig) -> None:
        self._start = Hyperparameters.of(config)
        self.values: dict[str, float | int] = self._start._asdict()
        del self.values["critic_learning_rate"]
        highest = {"learning_rate": 1e-3, "passes": 16}  # 1 for the others; the config's own value if that is higher
        self.ranges: dict[str, tuple[float, float]] = {
            name: (1 if name == "passes" else 0, max(highest.get(name, 1.0), value))
            for name, value in self.values.items()
        }
        self.without_effect: dict[str, str] = {}  # name → why
        if not config.shared_torso:
            self.without_effect["value_coefficient"] = "actor and critic are networks of their own"
        if config.objective == "kl_penalty" and config.value_loss != "clipped":
            self.without_effect["clip_range"] = "nothing is clipped"
        self._asked: dict[str, float | int] = {}  # set with `live[name] = value`, not used yet
        self._asking = threading.Lock()
        self.is_over = False  # the run; whoever ends it says so
        self._path: Path | None = None
        self._read_at: tuple[int, int] | None = None  # time [ns] and size [bytes] of the file that was read last

    def __getitem__(self, name: str) -> float | int:
        with self._asking:
            return (self.values | self._asked)[name]

    def columns(self) -> dict[str, Any]:
        """The values in force, as columns of the results."""
        return {f"hp_{name}": float(value) for name, value in self.values.items()}

    def __setitem__(self, name: str, value: float | int) -> None:
        """Change a value from the next update on.

        Raises:
            UserError: the run is over, the name is unknown, or the value is not a number, out of its range or without
                effect.
        """
        if self.is_over:
            raise UserError("the run is over: hyperparameters can be changed only while it trains")
        checked = self._checked(name, value)
        with self._asking:
            self._asked[name] = checked

    def __repr__(self) -> str:
        lines = []
        for name in self.values:
            low, high = self.ranges[name]
            why = self.without_effect.get(name)
            lines.append(f"{name:20} {self[name]:<10g} {f'no effect, since {why}' if why else f'{low:g} to {high:g}'}")
        return "\n".join(lines)

    def _checked(self, name: str, value: Any) -> float | int:
        if name not in self.values:
            raise UserError(f"{name!r:.40} cannot be changed during a run: expected one of {', '.join(self.values)}")
        low, high = self.ranges[name]
        wanted = int if name == "passes" else float
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or wanted(value) != value:  # NaN is in no range
            kind = "a whole number" if wanted is int else "a number"
            raise UserError(f"{name} is {value!r:.40}: expected {kind} from {low:g} to {high:g}")
        if name in self.without_effect and value != self.values[name]:
            raise UserError(f"{name} has no effect in this run, since {self.without_effect[name]}")
        return wanted(value)

    # -- the file --

    def watch(self, folder: Path) -> None:
        """Read changes from `hyperparameters.json` in a run folder, and write it if it does not exist."""
        self._path = folder / FILE
        if not os.path.lexists(self._path):
            self._write(self._path)

    def _write(self, path: Path) -> None:
        files.write_json(path, {"values": self.values, "ranges": {n: list(r) for n, r in self.ranges.items()}})
        self._read_at = written_at(path)

    def poll(self) -> Polled:
        """Use the changes made since the last call: those of the file, then those from Python.

        A file with an error is rejected as a whole; the error is reported once, until the file is written again.
        """
        refused, changed = "", {}
        try:
            changed = self._changes_in_file()
        except UserError as error:
            refused = str(error)
        with self._asking:
            asked, self._asked = self._asked, {}
            changed |= asked
            before, self.values = self.values, self.values | changed
        lines = [f"{name} {before[name]:g} → {value:g}" for name, value in changed.items() if value != before[name]]
        if asked and self._path is not None and not refused:
            self._write(self._path)
        return Polled(lines, refused)

    def _changes_in_file(self) -> dict[str, float | int]:
        """The file's values, if it was written since it was last read; UserError if something in it is wrong."""
        path = self._path
        written = None if path is None else written_at(path)
        if path is None or written is None or written == self._read_at:
            return {}
        self._read_at = written
        try:
            content: Any = files.read_json(path)
            return {name: self._checked(name, value) for name, value in content["values"].items()}
        except files.ForeignFileError:
            raise
        except UserError as error:
            raise UserError(f"{path}: {error}; the values stay as they are") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f'{path} cannot be read ({type(error).__name__}): expected {{"values": {{name: number}}}}; '
                "the values stay as they are"
            ) from None

    # -- for an update --

    def now(self, learning_rate_left: float = 1.0, clip_range_left: float = 1.0) -> Hyperparameters:
        """The current values, for the next update.

        Args:
            learning_rate_left, clip_range_left: factors of the learning rates and the clip range. A schedule's factor
                falls from 1 to 0; `desired_kl` multiplies that of the learning rates by up to 20.
        """
        start, now = self._start, self._start._replace(**self.values)  # type: ignore[arg-type]  # passes is an int
        critic = start.critic_learning_rate
        if now.learning_rate != start.learning_rate:
            critic = now.learning_rate * (critic / start.learning_rate if start.learning_rate else 1.0)
        return now._replace(
            learning_rate=now.learning_rate * learning_rate_left,
            critic_learning_rate=critic * learning_rate_left,
            clip_range=now.clip_range * clip_range_left,
        )

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        """Every value as a scalar; names that begin with "asked/" are changes that the next update will use."""
        with self._asking:
            state = {name: np.array(value, np.float64) for name, value in self.values.items()}
            return state | {f"asked/{name}": np.array(value, np.float64) for name, value in self._asked.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError for a value that is out of its range."""
        for values, prefix in ((self.values, ""), (self._asked, "asked/")):
            for name, (low, high) in self.ranges.items():
                if f"{prefix}{name}" in state:
                    value = float(state[f"{prefix}{name}"])
                    if not low <= value <= high:
                        raise ValueError(f"{name} is {value}")
                    values[name] = int(value) if name == "passes" else value


def written_at(path: Path) -> tuple[int, int] | None:
    """A file's time of writing [ns] and size [bytes]; None if it is missing."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class RateByDivergence:
    """A factor of the learning rates, which keeps the KL divergence of updates near a desired one.

    Rudin et al. (2022, arXiv:2109.11978) adapt the learning rate of PPO in this way, between minibatches; here it
    changes between updates.

    Args:
        desired_kl: the wanted mean KL divergence of an update, in nats; None keeps the factor at 1.
    """

    def __init__(self, desired_kl: float | None) -> None:
        self._desired = desired_kl
        self.factor = 1.0  # of the learning rates of the next update

    def follow(self, divergence: float) -> None:
        """Lower the factor after an update of a divergence, in nats, that is too large, raise it after a small one."""
        if self._desired is None:
            return
        if divergence > TOLERANCE * self._desired:
            self.factor = max(self.factor / STEP, 1 / MAX_RATE_FACTOR)
        elif divergence < self._desired / TOLERANCE:
            self.factor = min(self.factor * STEP, MAX_RATE_FACTOR)

    def state(self) -> dict[str, np.ndarray]:
        """The factor; nothing where it stays 1."""
        return {} if self._desired is None else {"factor": np.array(self.factor, np.float64)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError for a factor that is out of its range."""
        factor = float(state.get("factor", 1.0))
        if not 1 / MAX_RATE_FACTOR <= factor <= MAX_RATE_FACTOR:
            raise ValueError(f"the learning rate's factor is {factor}")
        self.factor = factor
