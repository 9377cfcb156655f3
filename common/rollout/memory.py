"""What policies remember of episodes that are under way, so that whoever plays them need not know of it."""

from typing import Any

import numpy as np

from common.rollout.policies import Policy


class InEpisodes:
    """A policy that plays n episodes at once, with what it remembers of each; most policies remember nothing.

    Args:
        memory: [n, Z], which is written to; a number n for n episodes that begin.
    """

    def __init__(self, policy: Policy, memory: np.ndarray | int) -> None:
        if not isinstance(memory, np.ndarray):
            memory = np.zeros((memory, getattr(policy, "memory_size", 0)), np.float32)
        self._policy, self.memory = policy, memory

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None, rows: Any = slice(None)) -> np.ndarray:
        """`Policy.act` in the episodes `rows`, k of the n: actions [k, A] for raw observations [k, *shape]."""
        if not self.memory.size:
            return self._policy.act(observations, noise)
        memory = self.memory[rows]  # [k, Z], a copy where rows are not a slice
        act: Any = self._policy.act  # that of a policy which remembers
        actions = act(observations, noise, memory)
        self.memory[rows] = memory
        return actions

    def forget(self, rows: Any) -> None:
        """The episodes `rows` are over: others begin in their place."""
        self.memory[rows] = 0.0
