"""Which spaces are supported, and observations as the networks see them: numbers, or images."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeGuard

import gymnasium
import numpy as np

from common.envs.image_rows import ImagePart, RowWithImagesSpace
from common.envs.spaces import DISCRETE, is_image
from common.errors import UserError

VECTORS = (*DISCRETE, gymnasium.spaces.Box, gymnasium.spaces.Dict, gymnasium.spaces.Tuple)
_WRAPPERS = "such as my_module:MyWrapper, or choose another --env"
SMALLEST_SIDE, MOST_CHANNELS = 10, 12  # of images among numbers
LARGEST = 100_000  # numbers in an observation; a trajectory of the default length then takes 6.5 GB


def check_spaces(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raises UserError unless there is a network for the observations and a policy for the actions."""
    for path, leaf in _leaves(observation_space):
        where = f", at {path}" if path else ""
        if not isinstance(leaf, VECTORS) or not leaf.is_np_flattenable:
            raise UserError(
                f"{env_id} has observations of type {type(leaf).__name__}{where}; supported are Box, Discrete, "
                f"MultiDiscrete, MultiBinary, and Dict or Tuple of those: change them with --wrappers, {_WRAPPERS}"
            )
        if image_layout(observation_space) is None and _shows_pictures(leaf) and not _fits_a_row(leaf.shape):
            _refuse_image(env_id, where, leaf.shape)
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


def _refuse_image(env_id: str, where: str, shape: tuple[int, ...]) -> NoReturn:
    raise UserError(
        f"{env_id} has an image in its observations{where}, of shape {shape}; supported are images of "
        f"height, width and {MOST_CHANNELS} channels at most, of {SMALLEST_SIDE} × {SMALLEST_SIDE} pixels or "
        f"more: change it with --wrappers, {_WRAPPERS}"
    )


class WithoutTexts(gymnasium.wrappers.FilterObservation):
    """An environment with some keys of its observations alone; the others are texts."""

    def __init__(self, env: gymnasium.Env, kept: list[str], left_out: list[str]) -> None:
        super().__init__(env, kept)
        self.left_out = left_out


def without_texts(env: gymnasium.Env) -> gymnasium.Env:
    """The environment without the texts of a Dict; as it is where there is nothing else."""
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Dict):
        return env
    texts = [key for key, part in space.items() if part.dtype is not None and part.dtype.kind == "U"]
    kept = [key for key in space if key not in texts]
    return WithoutTexts(env, kept, texts) if texts and kept else env


def _leaves(space: gymnasium.Space, path: str = "") -> Iterator[tuple[str, gymnasium.Space]]:
    """The spaces within nested Dict and Tuple spaces, each with its path, like ['camera'][0]."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _leaves(part, f"{path}[{key!r}]")
    else:
        yield path, space


def _shows_pictures(space: gymnasium.Space) -> TypeGuard[gymnasium.spaces.Box]:
    """Whether a space holds images: uint8 from 0 to 255 with two or more axes, or a few planes of 10 × 10 or more."""
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) < 2 or 0 in space.shape:
        return False
    if space.dtype == np.uint8:
        return bool((space.low == 0).all() and (space.high == 255).all())
    return (len(space.shape) == 3 and _fits_a_row(space.shape)) or (
        len(space.shape) >= 3 and sorted(space.shape)[-2] >= 32
    )


def _fits_a_row(shape: tuple[int, ...]) -> bool:
    """Whether an image [H, W, C], [C, H, W] or [H, W] can stand among the numbers of a row."""
    channels = 1 if len(shape) == 2 else min(shape[0], shape[-1])
    return len(shape) in (2, 3) and sorted(shape)[-2] >= SMALLEST_SIDE and channels <= MOST_CHANNELS


def images_of(space: gymnasium.Space) -> tuple[ImagePart, ...]:
    """The images of an observation space in the row that `gymnasium.spaces.flatten` makes of it."""
    found, start = [], 0
    for _, leaf in _leaves(space):
        if _shows_pictures(leaf):
            order, shape = _order_and_shape(leaf.shape)
            bounds = float(leaf.low.min()), float(leaf.high.max())
            found.append(ImagePart(start, shape, order == "CHW", *bounds, is_uint8=leaf.dtype == np.uint8))
        start += gymnasium.spaces.flatdim(leaf)
    return tuple(found)


def image_layout(space: gymnasium.Space) -> str | None:
    """The order of an image's axes, "HWC", "CHW" or "HW"; None if observations are not uint8 images.

    A Dict or Tuple with an image as its only part counts as that image.
    """
    leaves = [leaf for _, leaf in _leaves(space)]
    if len(leaves) != 1 or not _shows_pictures(leaf := leaves[0]) or leaf.dtype != np.uint8 or len(leaf.shape) > 3:
        return None
    return _order_and_shape(leaf.shape)[0]


def _order_and_shape(shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The order of an image's axes, and its shape as HWC. The first axis is that of the channels if it is shortest."""
    if len(shape) == 2:
        return "HW", (*shape, 1)
    return ("CHW", (*shape[1:], shape[0])) if shape[0] < min(shape[1:]) else ("HWC", shape)


def as_numbers_or_image(env: gymnasium.Env) -> gymnasium.Env:
    """The environment, wrapped so that its observations are numbers [S], or an image [height, width, channels].

    A Discrete number becomes a one-hot vector; the parts of a Dict or Tuple are concatenated, images among them.
    """
    space, layout = env.observation_space, image_layout(env.observation_space)
    is_box = isinstance(space, gymnasium.spaces.Box)
    if layout is None and (parts := images_of(space)):
        flat_space: Any = gymnasium.spaces.flatten_space(space)
        row = RowWithImagesSpace(flat_space, parts)
        return gymnasium.wrappers.TransformObservation(gymnasium.wrappers.FlattenObservation(env), row.scaled, row)
    if layout is None:
        return env if is_box and len(space.shape or ()) == 1 else gymnasium.wrappers.FlattenObservation(env)
    if layout == "HWC" and is_box:
        return env
    [(_, leaf)] = _leaves(space)
    images = gymnasium.spaces.Box(0, 255, _order_and_shape(leaf.shape or ())[1], np.uint8)
    return gymnasium.wrappers.TransformObservation(env, functools.partial(_image, layout), images)


def _image(layout: str, observation: Any) -> np.ndarray:
    """An observation whose only part is an image → [height, width, channels]."""
    while isinstance(observation, Mapping | tuple):
        [observation] = observation.values() if isinstance(observation, Mapping) else observation
    image = np.asarray(observation)  # [H, W, C], [C, H, W] or [H, W]
    if layout == "HW":
        return image[..., None]
    return np.moveaxis(image, 0, -1) if layout == "CHW" else image


def check_continuous(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raises UserError unless actions are a Box, and an image has a size that all methods take."""
    if is_image(observation_space) and not _fits_a_row(observation_space.shape or ()):
        _refuse_image(env_id, "", observation_space.shape or ())
    if not isinstance(action_space, gymnasium.spaces.Box):
        raise UserError(
            f"{env_id} has actions of type {type(action_space).__name__}; this method needs Box actions: choose "
            "another --env, or train it with python PPOAgentTrainer.py"
        )
