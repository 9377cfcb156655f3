"""PPO's networks, as its settings describe them."""

import math

import numpy as np

from common.envs.image_rows import ImagePart
from common.errors import UserError
from common.nets.keras_models import Convolution, DenseHead, Heads, NormalHeads, Torso, fits, with_convolutions
from ppo.config import PPOConfig

NO_GAINS = (1.0, 1.0)  # where the weights are drawn anew


def torso_sizes(hidden_sizes: tuple[int, ...], observation_size: int, action_size: int) -> tuple[int, ...]:
    """The sizes asked for, or where none are: 10·S, ceil(√(10·S · 10·A)), 10·A (the 2021 study's rule)."""
    first, last = 10 * observation_size, 10 * action_size
    return hidden_sizes or (first, math.ceil(math.sqrt(first * last)), last)


def torso_for(
    observation_shape: tuple[int, ...], action_size: int, config: PPOConfig, images: tuple[ImagePart, ...] = ()
) -> Torso:
    """The hidden layers that a config names for observations of this shape, with `images` among their numbers.

    Raises UserError if convolutions leave nothing of an image, images are to be remembered, or nothing is rounded.
    """
    convolutions = tuple(Convolution(*layer) for layer in config.convolution_layers)
    is_image = len(observation_shape) == 3
    if config.memory != "none" and (images or is_image):
        raise UserError(f"memory {config.memory} is for observations that are numbers, not images: leave it out")
    if is_image:
        _check_convolutions(observation_shape, convolutions)
    sizes = torso_sizes(config.hidden_sizes, int(np.prod(observation_shape)), action_size)
    if config.precision == "bfloat16" and not is_image and len(sizes) < 2:
        raise UserError(
            f"precision bfloat16 has no effect with hidden_sizes {sizes} and observations that are not images: "
            "add --hidden-sizes 256 256, or leave --precision out"
        )
    return Torso(
        observation_shape,
        sizes,
        config.activation,
        (config.initial_gains or NO_GAINS)[0],
        convolutions if is_image else (),
        precision=config.precision,
        images=with_convolutions(images, convolutions),
        memory=None if config.memory == "none" else config.memory,
        memory_size=config.memory_size,
    )


def memory_columns(config: PPOConfig, own_networks: bool) -> dict[str, slice]:
    """Network → its columns of all that is remembered; UserError if networks of the user's own are to remember."""
    if config.memory == "none":
        return {}
    if own_networks:
        raise UserError(f"memory {config.memory} does not go with networks of your own: leave --memory out")
    size = config.memory_size * (2 if config.memory == "lstm" else 1)
    if config.shared_torso:
        return {"network": slice(0, size)}
    return {"actor": slice(0, size), "critic": slice(size, 2 * size)}


def heads_for(action_size: int, choices: tuple[int, ...] | None, config: PPOConfig) -> Heads:
    """The policy's heads: logits where actions are choices, else means and standard deviations."""
    gain = (config.initial_gains or NO_GAINS)[1]
    if choices is not None:
        return DenseHead("logits", sum(choices), gain=gain)
    return NormalHeads(action_size, config.mean_activation, gain, config.initial_std)


def _check_convolutions(shape: tuple[int, ...], convolutions: tuple[Convolution, ...]) -> None:
    if not fits(shape, convolutions):
        side = min(shape[:2])
        fitting = "32x3/2 64x3/2" if side >= 7 else f"32x{min(3, side)}/1"
        raise UserError(
            f"the convolutions leave nothing of images of {shape[0]} × {shape[1]} pixels: use --convolutions {fitting}"
        )
