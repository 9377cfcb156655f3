"""Maps the agent's actions, which are in [−1, 1] or counted from 0, to the environment's."""

import gymnasium
import numpy as np


def action_map(space: gymnasium.Space) -> "ActionMap":
    """The map for an action space that `check_spaces` accepts."""
    return BoxMap(space) if isinstance(space, gymnasium.spaces.Box) else DiscreteMap(space)


def choices(space: gymnasium.Space) -> tuple[int, ...]:
    """How many values each of the A numbers of a discrete action can take; Discrete has one number."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    return (2,) * int(np.prod(space.shape or ()))


class DiscreteMap:
    """Maps values counted from 0 to a Discrete, MultiDiscrete or MultiBinary space, which may start elsewhere."""

    def __init__(self, space: gymnasium.Space) -> None:
        counts = choices(space)
        self.size, self.noise_size = len(counts), sum(counts)  # A; X, random numbers that sample an action
        self._shape, self._dtype = space.shape or (), space.dtype
        self._start = np.asarray(getattr(space, "start", 0)).ravel()  # [1] or [A]

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """[K, A] values, whole numbers in float32 → [K, *space.shape] in the space's dtype."""
        return (actions + self._start).astype(self._dtype).reshape(-1, *self._shape)


WHOLE = 2.0**53  # float64 holds every whole number up to here


class BoxMap:
    """Maps policy actions in [−1, 1] to a Box by centre + scale of each dimension.

    The result is clipped to the bounds. A dimension without two finite bounds keeps its unit and is clipped to the
    bound it has; if that bound lies within [−1, 1], the dimension is shifted, so that −1 maps to 0 in [0, ∞).
    Bounds at the limits of the number type count as infinite. Integer spaces take the nearest integer.
    """

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        self._rounds = space.dtype.kind in "iub"
        low, high = (_bounds(bound, space.dtype) for bound in (space.low, space.high))  # [A], [A]
        bounded = np.isfinite(low) & np.isfinite(high)  # [A]
        shift = np.maximum(0.0, low + 1) + np.minimum(0.0, high - 1)  # [A]; 0 for an infinite bound
        with np.errstate(invalid="ignore"):  # ∞ − ∞, which `np.where` then ignores
            self.centre = np.where(bounded, (high + low) / 2, shift)  # [A]
            self.scale = np.where(bounded, (high - low) / 2, 1.0)  # [A]
        self.low, self.high = space.low.ravel(), space.high.ravel()  # [A]
        self.shape, self.dtype = space.shape, space.dtype
        self.size = self.noise_size = len(low)
        self._identity = bool(np.all(self.centre == 0) and np.all(self.scale == 1))

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """[K, A] policy actions → [K, *space.shape] in the space's dtype."""
        mapped = actions if self._identity else self.centre + self.scale * actions  # [K, A]
        if self._rounds:
            # A cast of numbers beyond the type's range would wrap around.
            reach = np.iinfo(np.dtype(np.uint8) if self.dtype == np.bool_ else self.dtype)  # type: ignore[type-var]  # an integer
            mapped = np.clip(np.rint(mapped), np.maximum(reach.min, -WHOLE), np.minimum(reach.max, WHOLE))
        mapped = np.maximum(mapped.astype(self.dtype, copy=False), self.low)
        np.minimum(mapped, self.high, out=mapped)
        return mapped if len(self.shape) == 1 else mapped.reshape(-1, *self.shape)

    def unrounded(self, actions: np.ndarray) -> np.ndarray:
        """[K, A] policy actions → [K, A] float64, the numbers that `__call__` rounds to the space's type."""
        return np.clip(self.centre + self.scale * actions, self.low.astype(np.float64), self.high.astype(np.float64))


ActionMap = BoxMap | DiscreteMap


def _bounds(bounds: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Bounds [A] float64; infinite if at the limits of their type, or of float32."""
    wide = bounds.astype(np.float64).ravel()  # [A]
    reach = float(np.finfo(np.float32).max) / 2
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        reach = min(limits.max, WHOLE) if limits.bits >= 32 else np.inf
    return np.where(np.abs(wide) >= reach, np.copysign(np.inf, wide), wide)


DISCRETE = (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.MultiBinary)


def is_image(space: gymnasium.Space) -> bool:
    """Whether observations are images [H, W, C] uint8, as `as_numbers_or_image` leaves them."""
    return isinstance(space, gymnasium.spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
