"""One episode of a run as training sees it: shaped and scaled rewards, the critic's values, how it ended."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.env_wrappers import reward_design
from common.envs.environment import Environment
from common.rollout.evaluation import EVALUATION_SEED
from common.rollout.one_episode import STEP_BOUND
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


def play(agent: Any, config: PPOConfig, environment: Environment, reward_std: float) -> Episode:
    """One episode with sampled actions; it is cut after 2,000 steps where the environment has no limit.

    Args:
        agent: of PPO.
        config: its settings.
        environment: where it plays.
        reward_std: what rewards are divided by, where the settings scale them.

    Raises:
        UserError: the environment cannot be made.
    """
    observations, rewards, terminated, truncated = _steps(agent, environment)  # [T+1, S], [T], [T], [T]
    values = np.asarray(agent.values(observations), np.float64)  # [T+1]
    steps = np.arange(1, len(rewards) + 1)  # [T]
    rewards = design_of(config, environment)(rewards, terminated, truncated, steps)  # [T]
    if config.scale_rewards:
        rewards = rewards / (reward_std + EPSILON)  # [T]
    if config.truncation_is_terminal:
        terminated, truncated = terminated | truncated, np.zeros_like(truncated)  # [T], [T]
    return Episode(rewards, values, terminated, truncated)


def _steps(agent: Any, environment: Environment) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Observations [T+1, S], and the environment's own rewards, terminated and truncated [T]."""
    policy, rng = agent.acting_policy(), np.random.default_rng(0)
    rows: list[tuple[float, bool, bool]] = []
    with closed(environment.make()) as env:
        observations, over = [env.reset(seed=EVALUATION_SEED)[0]], False
        while not over and len(rows) < STEP_BOUND:
            noise = rng.standard_normal((1, agent.action_map.noise_size), np.float32)  # [1, X]
            action = agent.action_map(policy.act(np.asarray(observations[-1])[None], noise))[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            observations.append(observation)
            rows.append((float(np.asarray(reward).item()), bool(terminated), bool(truncated)))
            over = rows[-1][1] or rows[-1][2]
    columns = tuple(np.array(column) for column in zip(*rows))
    return np.stack(observations), columns[0], columns[1], columns[2]


def design_of(config: PPOConfig, environment: Environment) -> Callable[..., np.ndarray]:
    """What the run was rewarded by at its end; the environment's own rewards where a function of the user's did it."""
    name = "unchanged" if config.reward_design == "function" else config.reward_design
    cost = config.fall_costs[-1] if config.fall_costs else math.nan
    return reward_design(name, config.reward_factor, environment.most_actions, None, cost, environment.action_repeat)
