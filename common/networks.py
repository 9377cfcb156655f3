"""Torsos and heads, as Keras functional models."""

import math

import keras
import numpy as np

MIN_STD = 1e-6  # keeps log-probabilities finite should softplus or exp underflow
MAX_STD = 100.0  # beyond, an action is the toss of a coin; a bonus too strong would drive it to infinity


def torso_sizes(hidden_sizes: tuple[int, ...], observation_size: int, action_size: int) -> tuple[int, ...]:
    """The sizes asked for, or where none are: 10·S, ceil(√(10·S · 10·A)), 10·A (the 2021 study's rule)."""
    first, last = 10 * observation_size, 10 * action_size
    return hidden_sizes or (first, math.ceil(math.sqrt(first * last)), last)


class StateIndependentStd(keras.layers.Layer):
    """A learned standard deviation per action, the same in every state; kept as its logarithm."""

    def __init__(self, action_size: int, initial_std: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.log_std = self.add_weight(
            shape=(action_size,), initializer=keras.initializers.Constant(math.log(initial_std)), name="log_std"
        )

    def call(self, features: keras.KerasTensor) -> keras.KerasTensor:
        return keras.ops.zeros_like(features[:, :1]) + keras.ops.exp(self.log_std)  # [B, A]


class _Initializers:
    """Orthogonal kernels, each with a seed of its own drawn from one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, gain: float) -> keras.initializers.Initializer:
        return keras.initializers.Orthogonal(gain, seed=int(self._rng.integers(2**31)))


def _torso(
    inputs: keras.KerasTensor, sizes: tuple[int, ...], activation: str, gain: float, kernel: "_Initializers | _Glorot"
):
    features = inputs  # [B, S]
    for i, units in enumerate(sizes):
        layer = keras.layers.Dense(units, activation, kernel_initializer=kernel(gain), name=f"hidden_{i}")
        features = layer(features)  # [B, units]
    return features


def normal_actor(
    observation_size: int,
    action_size: int,
    sizes: tuple[int, ...],
    activation: str,
    hidden_gain: float,
    mean_activation: str,
    mean_gain: float,
    std: str,
    initial_std: float,
    seed: int,
) -> keras.Model:
    """observations [B, S] → mean [B, A], standard deviation [B, A] of a Normal policy."""
    kernel = _Initializers(seed)
    inputs = keras.Input((observation_size,))
    features = _torso(inputs, sizes, activation, hidden_gain, kernel)
    mean = keras.layers.Dense(action_size, mean_activation, kernel_initializer=kernel(mean_gain), name="mean")
    if std == "state_independent":
        spread = StateIndependentStd(action_size, initial_std, name="std")
    else:
        spread = keras.layers.Dense(action_size, "softplus", kernel_initializer=kernel(1.0), name="std")
    return keras.Model(inputs, [mean(features), spread(features)], name="actor")


def categorical_actor(
    observation_size: int,
    logits: int,
    sizes: tuple[int, ...],
    activation: str,
    hidden_gain: float,
    head_gain: float,
    seed: int,
) -> keras.Model:
    """observations [B, S] → logits [B, `logits`] of a policy over discrete actions."""
    kernel = _Initializers(seed)
    inputs = keras.Input((observation_size,))
    features = _torso(inputs, sizes, activation, hidden_gain, kernel)
    head = keras.layers.Dense(logits, kernel_initializer=kernel(head_gain), name="logits")
    return keras.Model(inputs, head(features), name="actor")


def value_critic(
    observation_size: int, sizes: tuple[int, ...], activation: str, hidden_gain: float, seed: int
) -> keras.Model:
    """observations [B, S] → value [B, 1]."""
    kernel = _Initializers(seed)
    inputs = keras.Input((observation_size,))
    features = _torso(inputs, sizes, activation, hidden_gain, kernel)
    value = keras.layers.Dense(1, kernel_initializer=kernel(1.0), name="value")
    return keras.Model(inputs, value(features), name="critic")


class _Glorot:
    """Glorot-uniform kernels (Keras's default), each with a seed of its own drawn from one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, _: float) -> keras.initializers.Initializer:
        return keras.initializers.GlorotUniform(seed=int(self._rng.integers(2**31)))


def deterministic_actor(
    observation_size: int, action_size: int, sizes: tuple[int, ...], activation: str, seed: int
) -> keras.Model:
    """observations [B, S] → actions [B, A] in [−1, 1]."""
    kernel = _Glorot(seed)
    inputs = keras.Input((observation_size,))
    features = _torso(inputs, sizes, activation, 1.0, kernel)
    action = keras.layers.Dense(action_size, "tanh", kernel_initializer=kernel(1.0), name="mean")
    return keras.Model(inputs, action(features), name="actor")


def action_critic(
    observation_size: int, action_size: int, sizes: tuple[int, ...], activation: str, seed: int
) -> keras.Model:
    """observations and actions side by side [B, S + A] → value [B, 1]."""
    kernel = _Glorot(seed)
    inputs = keras.Input((observation_size + action_size,))
    features = _torso(inputs, sizes, activation, 1.0, kernel)
    value = keras.layers.Dense(1, kernel_initializer=kernel(1.0), name="value")
    return keras.Model(inputs, value(features), name="critic")
