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
            shape, first, bounds = leaf.shape, False, (float(leaf.low.min()), float(leaf.high.max()))
            if len(shape) == 2:
                shape = (*shape, 1)
            elif shape[0] < min(shape[1:]):
                shape, first = (*shape[1:], shape[0]), True
            found.append(ImagePart(start, shape, first, *bounds, is_uint8=leaf.dtype == np.uint8))
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
    if not _shows_pictures(space) or space.dtype != np.uint8 or len(space.shape) > 3:
        return None
    shape = space.shape
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
        row = RowWithImagesSpace(flat_space, parts)
        return gymnasium.wrappers.TransformObservation(gymnasium.wrappers.FlattenObservation(env), row.scaled, row)
    if layout is None:
        flat = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1
        return env if flat else gymnasium.wrappers.FlattenObservation(env)
    if layout == "HWC" and isinstance(space, gymnasium.spaces.Box):
        return env
    [(_, leaf)] = _leaves(space)
    assert isinstance(leaf, gymnasium.spaces.Box), "it is an image"
    own = leaf.shape
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


def check_continuous(env_id: str, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raises UserError unless actions are a Box, and an image has a size that all methods take."""
    if is_image(observation_space) and not _fits_a_row(observation_space.shape or ()):
        _refuse_image(env_id, "", observation_space.shape or ())
    if not isinstance(action_space, gymnasium.spaces.Box):
        raise UserError(
            f"{env_id} has actions of type {type(action_space).__name__}; this method needs Box actions: choose "
            "another --env, or train it with python PPOAgentTrainer.py"
        )
