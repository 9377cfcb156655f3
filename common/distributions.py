"""Policies: what a network's heads say about actions, as `tfp` distributions built outside Keras."""

import tensorflow as tf
import tensorflow_probability as tfp

from common.networks import MAX_STD, MIN_STD

tfd = tfp.distributions


def normal_policy(mean: tf.Tensor, std: tf.Tensor) -> tfd.Normal:
    """A Normal per action dimension, [B, A]; sum its log-probabilities over A for an action's."""
    return tfd.Normal(mean, tf.clip_by_value(std, MIN_STD, MAX_STD))


def log_prob(policy: tfd.Normal, actions: tf.Tensor, saturating: bool = False) -> tf.Tensor:
    """log π(a|s), [B]. `saturating` is the 2021 study's Σ log(p + 1e-8), which cannot fall below A·log 1e-8."""
    if saturating:
        return tf.reduce_sum(tf.math.log(policy.prob(actions) + 1e-8), axis=-1)  # [B]
    return tf.reduce_sum(policy.log_prob(actions), axis=-1)  # [B]


def entropy(policy: tfd.Normal) -> tf.Tensor:
    """Closed-form entropy in nats, summed over the action dimensions, [B]."""
    return tf.reduce_sum(policy.entropy(), axis=-1)  # [B]


def density_surrogate(policy: tfd.Normal, actions: tf.Tensor) -> tf.Tensor:
    """Σ −p·log(p + 1e-8) at the stored actions' densities, [B]: the 2021 study's "entropy".

    At most 1/e a dimension, and negative without limit for densities above 1: on average it widens σ
    only while σ < e^1.25/√(2π) = 1.39.
    """
    density = policy.prob(actions)  # [B, A]
    return tf.reduce_sum(-density * tf.math.log(density + 1e-8), axis=-1)  # [B]
