"""How well an agent does while it is trained, to judge which of its parameters are the best.

Unlike `common.evaluation` it uses the backend that trains, so that it costs little, and its score
decides something; a final score must come from other episodes than these.
"""

import time
from typing import Protocol

import numpy as np

from common.records import Timing
from common.rollout import Behaviour
from common.spaces import ActionMap
from common.vector_env import VectorEnv, make_vector_env


class Settings(Protocol):
    """What is read here of a method's config; see `common.config`."""

    env: str
    max_episode_steps: int | None
    backend: str
    best_metric: str
    validate_every: int
    validation_episodes: int


def validation_due(config: Settings, epoch: int, last: int) -> bool:
    """Whether the parameters after an epoch are validated: in the second half of the training, and at its end."""
    if config.best_metric != "validation":
        return False
    return epoch == last or (2 * epoch > last and epoch % config.validate_every == 0)


def validation_score(
    config: Settings, behaviour: Behaviour, action_map: ActionMap, seed: int, timing: Timing
) -> float:
    """`validate` in environments of its own; its seconds are added to `timing.validation`."""
    began = time.perf_counter()
    episodes = config.validation_episodes
    groups = -(-episodes // 25)  # small enough that few environments wait for their group's longest episode
    backend = "gymnasium" if config.backend == "processes" else config.backend  # not a process an episode
    envs = make_vector_env(config.env, episodes, config.max_episode_steps, backend, groups)
    try:
        return validate(behaviour, action_map, envs, seed)
    finally:
        envs.close()
        timing.validation += time.perf_counter() - began


def validate(behaviour: Behaviour, action_map: ActionMap, envs: VectorEnv, seed: int) -> float:
    """Mean unshaped reward of one whole deterministic episode in each of N environments.

    Every call with the same seed plays on the same N terrains, so that two agents' scores differ by what
    the agents do. An environment whose episode is over steps on, uncounted, until its group's last one is.
    """
    observations = [np.array(o, np.float32) for o in envs.reset(seed)]  # [n, S] a group
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)  # [N], [N]
    active = list(zip(envs.groups, envs.columns, observations))
    while active:
        for group, _, seen in active:
            group.send(action_map(behaviour.act(seen)))
        for group, columns, seen in active:
            seen[:], rewards, terminated, truncated = group.recv()
            returns[columns] += np.where(running[columns], rewards, 0.0)
            running[columns] &= ~(terminated | truncated)
        active = [(group, columns, seen) for group, columns, seen in active if running[columns].any()]
    return float(returns.mean())
