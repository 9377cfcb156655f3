"""Earlier observations beside the newest one, for tasks in which one observation does not tell enough."""

from collections.abc import Sequence

import gymnasium
import numpy as np


class History:
    """The newest and some earlier observations of n environments, side by side.

    At the start of an episode the first observation stands for all earlier ones.

    Args:
        num_envs: n.
        ages: [H] of the earlier observations, in steps, 1 or more each.
    """

    def __init__(self, num_envs: int, ages: Sequence[int]) -> None:
        self._ages = np.array((0, *ages))  # [1 + H]
        self._depth = max(self._ages) + 1
        self._newest = np.zeros(num_envs, np.int64)  # [n] where it is in the ring
        self._ring = np.zeros((num_envs, 0, 0), np.float32)  # [n, depth, S]

    def add(self, observations: np.ndarray, first: np.ndarray, which: np.ndarray | None = None) -> np.ndarray:
        """Take up the next observations, and return them with the earlier ones.

        Args:
            observations: [k, S].
            first: [k] bool: the first ones of their episodes.
            which: [k] indices of their environments; None for all of them, in their order.

        Returns:
            [k, (1 + H) · S], the newest observation first.
        """
        if which is None:
            which = np.arange(len(self._newest))
        if not self._ring.size:
            shape = (len(self._newest), self._depth, observations.shape[1])
            self._ring = np.zeros(shape, observations.dtype)
        self._newest[which] = newest = (self._newest[which] + 1) % self._depth  # [k]
        self._ring[which, newest] = observations
        self._ring[which[first]] = observations[first][:, None]
        chosen = (newest[:, None] - self._ages) % self._depth  # [k, 1 + H]
        return self._ring[which[:, None], chosen].reshape(len(which), -1)


def with_history(env: gymnasium.Env, ages: Sequence[int]) -> gymnasium.Env:
    """The environment with earlier observations beside the newest, as `History` returns them."""
    space, rows = env.observation_space, -1 - np.array((0, *ages))
    assert isinstance(space, gymnasium.spaces.Box), "`find_environment` makes sure of it"
    low, high = (np.tile(bound, 1 + len(ages)) for bound in (space.low, space.high))  # [(1 + H) · S] each
    stacked = gymnasium.wrappers.FrameStackObservation(env, max(ages) + 1, padding_type="reset")  # the newest is last
    return gymnasium.wrappers.TransformObservation(
        stacked, lambda frames: frames[rows].ravel(), gymnasium.spaces.Box(low, high, dtype=space.dtype.type)
    )
