"""Batch renormalisation of stacked networks (Ioffe 2017, arXiv:1702.03275).

An update normalises features by the statistics of its own batch, corrected towards the running ones. All other passes
use the running statistics as they are; see `network.BatchNormalization`.
"""

import tensorflow as tf

from common.nets.network import BatchNormalization

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
