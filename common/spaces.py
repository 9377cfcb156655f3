"""Between the agent's numbers and the environment's: flat observations, actions in [−1, 1] or counted from 0."""

from typing import Protocol

import gymnasium
import numpy as np

from common.errors import UserError


class ActionMap(Protocol):
    """Maps policy actions [K, size] to the environment's."""

    size: int  # A, numbers that make an action
    noise_size: int  # random numbers that choose one

    def __call__(self, actions: np.ndarray) -> np.ndarray: ...  # [K, *space.shape]


def action_map(space: gymnasium.Space) -> ActionMap:
    """The map for a space that `check_spaces` lets pass."""
    return BoxMap(space) if isinstance(space, gymnasium.spaces.Box) else DiscreteMap(space)


def choices(space: gymnasium.Space) -> tuple[int, ...]:
    """How many values each number of a discrete action has: Discrete one number, MultiBinary two values each."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    return (2,) * int(np.prod(space.shape))


class DiscreteMap:
    """Maps values counted from 0 to a Discrete, MultiDiscrete or MultiBinary space, which may start elsewhere."""

    def __init__(self, space: gymnasium.Space) -> None:
        counts = choices(space)
        self.size, self.noise_size = len(counts), sum(counts)
        self._shape, self._dtype = space.shape, space.dtype
        self._start = np.asarray(getattr(space, "start", 0)).ravel()  # [1] or [A]

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """[K, A] values, whole numbers in float32 → [K, *space.shape] in the space's dtype."""
        return (actions + self._start).astype(self._dtype).reshape(-1, *self._shape)


class BoxMap:
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
        self.size = self.noise_size = len(low)
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


DISCRETE = (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.MultiBinary)
VECTORS = (*DISCRETE, gymnasium.spaces.Box, gymnasium.spaces.Dict, gymnasium.spaces.Tuple)


def check_spaces(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raises UserError where the agent has no network or no policy for a space."""
    if not isinstance(observation_space, VECTORS) or not observation_space.is_np_flattenable:
        raise UserError(
            f"{env_id} has observations of type {type(observation_space).__name__}; supported are Box, Discrete, "
            "MultiDiscrete, MultiBinary, and Dict or Tuple of those: choose another --env"
        )
    if observation_space.dtype == np.uint8 and len(observation_space.shape or ()) not in (0, 1, 3):
        raise UserError(
            f"{env_id} has image observations {observation_space.shape}; supported are images of height, width and "
            "channels: choose another --env"
        )
    if not isinstance(action_space, (gymnasium.spaces.Box, *DISCRETE)):
        raise UserError(
            f"{env_id} has actions of type {type(action_space).__name__}; supported are Box, Discrete, "
            "MultiDiscrete and MultiBinary: choose another --env"
        )


def is_image(space: gymnasium.Space) -> bool:
    """Whether observations are images [H, W, C] uint8."""
    return isinstance(space, gymnasium.spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def check_continuous(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raises UserError where a deterministic policy has nothing to name, or there are images, which it cannot see."""
    if is_image(observation_space):
        raise UserError(
            f"{env_id} has image observations {observation_space.shape}; this method needs observations of numbers: "
            "choose another --env, or train it with python PPOAgentTrainer.py"
        )
    if not isinstance(action_space, gymnasium.spaces.Box):
        raise UserError(
            f"{env_id} has actions of type {type(action_space).__name__}; this method needs Box actions: "
            "choose another --env, or train it with python PPOAgentTrainer.py"
        )
