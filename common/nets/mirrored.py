"""Networks that obey a mirror: Keras layers around a torso and its heads; `common.nets.network.mean_of_both` says why.

Both passes are one of twice the rows.
"""

import keras

from common.envs.mirrors import Entries
from common.nets.network import mean_of_both, with_image
from common.nets.tensorflow_operations import TENSORFLOW


class WithMirrorImage(keras.layers.Layer):
    """Observations, and below them their mirror images."""

    def __init__(self, entries: Entries, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.entries = entries

    def call(self, observations: keras.KerasTensor) -> keras.KerasTensor:
        """[B, S] → [2B, S]."""
        return with_image(TENSORFLOW, observations, self.entries)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[B, S] → [2B, S], where the number of rows is not known beforehand."""
        return None, *input_shape[1:]


class MeanOfBoth(keras.layers.Layer):
    """The mean of what was said of each observation, and of the mirrored of what was said of its image."""

    def __init__(self, entries: Entries, weight: float = 0.5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.entries, self.weight = entries, weight

    def call(self, outputs: keras.KerasTensor) -> keras.KerasTensor:
        """[2B, X] → [B, X]."""
        return mean_of_both(TENSORFLOW, outputs, self.entries, self.weight)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[2B, X] → [B, X], where the number of rows is not known beforehand."""
        return None, *input_shape[1:]
