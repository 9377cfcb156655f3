"""Each action held for several steps of the environment, whose rewards are added up (Mnih et al. 2015, "frame skip").

To everything outside this file such a row of steps is one step.
"""

from typing import Any

import gymnasium
import numpy as np


class RepeatedActions(gymnasium.Wrapper):
    """An environment in which each action is held for `repeat` steps, or until the episode ends."""

    def __init__(self, env: gymnasium.Env, repeat: int) -> None:
        super().__init__(env)
        self._repeat = repeat

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's; the reward is the sum over the steps, all else is of the last one."""
        total = 0.0
        for _ in range(self._repeat):
            held = action.copy() if isinstance(action, np.ndarray) else action  # it may be changed in place
            observation, reward, terminated, truncated, info = self.env.step(held)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info
