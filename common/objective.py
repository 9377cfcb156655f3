"""What PPO minimises: the policy's loss and the critic's, put together from `common.losses` as a config says."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from common import distributions, losses
from common.config import PPOConfig
from common.records import Batch


class Coefficients(NamedTuple):
    """Weights and ranges that may change from update to update; scalars."""

    clip_range: tf.Tensor
    value: tf.Tensor  # c₁ of equation 9 of arXiv:1707.06347
    entropy: tf.Tensor  # c₂
    kl: tf.Tensor  # β of its equation 8


def log_prob(config: PPOConfig, policy: distributions.tfd.Distribution, actions: tf.Tensor) -> tf.Tensor:
    """log π(a|s), [B], in the form that the config asks for."""
    return distributions.log_prob(policy, actions, config.saturating_log_prob)  # [B]


def policy_loss(
    config: PPOConfig,
    policy: distributions.tfd.Distribution,
    old_policy: distributions.tfd.Distribution | None,
    batch: Batch,
    coefficients: Coefficients,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """The surrogate, with its penalty and its bonus, and what there is to say of the policy; all scalars.

    Args:
        policy: at the batch's observations, [B, A].
        old_policy: the one that acted; only for a KL penalty.
    """
    weights, advantages = batch.actor_weights, batch.advantages  # [B]
    if config.normalize_advantages == "minibatch":
        advantages = losses.standardize(advantages, weights)  # [B]
    log_probs = log_prob(config, policy, batch.actions)  # [B]
    entropy = distributions.entropy(policy)  # [B]
    bonus = entropy
    if config.entropy == "density_surrogate":
        bonus = distributions.density_surrogate(policy, batch.actions)  # [B]
    clip_range = np.inf if config.objective == "kl_penalty" else coefficients.clip_range
    loss = losses.clipped_surrogate(log_probs, batch.log_probs, advantages, weights, clip_range)
    if old_policy is not None:
        divergence = distributions.kl_divergence(old_policy, policy)  # [B]
        loss += coefficients.kl * losses.weighted_mean(divergence, weights)
    loss -= coefficients.entropy * losses.weighted_mean(bonus, weights)
    return loss, {
        "loss_actor": loss,
        "approximate_kl": losses.approximate_kl(log_probs, batch.log_probs, weights),
        "clip_fraction": losses.clip_fraction(log_probs, batch.log_probs, weights, coefficients.clip_range),
        "entropy": losses.weighted_mean(entropy, weights),
    }


def value_loss(
    config: PPOConfig, values: tf.Tensor, next_values: tf.Tensor | None, batch: Batch, coefficients: Coefficients
) -> tf.Tensor:
    """The critic's loss, a scalar.

    Args:
        values: V at the batch's observations, [B].
        next_values: V at the next ones, [B], if the gradient shall flow through the target, too.
    """
    target = batch.value_targets  # [B]
    if next_values is not None:
        target = target + batch.discounts * next_values  # [B]
    if config.value_loss == "clipped":
        return losses.clipped_squared_error(values, batch.values, target, batch.weights, coefficients.clip_range)
    if config.value_loss == "smooth_l1":
        return losses.smooth_l1(values, target, batch.weights)
    return losses.squared_error(values, target, batch.weights)
