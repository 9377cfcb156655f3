"""Losses in plain TensorFlow: no networks, no optimisers, no `tf.function`.

Every mean E is taken over valid samples only: `weights` [B] is 1 for a sample that counts, else 0. The probability
ratio is r = exp(log_prob − old_log_prob), and ε is `clip_range`.
"""

import numpy as np
import tensorflow as tf

from common.nets import distributions
from common.records import Batch
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters


def weighted_mean(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Σ w·x / Σ w for weights w of 0 or 1, [B] → scalar; 0 if no sample counts."""
    return tf.reduce_sum(weights * x) / tf.maximum(tf.reduce_sum(weights), 1.0)


def standardize(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """x [B] shifted and scaled so that the samples that count have mean 0 and standard deviation 1, [B]."""
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

    From the published code of arXiv:1707.06347. A value that moved by more than ε towards its target has no gradient.
    """
    held = old_value + tf.clip_by_value(value - old_value, -clip_range, clip_range)  # [B]
    larger = tf.maximum(tf.math.squared_difference(value, target), tf.math.squared_difference(held, target))  # [B]
    return weighted_mean(larger, weights)


def smooth_l1(value: tf.Tensor, target: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """E[½·d² where d = |V − V_target| < 1, else d − ½] (Huber's loss with δ = 1); all [B] → scalar."""
    distance = tf.abs(value - target)  # [B]
    return weighted_mean(tf.where(distance < 1.0, 0.5 * tf.square(distance), distance - 0.5), weights)


def approximate_kl(log_prob: tf.Tensor, old_log_prob: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """KL(π_old ‖ π) estimated from samples of π_old as E[(r − 1) − log r] ≥ 0, in nats; all [B] → scalar.

    Schulman, "Approximating KL Divergence", 2020 (its k3).
    """
    log_ratio = _log_ratio(log_prob, old_log_prob, weights)  # [B]
    return weighted_mean(tf.math.expm1(log_ratio) - log_ratio, weights)


def clip_fraction(log_prob: tf.Tensor, old_log_prob: tf.Tensor, weights: tf.Tensor, clip_range: float) -> tf.Tensor:
    """Share of samples, 0 to 1, whose ratio r is outside [1 − ε, 1 + ε]; all [B] → scalar."""
    outside = tf.abs(tf.exp(_log_ratio(log_prob, old_log_prob, weights)) - 1.0) > clip_range  # [B]
    return weighted_mean(tf.cast(outside, tf.float32), weights)


def log_prob(config: PPOConfig, policy: distributions.tfd.Distribution, actions: tf.Tensor) -> tf.Tensor:
    """log π(a|s) [B] of actions [B, A], in nats; with that quirk in the form of the 2021 code."""
    return distributions.log_prob(policy, actions, "saturating_log_prob" in config.quirks)  # [B]


def policy_loss(
    config: PPOConfig,
    policy: distributions.tfd.Distribution,
    old_policy: distributions.tfd.Distribution | None,
    batch: Batch,
    hyperparameters: Hyperparameters,
    kl_coefficient: tf.Tensor,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """The actor's loss (surrogate, plus KL penalty, minus entropy bonus), and the policy's metrics; all scalars.

    Args:
        policy: at the batch's observations, [B, A].
        old_policy: the one that acted, [B, A]; None without a KL penalty.
        hyperparameters: of this update, scalars.
        kl_coefficient: β of equation 8 of arXiv:1707.06347.
    """
    weights, advantages = batch.actor_weights, batch.advantages  # [B]
    if config.normalize_advantages == "minibatch":
        advantages = standardize(advantages, weights)  # [B]
    log_probs = log_prob(config, policy, batch.actions)  # [B]
    entropy = distributions.entropy(policy)  # [B]
    bonus = entropy
    if "density_entropy" in config.quirks:
        bonus = distributions.density_surrogate(policy, batch.actions)  # [B]
    clip_range = np.inf if config.objective == "kl_penalty" else hyperparameters.clip_range
    loss = clipped_surrogate(log_probs, batch.log_probs, advantages, weights, clip_range)
    if old_policy is not None:
        divergence = distributions.kl_divergence(old_policy, policy)  # [B]
        loss += kl_coefficient * weighted_mean(divergence, weights)
    loss -= hyperparameters.entropy_coefficient * weighted_mean(bonus, weights)
    return loss, {
        "loss_actor": loss,
        "approximate_kl": approximate_kl(log_probs, batch.log_probs, weights),
        "clip_fraction": clip_fraction(log_probs, batch.log_probs, weights, hyperparameters.clip_range),
        "entropy": weighted_mean(entropy, weights),
    }


def value_loss(
    config: PPOConfig, values: tf.Tensor, next_values: tf.Tensor | None, batch: Batch, hyperparameters: Hyperparameters
) -> tf.Tensor:
    """The critic's loss, a scalar.

    Args:
        values: V at the batch's observations, [B].
        next_values: V at the next observations, [B], if the gradient also flows through the target; else None.
    """
    target = batch.value_targets  # [B]
    if next_values is not None:
        target = target + batch.discounts * next_values  # [B]
    if config.value_loss == "clipped":
        return clipped_squared_error(values, batch.values, target, batch.weights, hyperparameters.clip_range)
    if config.value_loss == "smooth_l1":
        return smooth_l1(values, target, batch.weights)
    return squared_error(values, target, batch.weights)
