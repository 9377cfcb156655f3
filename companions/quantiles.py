"""Distributions of the return as quantiles (truncated quantile critics, Kuznetsov et al. 2020, arXiv:2005.04269)."""

from collections.abc import Callable

import tensorflow as tf

FEW = 10
"""So many quantiles are taken away one by one, in half the time of XLA's sort; where more are dropped, it sorts."""


def smallest_quantiles(values: tf.Tensor, dropped: int) -> tf.Tensor:
    """The quantiles of all critics together, without the largest: section 4 of arXiv:2005.04269.

    Args:
        values: [critics, B, quantiles].
        dropped: number of dropped quantiles per critic: the critics · dropped largest of all.

    Returns:
        [B, critics · (quantiles − dropped)], in no order.
    """
    critics, batch_size, quantiles = values.shape
    kept = tf.reshape(tf.transpose(values, (1, 0, 2)), (batch_size, critics * quantiles))  # [B, critics · quantiles]
    if critics * dropped > FEW:
        return tf.sort(kept, axis=1)[:, : critics * (quantiles - dropped)]
    for _ in range(critics * dropped):
        largest = tf.one_hot(tf.argmax(kept, axis=1), kept.shape[1], True, False, dtype=tf.bool)  # [B, n]
        kept = tf.where(largest, kept[:, -1:], kept)[:, :-1]  # [B, n − 1]; the last one takes its place
    return kept


def quantile_huber_loss(values: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Σ over critics, mean over all else, of |τ − 1(y < θ)|·huber(y − θ) (Dabney et al. 2018, arXiv:1710.10044).

    The m-th of a critic's M numbers θ learns the quantile at τ = (2m − 1) / 2M. huber(δ) is δ²/2 for |δ| ≤ 1, else
    |δ| − 1/2.

    Args:
        values: θ, [critics, B, M].
        target: y, [B, T] samples of the return; no gradient goes through them.
    """
    count, samples = values.shape[2], target.shape[0] * target.shape[1] * values.shape[2]
    fractions = (tf.range(count, dtype=tf.float32) + 0.5) / count  # [M]

    # With its gradient in closed form, and summed over the first axis, XLA takes half the time.
    @tf.custom_gradient
    def loss(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        delta = tf.transpose(target)[:, None, :, None] - values  # [T, critics, B, M]
        slope = tf.clip_by_value(delta, -1.0, 1.0)  # [T, critics, B, M]; huber(δ) is slope · (δ − slope / 2)
        weighted = tf.abs(fractions - tf.cast(delta < 0.0, tf.float32)) * slope  # [T, critics, B, M]
        sums = tf.reduce_sum(weighted * (delta - 0.5 * slope), axis=0)  # [critics, B, M]
        return tf.reduce_sum(sums) / samples, lambda up: -up * tf.reduce_sum(weighted, axis=0) / samples

    return loss(values)
