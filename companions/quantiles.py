"""Distributions of the return as quantiles (truncated quantile critics, Kuznetsov et al. 2020, arXiv:2005.04269)."""

import tensorflow as tf


def smallest_quantiles(values: tf.Tensor, dropped: int) -> tf.Tensor:
    """The quantiles of all critics sorted together, without the largest: section 4 of arXiv:2005.04269.

    Args:
        values: [critics, B, quantiles].
        dropped: number of dropped quantiles per critic: the critics · dropped largest of all.

    Returns:
        [B, critics · (quantiles − dropped)], the smallest first.
    """
    critics, batch_size, quantiles = values.shape
    pooled = tf.reshape(tf.transpose(values, (1, 0, 2)), (batch_size, critics * quantiles))  # [B, critics · quantiles]
    return tf.sort(pooled, axis=1)[:, : critics * (quantiles - dropped)]


def quantile_huber_loss(values: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Σ over critics, mean over all else, of |τ − 1(y < θ)|·huber(y − θ) (Dabney et al. 2018, arXiv:1710.10044).

    The m-th of a critic's M numbers θ learns the quantile at τ = (2m − 1) / 2M. huber(δ) is δ²/2 for |δ| ≤ 1, else
    |δ| − 1/2.

    Args:
        values: θ, [critics, B, M].
        target: y, [B, T] samples of the return; no gradient goes through them.

    Returns:
        A scalar.
    """
    count = values.shape[2]
    fractions = (tf.range(count, dtype=tf.float32) + 0.5) / count  # [M]
    delta = target[None, :, None, :] - values[..., None]  # [critics, B, M, T]
    size = tf.abs(delta)  # [critics, B, M, T]
    huber = tf.where(size > 1.0, size - 0.5, 0.5 * tf.square(delta))  # [critics, B, M, T]
    weights = tf.abs(fractions[:, None] - tf.cast(delta < 0.0, tf.float32))  # [critics, B, M, T]
    return tf.reduce_sum(tf.reduce_mean(weights * huber, axis=(1, 2, 3)))
