"""How well an agent does while it is trained, to judge which of its parameters are the best.

Unlike `common.evaluation` it uses the backend that trains, so that it costs little, and its score
decides something; a final score must come from other episodes than these.
"""

import numpy as np

from common.behaviour import NormalBehaviour
from common.spaces import ActionMap
from common.vector_env import VectorEnv


def validate(behaviour: NormalBehaviour, action_map: ActionMap, envs: VectorEnv, seed: int) -> float:
    """Mean unshaped reward of one whole deterministic episode in each of N environments.

    Every call with the same seed plays the same N episodes' terrains, so that two agents' scores differ by
    what the agents do. An environment whose episode is over steps on, uncounted, until the last one's is.
    """
    observations = [np.array(o, np.float32) for o in envs.reset(seed)]  # [n, S] a group
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)  # [N], [N]
    while running.any():
        for group, seen in zip(envs.groups, observations):
            group.send(action_map(behaviour.act(seen)))
        for i, (group, columns) in enumerate(zip(envs.groups, envs.columns)):
            seen, rewards, terminated, truncated = group.recv()
            observations[i][:] = seen
            returns[columns] += np.where(running[columns], rewards, 0.0)
            running[columns] &= ~(terminated | truncated)
    return float(returns.mean())
