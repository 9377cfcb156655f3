"""One episode of a run as training sees it: shaped and scaled rewards, the critic's values, how it ended."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.envs.environment import Environment
from common.rollout.evaluation import EVALUATION_SEED
from common.rollout.one_episode import STEP_BOUND
from common.rollout.shaping import Shaping
from common.runs import run_folder
from common.user_code import closed
from ppo.batch import EPSILON
from ppo.config import PPOConfig


class Episode(NamedTuple):
    """An episode as training sees it."""

    rewards: np.ndarray  # [T], shaped and scaled
    values: np.ndarray  # [T+1], by the critic
    terminated: np.ndarray  # [T] bool
    truncated: np.ndarray  # [T] bool


def last_reward_std(run: Path) -> float:
    """The standard deviation that a run's rewards were divided by at its end; 1 where they are not scaled."""
    columns = run_folder.read_results(run)
    return float(columns["reward_std"][-1]) if "reward_std" in columns else 1.0


def highest_score(run: Path) -> float:
    """The highest score of a run's training episodes, on which its costs of falls and actions depend; −∞ if none."""
    scores = run_folder.read_results(run)["score"]  # [epochs], NaN before the first
    return float(np.nanmax(scores, initial=-math.inf))


def play(agent: Any, config: PPOConfig, environment: Environment, reward_std: float, score: float) -> Episode:
    """One episode with sampled actions; it is cut after 2,000 steps where the environment has no limit.

    Where a function of the user's computes the rewards, the environment's own are taken.

    Args:
        reward_std: what rewards are divided by, where the settings scale them.
        score: with the costs that hold from this score of training on.

    Raises:
        UserError: the environment cannot be made.
    """
    observations, actions, rewards, terminated, truncated = _steps(agent, environment)  # [T+1, S], [T, A], 3 × [T]
    values = np.asarray(agent.values(observations), np.float64)  # [T+1]
    steps = np.arange(1, len(rewards) + 1)  # [T]
    rewards = shaping_of(config, environment, score).shape(rewards, terminated, truncated, steps, actions)  # [T]
    if config.reward_scaling != "none":
        rewards = rewards / (reward_std + EPSILON)  # [T]
    if "truncation_is_terminal" in config.quirks:
        terminated, truncated = terminated | truncated, np.zeros_like(truncated)  # [T], [T]
    return Episode(rewards, values, terminated, truncated)


def _steps(agent: Any, environment: Environment) -> tuple[np.ndarray, ...]:
    """Observations [T+1, S], the policy's actions [T, A], the environment's rewards, terminated and truncated [T]."""
    policy, rng = agent.acting_policy(), np.random.default_rng(0)
    rows: list[tuple[np.ndarray, float, bool, bool]] = []
    with closed(environment.make()) as env:
        observations, over = [np.array(env.reset(seed=EVALUATION_SEED)[0])], False
        while not over and len(rows) < STEP_BOUND:
            noise = rng.standard_normal((1, agent.action_map.noise_size), np.float32)  # [1, X]
            chosen = policy.act(np.asarray(observations[-1])[None], noise)  # [1, A]
            observation, reward, terminated, truncated, _ = env.step(agent.action_map(chosen)[0])
            observations.append(np.array(observation))  # an environment may use one array again
            rows.append((chosen[0], float(np.asarray(reward).item()), bool(terminated), bool(truncated)))
            over = rows[-1][2] or rows[-1][3]
    return np.stack(observations), *(np.array(column) for column in zip(*rows))


def shaping_of(config: PPOConfig, environment: Environment, score: float) -> Shaping:
    """What a run was rewarded by; the environment's own rewards where a function of the user's did it."""
    shaping = Shaping(
        config.replace(reward_design="unchanged") if config.reward_design == "function" else config, environment
    )
    shaping.follow(score)
    return shaping
