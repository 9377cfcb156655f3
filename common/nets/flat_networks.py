"""Networks of one shape whose weights lie side by side in one variable, computed as one batch of products.

A method that updates six small networks and their Adams once a step spends part of every call on passing
variables in and out: 60 of them took 0.2 ms more than 12. Two critics of 256 units as one batch made an update a
third faster, presumably since each core has a product of its own instead of half of every one (see the log).
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from common.nets.from_keras import can_describe, describe
from common.nets.keras_layers import BatchRenormalization
from common.nets.network import UNCHANGED, Network, Normalizer, forward
from common.nets.tensorflow_operations import ROUNDING, RenormalizingOperations

_NOT_STACKED = keras.layers.Conv2D, keras.layers.Concatenate


class _Vectors:
    """Some variables of each network, network by network, as one vector.

    Attributes:
        variable: [W] float32.
        shapes: of a network's variables: kernel, bias, kernel, ...
        parts: where they stand in a network's part of the vector.
    """

    def __init__(self, variables: list[list[keras.Variable]]) -> None:
        self._networks = len(variables)
        self.shapes = [variable.shape for variable in variables[0]]
        ends = np.cumsum([0, *map(math.prod, self.shapes)])
        self.parts = [slice(int(start), int(end)) for start, end in itertools.pairwise(ends)]
        self.variable = keras.Variable(np.concatenate([np.ravel(own) for network in variables for own in network]))

    def stacks(self, of_rows: bool) -> list[tf.Tensor]:
        """One tensor for each variable, [networks, *shape]; with `of_rows` vectors are [networks, 1, units]."""
        table = tf.reshape(tf.convert_to_tensor(self.variable.value), (self._networks, -1))  # [networks, W / n]
        shapes = [(1, *shape) if of_rows and len(shape) == 1 else shape for shape in self.shapes]
        return [tf.reshape(table[:, part], (self._networks, *shape)) for part, shape in zip(self.parts, shapes)]

    def arrays(self) -> list[list[np.ndarray]]:
        """Copies of each network's variables as they are now."""
        # one operation where `Variable.numpy` takes several
        values = tf.raw_ops.ReadVariableOp(resource=self.variable.value.handle, dtype=tf.float32).numpy()  # [W]
        rows = values.reshape(self._networks, -1)
        return [[row[part].reshape(shape) for part, shape in zip(self.parts, self.shapes)] for row in rows]


class FlatNetworks:
    """Networks with one head, all of one shape, whose weights, network by network, are one vector.

    Networks of the user's that cannot be described are computed one after the other, by Keras.

    Args:
        networks: give the structure and the first weights; later they hold what `pull` last gave them.

    Attributes:
        weights: [W] float32, all weights of all networks that an optimiser changes.
        statistics: [V] float32, running means and variances of `BatchRenormalization` layers; None without any.
        updates: how many updates the networks had, a scalar variable; set by an agent whose networks have them.
        seeds: of layers that draw random numbers in an update, such as Dropout.
    """

    def __init__(self, networks: Sequence[keras.Model]) -> None:
        self.networks = list(networks)
        in_rows = not any(isinstance(layer, _NOT_STACKED) for layer in networks[0].layers)
        normalizing = [layer for layer in networks[0].layers if isinstance(layer, BatchRenormalization)]
        known = len(networks[0].non_trainable_weights) == 2 * len(normalizing)
        self._network = describe(networks[0]) if in_rows and known and can_describe(networks[0]) else None
        self._trained = _Vectors([network.trainable_variables for network in networks])
        self._running = _Vectors([network.non_trainable_weights for network in networks]) if normalizing else None
        self._is_trained = [variable.trainable for variable in networks[0].weights]
        self.weights = self._trained.variable
        self.statistics = None if self._running is None else self._running.variable
        self.updates: Any = None
        self.seeds = [v for network in networks for v in network.variables if v.dtype != "float32"]

    def stacks(self) -> list[tf.Tensor]:
        """The weights as one tensor for each kernel, [networks, in, out], and each bias, [networks, 1, out]."""
        return self._trained.stacks(self._network is not None)  # such biases fit products [networks, B, out]

    def call(self, stacks: list[tf.Tensor], inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """What the networks with these weights [networks, ...] make of inputs [B, in]: [networks, B, out].

        Args:
            training: whether layers such as Dropout are active. Batches are then normalised by their own statistics,
                which the running ones follow.
        """
        if self._network is not None:
            arrays = stacks if self._running is None else self._merged(stacks, self._running.stacks(True))
            network = self._network.with_arrays(UNCHANGED, arrays)
            if self._running is None or not training:
                return forward(ROUNDING, network, inputs)[0]
            operations = RenormalizingOperations(self.updates)
            [output] = forward(operations, network, inputs)
            self._running.variable.assign(flat(operations.running))
            return output
        outputs = []
        for network, *weights in zip(self.networks, *map(tf.unstack, stacks)):
            others = network.non_trainable_variables
            output, changed = network.stateless_call(weights, [v.value for v in others], inputs, training=training)
            for variable, value in zip(others, changed if training else ()):
                variable.assign(value)
            outputs.extend(keras.tree.flatten(output))
        return tf.stack(outputs)

    def _merged(self, trained: Sequence[Any], running: Sequence[Any]) -> list[Any]:
        """Weights and statistics in the order of `Network.arrays`."""
        both = iter(running), iter(trained)
        return [next(both[is_trained]) for is_trained in self._is_trained]

    def layers(self, weights: np.ndarray) -> list[np.ndarray]:
        """Views of each kernel and bias in [W] weights; of one network with another head, whose head is one vector.

        Nothing is returned where the hidden layers differ, too.
        """
        own = self._trained
        parts, head, size = [*zip(own.parts, own.shapes)], own.parts[-2].start, own.parts[-1].stop
        if len(weights) % size == 0:
            return [row[part].reshape(shape) for row in weights.reshape(-1, size) for part, shape in parts]
        if len(self.networks) > 1 or len(weights) <= head or (len(weights) - head) % (own.shapes[-2][0] + 1):
            return []
        return [*(weights[part].reshape(shape) for part, shape in parts[:-2]), weights[head:]]

    def first(self, normalize: Normalizer) -> Network | None:
        """A copy of the first network, with its present weights and this normaliser; None if Keras computes it."""
        if self._network is None:
            return None
        if self._running is None:
            return self._network.with_arrays(normalize, self._trained.arrays()[0])
        arrays = self._merged(self._trained.arrays()[0], self._running.arrays()[0])
        return self._network.with_arrays(normalize, arrays).folded()

    def pull(self) -> list[keras.Model]:
        """The Keras networks, with the weights of now."""
        for vectors, kind in ((self._trained, "trainable_variables"), (self._running, "non_trainable_weights")):
            for network, arrays in zip(self.networks, () if vectors is None else vectors.arrays()):
                for variable, array in zip(getattr(network, kind), arrays):
                    variable.assign(array)
        return self.networks


def flat(stacks: list[tf.Tensor]) -> tf.Tensor:
    """Gradients [networks, ...] of each kernel and bias → [W], in the order of `FlatNetworks.weights`."""
    tables = [tf.reshape(stack, (stack.shape[0], -1)) for stack in stacks]
    return tf.reshape(tf.concat(tables, axis=1), (-1,))
