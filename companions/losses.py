"""Targets that the off-policy methods share, in plain TensorFlow."""

import tensorflow as tf


def temporal_difference_target(
    rewards: tf.Tensor, terminated: tf.Tensor, next_values: tf.Tensor, gamma: float
) -> tf.Tensor:
    """r + γ·(1 − terminated)·Q'(s', a'), [B]: equation 5 of arXiv:1509.02971 (DDPG) with target networks.

    After a terminated step nothing is added to the reward; a truncated step bootstraps.

    Args:
        rewards: r, [B], or [B, 1] with quantiles as next values.
        terminated: of the same shape, 1 after a termination, else 0.
        next_values: Q'(s', a'), [B], or quantiles of it, [B, T].
        gamma: γ, discount factor per step.
    """
    return rewards + gamma * (1.0 - terminated) * next_values


def smoothed_actions(actions: tf.Tensor, noise: tf.Tensor, std: float, clip: float) -> tf.Tensor:
    """Target policy smoothing, equation 14 of arXiv:1802.09477: a' plus clipped noise, clipped to [−1, 1]; [B, A].

    Args:
        actions: a', [B, A].
        noise: [B, A], standard normal.
        std: standard deviation of the noise before it is clipped, in units of half the action range.
        clip: largest size of the noise, in the same unit.
    """
    return tf.clip_by_value(actions + tf.clip_by_value(std * noise, -clip, clip), -1.0, 1.0)


def polyak(target: tf.Tensor, source: tf.Tensor, tau: float) -> tf.Tensor:
    """A target network's weights after a soft update (algorithm 1 of arXiv:1509.02971): (1 − τ)·target + τ·source."""
    return target + tau * (source - target)
