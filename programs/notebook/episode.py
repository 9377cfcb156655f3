"""One episode of a run as training sees it: shaped and scaled rewards, the critic's values, how it ended."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from common.envs.environment import Environment
from common.rollout.evaluation import EVALUATION_SEED
from common.rollout.memory import InEpisodes
from common.rollout.playing import FILM_BOUND
from common.rollout.rewards import Shaping
from common.user_code import closed
from ppo.batch import EPSILON
from ppo.config import PPOConfig


class Episode(NamedTuple):
    """An episode as training sees it."""

    rewards: np.ndarray  # [T], shaped and scaled
    values: np.ndarray  # [T+1], by the critic
    terminated: np.ndarray  # [T] bool
    truncated: np.ndarray  # [T] bool


def play(agent: Any, config: PPOConfig, environment: Environment, results: Mapping[str, np.ndarray]) -> Episode:
    """One episode with sampled actions; it is cut after 2,000 steps where the environment has no limit.

    Where a function of the user's computes the rewards, the environment's own are taken.

    Args:
        results: the run's table. Its last `reward_std` is what rewards are divided by, where the settings scale them,
            and falls and actions cost what they cost at its highest `score`.

    Raises:
        UserError: the environment cannot be made.
    """
    observations, actions, rewards, terminated, truncated = _steps(agent, environment)  # [T+1, S], [T, A], 3 × [T]
    values = np.asarray(agent.values(observations), np.float64)  # [T+1]
    if config.reward_design == "function":
        config = config.replace(reward_design="unchanged")
    shaping = Shaping(config, environment)
    shaping.follow(float(np.nanmax(results["score"], initial=-math.inf)))  # NaN before the first score
    rewards = shaping.shape(rewards, terminated, truncated, np.arange(1, len(rewards) + 1), actions)  # [T]
    if config.reward_scaling != "none":
        rewards = rewards / (results["reward_std"][-1] + EPSILON)  # [T]
    if "truncation_is_terminal" in config.quirks:
        terminated, truncated = terminated | truncated, np.zeros_like(truncated)  # [T], [T]
    return Episode(rewards, values, terminated, truncated)


def _steps(agent: Any, environment: Environment) -> tuple[np.ndarray, ...]:
    """Observations [T+1, S], the policy's actions [T, A], the environment's rewards, terminated and truncated [T]."""
    acting, rng = InEpisodes(agent.acting_policy(), 1), np.random.default_rng(0)
    rows: list[tuple[np.ndarray, float, bool, bool]] = []
    with closed(environment.make()) as env:
        observations, over = [np.array(env.reset(seed=EVALUATION_SEED)[0])], False
        while not over and len(rows) < FILM_BOUND:
            noise = rng.standard_normal((1, agent.action_map.noise_size), np.float32)  # [1, X]
            chosen = acting.act(np.asarray(observations[-1])[None], noise)  # [1, A]
            observation, reward, terminated, truncated, _ = env.step(agent.action_map(chosen)[0])
            observations.append(np.array(observation))  # an environment may use one array again
            rows.append((chosen[0], float(np.asarray(reward).item()), bool(terminated), bool(truncated)))
            over = terminated or truncated
    return np.stack(observations), *(np.array(column) for column in zip(*rows))
