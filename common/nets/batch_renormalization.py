"""Batch renormalisation of stacked networks (Ioffe 2017, arXiv:1702.03275).

An update normalises features by the statistics of its own batch, corrected towards the running ones. All other passes
use the running statistics as they are; see `BatchNormalization`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from common.nets.batch_normalization import BatchNormalization, folded
from common.nets.flat_networks import FlatNetworks
from common.nets.from_keras import describe
from common.nets.network import UNCHANGED, Network, Normalizer, forward
from common.nets.tensorflow_operations import ROUNDING

MOMENTUM = 0.99  # of the running statistics; these numbers are those of the code of CrossQ's authors
WARM_UP = 100_000  # updates without a correction, until the running statistics have settled
MOST_R, MOST_D = 3.0, 5.0


def batch_renormalized(
    features: tf.Tensor, layer: BatchNormalization, corrected: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Algorithm 1 of arXiv:1702.03275: γ · ((x − μ_B) / σ_B · r + d) + β, with r = σ_B / σ and d = (μ_B − μ) / σ.

    r is clipped to 1/3 to 3 and d to ±5; no gradient goes through them. Without a correction r is 1 and d is 0, which
    is batch normalisation (arXiv:1502.03167). The gradient is written out, as of `standardized_rows`.

    Args:
        features: x, [networks, B, units].
        layer: γ, β, and the running μ and σ², [networks, 1, units] each.
        corrected: bool, whether r and d are used.

    Returns:
        The result [networks, B, units]; mean μ_B and variance σ_B² of the batch, [networks, 1, units] each.
    """
    row = tf.fill((features.shape[0], 1, features.shape[1]), 1.0 / features.shape[1])  # [networks, 1, B]

    def mean_of(numbers: tf.Tensor) -> tf.Tensor:
        return tf.matmul(row, numbers)  # [networks, 1, units]

    @tf.custom_gradient
    def normalized(features: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tuple[object, object]:
        mean = mean_of(features)
        centred = features - mean
        variance = mean_of(centred * centred)
        factor = tf.math.rsqrt(variance + layer.epsilon)
        running = tf.math.rsqrt(layer.variance + layer.epsilon)
        r = tf.where(corrected, tf.clip_by_value(running / factor, 1.0 / MOST_R, MOST_R), 1.0)
        d = tf.where(corrected, tf.clip_by_value((mean - layer.mean) * running, -MOST_D, MOST_D), 0.0)
        standardized = centred * factor

        def gradient(of_result: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            straight, along = mean_of(of_result), mean_of(of_result * standardized)
            of_features = scale * r * factor * (of_result - straight - standardized * along)
            rows = float(features.shape[1])
            return of_features, rows * (r * along + d * straight), rows * straight

        return (standardized * (scale * r) + (scale * d + shift), mean, variance), gradient

    return normalized(features, layer.scale, layer.shift)


@dataclass(frozen=True)
class _OfBatch:
    """A `BatchNormalization` in an update."""

    layer: BatchNormalization
    corrected: tf.Tensor  # bool, whether r and d are used
    running: list[tf.Tensor]  # takes its next running mean and variance, [networks, 1, units] each

    def apply(self, _: Any, features: tf.Tensor) -> tf.Tensor:
        """features [B, units] of the first layer, or [networks, B, units] → [networks, B, units]."""
        if len(features.shape) == 2:
            features = tf.broadcast_to(features, (self.layer.scale.shape[0], *features.shape))
        result, *found = batch_renormalized(features, self.layer, self.corrected)
        for before, new in zip((self.layer.mean, self.layer.variance), found):
            self.running.append(MOMENTUM * before + (1.0 - MOMENTUM) * new)
        return result


class RenormalizedNetworks(FlatNetworks):
    """`FlatNetworks` with `BatchRenormalization` layers.

    Attributes:
        statistics: [V] float32, the running mean and variance of each such layer, network by network.
        updates: number of updates so far, a scalar variable, which the agent sets.
    """

    updates: Any

    def __init__(self, networks: Sequence[keras.Model]) -> None:
        super().__init__(networks)
        self._network = self._structure = describe(networks[0])
        self._is_trained = [variable.trainable for variable in networks[0].weights]
        self._sizes = [variable.shape[0] for variable in networks[0].non_trainable_weights]
        arrays = [np.ravel(variable) for network in networks for variable in network.non_trainable_weights]
        self.statistics = keras.Variable(np.concatenate(arrays))

    def call(self, stacks: list[tf.Tensor], inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """See `FlatNetworks.call`; if training, the running statistics follow those of this batch."""
        table = tf.reshape(tf.convert_to_tensor(self.statistics.value), (len(self.networks), 1, -1))
        network = self._with(UNCHANGED, stacks, tf.split(table, self._sizes, axis=2))
        if not training:
            return forward(ROUNDING, network, inputs)[0]
        corrected = self.updates >= WARM_UP
        next_running: list[tf.Tensor] = []
        layers: Any = [
            _OfBatch(layer, corrected, next_running) if isinstance(layer, BatchNormalization) else layer
            for layer in network.hidden
        ]
        [output] = forward(ROUNDING, replace(network, hidden=tuple(layers)), inputs)
        self.statistics.assign(tf.reshape(tf.concat(next_running, axis=2), (-1,)))
        return output

    def _with(self, normalize: Normalizer, trained: Sequence[Any], running: Sequence[Any]) -> Network:
        both = iter(running), iter(trained)
        return self._structure.with_arrays(normalize, [next(both[is_trained]) for is_trained in self._is_trained])

    def _running(self) -> list[list[np.ndarray]]:
        """Copies of the present means and variances of each network."""
        rows = np.array(self.statistics).reshape(len(self.networks), -1)
        return [np.split(row, np.cumsum(self._sizes)[:-1]) for row in rows]

    def first(self, normalize: Normalizer) -> Network:
        """See `FlatNetworks.first`; the normalisation is within the dense layers."""
        return folded(self._with(normalize, self._arrays()[0], self._running()[0]))

    def pull(self) -> list[keras.Model]:
        """The Keras networks, with the weights and the running statistics of now."""
        for network, arrays in zip(super().pull(), self._running()):
            for variable, array in zip(network.non_trainable_weights, arrays):
                variable.assign(array)
        return self.networks
