"""Reward designs: what an agent is rewarded for instead of the environment's own reward.

Each design is a pure function of (reward, terminated, truncated, episode steps), elementwise, so the
same code serves a scalar inside `common.env_wrappers` and the [T, N] arrays of a whole epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike as Array

RewardDesign = Callable[[Array, Array, Array, Array], np.ndarray]
"""(rewards, terminated, truncated, steps), all of one shape → rewards of that shape, float64; `steps`: of the episode,
the one that is rewarded included."""


@dataclass(frozen=True)
class Unchanged:
    """The environment's own reward."""

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        return np.asarray(rewards, dtype=np.float64)


@dataclass(frozen=True)
class LastedToLimit:
    """The original's choice: at the end +1 if the episode lasted to the limit, −1 if not.

    It calls reaching the far end early a failure; `EndsToldApart` is the correction.
    """

    max_steps: int = 2000
    success: float = 1.0
    failure: float = -1.0

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        end = np.where(np.asarray(steps) >= self.max_steps, self.success, self.failure)
        return np.where(np.logical_or(terminated, truncated), end, rewards)


@dataclass(frozen=True)
class EndsToldApart:
    """At the end −1 for a fall, +1 for the far end, +1 for running out of time.

    A fall is a terminated episode whose last original reward is at most `fall_reward`.
    """

    goal: float = 1.0
    timeout: float = 1.0
    fall: float = -1.0
    fall_reward: float = -100.0

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        end = np.where(np.less_equal(rewards, self.fall_reward), self.fall, self.goal)
        return np.where(terminated, end, np.where(truncated, self.timeout, rewards))


@dataclass(frozen=True)
class StepsAtEnd:
    """The original reward during the episode; at its end `per_step` · steps in its place."""

    per_step: float = 0.005

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        return np.where(np.logical_or(terminated, truncated), self.per_step * np.asarray(steps), rewards)


@dataclass(frozen=True)
class StepsAddedAtEnd:
    """The original reward, and at the end `per_step` · steps on top of it."""

    per_step: float = 0.005

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        return rewards + np.where(np.logical_or(terminated, truncated), self.per_step * np.asarray(steps), 0.0)


@dataclass(frozen=True)
class Scaled:
    """Every reward times `factor`."""

    factor: float = 0.1

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        return np.asarray(rewards, dtype=np.float64) * self.factor


@dataclass(frozen=True)
class Sign:
    """−1, 0 or +1, the reward's sign: games that count in ones and in thousands become alike (Mnih et al. 2015)."""

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        return np.sign(np.asarray(rewards, dtype=np.float64))


@dataclass(frozen=True)
class FallPenalty:
    """At the end −1 where the original reward says it fell, +1 otherwise."""

    fall_reward: float = -100.0
    success: float = 1.0
    failure: float = -1.0

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        end = np.where(np.less_equal(rewards, self.fall_reward), self.failure, self.success)
        return np.where(np.logical_or(terminated, truncated), end, rewards)
