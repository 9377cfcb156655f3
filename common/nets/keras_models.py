"""Torsos and heads, and the networks made of them, as Keras functional models."""

from dataclasses import dataclass
from typing import Any

import keras

from common.envs.mirrors import Mirror, unmoved
from common.nets.keras_layers import MeanOfBoth, StateIndependentStd, WithMirrorImage
from common.nets.kernels import Kernels
from common.nets.memory_layer import MemoryLayer
from common.nets.network import RULED_OUT
from common.nets.rounded_products import RoundedDense
from common.nets.tensorflow_operations import TENSORFLOW


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
        precision: bfloat16 rounds what hidden layers multiply, except observations that are not images.
        memory: "gru" or "lstm" is the last hidden layer, which remembers; None without one.
        memory_size: units of that layer.
    """

    observation_shape: tuple[int, ...]
    sizes: tuple[int, ...]
    activation: str
    gain: float = 1.0
    convolutions: tuple[Convolution, ...] = ()
    layer_norm: bool = False
    precision: str = "float32"
    memory: str | None = None
    memory_size: int = 0

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
class DenseHead:
    """One dense layer [B, units]: logits, actions, μ and log σ side by side, or what describes a value."""

    name: str
    units: int
    activation: str = "linear"
    gain: float = 1.0

    def __call__(self, features: keras.KerasTensor, kernel: Kernels) -> list[keras.KerasTensor]:
        """features [B, F] → the layer's output, [B, units]."""
        layer = keras.layers.Dense(self.units, self.activation, kernel_initializer=kernel(self.gain), name=self.name)
        return [layer(features)]


@dataclass(frozen=True)
class NormalHeads:
    """Mean [B, A] and standard deviation [B, A] of a Normal policy."""

    action_size: int
    mean_activation: str
    mean_gain: float
    std: str
    initial_std: float

    def __call__(self, features: keras.KerasTensor, kernel: Kernels) -> list[keras.KerasTensor]:
        """features [B, F] → mean and standard deviation, [B, A] each."""
        [mean] = DenseHead("mean", self.action_size, self.mean_activation, self.mean_gain)(features, kernel)
        if self.std == "state_independent":
            return [mean, StateIndependentStd(self.action_size, self.initial_std, name="std")(features)]
        return [mean, *DenseHead("std", self.action_size, "softplus")(features, kernel)]


Heads = NormalHeads | DenseHead


def actor_network(torso: Torso, heads: Heads, kernel: Kernels, mirror: Mirror | None = None) -> keras.Model:
    """observations → the output of each head, such as logits, or means and standard deviations.

    With a memory, here and below: observations, memory and what is kept → outputs and memory, as of `MemoryLayer`.
    """
    inputs, features, memory = _hidden(torso, kernel, mirror)
    return keras.Model(inputs, [*_means(heads(features, kernel), mirror), *memory], name="actor")


def critic_network(torso: Torso, kernel: Kernels, mirror: Mirror | None = None, outputs: int = 1) -> keras.Model:
    """observations, or observations and actions side by side → value [B, 1], or its distribution's [B, outputs]."""
    inputs, features, memory = _hidden(torso, kernel, mirror)
    value = _values(features, kernel, mirror, outputs)
    return keras.Model(inputs, [value, *memory] if memory else value, name="critic")


def actor_and_critic_of_one_torso(
    torso: Torso, heads: Heads, kernel: Kernels, mirror: Mirror | None = None
) -> tuple[keras.Model, keras.Model, keras.Model]:
    """The whole network, observations → [*heads, value]; and its two halves, which share the torso's layers."""
    inputs, features, memory = _hidden(torso, kernel, mirror)
    outputs = _means(heads(features, kernel), mirror)
    value = _values(features, kernel, mirror, 1)
    actor = keras.Model(inputs, [*outputs, *memory], name="actor")
    critic = keras.Model(inputs, [value, *memory] if memory else value, name="critic")
    return keras.Model(inputs, [*outputs, value, *memory], name="network"), actor, critic


class WithMask(keras.Model):
    """A network that does not see the action mask [B, X] at the end of its inputs; an actor's logits heed it."""

    def __init__(self, network: keras.Model, mask_size: int) -> None:
        inputs = keras.Input((network.input_shape[1] + mask_size,))
        numbers, mask = TENSORFLOW.cut(inputs, mask_size)
        outputs = network(numbers)
        if isinstance(outputs, list):
            outputs = [keras.ops.where(mask > 0, outputs[0], RULED_OUT), *outputs[1:]]
        super().__init__(inputs, outputs, name=network.name)
        self.network, self.mask_size = network, mask_size


def _hidden(torso: Torso, kernel: Kernels, mirror: Mirror | None) -> tuple[Any, keras.KerasTensor, list[Any]]:
    """A network's inputs; the features of its last hidden layer, [B, units], or with a mirror [2B, units]; its memory.

    The memory [B, Z] after each step is in a list, which is empty without one.
    """
    observations = keras.Input(torso.observation_shape)
    seen = observations if mirror is None else WithMirrorImage(mirror.observation)(observations)
    features = torso(seen, kernel)
    if torso.memory is None:
        return observations, features, []
    layer = MemoryLayer(torso.memory, torso.memory_size, kernel, name="memory")
    memory, kept = keras.Input((layer.memory_size,)), keras.Input(())
    features, after = layer(features, memory, kept)
    return [observations, memory, kept], features, [after]


def _values(features: keras.KerasTensor, kernel: Kernels, mirror: Mirror | None, outputs: int) -> keras.KerasTensor:
    of_values = mirror and Mirror(mirror.observation, unmoved(outputs))
    return _means(DenseHead("value", outputs)(features, kernel), of_values)[0]


def _means(heads: list[keras.KerasTensor], mirror: Mirror | None) -> list[keras.KerasTensor]:
    """Heads [2B, X] → [B, X] each: the first has signs, a standard deviation has none."""
    if mirror is None:
        return heads
    entries_of_heads = mirror.action, mirror.action.unsigned
    return [MeanOfBoth(entries, mirror.weight)(head) for head, entries in zip(heads, entries_of_heads)]
