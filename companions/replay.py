"""The newest transitions, for methods that learn from them many times, and minibatches that were drawn of them."""

from collections.abc import Mapping

import numpy as np

from common.errors import UserError
from common.files import memory
from common.records import Transitions
from common.state import check_array


class ReplayBuffer:
    """A ring of transitions, each packed into one row, so that any number of minibatches is one gather.

    Args:
        capacity: number of transitions that are kept.
        observation_size, action_size: S and A.
        others: size and type of what else is kept with each.

    Attributes:
        row_size, row_type: W = 2·S + A + 2, numbers of a row, and their type.
        size: transitions that are there.

    Raises:
        UserError: there is not enough memory.
    """

    row_type: type = np.float32

    def __init__(self, capacity: int, observation_size: int, action_size: int, *others: tuple[int, type]) -> None:
        self.capacity, self.observation_size = capacity, observation_size
        self.row_size = 2 * observation_size + action_size + 2
        self._rows, *self._others = _reserved(capacity, (self.row_size, np.float32), *others)  # [capacity, W], ...
        self._position = 0  # of the next row
        self.size = 0

    @property
    def gigabytes(self) -> float:
        """GiB that all transitions take."""
        return sum(array.nbytes for array in (self._rows, *self._others)) / 2**30

    def stored(self, observations: np.ndarray) -> np.ndarray:
        """What transitions hold of raw observations [K, N, S]: these themselves."""
        return observations

    def sizes(self) -> tuple[float, float]:
        """Mean absolute values of the observations' numbers and of the rewards."""
        columns = self.unpack(self._rows[: self.size])
        return float(np.abs(columns.observations).mean()), float(np.abs(columns.rewards).mean())

    def add(self, transitions: Transitions) -> None:
        """Append K transitions; once the buffer is full, they replace the oldest."""
        rows = packed(transitions)[-self.capacity :]  # [K, W]
        self._rows[(self._position + np.arange(len(rows))) % self.capacity] = rows
        self._position = (self._position + len(rows)) % self.capacity
        self.size = min(self.size + len(rows), self.capacity)

    def sample(self, updates: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        """Packed minibatches drawn with replacement, [updates, batch_size, W] float32; see `unpack`."""
        return np.take(self._rows, rng.integers(self.size, size=(updates, batch_size)), axis=0)

    def unpack(self, rows: np.ndarray) -> Transitions:
        """The columns of packed rows [..., W], arrays or tensors."""
        size = self.observation_size
        numbers = rows[..., size:-size]  # [..., A + 2]
        return Transitions(rows[..., :size], numbers[..., :-2], numbers[..., -2], numbers[..., -1], rows[..., -size:])

    def state(self) -> dict[str, np.ndarray]:
        """The stored rows [size, W], and the position of the next one."""
        return {"rows": self._rows[: self.size].copy(), "position": np.array(self._position, np.int64)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError if it does not fit a buffer of this capacity."""
        size, position = len(state["rows"]), int(state["position"])
        if not 0 <= position < self.capacity or (size < self.capacity and position != size):
            raise ValueError(f"the next of {size} rows cannot be number {position}")
        self._rows[:size] = state["rows"]
        self.size, self._position = size, position


def _reserved(capacity: int, *columns: tuple[int, type]) -> list[np.ndarray]:
    """Zeros [capacity, size] for each column of that size and type; the memory is taken only as they are written."""
    bytes_each = sum(size * np.dtype(kind).itemsize for size, kind in columns)
    wanted = capacity * bytes_each / 2**30  # GiB
    try:
        if wanted > memory() / 2:  # a checkpoint takes the other half
            raise MemoryError
        return [np.zeros((capacity, size), kind) for size, kind in columns]
    except MemoryError:
        fitting = int(0.45 * min(memory(), wanted) * 2**30 / bytes_each)
        fitting -= fitting % 10 ** max(0, len(str(fitting)) - 2)  # two digits
        raise UserError(
            f"there is not enough memory for a replay buffer of {wanted:,.1f} GiB, and as much again for checkpoints: "
            f"use --replay-size {fitting} or less"
        ) from None


def packed(transitions: Transitions) -> np.ndarray:
    """K transitions as rows [K, W]."""
    observations, actions, rewards, terminated, next_observations = transitions
    columns = observations, actions, rewards[:, None], terminated[:, None], next_observations
    return np.concatenate(columns, axis=1, dtype=np.float32)


class WaitingMinibatches:
    """Minibatches of updates that wait until their cycle of `policy_delay` updates is complete, and their noise.

    Args:
        batch_size, row_size, noise_size: B, W and X: transitions of a minibatch, numbers of a packed transition, and
            standard normal numbers that an update takes for each.
        row_type: of the numbers of a packed transition.
    """

    def __init__(self, batch_size: int, row_size: int, noise_size: int, row_type: type = np.float32) -> None:
        self._rows: np.ndarray = np.empty((0, batch_size, row_size), row_type)
        self._noise = np.empty((0, batch_size, noise_size), np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: np.ndarray, noise: np.ndarray) -> None:
        """Append K minibatches [K, B, W] and their noise [K, B, X]."""
        if len(self):
            rows, noise = np.concatenate((self._rows, rows)), np.concatenate((self._noise, noise))
        self._rows, self._noise = rows, noise

    def take(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `count` minibatches [count, B, W] and their noise [count, B, X], which wait no more."""
        taken = self._rows[:count], self._noise[:count]
        self._rows, self._noise = self._rows[count:], self._noise[count:]
        return taken

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        """The minibatches [K, B, W] and their noise [K, B, X]; nothing where none waits."""
        return {"rows": self._rows, "noise": self._noise} if len(self) else {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError for minibatches of other sizes."""
        self.take(len(self))
        if state:
            count = len(state["rows"])
            for name, own in (("rows", self._rows), ("noise", self._noise)):
                check_array(name, state[name], (count, *own.shape[1:]), own.dtype)
            self.add(state["rows"], state["noise"])
