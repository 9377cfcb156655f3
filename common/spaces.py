"""Between the agent's numbers and the environment's: flat observations, actions in [−1, 1]."""

import gymnasium
import numpy as np

from common.errors import UserError


class ActionMap:
    """Maps policy actions in [−1, 1] to a Box by centre + scale of each dimension.

    Actions outside [−1, 1] are clipped first. A dimension without two finite bounds passes through
    unscaled and is clipped to the bound it has. Integer spaces take the nearest integer.
    """

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        low = space.low.astype(np.float64).ravel()  # [A]
        high = space.high.astype(np.float64).ravel()  # [A]
        bounded = np.isfinite(low) & np.isfinite(high)  # [A]
        self.centre = np.where(bounded, (np.where(bounded, high, 0) + np.where(bounded, low, 0)) / 2, 0.0)  # [A]
        self.scale = np.where(bounded, (np.where(bounded, high, 0) - np.where(bounded, low, 0)) / 2, 1.0)  # [A]
        self.low, self.high = low.astype(space.dtype), high.astype(space.dtype)  # [A]
        self.shape, self.dtype = space.shape, space.dtype
        self._rounds = np.issubdtype(space.dtype, np.integer)
        self._identity = bool(np.all(self.centre == 0) and np.all(self.scale == 1))

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """[K, A] policy actions → [K, *space.shape] in the space's dtype."""
        mapped = actions if self._identity else self.centre + self.scale * actions  # [K, A]
        if self._rounds:
            mapped = np.rint(mapped)
        mapped = np.maximum(mapped.astype(self.dtype, copy=False), self.low)
        np.minimum(mapped, self.high, out=mapped)
        return mapped if len(self.shape) == 1 else mapped.reshape(-1, *self.shape)


def check_spaces(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raises UserError where the agent has no network or no policy for a space."""
    box = gymnasium.spaces.Box
    if not isinstance(observation_space, box):
        raise UserError(
            f"{env_id} has observations of type {type(observation_space).__name__}; "
            "supported are Box observations: choose another --env"
        )
    if observation_space.dtype == np.uint8 and len(observation_space.shape) >= 2:
        raise UserError(
            f"{env_id} has image observations {observation_space.shape}; supported are Box observations "
            "of numbers, not images: choose another --env"
        )
    if not isinstance(action_space, box):
        raise UserError(
            f"{env_id} has actions of type {type(action_space).__name__}; "
            "supported are Box actions: choose another --env"
        )
