"""Dense networks of one shape whose weights lie side by side in one variable, computed as one batch of products.

A method that updates six small networks and their Adams once a step spends part of every call on taking up and
giving back variables: 60 of them took 0.2 ms more than 12. Two critics of 256 units as one batch made an update a
third faster, presumably since each core has a product of its own instead of half of every one (the log).
"""

import math
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from common.envs.mirrors import Sides
from common.learning.frozen_policy import known_layers
from common.learning.mirrored import mean_of_both, mirror_image
from common.learning.rounded_products import rounded_product


class FlatNetworks:
    """Networks of dense layers, all of one shape, whose weights, network by network, are one vector.

    Layer normalisation may stand between them.

    Args:
        networks: give the structure and the first weights; later they hold what `pull` last gave them.
        sides: what a mirror that they obey does to inputs and to outputs; see `common.learning.mirrored`.
        precision: bfloat16 rounds the numbers that are multiplied between two hidden layers.

    Raises:
        UserError: the networks have another layer.

    Attributes:
        weights: [W] float32, all weights of all networks.
    """

    def __init__(
        self, networks: Sequence[keras.Model], sides: Sides | None = None, precision: str = "float32"
    ) -> None:
        self.networks = list(networks)
        self._sides = sides
        self._layers = known_layers(networks[0], *_APPLY)
        dense = [layer for layer in self._layers if isinstance(layer, keras.layers.Dense)]
        self._rounded = dense[1:-1] if precision == "bfloat16" else []  # inputs may be large, and outputs are values
        shapes = [weights.shape for weights in networks[0].get_weights()]  # kernel, bias, kernel, bias, ...
        ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
        self._parts = [
            (slice(int(start), int(end)), (len(networks), *shape)) for start, end, shape in zip(ends, ends[1:], shapes)
        ]  # of a network's weights
        self.weights = keras.Variable(self._joined())

    def _joined(self) -> np.ndarray:
        """The weights of the Keras networks, [W]."""
        return np.concatenate([weights.ravel() for network in self.networks for weights in network.get_weights()])

    def stacks(self, weights: tf.Tensor | np.ndarray | None = None) -> list[tf.Tensor | np.ndarray]:
        """[W] `weights`, by default those of now, as one array for each kernel and bias, [networks, ...]."""
        xp = np if isinstance(weights, np.ndarray) else tf
        weights = tf.convert_to_tensor(self.weights.value) if weights is None else weights
        table = xp.reshape(weights, (len(self.networks), -1))  # [networks, W / networks]
        return [xp.reshape(table[:, part], shape) for part, shape in self._parts]

    def copied_weights(self) -> np.ndarray:
        """[W] a copy of all weights, by one operation where `Variable.numpy` takes several."""
        return tf.raw_ops.ReadVariableOp(resource=self.weights.value.handle, dtype=tf.float32).numpy()

    def call(self, stacks: list[tf.Tensor], inputs: tf.Tensor) -> tf.Tensor:
        """What the networks with these weights [networks, ...] make of inputs [B, in]: [networks, B, out]."""
        if self._sides is not None:
            inputs = tf.concat([inputs, mirror_image(inputs, self._sides.inputs)], axis=0)  # [2B, in]
        features = tf.broadcast_to(inputs, (stacks[0].shape[0], *inputs.shape))  # [networks, B, in]
        first = 0
        for layer in self._layers:
            last = first + len(layer.weights)
            apply = _rounded_dense if layer in self._rounded else _APPLY[type(layer)]
            features = apply(layer, features, *stacks[first:last])  # [networks, B, units]
            first = last
        if self._sides is not None:
            return mean_of_both(features, self._sides.outputs, self._sides.weight)  # [networks, B, out]
        return features

    def pull(self) -> list[keras.Model]:
        """The Keras networks, with the weights of now."""
        stacks = self.stacks(self.copied_weights())
        for i, network in enumerate(self.networks):
            network.set_weights([stack[i] for stack in stacks])
        return self.networks

    def push(self) -> None:
        """Copy the weights of the Keras networks."""
        self.weights.assign(self._joined())


def _dense(layer: keras.layers.Dense, features: tf.Tensor, kernels: tf.Tensor, biases: tf.Tensor) -> tf.Tensor:
    """[networks, B, in] → [networks, B, units]."""
    return layer.activation(tf.matmul(features, kernels) + biases[:, None])


def _rounded_dense(layer: keras.layers.Dense, features: tf.Tensor, kernels: tf.Tensor, biases: tf.Tensor) -> tf.Tensor:
    """As `_dense`, with features and kernels rounded to bfloat16."""
    return layer.activation(rounded_product(features, kernels) + biases[:, None])


def _normalized(
    layer: keras.layers.LayerNormalization, features: tf.Tensor, scales: tf.Tensor, shifts: tf.Tensor
) -> tf.Tensor:
    """Each row of features [networks, B, units] with mean 0 and variance 1, then scaled and shifted by each unit's."""
    return standardized_rows(features, layer.epsilon) * scales[:, None] + shifts[:, None]


def standardized_rows(features: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Rows of [..., units] with mean 0 and variance 1.

    Means are products with a column of 1 / units, and the gradient is written out: compiled, a forward and backward
    pass takes a fifth less time than with `tf.nn.moments` (the log).
    """
    units = features.shape[-1]
    column = tf.fill((1, units, 1), 1.0 / units)

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


def _activated(layer: keras.layers.Activation, features: tf.Tensor) -> tf.Tensor:
    """[networks, B, units], each for itself."""
    return layer.activation(features)


_APPLY: dict[type, Callable[..., tf.Tensor]] = {
    keras.layers.Dense: _dense,
    keras.layers.LayerNormalization: _normalized,
    keras.layers.Activation: _activated,
}
"""How a layer of every network at once is computed, from the layer, features and its weights."""


def flat(stacks: list[tf.Tensor]) -> tf.Tensor:
    """Gradients [networks, ...] of each kernel and bias → [W], in the order of `FlatNetworks.weights`."""
    tables = [tf.reshape(stack, (stack.shape[0], -1)) for stack in stacks]
    return tf.reshape(tf.concat(tables, axis=1), (-1,))
