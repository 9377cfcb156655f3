"""The operations of a network in TensorFlow."""

from collections.abc import Callable
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from common.envs.mirrors import Entries
from common.nets import network
from common.nets.rounded_products import rounded_product


class _TensorFlowOperations(network.NumPyOperations):
    """The same on tensors: features [n, units], or [networks, n, units] of stacked networks.

    Args:
        rounds: whether layers that are `rounded` round what they multiply; exports do not.
    """

    activations: ClassVar[dict[str, Any]] = {name: keras.activations.get(name) for name in network.ACTIVATIONS}
    tanh = staticmethod(tf.tanh)

    def __init__(self, rounds: bool = False) -> None:
        self._rounds = rounds

    def normalized(self, observations: tf.Tensor, normalize: network.Normalizer) -> tf.Tensor:
        if normalize.shift is None:
            return tf.cast(observations, tf.float32)
        scaled = (observations - normalize.shift) * normalize.scale
        return tf.clip_by_value(scaled, -network.OBSERVATION_CLIP, network.OBSERVATION_CLIP)

    def linear(self, features: tf.Tensor, layer: network.Dense) -> tf.Tensor:
        kernel = layer.kernel
        if len(kernel.shape) > len(features.shape):  # the first layer of stacked networks
            features = tf.broadcast_to(features, (kernel.shape[0], *features.shape))  # [networks, n, in]
        product = rounded_product if layer.rounded and self._rounds else tf.matmul
        return product(features, kernel) + layer.bias

    def convolved(self, features: tf.Tensor, layer: network.Convolution) -> tf.Tensor:
        return tf.nn.conv2d(features, layer.kernel, layer.stride, "VALID") + layer.bias

    def layer_normalized(self, features: tf.Tensor, layer: network.LayerNormalization) -> tf.Tensor:
        return standardized_rows(features, layer.epsilon) * layer.scale + layer.shift

    def scaled(self, features: tf.Tensor, scale: float, shift: float) -> tf.Tensor:
        return features * scale + shift

    def flattened(self, features: tf.Tensor) -> tf.Tensor:
        return tf.reshape(features, (-1, np.prod(features.shape[1:])))

    def chosen(self, features: tf.Tensor, layer: network.Cut) -> tf.Tensor:
        return tf.reshape(tf.gather(features, layer.columns, axis=1), (-1, *layer.shape))

    def beside(self, parts: list[tf.Tensor]) -> tf.Tensor:
        return tf.concat(parts, axis=1)

    def constant(self, values: np.ndarray) -> tf.Tensor:
        return tf.constant(values)

    def product(self, features: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.matmul(features, kernel)

    def sigmoid(self, sums: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(sums)

    def masked(self, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        return tf.where(mask > 0, logits, network.RULED_OUT)

    def joined(self, one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        return tf.concat([one, other], axis=-2)

    def halves(self, both: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.split(both, 2, axis=-2)

    def mirrored(self, array: tf.Tensor, entries: Entries) -> tf.Tensor:
        moved = tf.matmul(array, entries.matrix)
        return moved + entries.offset if entries.offsets else moved

    def mixed(self, one: tf.Tensor, other: tf.Tensor, weight: float) -> tf.Tensor:
        return (1.0 - weight) * one + weight * other


TENSORFLOW, ROUNDING = _TensorFlowOperations(), _TensorFlowOperations(rounds=True)


def standardized_rows(features: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Rows of [..., units] with mean 0 and variance 1.

    Means are products with a column of 1 / units, and the gradient is written out: compiled, a forward and backward
    pass takes a fifth less time than with `tf.nn.moments` (see the log).
    """
    units = features.shape[-1]
    column = tf.fill((*(1,) * (len(features.shape) - 2), units, 1), 1.0 / units)

    def mean_of(numbers: tf.Tensor) -> tf.Tensor:
        return tf.matmul(numbers, column)  # [..., 1]

    @tf.custom_gradient
    def standardized(features: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        centred = features - mean_of(features)  # [..., units]
        factor = tf.math.rsqrt(mean_of(centred * centred) + epsilon)  # [..., 1]
        result = centred * factor  # [..., units]

        def gradient(of_result: tf.Tensor) -> tf.Tensor:
            return factor * (of_result - mean_of(of_result) - result * mean_of(of_result * result))  # [..., units]

        return result, gradient

    return standardized(features)
