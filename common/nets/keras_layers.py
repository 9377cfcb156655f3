"""Keras layers that make networks obey a mirror (`common.nets.network.mean_of_both`), and a standard deviation."""

import math

import keras

from common.envs.mirrors import Entries
from common.nets.network import Cut, mean_of_both, with_image
from common.nets.tensorflow_operations import TENSORFLOW


class StateIndependentStd(keras.layers.Layer):
    """A learned standard deviation per action, the same in every state; kept as its logarithm."""

    def __init__(self, action_size: int, initial_std: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.log_std = self.add_weight(
            shape=(action_size,), initializer=keras.initializers.Constant(math.log(initial_std)), name="log_std"
        )

    def call(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """features [B, units] → standard deviations [B, A]."""
        return keras.ops.zeros_like(features[:, :1]) + keras.ops.exp(self.log_std)  # [B, A]


class Columns(keras.layers.Layer):
    """Some columns of a row of numbers, as an image or as a shorter row; see `network.Cut`."""

    def __init__(self, cut: Cut, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.cut = cut

    def call(self, rows: keras.KerasTensor) -> keras.KerasTensor:
        """[B, S] → [B, *shape]."""
        return self.cut.apply(TENSORFLOW, rows)


class WithMirrorImage(keras.layers.Layer):
    """Observations, and below them their mirror images."""

    def __init__(self, entries: Entries, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.entries = entries

    def call(self, observations: keras.KerasTensor) -> keras.KerasTensor:
        """[B, S] → [2B, S]."""
        return with_image(TENSORFLOW, observations, self.entries)


class MeanOfBoth(keras.layers.Layer):
    """The mean of what was said of each observation, and of the mirrored of what was said of its image."""

    def __init__(self, entries: Entries, weight: float = 0.5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.entries, self.weight = entries, weight

    def call(self, outputs: keras.KerasTensor) -> keras.KerasTensor:
        """[2B, X] → [B, X]."""
        return mean_of_both(TENSORFLOW, outputs, self.entries, self.weight)
