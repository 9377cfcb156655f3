"""Networks of the off-policy methods, as Keras functional models."""

from typing import NamedTuple

import keras

from common.envs.mirrors import Mirror
from common.learning.kernels import Glorot
from common.learning.mirrored import mean_of_heads, mean_of_values, with_mirror_image
from common.learning.networks import Torso, value_head
from common.rollout.policies import MAX_LOG_STD, MIN_LOG_STD


class Shape(NamedTuple):
    """What actors and critics of one agent have in common."""

    observation_size: int  # S
    action_size: int  # A
    hidden_sizes: tuple[int, ...]
    activation: str


def deterministic_actor(shape: Shape, seed: int, mirror: Mirror | None = None) -> keras.Model:
    """observations [B, S] → actions [B, A] in [−1, 1]."""
    inputs, features, kernel = _actor_torso(shape, seed, mirror)
    action = keras.layers.Dense(shape.action_size, "tanh", kernel_initializer=kernel(1.0), name="mean")
    [actions] = mean_of_heads([action(features)], mirror)  # [B, A]
    return keras.Model(inputs, actions, name="actor")


def squashed_actor(shape: Shape, seed: int, mirror: Mirror | None = None) -> keras.Model:
    """observations [B, S] → deterministic action tanh(μ) [B, A] and log σ [B, A] within its bounds.

    Its last dense layer gives μ and log σ side by side, [B, 2A].
    """
    inputs, features, kernel = _actor_torso(shape, seed, mirror)
    heads = keras.layers.Dense(2 * shape.action_size, kernel_initializer=kernel(1.0), name="mean_and_log_std")
    [both] = mean_of_heads([heads(features)], mirror and of_squashed(mirror))  # [B, 2A]
    mean, log_std = keras.ops.split(both, 2, axis=1)  # [B, A], [B, A]
    outputs = keras.ops.tanh(mean), keras.ops.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)
    return keras.Model(inputs, list(outputs), name="actor")


def _actor_torso(
    shape: Shape, seed: int, mirror: Mirror | None
) -> tuple[keras.KerasTensor, keras.KerasTensor, Glorot]:
    """An actor's inputs [B, S], the features of its last hidden layer, and what draws the kernels after it."""
    kernel = Glorot(seed)
    torso = Torso((shape.observation_size,), shape.hidden_sizes, shape.activation)
    inputs = torso.inputs()
    return inputs, torso(with_mirror_image(inputs, mirror), kernel), kernel  # features [B, units], or [2B, units]


def of_squashed(mirror: Mirror) -> Mirror:
    """The mirror of an actor whose outputs are μ and log σ side by side, [B, 2A]."""
    return Mirror(mirror.observation, mirror.action.beside(mirror.action.unsigned), mirror.weight)


def action_critic(
    shape: Shape, seed: int, mirror: Mirror | None = None, layer_norm: bool = False, quantiles: int = 1
) -> keras.Model:
    """observations and actions side by side [B, S + A] → value [B, 1], or its distribution's [B, quantiles]."""
    kernel, size = Glorot(seed), shape.observation_size + shape.action_size
    torso = Torso((size,), shape.hidden_sizes, shape.activation, layer_norm=layer_norm)
    inputs = torso.inputs()
    joint = None if mirror is None else Mirror(mirror.joint, mirror.action)
    features = torso(with_mirror_image(inputs, joint), kernel)  # [B, units], or [2B, units]
    return keras.Model(inputs, mean_of_values(value_head(features, kernel, quantiles), mirror), name="critic")
