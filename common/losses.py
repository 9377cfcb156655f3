"""Losses in plain TensorFlow: no networks, no optimisers, no `tf.function`.

Every mean is taken over valid samples only: `weights` [B] is 1 for a sample that counts, else 0.
"""

import tensorflow as tf


def weighted_mean(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Σ w·x / Σ w over [B]; 0 where nothing counts."""
    return tf.reduce_sum(weights * x) / tf.maximum(tf.reduce_sum(weights), 1.0)


def standardize(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """x shifted and divided to mean 0 and standard deviation 1 over the samples that count, [B]."""
    centred = x - weighted_mean(x, weights)  # [B]
    return centred / (tf.sqrt(weighted_mean(tf.square(centred), weights)) + 1e-8)


def _log_ratio(log_prob: tf.Tensor, old_log_prob: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """log π/π_old, [B]; 0 where a sample does not count, since 0 · exp(large) would be NaN."""
    return tf.where(weights > 0, log_prob - old_log_prob, 0.0)


def clipped_surrogate(
    log_prob: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weights: tf.Tensor, clip_range: float
) -> tf.Tensor:
    """Equation 7 of arXiv:1707.06347, as a loss: −E[min(r·Â, clip(r, 1 − ε, 1 + ε)·Â)]; all [B] → scalar."""
    ratio = tf.exp(_log_ratio(log_prob, old_log_prob, weights))  # [B]
    clipped = tf.clip_by_value(ratio, 1.0 - clip_range, 1.0 + clip_range)  # [B]
    return -weighted_mean(tf.minimum(ratio * advantage, clipped * advantage), weights)


def squared_error(value: tf.Tensor, target: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """E[(V − V_target)²]; all [B] → scalar."""
    return weighted_mean(tf.math.squared_difference(value, target), weights)


def clipped_squared_error(
    value: tf.Tensor, old_value: tf.Tensor, target: tf.Tensor, weights: tf.Tensor, clip_range: float
) -> tf.Tensor:
    """E[max((V − V_target)², (V_old + clip(V − V_old, −ε, ε) − V_target)²)]; all [B] → scalar.

    Of the published code of arXiv:1707.06347; a value that has left the range towards its target learns nothing.
    """
    held = old_value + tf.clip_by_value(value - old_value, -clip_range, clip_range)  # [B]
    larger = tf.maximum(tf.math.squared_difference(value, target), tf.math.squared_difference(held, target))  # [B]
    return weighted_mean(larger, weights)


def smooth_l1(value: tf.Tensor, target: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """E[½·d² where d = |V − V_target| < 1, else d − ½] (Huber's loss with δ = 1); all [B] → scalar."""
    distance = tf.abs(value - target)  # [B]
    return weighted_mean(tf.where(distance < 1.0, 0.5 * tf.square(distance), distance - 0.5), weights)


def approximate_kl(log_prob: tf.Tensor, old_log_prob: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """KL(π_old ‖ π) estimated from samples of π_old as E[(r − 1) − log r] ≥ 0, in nats.

    Schulman, "Approximating KL Divergence", 2020 (its k3).
    """
    log_ratio = _log_ratio(log_prob, old_log_prob, weights)  # [B]
    return weighted_mean(tf.math.expm1(log_ratio) - log_ratio, weights)


def clip_fraction(log_prob: tf.Tensor, old_log_prob: tf.Tensor, weights: tf.Tensor, clip_range: float) -> tf.Tensor:
    """Share of samples whose ratio is outside [1 − ε, 1 + ε]."""
    outside = tf.abs(tf.exp(_log_ratio(log_prob, old_log_prob, weights)) - 1.0) > clip_range  # [B]
    return weighted_mean(tf.cast(outside, tf.float32), weights)


def temporal_difference_target(
    rewards: tf.Tensor, terminated: tf.Tensor, next_values: tf.Tensor, gamma: float
) -> tf.Tensor:
    """r + γ·(1 − terminated)·Q'(s', a'), all [B]: equation 1 of arXiv:1802.09477 (TD3). Truncated steps bootstrap."""
    return rewards + gamma * (1.0 - terminated) * next_values


def smoothed_actions(actions: tf.Tensor, noise: tf.Tensor, std: float, clip: float) -> tf.Tensor:
    """Target policy smoothing, equation 14 of arXiv:1802.09477: clipped noise on top of a', kept in [−1, 1]; [B, A].

    noise: [B, A], standard normal.
    """
    return tf.clip_by_value(actions + tf.clip_by_value(std * noise, -clip, clip), -1.0, 1.0)


def polyak(target: tf.Tensor, source: tf.Tensor, tau: float) -> tf.Tensor:
    """A target network's weights after a step of its own: (1 − τ)·target + τ·source; any shape."""
    return target + tau * (source - target)
