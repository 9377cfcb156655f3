"""Reward designs, for arrays of any shape, and the same designs as `gymnasium.Wrapper` subclasses.

Training applies a design to a whole epoch's arrays at once; a wrapper applies it to one environment stepped by hand.
The names of the 2021 code, EnvWrapper_plain and EnvWrapper_01 to 05, mean the same wrappers, and take their arguments
in the same order. EndsToldApartReward is the correction of EnvWrapper_01, and SignReward is new.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike as Array

from common.errors import UserError
from common.user_code import explain

RewardDesign = Callable[[Array, Array, Array, Array], np.ndarray]
"""(rewards, terminated, truncated, steps), all of one shape → float64 rewards of that shape. `steps` counts the
steps of the episode, including the one that is rewarded."""


@dataclass(frozen=True)
class Unchanged:
    """The environment's own reward."""

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        return np.asarray(rewards, dtype=np.float64)


@dataclass(frozen=True)
class LastedToLimit:
    """The 2021 study's choice: at the end +1 if the episode lasted `max_steps`, else −1.

    It also punishes a walker that reaches the goal early; `EndsToldApart` corrects that.
    """

    max_steps: int = 2000
    success: float = 1.0
    failure: float = -1.0

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        end = np.where(np.asarray(steps) >= self.max_steps, self.success, self.failure)
        return np.where(np.logical_or(terminated, truncated), end, rewards)


@dataclass(frozen=True)
class EndsToldApart:
    """At the end −1 after a fall, +1 after any other termination, +1 after a truncation.

    A fall is a terminated episode whose last original reward is at most `fall_reward`.

    Attributes:
        goal: last reward of an episode that terminated without a fall.
        timeout: last reward of an episode that was truncated.
        fall: last reward of an episode that ended with a fall.
        fall_reward: largest original reward that marks a fall.
    """

    goal: float = 1.0
    timeout: float = 1.0
    fall: float = -1.0
    fall_reward: float = -100.0

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        end = np.where(np.less_equal(rewards, self.fall_reward), self.fall, self.goal)
        return np.where(terminated, end, np.where(truncated, self.timeout, rewards))


@dataclass(frozen=True)
class StepsAtEnd:
    """The original reward during the episode; its last reward is `per_step` · steps of the episode."""

    per_step: float = 0.005

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        return np.where(np.logical_or(terminated, truncated), self.per_step * np.asarray(steps), rewards)


@dataclass(frozen=True)
class StepsAddedAtEnd:
    """The original reward; at the end `per_step` · steps are added to it."""

    per_step: float = 0.005

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        return rewards + np.where(np.logical_or(terminated, truncated), self.per_step * np.asarray(steps), 0.0)


@dataclass(frozen=True)
class Scaled:
    """Every reward times `factor`."""

    factor: float = 0.1

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        return np.asarray(rewards, dtype=np.float64) * self.factor


@dataclass(frozen=True)
class Sign:
    """The reward's sign, −1, 0 or +1, so that all games have rewards of the same size (Mnih et al. 2015)."""

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        return np.sign(np.asarray(rewards, dtype=np.float64))


@dataclass(frozen=True)
class Function:
    """A user's function as a design. It gets copies of the arrays, so it may change them. Its result is checked.

    Raises:
        UserError: the function is not callable; on a call, it failed or returned another shape, NaN or infinity.
    """

    function: RewardDesign

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UserError(
                f"reward_design is {self.function!r:.80}: expected a function of "
                "(rewards, terminated, truncated, steps)"
            )

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
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
    """At the end −1 if the original reward is at most `fall_reward`, else +1, whether terminated or truncated."""

    fall_reward: float = -100.0
    success: float = 1.0
    failure: float = -1.0

    def __call__(self, rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        """See `RewardDesign`."""
        end = np.where(np.less_equal(rewards, self.fall_reward), self.failure, self.success)
        return np.where(np.logical_or(terminated, truncated), end, rewards)


class ShapedReward(gymnasium.Wrapper):
    """Replaces the reward by a design's; `info["original_reward"]` keeps the environment's own."""

    def __init__(self, env: gymnasium.Env, design: RewardDesign) -> None:
        super().__init__(env)
        self.design = design
        self.steps = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's; begins to count the episode's steps."""
        self.steps = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As Gymnasium's, with the design's reward, and the environment's own as `original_reward` in the info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        original = float(reward)
        shaped = float(self.design(original, terminated, truncated, self.steps))
        return observation, shaped, terminated, truncated, {"original_reward": original, **info}


class UnchangedReward(ShapedReward):
    """The environment's own reward."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env, Unchanged())


class LastedToLimitReward(ShapedReward):
    """At the end `success` if the episode lasted `max_steps`, else `failure`."""

    def __init__(self, env: gymnasium.Env, max_steps: int = 2000, success: float = 1.0, failure: float = -1.0) -> None:
        super().__init__(env, LastedToLimit(max_steps, success, failure))


class EndsToldApartReward(ShapedReward):
    """At the end `fall`, `goal` or `timeout`, depending on how the episode ended; see `EndsToldApart`."""

    def __init__(
        self,
        env: gymnasium.Env,
        goal: float = 1.0,
        timeout: float = 1.0,
        fall: float = -1.0,
        fall_reward: float = -100.0,
    ) -> None:
        super().__init__(env, EndsToldApart(goal, timeout, fall, fall_reward))


class StepsAtEndReward(ShapedReward):
    """The original reward during the episode; its last reward is `per_step` · steps of the episode."""

    def __init__(self, env: gymnasium.Env, per_step: float = 0.005) -> None:
        super().__init__(env, StepsAtEnd(per_step))


class StepsAddedAtEndReward(ShapedReward):
    """The original reward; at the end `per_step` · steps are added to it."""

    def __init__(self, env: gymnasium.Env, per_step: float = 0.005) -> None:
        super().__init__(env, StepsAddedAtEnd(per_step))


class ScaledReward(ShapedReward):
    """Every reward times `factor`."""

    def __init__(self, env: gymnasium.Env, factor: float = 0.1) -> None:
        super().__init__(env, Scaled(factor))


class SignReward(ShapedReward):
    """The reward's sign."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env, Sign())


class FallPenaltyReward(ShapedReward):
    """At the end `failure` where the original reward is at most `fall_reward`, else `success`."""

    def __init__(
        self, env: gymnasium.Env, fall_reward: float = -100.0, success: float = 1.0, failure: float = -1.0
    ) -> None:
        super().__init__(env, FallPenalty(fall_reward, success, failure))


EnvWrapper_plain, EnvWrapper_01, EnvWrapper_02 = UnchangedReward, LastedToLimitReward, StepsAtEndReward
EnvWrapper_03, EnvWrapper_04, EnvWrapper_05 = StepsAddedAtEndReward, ScaledReward, FallPenaltyReward


def reward_design(
    name: str,
    reward_factor: float,
    step_limit: int | None,
    function: RewardDesign | None = None,
    fall_cost: float = 1.0,
    action_repeat: int = 1,
) -> RewardDesign:
    """The reward design with this name, with the numbers of the 2021 study unless an argument gives another.

    Args:
        name: one of `common.config.RewardDesignName`.
        reward_factor: for "scaled".
        step_limit: of the environment, for "lasted_to_limit"; None, for an environment without one, takes 2,000.
            With `action_repeat`, the largest number of actions.
        function: a Python program's own design, for "function".
        fall_cost: for "ends_told_apart" and "fall_penalty".
        action_repeat: for how many steps each action is held. Above 1 a fall is an end with −50 or less, since the
            rewards just before it are in the same sum.

    Raises:
        UserError: the name is "function", but no function is given.
    """
    if name == "function":
        if function is None:
            raise UserError(
                "reward_design is function, which a Python program has to give: "
                "PPOAgentTrainer(config, reward_design=the function), or choose another --reward-design"
            )
        return Function(function)
    if name == "lasted_to_limit":
        return LastedToLimit() if step_limit is None else LastedToLimit(max_steps=step_limit)
    fall_reward = -100.0 if action_repeat == 1 else -50.0
    designs: dict[str, RewardDesign] = {
        "unchanged": Unchanged(),
        "ends_told_apart": EndsToldApart(fall=-fall_cost, fall_reward=fall_reward),
        "steps_at_end": StepsAtEnd(),
        "steps_added_at_end": StepsAddedAtEnd(),
        "scaled": Scaled(reward_factor),
        "sign": Sign(),
        "fall_penalty": FallPenalty(failure=-fall_cost, fall_reward=fall_reward),
    }
    return designs[name]
