"""Mean and standard deviation of all numbers seen so far."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np


class RunningStatistics:
    """Mean and variance of all samples seen, updated batch by batch (Chan, Golub & LeVeque 1979).

    (count, mean, M2) of two sets give those of their union, so the result does not depend on how the samples are split
    into batches. M2 is the sum of squared deviations from the mean.

    Args:
        shape: of a sample.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape)  # [*shape]
        self.m2 = np.zeros(shape)  # [*shape] sum of squared deviations

    def update(self, samples: np.ndarray) -> None:
        """Merge samples [K, *shape]; K may be 0."""
        samples = np.asarray(samples, dtype=np.float64)
        added = len(samples)
        if added == 0:
            return
        mean = samples.mean(axis=0)
        m2 = np.square(samples - mean).sum(axis=0)
        total = self.count + added
        shift = mean - self.mean
        self.mean = self.mean + shift * (added / total)
        self.m2 = self.m2 + m2 + np.square(shift) * (self.count * added / total)
        self.count = total

    def merged(self, samples: np.ndarray) -> "RunningStatistics":
        """A copy with samples [K, *shape] merged into it."""
        merged = copy.copy(self)  # `update` writes into no array
        merged.update(samples)
        return merged

    @property
    def std(self) -> np.ndarray:
        """Population standard deviation [*shape]; 1 before the first sample."""
        return np.sqrt(self.m2 / self.count) if self.count > 0 else np.ones_like(self.m2)

    def state(self) -> dict[str, np.ndarray]:
        """Count [], mean and M2 (each [*shape]), for `load_state`."""
        return {"count": np.array(self.count, np.float64), "mean": self.mean.copy(), "m2": self.m2.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.count = float(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.m2 = np.array(state["m2"], dtype=np.float64)
