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
