"""The reward designs as `gymnasium.Wrapper` subclasses, for one environment stepped by hand.

Training applies the same designs to a whole epoch's arrays at once; a test holds the two together.
The original's names: EnvWrapper_plain → UnchangedReward, EnvWrapper_01 → LastedToLimitReward,
EnvWrapper_02 → StepsAtEndReward, EnvWrapper_03 → StepsAddedAtEndReward, EnvWrapper_04 → ScaledReward,
EnvWrapper_05 → FallPenaltyReward; EndsToldApartReward is the correction of EnvWrapper_01.
SignReward is new.
"""

from typing import Any

import gymnasium

from common import reward_designs
from common.config import TrainingConfig
from common.environment import Environment
from common.errors import UserError
from common.reward_designs import RewardDesign


class ShapedReward(gymnasium.Wrapper):
    """Replaces the reward by a design's; `info["original_reward"]` keeps the environment's own."""

    def __init__(self, env: gymnasium.Env, design: RewardDesign) -> None:
        super().__init__(env)
        self.design = design
        self.steps = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        shaped = float(self.design(reward, terminated, truncated, self.steps))
        return observation, shaped, terminated, truncated, {"original_reward": float(reward), **info}


class UnchangedReward(ShapedReward):
    """The environment's own reward."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env, reward_designs.Unchanged())


class LastedToLimitReward(ShapedReward):
    """At the end `success` if the episode lasted `max_steps`, else `failure`."""

    def __init__(self, env: gymnasium.Env, max_steps: int = 2000, success: float = 1.0, failure: float = -1.0) -> None:
        super().__init__(env, reward_designs.LastedToLimit(max_steps, success, failure))


class EndsToldApartReward(ShapedReward):
    """At the end `fall`, `goal` or `timeout`, whichever it was."""

    def __init__(
        self,
        env: gymnasium.Env,
        goal: float = 1.0,
        timeout: float = 1.0,
        fall: float = -1.0,
        fall_reward: float = -100.0,
    ) -> None:
        super().__init__(env, reward_designs.EndsToldApart(goal, timeout, fall, fall_reward))


class StepsAtEndReward(ShapedReward):
    """At the end `per_step` · steps in place of the original reward."""

    def __init__(self, env: gymnasium.Env, per_step: float = 0.005) -> None:
        super().__init__(env, reward_designs.StepsAtEnd(per_step))


class StepsAddedAtEndReward(ShapedReward):
    """At the end `per_step` · steps on top of the original reward."""

    def __init__(self, env: gymnasium.Env, per_step: float = 0.005) -> None:
        super().__init__(env, reward_designs.StepsAddedAtEnd(per_step))


class ScaledReward(ShapedReward):
    """Every reward times `factor`."""

    def __init__(self, env: gymnasium.Env, factor: float = 0.1) -> None:
        super().__init__(env, reward_designs.Scaled(factor))


class SignReward(ShapedReward):
    """The reward's sign."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env, reward_designs.Sign())


class FallPenaltyReward(ShapedReward):
    """At the end `failure` where the original reward is at most `fall_reward`, else `success`."""

    def __init__(
        self, env: gymnasium.Env, fall_reward: float = -100.0, success: float = 1.0, failure: float = -1.0
    ) -> None:
        super().__init__(env, reward_designs.FallPenalty(fall_reward, success, failure))


def reward_design(
    config: TrainingConfig, environment: Environment, function: RewardDesign | None = None
) -> RewardDesign:
    """The design a config names, with the original's numbers; lasting to the limit means the limit in force.

    Args:
        function: of a Python program, for the design of that name.

    Raises:
        UserError: a function is wanted, and there is none.
    """
    if config.reward_design == "function":
        if function is None:
            raise UserError(
                "reward_design is function, which a Python program has to give: "
                "PPOAgentTrainer(config, reward_design=the function), or choose another --reward-design"
            )
        return reward_designs.Function(function)
    if config.reward_design == "lasted_to_limit":
        limit = environment.max_episode_steps
        return reward_designs.LastedToLimit() if limit is None else reward_designs.LastedToLimit(max_steps=limit)
    designs: dict[str, RewardDesign] = {
        "unchanged": reward_designs.Unchanged(),
        "ends_told_apart": reward_designs.EndsToldApart(),
        "steps_at_end": reward_designs.StepsAtEnd(),
        "steps_added_at_end": reward_designs.StepsAddedAtEnd(),
        "scaled": reward_designs.Scaled(config.reward_factor),
        "sign": reward_designs.Sign(),
        "fall_penalty": reward_designs.FallPenalty(),
    }
    return designs[config.reward_design]
