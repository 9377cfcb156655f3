"""Reward designs: each is one function for arrays of any shape, and a `gymnasium.Wrapper` that applies it to one step.

Training applies a design to a whole epoch's arrays at once; a wrapper applies it to one environment stepped by hand.
The names of the 2021 code, EnvWrapper_plain and EnvWrapper_01 to 05, mean the same wrappers, and take their arguments
in the same order. `outcome_bonus` is the correction of EnvWrapper_01, and `sign` is new.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike as Array

from common.errors import UserError
from common.user_code import explain

RewardDesign = Callable[[Array, Array, Array, Array], np.ndarray]
"""(rewards, terminated, truncated, steps), all of one shape → float64 rewards of that shape. `steps` counts the
steps of the episode, including the one that is rewarded. The functions below are such designs."""


def unchanged(rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
    """The environment's own reward."""
    return np.asarray(rewards, dtype=np.float64)


def lasted_to_limit(
    rewards: Array,
    terminated: Array,
    truncated: Array,
    steps: Array,
    max_steps: int = 2000,
    success: float = 1.0,
    failure: float = -1.0,
) -> np.ndarray:
    """The 2021 study's choice: at the end `success` if the episode lasted `max_steps`, else `failure`.

    It also punishes a walker that reaches the goal early; `outcome_bonus` corrects that.
    """
    end = np.where(np.asarray(steps) >= max_steps, success, failure)
    return np.where(np.logical_or(terminated, truncated), end, rewards)


def outcome_bonus(
    rewards: Array,
    terminated: Array,
    truncated: Array,
    steps: Array,
    goal: float = 1.0,
    timeout: float = 1.0,
    fall: float = -1.0,
    fall_reward: float = -100.0,
) -> np.ndarray:
    """At the end `fall` after a fall, `goal` after any other termination, `timeout` after a truncation.

    A fall is a terminated episode whose last original reward is at most `fall_reward`.
    """
    end = np.where(np.less_equal(rewards, fall_reward), fall, goal)
    return np.where(terminated, end, np.where(truncated, timeout, rewards))


def steps_at_end(
    rewards: Array, terminated: Array, truncated: Array, steps: Array, per_step: float = 0.005
) -> np.ndarray:
    """The original reward during the episode; its last reward is `per_step` · steps of the episode."""
    return np.where(np.logical_or(terminated, truncated), per_step * np.asarray(steps), rewards)


def steps_added_at_end(
    rewards: Array, terminated: Array, truncated: Array, steps: Array, per_step: float = 0.005
) -> np.ndarray:
    """The original reward; at the end `per_step` · steps are added to it."""
    return rewards + np.where(np.logical_or(terminated, truncated), per_step * np.asarray(steps), 0.0)


def scaled(rewards: Array, terminated: Array, truncated: Array, steps: Array, factor: float = 0.1) -> np.ndarray:
    """Every reward times `factor`."""
    return np.asarray(rewards, dtype=np.float64) * factor


def sign(rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
    """The reward's sign, −1, 0 or +1, so that all games have rewards of the same size (Mnih et al. 2015)."""
    return np.sign(np.asarray(rewards, dtype=np.float64))


def fall_penalty(
    rewards: Array,
    terminated: Array,
    truncated: Array,
    steps: Array,
    fall_reward: float = -100.0,
    success: float = 1.0,
    failure: float = -1.0,
) -> np.ndarray:
    """At the end `failure` if the original reward is at most `fall_reward`, else `success`, also if truncated."""
    end = np.where(np.less_equal(rewards, fall_reward), failure, success)
    return np.where(np.logical_or(terminated, truncated), end, rewards)


def checked(function: RewardDesign) -> RewardDesign:
    """A user's function as a design. It gets copies of the arrays, so it may change them. Its result is checked.

    Raises:
        UserError: the function is not callable; on a call, it failed or returned another shape, NaN or infinity.
    """
    if not callable(function):
        raise UserError(
            f"reward_design is {function!r:.80}: expected a function of (rewards, terminated, truncated, steps)"
        )
    name = getattr(function, "__name__", type(function).__name__)

    def design(rewards: Array, terminated: Array, truncated: Array, steps: Array) -> np.ndarray:
        shape = np.shape(rewards)
        copies = np.array(rewards, np.float64), np.array(terminated), np.array(truncated), np.array(steps)
        try:
            shaped = np.asarray(function(*copies), np.float64)
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

    return design


class ShapedReward(gymnasium.Wrapper):
    """Replaces the reward by a design's; `info["original_reward"]` keeps the environment's own.

    The design's numbers are given in its order or by their names.
    """

    design: Callable[..., np.ndarray]

    def __init__(self, env: gymnasium.Env, *numbers: float, **named: float) -> None:
        super().__init__(env)
        inspect.signature(self.design).bind(0.0, False, False, 1, *numbers, **named)  # else a step would fail
        self._numbers, self._named = numbers, named
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
        shaped = float(self.design(original, terminated, truncated, self.steps, *self._numbers, **self._named))
        return observation, shaped, terminated, truncated, {"original_reward": original, **info}


def _wrapper(name: str, design: Callable[..., np.ndarray]) -> type[ShapedReward]:
    """The class `name` of wrappers with this design."""
    content = {"__doc__": design.__doc__, "__module__": __name__, "design": staticmethod(design)}
    return type(name, (ShapedReward,), content)


EnvWrapper_plain = UnchangedReward = _wrapper("UnchangedReward", unchanged)
EnvWrapper_01 = LastedToLimitReward = _wrapper("LastedToLimitReward", lasted_to_limit)
EnvWrapper_02 = StepsAtEndReward = _wrapper("StepsAtEndReward", steps_at_end)
EnvWrapper_03 = StepsAddedAtEndReward = _wrapper("StepsAddedAtEndReward", steps_added_at_end)
EnvWrapper_04 = ScaledReward = _wrapper("ScaledReward", scaled)
EnvWrapper_05 = FallPenaltyReward = _wrapper("FallPenaltyReward", fall_penalty)
OutcomeBonusReward = _wrapper("OutcomeBonusReward", outcome_bonus)
SignReward = _wrapper("SignReward", sign)


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
        fall_cost: for "outcome_bonus" and "fall_penalty".
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
        return checked(function)
    fall_reward = -100.0 if action_repeat == 1 else -50.0
    designs: dict[str, RewardDesign] = {
        "unchanged": unchanged,
        "lasted_to_limit": functools.partial(lasted_to_limit, max_steps=2000 if step_limit is None else step_limit),
        "outcome_bonus": functools.partial(outcome_bonus, fall=-fall_cost, fall_reward=fall_reward),
        "steps_at_end": steps_at_end,
        "steps_added_at_end": steps_added_at_end,
        "scaled": functools.partial(scaled, factor=reward_factor),
        "sign": sign,
        "fall_penalty": functools.partial(fall_penalty, failure=-fall_cost, fall_reward=fall_reward),
    }
    return designs[name]
