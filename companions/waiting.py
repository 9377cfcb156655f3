"""Minibatches of updates that are due and wait until their cycle of `policy_delay` updates is complete."""

from collections.abc import Mapping

import numpy as np


class WaitingMinibatches:
    """Minibatches and their noise, in the order in which they were drawn.

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
        self.clear()
        if state:
            count = len(state["rows"])
            for name, shape in zip(("rows", "noise"), self._shapes):
                array = state[name]
                if array.dtype != np.float32 or array.shape != (count, *shape):
                    raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float32 {(count, *shape)}")
            self.add(state["rows"], state["noise"])
