"""Torsos and heads, as Keras functional models."""

import math
from dataclasses import dataclass

import keras

from common.envs.mirrors import Mirror
from common.learning.kernels import Kernels, Orthogonal
from common.learning.mirrored import mean_of_heads, mean_of_values, with_mirror_image
from common.learning.rounded_products import RoundedDense


class StateIndependentStd(keras.layers.Layer):
    """A learned standard deviation per action, the same in every state; kept as its logarithm."""

    def __init__(self, action_size: int, initial_std: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.log_std = self.add_weight(
            shape=(action_size,), initializer=keras.initializers.Constant(math.log(initial_std)), name="log_std"
        )

    def call(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """features [B, units] → standard deviations [B, A]."""
        return keras.ops.zeros_like(features[:, :1]) + keras.ops.exp(self.log_std)  # [B, A]


@dataclass(frozen=True)
class Convolution:
    """A layer of filters over an image, without padding."""

    filters: int
    kernel_size: int
    stride: int


@dataclass(frozen=True)
class Torso:
    """Hidden layers: convolutions first where observations are images, then dense ones.

    Args:
        observation_shape: (S,), or (height, width, channels) of images with values 0 to 255.
        sizes: units of the dense layers.
        gain: of the orthogonal kernels.
        convolutions: of images.
        layer_norm: whether dense layers have layer normalisation before their activation (arXiv:1607.06450).
        precision: bfloat16 rounds what hidden layers multiply, unless it is an observation that is no image.
    """

    observation_shape: tuple[int, ...]
    sizes: tuple[int, ...]
    activation: str
    gain: float = 1.0
    convolutions: tuple[Convolution, ...] = ()
    layer_norm: bool = False
    precision: str = "float32"

    def inputs(self) -> keras.KerasTensor:
        """A placeholder of observations [B, *observation_shape]."""
        return keras.Input(self.observation_shape)

    def __call__(self, inputs: keras.KerasTensor, kernel: Kernels) -> keras.KerasTensor:
        """observations [B, *observation_shape] → features [B, units]."""
        features = inputs  # [B, S] or [B, H, W, C]
        rounded = self.precision == "bfloat16"
        dtype = "mixed_bfloat16" if rounded and self.convolutions else None  # Keras rounds sums, too
        if self.convolutions:
            features = keras.layers.Rescaling(1 / 255)(features)
            for i, layer in enumerate(self.convolutions):
                features = keras.layers.Conv2D(
                    layer.filters, layer.kernel_size, layer.stride, activation=self.activation,
                    kernel_initializer=kernel(self.gain), name=f"convolution_{i}", dtype=dtype,
                )(features)  # [B, h, w, filters]  # fmt: skip
            features = keras.layers.Flatten()(features)
        for i, units in enumerate(self.sizes):
            activation = None if self.layer_norm else self.activation
            kind = RoundedDense if rounded and dtype is None and i > 0 else keras.layers.Dense
            layer = kind(units, activation, kernel_initializer=kernel(self.gain), name=f"hidden_{i}", dtype=dtype)
            features = layer(features)  # [B, units]
            if self.layer_norm:
                features = keras.layers.LayerNormalization(name=f"norm_{i}")(features)
                features = keras.layers.Activation(self.activation)(features)
        return features


@dataclass(frozen=True)
class NormalHeads:
    """Mean [B, A] and standard deviation [B, A] of a Normal policy."""

    action_size: int
    mean_activation: str
    mean_gain: float
    std: str
    initial_std: float

    def __call__(self, features: keras.KerasTensor, kernel: Orthogonal) -> list[keras.KerasTensor]:
        """features [B, F] → mean and standard deviation, [B, A] each."""
        mean = keras.layers.Dense(
            self.action_size, self.mean_activation, kernel_initializer=kernel(self.mean_gain), name="mean"
        )
        if self.std == "state_independent":
            spread = StateIndependentStd(self.action_size, self.initial_std, name="std")
        else:
            spread = keras.layers.Dense(self.action_size, "softplus", kernel_initializer=kernel(1.0), name="std")
        return [mean(features), spread(features)]


@dataclass(frozen=True)
class CategoricalHead:
    """Logits [B, `logits`] of a policy over discrete actions."""

    logits: int
    gain: float

    def __call__(self, features: keras.KerasTensor, kernel: Orthogonal) -> list[keras.KerasTensor]:
        """features [B, F] → logits [B, `logits`]."""
        return [keras.layers.Dense(self.logits, kernel_initializer=kernel(self.gain), name="logits")(features)]


def value_head(features: keras.KerasTensor, kernel: Kernels, numbers: int = 1) -> keras.KerasTensor:
    """features [B, F] → values [B, 1], or as many numbers as describe a value's distribution, [B, `numbers`]."""
    return keras.layers.Dense(numbers, kernel_initializer=kernel(1.0), name="value")(features)


def policy_actor(
    torso: Torso, heads: NormalHeads | CategoricalHead, seed: int, mirror: Mirror | None = None
) -> keras.Model:
    """observations → logits [B, Σ choices], or means and standard deviations, each [B, A]."""
    kernel, inputs = Orthogonal(seed), torso.inputs()
    features = torso(with_mirror_image(inputs, mirror), kernel)  # [B, units], or [2B, units]
    return keras.Model(inputs, mean_of_heads(heads(features, kernel), mirror), name="actor")


def value_critic(torso: Torso, seed: int, mirror: Mirror | None = None) -> keras.Model:
    """observations → value [B, 1]."""
    kernel, inputs = Orthogonal(seed), torso.inputs()
    features = torso(with_mirror_image(inputs, mirror), kernel)  # [B, units], or [2B, units]
    return keras.Model(inputs, mean_of_values(value_head(features, kernel), mirror), name="critic")


def actor_and_critic_of_one_torso(
    torso: Torso, heads: NormalHeads | CategoricalHead, seed: int, mirror: Mirror | None = None
) -> tuple[keras.Model, keras.Model, keras.Model]:
    """The whole network, observations → [*heads, value]; and its two halves, which share the torso's layers."""
    kernel, inputs = Orthogonal(seed), torso.inputs()
    features = torso(with_mirror_image(inputs, mirror), kernel)  # [B, units], or [2B, units]
    outputs = mean_of_heads(heads(features, kernel), mirror)
    value = mean_of_values(value_head(features, kernel), mirror)
    actor, critic = keras.Model(inputs, outputs, name="actor"), keras.Model(inputs, value, name="critic")
    return keras.Model(inputs, [*outputs, value], name="network"), actor, critic
