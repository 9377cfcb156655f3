"""Noise for an epoch of exploration, made of standard normal numbers."""

from collections.abc import Mapping

import numpy as np


class OrnsteinUhlenbeck:
    """x ← x − θ·x·dt + σ·√dt·n (Uhlenbeck & Ornstein 1930): noise with a memory, for σ = 1.

    Every environment and action dimension has its own x, which continues across episodes and epochs.
    """

    def __init__(self, theta: float, dt: float, shape: tuple[int, int]) -> None:
        self._theta, self._dt = theta, dt
        self._x = np.zeros(shape, np.float32)  # [N, A]

    def __call__(self, normal: np.ndarray) -> np.ndarray:
        """[T, N, A] standard normal numbers → [T, N, A] noise."""
        noise = np.empty_like(normal)  # [T, N, A]
        for t, drawn in enumerate(normal):
            self._x = self._x - self._theta * self._dt * self._x + np.float32(np.sqrt(self._dt)) * drawn  # [N, A]
            noise[t] = self._x
        return noise

    def state(self) -> dict[str, np.ndarray]:
        """x, [N, A]."""
        return {"x": self._x}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        self._x = np.array(state["x"], np.float32)
