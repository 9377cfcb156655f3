"""Networks of one shape whose weights lie side by side in one variable, computed as one batch of products.

A method that updates six small networks and their Adams once a step spends part of every call on passing
variables in and out: 60 of them took 0.2 ms more than 12. Two critics of 256 units as one batch made an update a
third faster, presumably since each core has a product of its own instead of half of every one (see the log).
"""

import itertools
import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from common.nets.from_keras import can_describe, describe
from common.nets.keras_layers import Columns
from common.nets.network import UNCHANGED, Network, Normalizer, forward
from common.nets.tensorflow_operations import ROUNDING

_NOT_STACKED = keras.layers.Conv2D, keras.layers.Concatenate
_FIRST = keras.layers.Flatten, Columns  # are stacked only before all others


class FlatNetworks:
    """Networks with one head, all of one shape, whose weights, network by network, are one vector.

    Networks of the user's that cannot be described are computed one after the other, by Keras.

    Args:
        networks: give the structure and the first weights; later they hold what `pull` last gave them.

    Attributes:
        weights: [W] float32, all weights of all networks that an optimiser changes.
        seeds: of layers that draw random numbers in an update, such as Dropout.
    """

    def __init__(self, networks: Sequence[keras.Model]) -> None:
        self.networks = list(networks)
        _, *later = [layer for layer in networks[0].layers if not isinstance(layer, keras.layers.InputLayer)]
        in_rows = not any(isinstance(layer, _NOT_STACKED) for layer in networks[0].layers)
        in_rows &= not any(isinstance(layer, _FIRST) for layer in later)
        described = in_rows and can_describe(networks[0]) and not networks[0].non_trainable_weights
        self._network = describe(networks[0]) if described else None
        self._shapes = [variable.shape for variable in networks[0].trainable_variables]  # kernel, bias, kernel, ...
        ends = itertools.accumulate(map(math.prod, self._shapes), initial=0)
        self._parts = [slice(*part) for part in itertools.pairwise(ends)]  # of a network's weights
        arrays = [np.ravel(variable) for network in networks for variable in network.trainable_variables]
        self.weights = keras.Variable(np.concatenate(arrays))
        self.seeds = [v for network in networks for v in network.variables if v.dtype != "float32"]

    def stacks(self) -> list[tf.Tensor]:
        """The weights as one tensor for each kernel, [networks, in, out], and each bias, [networks, 1, out]."""
        table = tf.reshape(tf.convert_to_tensor(self.weights.value), (len(self.networks), -1))  # [networks, W / n]
        of_rows = self._network is not None  # biases [networks, 1, out] fit products [networks, B, out]
        shapes = [(1, *shape) if of_rows and len(shape) == 1 else shape for shape in self._shapes]
        return [tf.reshape(table[:, part], (len(self.networks), *shape)) for part, shape in zip(self._parts, shapes)]

    def call(self, stacks: list[tf.Tensor], inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """What networks of these weights make of inputs [B, in], with Dropout if `training`: [networks, B, out]."""
        if self._network is not None:
            return forward(ROUNDING, self._network.with_arrays(UNCHANGED, stacks), inputs)[0]
        outputs = []
        inputs = tf.reshape(inputs, (-1, *self.networks[0].input_shape[1:]))  # images come as rows, too
        for network, *weights in zip(self.networks, *map(tf.unstack, stacks)):
            others = network.non_trainable_variables
            output, changed = network.stateless_call(weights, [v.value for v in others], inputs, training=training)
            for variable, value in zip(others, changed if training else ()):
                variable.assign(value)
            outputs.extend(keras.tree.flatten(output))
        return tf.stack(outputs)

    def _arrays(self) -> list[list[np.ndarray]]:
        """Copies of the present kernels and biases of each network."""
        # one operation where `Variable.numpy` takes several
        weights = tf.raw_ops.ReadVariableOp(resource=self.weights.value.handle, dtype=tf.float32).numpy()  # [W]
        rows = weights.reshape(len(self.networks), -1)
        return [[row[part].reshape(shape) for part, shape in zip(self._parts, self._shapes)] for row in rows]

    def layers(self, weights: np.ndarray) -> list[np.ndarray]:
        """Views of each kernel and bias in [W] weights; of one network with another head, whose head is one vector.

        Nothing is returned where the hidden layers differ, too.
        """
        parts, head, size = [*zip(self._parts, self._shapes)], self._parts[-2].start, self._parts[-1].stop
        if len(weights) % size == 0:
            return [row[part].reshape(shape) for row in weights.reshape(-1, size) for part, shape in parts]
        if len(self.networks) > 1 or len(weights) <= head or (len(weights) - head) % (self._shapes[-2][0] + 1):
            return []
        return [*(weights[part].reshape(shape) for part, shape in parts[:-2]), weights[head:]]

    def first(self, normalize: Normalizer) -> Network | None:
        """A copy of the first network, with its present weights and this normaliser; None if Keras computes it."""
        if self._network is None:
            return None
        return self._network.with_arrays(normalize, self._arrays()[0])

    def pull(self) -> list[keras.Model]:
        """The Keras networks, with the weights of now."""
        for network, arrays in zip(self.networks, self._arrays()):
            for variable, array in zip(network.trainable_variables, arrays):
                variable.assign(array)
        return self.networks


def flat(stacks: list[tf.Tensor]) -> tf.Tensor:
    """Gradients [networks, ...] of each kernel and bias → [W], in the order of `FlatNetworks.weights`."""
    tables = [tf.reshape(stack, (stack.shape[0], -1)) for stack in stacks]
    return tf.reshape(tf.concat(tables, axis=1), (-1,))
