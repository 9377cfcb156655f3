"""Policies as `tfp` distributions, made from the outputs of an actor's heads, outside Keras."""

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from common.nets.network import MAX_STD, MIN_STD, RULED_OUT


def normal_policy(mean: tf.Tensor, std: tf.Tensor) -> tfd.Normal:
    """A Normal for each action dimension, [B, A]; an action's log-probability is the sum over A."""
    return tfd.Normal(mean, tf.clip_by_value(std, MIN_STD, MAX_STD))


def categorical_policy(logits: tf.Tensor, choices: tuple[int, ...]) -> tfd.Categorical:
    """A Categorical for each action dimension, [B, A]; choices that a dimension lacks have probability 0.

    logits: [B, Σ choices], first those of the first action dimension, then those of the second, and so on.
    """
    most = max(choices)
    parts = [
        tf.pad(part, [(0, 0), (0, most - count)], constant_values=RULED_OUT)
        for part, count in zip(tf.split(logits, choices, axis=1), choices)
    ]
    return tfd.Categorical(tf.stack(parts, axis=1))  # [B, A, most]


def kl_divergence(old: tfd.Distribution, new: tfd.Distribution) -> tf.Tensor:
    """KL(old ‖ new) in closed form, in nats, summed over the action dimensions, [B]."""
    return tf.reduce_sum(tfd.kl_divergence(old, new), axis=-1)  # [B]


def log_prob(policy: tfd.Distribution, actions: tf.Tensor, saturating: bool = False) -> tf.Tensor:
    """log π(a|s) in nats, [B]. `saturating` gives the 2021 study's Σ log(p + 1e-8), which is at least A·log 1e-8."""
    if saturating:
        return tf.reduce_sum(tf.math.log(policy.prob(actions) + 1e-8), axis=-1)  # [B]
    return tf.reduce_sum(policy.log_prob(actions), axis=-1)  # [B]


def entropy(policy: tfd.Distribution) -> tf.Tensor:
    """Closed-form entropy in nats, summed over the action dimensions, [B]."""
    return tf.reduce_sum(policy.entropy(), axis=-1)  # [B]


def density_surrogate(policy: tfd.Distribution, actions: tf.Tensor) -> tf.Tensor:
    """Σ −p·log(p + 1e-8) at the stored actions' densities, [B]: the 2021 study's "entropy".

    It is at most 1/e per dimension, and has no lower bound where densities are above 1. On average its gradient widens
    σ only while σ < e^1.25/√(2π) = 1.39.
    """
    density = policy.prob(actions)  # [B, A]
    return tf.reduce_sum(-density * tf.math.log(density + 1e-8), axis=-1)  # [B]
