"""Networks that obey a mirror: Keras layers around a torso and its heads.

An actor with μ(s) = ½ (f(s) + M_a f(M_s s)) does in mirrored states the mirrored action, whatever f is. A critic with
V(s) = ½ (v(s) + v(M_s s)) values both states alike. Su et al. 2024 (arXiv:2403.17320) compare such networks with
mirrored copies of the data. Both passes are one of twice the rows. Where the image has another weight than ½ in the
actor's mean, the policy may do different things on both sides.
"""

from typing import Any

import keras

from common.envs.mirrors import Entries, Mirror, unmoved


def mirror_image(observations: Any, entries: Entries) -> Any:
    """[..., S] → what a mirror makes of them, [..., S]; of Keras or TensorFlow."""
    return keras.ops.matmul(observations, entries.matrix) + entries.offset


def mean_of_both(outputs: Any, entries: Entries, weight: float) -> Any:
    """What was said of observations, and below it of their images, [..., 2B, X] → [..., B, X]."""
    one, image = keras.ops.split(outputs, 2, axis=-2)  # [..., B, X] each
    return (1.0 - weight) * one + weight * keras.ops.matmul(image, entries.matrix)


class WithMirrorImage(keras.layers.Layer):
    """Observations, and below them their mirror images."""

    def __init__(self, entries: Entries, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._entries = entries

    def call(self, observations: keras.KerasTensor) -> keras.KerasTensor:
        """[B, S] → [2B, S]."""
        return keras.ops.concatenate([observations, mirror_image(observations, self._entries)], axis=0)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[B, S] → [2B, S], where the number of rows is not known beforehand."""
        return None, *input_shape[1:]


class MeanOfBoth(keras.layers.Layer):
    """The mean of what was said of each observation, and of the mirrored of what was said of its image."""

    def __init__(self, entries: Entries, weight: float = 0.5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._entries, self._weight = entries, weight

    def call(self, outputs: keras.KerasTensor) -> keras.KerasTensor:
        """[2B, X] → [B, X]."""
        return mean_of_both(outputs, self._entries, self._weight)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[2B, X] → [B, X], where the number of rows is not known beforehand."""
        return None, *input_shape[1:]


def with_mirror_image(observations: keras.KerasTensor, mirror: Mirror | None) -> keras.KerasTensor:
    """[B, S] → [2B, S]; unchanged without a mirror."""
    return observations if mirror is None else WithMirrorImage(mirror.observation)(observations)


def mean_of_heads(heads: list[keras.KerasTensor], mirror: Mirror | None) -> list[keras.KerasTensor]:
    """A policy's heads [2B, X] → [B, X] each: the first has signs, a standard deviation has none."""
    if mirror is None:
        return heads
    return [MeanOfBoth(entries, mirror.weight)(head) for head, entries in zip(heads, entries_of_heads(mirror))]


def entries_of_heads(mirror: Mirror) -> tuple[Entries, Entries]:
    """What the mirror does to means or logits, and to standard deviations."""
    return mirror.action, mirror.action.unsigned


def mean_of_values(values: keras.KerasTensor, mirror: Mirror | None) -> keras.KerasTensor:
    """[2B, X] → [B, X]; unchanged without a mirror."""
    return values if mirror is None else MeanOfBoth(unmoved(values.shape[-1]))(values)
