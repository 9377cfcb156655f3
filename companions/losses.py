"""Targets that the off-policy methods share, in plain TensorFlow."""

import tensorflow as tf


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
