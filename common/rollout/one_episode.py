"""Plays one deterministic episode step by step, for films and windows: the first one of an evaluation."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from common.envs.environment import Environment
from common.envs.spaces import ActionMap
from common.rollout.playing import ROWS, empty_observations, one_blas_thread
from common.rollout.policies import Policy

STEP_BOUND = 2_000  # steps after which the episode is cut if the environment has no limit


class Progress(NamedTuple):
    """How far an episode is."""

    score: float = 0.0  # sum of the environment's own rewards
    steps: int = 0
    over: bool = False
    was_cut: bool = False  # after STEP_BOUND steps


def one_episode(
    policy: Policy, action_map: ActionMap, environment: Environment, env: Any, seed: int
) -> Iterator[Progress]:
    """Play an episode; the scores are those of `common.rollout.evaluation.evaluate`.

    Args:
        policy, action_map: of the agent.
        environment: what is known of `env`.
        env: the environment that is played, with whatever it draws.
        seed: of the episode, 0 or more.

    Yields:
        The progress after the reset and after every step.
    """
    rows = ROWS if getattr(policy, "is_plain", False) else 1  # as the evaluation plays it
    observations = empty_observations(environment, rows)  # [R, *shape]
    observations[0], _ = env.reset(seed=seed)
    now = Progress()
    yield now
    while not (now.over or now.was_cut):
        with one_blas_thread():
            action = action_map(policy.act(observations)[:1])[0]
        observations[0], reward, terminated, truncated, _ = env.step(action)
        score, steps, over = now.score + float(np.asarray(reward).item()), now.steps + 1, terminated or truncated
        was_cut = not over and environment.max_episode_steps is None and steps == STEP_BOUND
        now = Progress(score, steps, over, was_cut)
        yield now
