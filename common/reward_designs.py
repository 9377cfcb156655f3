"""Reward designs: what an agent is rewarded for instead of the environment's own reward.

Each design is a pure function of (reward, terminated, truncated, episode steps), elementwise, so the
same code serves a scalar inside `common.env_wrappers` and the [T, N] arrays of a whole epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike as Array

from common.errors import UserError
from common.user_code import explain

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
class Function:
    """A design of the user's own, whose result is checked; it gets copies, so that it may change what it is given.

    Raises:
        UserError: when called: it failed, or returned another shape, or what is no number.
    """

    function: RewardDesign

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UserError(
                f"reward_design is {self.function!r:.80}: expected a function of "
                "(rewards, terminated, truncated, steps)"
            )

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        shape, name = np.shape(rewards), getattr(self.function, "__name__", type(self.function).__name__)
        copies = np.array(rewards, np.float64), np.array(terminated), np.array(truncated), np.array(steps)
        try:
            shaped = np.asarray(self.function(*copies), np.float64)
        except Exception as error:
            raise UserError(
                f"reward_design {name} failed ({explain(error)}): expected a function of "
                f"(rewards, terminated, truncated, steps), arrays of shape {shape}, that returns such an array"
            ) from error
        if shaped.shape != shape:
            raise UserError(f"reward_design {name} returned rewards of shape {shaped.shape}: expected {shape}")
        if not np.isfinite(shaped[np.isfinite(rewards)]).all():
            raise UserError(f"reward_design {name} returned NaN or infinity: expected finite rewards")
        return shaped


@dataclass(frozen=True)
class FallPenalty:
    """At the end −1 where the original reward says it fell, +1 otherwise."""

    fall_reward: float = -100.0
    success: float = 1.0
    failure: float = -1.0

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        end = np.where(np.less_equal(rewards, self.fall_reward), self.failure, self.success)
        return np.where(np.logical_or(terminated, truncated), end, rewards)
