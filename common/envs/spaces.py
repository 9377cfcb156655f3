"""Conversions between the agent's numbers and the environment's spaces.

The agent sees flat observations or images, and its actions are in [−1, 1], or counted from 0.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np

from common.errors import UserError


class ActionMap(Protocol):
    """Maps policy actions to the environment's."""

    size: int  # A, numbers in an action
    noise_size: int  # X, random numbers that sample one

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """Policy actions [K, A] → environment actions [K, *space.shape]."""
        ...


def action_map(space: gymnasium.Space) -> ActionMap:
    """The map for an action space that `check_spaces` accepts."""
    return BoxMap(space) if isinstance(space, gymnasium.spaces.Box) else DiscreteMap(space)


def choices(space: gymnasium.Space) -> tuple[int, ...]:
    """How many values each of the A numbers of a discrete action can take; Discrete has one number."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    return (2,) * int(np.prod(_shape(space)))


def _shape(space: gymnasium.Space) -> tuple[int, ...]:
    """The shape of a space that has one, as all but Dict and Tuple do."""
    assert space.shape is not None
    return space.shape


class DiscreteMap:
    """Maps values counted from 0 to a Discrete, MultiDiscrete or MultiBinary space, which may start elsewhere."""

    def __init__(self, space: gymnasium.Space) -> None:
        counts = choices(space)
        self.size, self.noise_size = len(counts), sum(counts)
        self._shape, self._dtype = _shape(space), space.dtype
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


def _bounds(bounds: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Bounds [A] float64; infinite if at the limits of their type, or of float32."""
    wide = bounds.astype(np.float64).ravel()  # [A]
    reach = float(np.finfo(np.float32).max) / 2
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        reach = min(limits.max, WHOLE) if limits.bits >= 32 else np.inf
    return np.where(np.abs(wide) >= reach, np.copysign(np.inf, wide), wide)


DISCRETE = (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.MultiBinary)
VECTORS = (*DISCRETE, gymnasium.spaces.Box, gymnasium.spaces.Dict, gymnasium.spaces.Tuple)
_WRAPPERS = "such as my_module:MyWrapper, or choose another --env"
LARGEST = 100_000  # numbers in an observation; a trajectory of the default length then takes 6.5 GB


def check_spaces(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Check that there is a network for the observations and a policy for the actions.

    Raises:
        UserError: there is none.
    """
    for path, leaf in _leaves(observation_space):
        where = f", at {path}" if path else ""
        if not isinstance(leaf, VECTORS) or not leaf.is_np_flattenable:
            raise UserError(
                f"{env_id} has observations of type {type(leaf).__name__}{where}; supported are Box, Discrete, "
                f"MultiDiscrete, MultiBinary, and Dict or Tuple of those: change them with --wrappers, {_WRAPPERS}"
            )
        if image_layout(observation_space) is None and _shows_pictures(leaf) and not _is_learnable(leaf):
            raise UserError(
                f"{env_id} has an image in its observations{where}, of shape {leaf.shape}; supported are images of "
                f"height, width and {MOST_CHANNELS} channels at most, of {SMALLEST_SIDE} × {SMALLEST_SIDE} pixels or "
                f"more: change it with --wrappers, {_WRAPPERS}"
            )
    size = gymnasium.spaces.flatdim(observation_space)
    if image_layout(observation_space) is None and not 1 <= size <= LARGEST:
        raise UserError(
            f"{env_id} has observations of {size:,} numbers, a Discrete space counted as one for each value: "
            f"expected 1 to {LARGEST:,}; describe it in fewer numbers with --wrappers, {_WRAPPERS}"
        )
    if not isinstance(action_space, (gymnasium.spaces.Box, *DISCRETE)):
        raise UserError(
            f"{env_id} has actions of type {type(action_space).__name__}; supported are Box, Discrete, "
            f"MultiDiscrete and MultiBinary: change them with --wrappers, {_WRAPPERS}"
        )
    if not gymnasium.spaces.flatdim(action_space):
        raise UserError(
            f"{env_id} has actions of shape {action_space.shape}, which is no number: expected one or more"
        )


class WithoutTexts(gymnasium.wrappers.FilterObservation):
    """An environment without some keys of its observations."""

    def __init__(self, env: gymnasium.Env, texts: list[str]) -> None:
        assert isinstance(env.observation_space, gymnasium.spaces.Dict), "`without_texts` finds none in others"
        super().__init__(env, [key for key in env.observation_space if key not in texts])
        self.left_out = tuple(texts)


def without_texts(env: gymnasium.Env) -> gymnasium.Env:
    """The environment without the texts of a Dict; as it is where there is nothing else."""
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Dict):
        return env
    texts = [key for key, part in space.items() if part.dtype is not None and part.dtype.kind == "U"]
    return WithoutTexts(env, texts) if 0 < len(texts) < len(space) else env


def _leaves(space: gymnasium.Space, path: str = "") -> Iterator[tuple[str, gymnasium.Space]]:
    """The spaces within nested Dict and Tuple spaces, each with its path, like ['camera'][0]."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _leaves(part, f"{path}[{key!r}]")
    else:
        yield path, space


SMALLEST_SIDE, MOST_CHANNELS = 10, 12  # of images within a row


def _shows_pictures(space: gymnasium.Space) -> bool:
    """Whether a space holds images: uint8 from 0 to 255 with two or more axes, or planes of 10 × 10 or more."""
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) < 2 or 0 in space.shape:
        return False
    if space.dtype == np.uint8:
        return bool((space.low == 0).all() and (space.high == 255).all())
    return len(space.shape) >= 3 and sorted(space.shape)[-2] >= SMALLEST_SIDE


def _is_learnable(space: gymnasium.Space) -> bool:
    """Whether an image can be one part of a row: [H, W, C], [C, H, W] or [H, W], not too small."""
    shape = _shape(space)
    channels = 1 if len(shape) == 2 else min(shape[0], shape[-1])
    return len(shape) in (2, 3) and sorted(shape)[-2] >= SMALLEST_SIDE and channels <= MOST_CHANNELS


@dataclass(frozen=True)
class ImagePart:
    """An image among the numbers of a row.

    Attributes:
        start: position of its first number.
        shape: [height, width, channels].
        channels_first: whether the channels are the first axis in the row.
        low, high: of its numbers, which are scaled to 0 to 1; infinite ones are not scaled.
    """

    start: int
    shape: tuple[int, ...]
    channels_first: bool
    low: float
    high: float

    @property
    def columns(self) -> np.ndarray:
        """Where the numbers of the image [H, W, C] stand in the row, [H · W · C]."""
        height, width, channels = self.shape
        numbers = np.arange(self.start, self.start + height * width * channels)
        if not self.channels_first:
            return numbers
        return numbers.reshape(channels, height, width).transpose(1, 2, 0).ravel()

    @property
    def is_scaled(self) -> bool:
        """Whether its numbers are scaled to 0 to 1."""
        return bool(np.isfinite([self.low, self.high]).all() and self.low < self.high)


class RowWithImages(gymnasium.spaces.Box):
    """Observations of numbers and images in one row [S] of float32; what the images are is in `images`."""

    def __init__(self, space: gymnasium.spaces.Box, images: tuple[ImagePart, ...]) -> None:
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)  # [S], [S]
        for image in images:
            if image.is_scaled:
                low[image.columns], high[image.columns] = 0, 1
        super().__init__(low, high, dtype=np.float32)
        self.images = images

    def scaled(self, row: np.ndarray) -> np.ndarray:
        """A row [S] as the environment has it → one whose images have values from 0 to 1."""
        row = row.astype(np.float32)
        for image in self.images:
            if image.is_scaled:
                row[image.columns] = (row[image.columns] - image.low) / (image.high - image.low)
        return row


def images_of(space: gymnasium.Space) -> tuple[ImagePart, ...]:
    """The images of an observation space in the row that `gymnasium.spaces.flatten` makes of it."""
    found, start = [], 0
    for _, leaf in _leaves(space):
        if isinstance(leaf, gymnasium.spaces.Box) and _shows_pictures(leaf):
            shape, first = _shape(leaf), False
            if len(shape) == 2:
                shape = (*shape, 1)
            elif shape[0] < min(shape[1:]):
                shape, first = (*shape[1:], shape[0]), True
            found.append(ImagePart(start, shape, first, float(leaf.low.min()), float(leaf.high.max())))
        start += gymnasium.spaces.flatdim(leaf)
    return tuple(found)


def image_layout(space: gymnasium.Space) -> str | None:
    """The order of an image's axes, "HWC", "CHW" or "HW"; None if observations are not uint8 images.

    A Dict or Tuple with an image as its only part counts as that image. The channels are the first axis if that is the
    shortest, otherwise the last.
    """
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        leaves = list(_leaves(space))
        return image_layout(leaves[0][1]) if len(leaves) == 1 else None
    if not _shows_pictures(space) or space.dtype != np.uint8 or len(_shape(space)) > 3:
        return None
    shape = _shape(space)
    if len(shape) == 2:
        return "HW"
    return "CHW" if shape[0] < min(shape[1:]) else "HWC"


def as_numbers_or_image(env: gymnasium.Env) -> gymnasium.Env:
    """The environment, wrapped so that its observations are numbers [S], or an image [height, width, channels].

    A Discrete number becomes a one-hot vector; the parts of a Dict or Tuple are concatenated, images among them.
    """
    space, layout = env.observation_space, image_layout(env.observation_space)
    if layout is None and (parts := images_of(space)):
        flat_space: Any = gymnasium.spaces.flatten_space(space)
        row = RowWithImages(flat_space, parts)
        return gymnasium.wrappers.TransformObservation(gymnasium.wrappers.FlattenObservation(env), row.scaled, row)
    if layout is None:
        flat = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1
        return env if flat else gymnasium.wrappers.FlattenObservation(env)
    if layout == "HWC" and isinstance(space, gymnasium.spaces.Box):
        return env
    [(_, leaf)] = _leaves(space)
    own = _shape(leaf)
    shape = {"HWC": own, "CHW": (*own[1:], own[0]), "HW": (*own, 1)}[layout]
    images = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return gymnasium.wrappers.TransformObservation(env, functools.partial(_image, layout), images)


def _image(layout: str, observation: Any) -> np.ndarray:
    """An observation whose only part is an image → [height, width, channels]."""
    while isinstance(observation, Mapping | tuple):
        [observation] = observation.values() if isinstance(observation, Mapping) else observation
    image = np.asarray(observation)  # [H, W, C], [C, H, W] or [H, W]
    if layout == "HW":
        return image[..., None]
    return np.moveaxis(image, 0, -1) if layout == "CHW" else image


def is_image(space: gymnasium.Space) -> bool:
    """Whether observations are images [H, W, C] uint8, as `as_numbers_or_image` leaves them."""
    return isinstance(space, gymnasium.spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def check_continuous(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raises UserError unless actions are a Box and observations are numbers, as some methods need."""
    if is_image(observation_space):
        what = f"image observations {observation_space.shape}; this method needs observations of numbers"
    elif not isinstance(action_space, gymnasium.spaces.Box):
        what = f"actions of type {type(action_space).__name__}; this method needs Box actions"
    else:
        return
    raise UserError(f"{env_id} has {what}: choose another --env, or train it with python PPOAgentTrainer.py")
