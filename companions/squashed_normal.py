"""A Normal squashed by tanh: the policy of soft actor-critic (Haarnoja et al. 2018, arXiv:1801.01290, appendix C)."""

import math

import tensorflow as tf

from common.nets.network import MAX_LOG_STD, MIN_LOG_STD


def squashed_normal(heads: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sampled actions a = tanh(u), u = μ + σ·noise, and log π(a|s), equation 21 of arXiv:1801.01290.

    log π(a|s) = Σ log N(u; μ, σ) − log(1 − tanh² u), and log(1 − tanh² u) = 2·(log 2 − u − softplus(−2u)), which is
    finite where tanh u rounds to ±1.

    Args:
        heads: [B, 2A], μ and log σ side by side.
        noise: [B, A], standard normal.

    Returns:
        Actions [B, A] in [−1, 1], and their log-probabilities [B], in nats; gradients flow through both to `heads`.
    """
    mean, log_std = tf.split(heads, 2, axis=1)  # [B, A], [B, A]
    log_std = tf.clip_by_value(log_std, MIN_LOG_STD, MAX_LOG_STD)  # [B, A]
    unsquashed = mean + tf.exp(log_std) * noise  # [B, A]
    normal = -0.5 * tf.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)  # [B, A]
    squashing = 2.0 * (math.log(2.0) - unsquashed - tf.math.softplus(-2.0 * unsquashed))  # [B, A]
    return tf.tanh(unsquashed), tf.reduce_sum(normal - squashing, axis=1)


def temperature_loss(log_temperature: tf.Tensor, log_probs: tf.Tensor, target_entropy: float) -> tf.Tensor:
    """−log α · mean(log π + H̄): equation 18 of arXiv:1812.05905, with log α in place of α, as its authors' code.

    Gradient descent on it raises α if the entropy −mean log π is below H̄, and lowers α if it is above.

    Args:
        log_temperature: [1].
        log_probs: [B], in nats; no gradient goes through them.
        target_entropy: H̄, in nats.
    """
    excess = tf.stop_gradient(tf.reduce_mean(log_probs) + target_entropy)
    return -tf.reduce_sum(log_temperature) * excess
