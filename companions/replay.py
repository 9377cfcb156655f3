"""The newest transitions, for methods that learn from them many times, and minibatches that were drawn of them."""

import math
import os
from collections.abc import Mapping

import numpy as np

from common.errors import UserError
from common.records import Transitions


def memory() -> float:
    """GiB of this machine's memory; infinity where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (AttributeError, ValueError, OSError):
        return math.inf


class ReplayBuffer:
    """A ring of transitions, each packed into one row, so that any number of minibatches is one gather.

    Args:
        capacity: number of transitions that are kept.
        observation_size, action_size: S and A.

    Attributes:
        row_size: W = 2·S + A + 2, numbers of a row.
        size: transitions that are there.
    """

    def __init__(self, capacity: int, observation_size: int, action_size: int) -> None:
        self.capacity = capacity
        self._cuts = np.cumsum([observation_size, action_size, 1, 1])
        self.row_size = int(self._cuts[-1]) + observation_size
        try:
            if self.gigabytes > memory():  # NumPy takes memory only as it is written
                raise MemoryError
            self._rows = np.zeros((capacity, self.row_size), np.float32)  # [capacity, W]
        except MemoryError:
            raise UserError(
                f"there is not enough memory for {capacity:,} transitions ({self.gigabytes:,.1f} GiB): lower "
                "--replay-size"
            ) from None
        self._position = 0  # of the next row
        self.size = 0

    @property
    def gigabytes(self) -> float:
        """GiB that all transitions take."""
        return self.capacity * self.row_size * 4 / 2**30

    def sizes(self) -> tuple[float, float]:
        """Mean absolute values of the observations' numbers and of the rewards."""
        observations, _, rewards, *_ = np.split(self._rows[: self.size], self._cuts, axis=1)
        return float(np.abs(observations).mean()), float(np.abs(rewards).mean())

    def add(self, transitions: Transitions) -> None:
        """Append K transitions; once the buffer is full, they replace the oldest."""
        count = len(transitions.rewards)
        if count > self.capacity:
            transitions = Transitions(*(column[-self.capacity :] for column in transitions))
            count = self.capacity
        rows = np.concatenate(
            [
                transitions.observations,
                transitions.actions,
                transitions.rewards[:, None],
                transitions.terminated[:, None],
                transitions.next_observations,
            ],
            axis=1,
            dtype=np.float32,
        )  # [K, W]
        first = min(count, self.capacity - self._position)
        self._rows[self._position : self._position + first] = rows[:first]
        self._rows[: count - first] = rows[first:]
        self._position = (self._position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, updates: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        """Packed minibatches drawn with replacement, [updates, batch_size, W] float32; see `unpack`."""
        return np.take(self._rows, rng.integers(self.size, size=(updates, batch_size)), axis=0)

    def unpack(self, rows: np.ndarray) -> Transitions:
        """The columns of packed rows [..., W], arrays or tensors."""
        first, second, third, fourth = (int(cut) for cut in self._cuts)
        return Transitions(
            observations=rows[..., :first],
            actions=rows[..., first:second],
            rewards=rows[..., second],
            terminated=rows[..., third],
            next_observations=rows[..., fourth:],
        )

    def state(self) -> dict[str, np.ndarray]:
        """The stored rows [size, W], and the position of the next one."""
        return {"rows": self._rows[: self.size].copy(), "position": np.array(self._position, np.int64)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError if it does not fit a buffer of this capacity."""
        size, position = len(state["rows"]), int(state["position"])
        if not 0 <= position < self.capacity or (size < self.capacity and position != size):
            raise ValueError(f"the next of {size} transitions cannot be number {position}")
        self._rows[:size] = state["rows"]
        self.size, self._position = size, position


class WaitingMinibatches:
    """Minibatches of updates that wait until their cycle of `policy_delay` updates is complete, and their noise.

    Args:
        batch_size, row_size, noise_size: B, W and X: transitions of a minibatch, numbers of a packed transition, and
            standard normal numbers that an update takes for each.
    """

    def __init__(self, batch_size: int, row_size: int, noise_size: int) -> None:
        self._shapes = (batch_size, row_size), (batch_size, noise_size)
        self._rows, self._noise = (np.empty((0, *shape), np.float32) for shape in self._shapes)

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

    def clear(self) -> None:
        """Drop all of them."""
        self.take(len(self))

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        """The minibatches [K, B, W] and their noise [K, B, X]; nothing where none waits."""
        return {"rows": self._rows, "noise": self._noise} if len(self) else {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError for minibatches of other sizes."""
        self.take(len(self))
        if state:
            count = len(state["rows"])
            for name, shape in zip(("rows", "noise"), self._shapes):
                array = state[name]
                if array.dtype != np.float32 or array.shape != (count, *shape):
                    raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float32 {(count, *shape)}")
            self.add(state["rows"], state["noise"])
