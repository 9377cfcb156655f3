"""Torsos and heads, and the networks made of them, as Keras functional models."""

from dataclasses import dataclass
from typing import Any, Protocol

import keras
import numpy as np

from common.envs.image_rows import ImagePart
from common.envs.mirrors import Mirror, unmoved
from common.nets.keras_layers import Columns, MeanOfBoth, StateIndependentStd, WithMirrorImage
from common.nets.kernels import Kernels
from common.nets.memory_layer import MemoryLayer
from common.nets.network import RULED_OUT, Cut
from common.nets.rounded_products import RoundedDense
from common.nets.tensorflow_operations import TENSORFLOW

NUMBERS = 64  # units of the layer that sees the numbers beside images


class BatchRenormalization(keras.layers.BatchNormalization):
    """Batch normalisation whose updates `common.nets.batch_renormalization` computes."""


@dataclass(frozen=True)
class Convolution:
    """A layer of filters over an image, without padding."""

    filters: int
    kernel_size: int
    stride: int


USUAL = Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)  # of Mnih et al. (2015)
OF_SMALL_IMAGES = Convolution(32, 3, 2), Convolution(64, 3, 2)


def fits(shape: tuple[int, ...], convolutions: tuple[Convolution, ...]) -> bool:
    """Whether convolutions leave something of images [H, W, C]."""
    side = min(shape[:2])
    for layer in convolutions:
        side = (side - layer.kernel_size) // layer.stride + 1
    return side >= 1


def with_convolutions(
    images: tuple[ImagePart, ...], convolutions: tuple[Convolution, ...] = USUAL
) -> tuple[tuple[ImagePart, tuple[Convolution, ...]], ...]:
    """The convolutions of each image of a row: those given, or others if the image is too small for them."""
    return tuple((image, convolutions if fits(image.shape, convolutions) else OF_SMALL_IMAGES) for image in images)


@dataclass(frozen=True)
class Torso:
    """Hidden layers: convolutions first where observations are images, then dense ones."""

    observation_shape: tuple[int, ...]  # (S,), or (height, width, channels) of images with values 0 to 255
    sizes: tuple[int, ...]  # units of the dense layers
    activation: str
    gain: float = 1.0  # of the orthogonal kernels
    convolutions: tuple[Convolution, ...] = ()  # of images
    layer_norm: bool = False  # before the activation of dense layers (arXiv:1607.06450)
    precision: str = "float32"  # bfloat16 rounds what hidden layers multiply; not numbers observed, nor a memory's
    images: tuple[tuple[ImagePart, tuple[Convolution, ...]], ...] = ()  # in a row of numbers, or the one that it is
    memory: str | None = None  # "gru" or "lstm" is the first hidden layer, which remembers
    memory_size: int = 0  # units of that layer
    batch_norm: bool = False  # batch renormalisation of the input and after each dense layer (arXiv:1702.03275)

    def hidden(self, kernel: Kernels, mirror: Mirror | None) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """A network's inputs, and the features of its last hidden layer, [B, units], or with a mirror [2B, units]."""
        inputs = keras.Input(self.observation_shape)
        return inputs, self(inputs if mirror is None else WithMirrorImage(mirror.observation)(inputs), kernel)

    def __call__(self, inputs: keras.KerasTensor, kernel: Kernels) -> keras.KerasTensor:
        """observations [B, *observation_shape] → features [B, units]."""
        features = inputs  # [B, S] or [B, H, W, C]
        rounded = self.precision == "bfloat16"
        dtype = "mixed_bfloat16" if rounded and self.convolutions else None  # Keras rounds sums, too
        if self.convolutions:
            features = self._convolved(keras.layers.Rescaling(1 / 255)(features), self.convolutions, kernel, "", dtype)
        if self.images:
            features = self._parts(inputs, kernel)
        if self.batch_norm:
            features = BatchRenormalization(name="batch_norm_input")(features)
        for i, units in enumerate(self.sizes):
            activation = None if self.layer_norm else self.activation
            kind = RoundedDense if rounded and dtype is None and i > 0 else keras.layers.Dense
            layer = kind(units, activation, kernel_initializer=kernel(self.gain), name=f"hidden_{i}", dtype=dtype)
            features = layer(features)  # [B, units]
            if self.layer_norm:
                features = keras.layers.LayerNormalization(name=f"norm_{i}")(features)
                features = keras.layers.Activation(self.activation)(features)
            if self.batch_norm:
                features = BatchRenormalization(name=f"batch_norm_{i}")(features)
        return features

    def _convolved(
        self, image: keras.KerasTensor, layers: tuple[Convolution, ...], kernel: Kernels, name: str, dtype: str | None
    ) -> keras.KerasTensor:
        """images [B, H, W, C] → features [B, units]."""
        for i, layer in enumerate(layers):
            image = keras.layers.Conv2D(
                layer.filters, layer.kernel_size, layer.stride, activation=self.activation,
                kernel_initializer=kernel(self.gain), name=f"{name}convolution_{i}", dtype=dtype,
            )(image)  # [B, h, w, filters]  # fmt: skip
        return keras.layers.Flatten()(image)

    def _parts(self, rows: keras.KerasTensor, kernel: Kernels) -> keras.KerasTensor:
        """Rows [B, S], or images alone → the features of each image by its convolutions, of all numbers by a layer."""
        numbers, parts = np.arange(np.prod(rows.shape[1:])), []
        for i, (image, layers) in enumerate(self.images):
            cut = rows  # [B, H, W, C]
            if len(rows.shape) == 2:
                cut = Columns(Cut(image.columns, image.shape), name=f"image_{i}")(rows)
            if image.scaled_by_network:
                cut = keras.layers.Rescaling(1 / 255)(cut)
            parts.append(self._convolved(cut, layers, kernel, f"image_{i}_", None))
            numbers = np.setdiff1d(numbers, image.columns)
        if len(numbers):
            rest = Columns(Cut(numbers, numbers.shape), name="numbers")(rows)
            layer = keras.layers.Dense(NUMBERS, self.activation, kernel_initializer=kernel(self.gain), name="dense")
            parts.append(layer(rest))
        return keras.layers.Concatenate()(parts) if len(parts) > 1 else parts[0]


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
    """Mean and standard deviation of a Normal policy, [B, A] each; without `initial_std` it differs between states."""

    action_size: int
    mean_activation: str
    mean_gain: float
    initial_std: float | None

    def __call__(self, features: keras.KerasTensor, kernel: Kernels) -> list[keras.KerasTensor]:
        """features [B, F] → mean and standard deviation, [B, A] each."""
        [mean] = DenseHead("mean", self.action_size, self.mean_activation, self.mean_gain)(features, kernel)
        if self.initial_std is not None:
            return [mean, StateIndependentStd(self.action_size, self.initial_std, name="std")(features)]
        return [mean, *DenseHead("std", self.action_size, "softplus")(features, kernel)]


Heads = NormalHeads | DenseHead


class HiddenLayers(Protocol):
    """What makes the hidden layers of a network: a `Torso`, or a function of the user's (`own_networks`)."""

    def hidden(self, kernel: Kernels, mirror: Mirror | None) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """A network's inputs, and the features of its last hidden layer, [B, units], or with a mirror [2B, units]."""


def actor_network(torso: HiddenLayers, heads: Heads, kernel: Kernels, mirror: Mirror | None = None) -> keras.Model:
    """observations → the output of each head, such as logits, or means and standard deviations.

    With a memory, here and below: observations, memory and what is kept → outputs and memory, as of `MemoryLayer`.
    """
    inputs, features, memory = _hidden(torso, kernel, mirror)
    return keras.Model(inputs, [*_means(heads(features, kernel), mirror), *memory], name="actor")


def critic_network(
    torso: HiddenLayers, kernel: Kernels, mirror: Mirror | None = None, outputs: int = 1
) -> keras.Model:
    """observations, or observations and actions side by side → value [B, 1], or its distribution's [B, outputs]."""
    inputs, features, memory = _hidden(torso, kernel, mirror)
    value = _values(features, kernel, mirror, outputs)
    return keras.Model(inputs, [value, *memory] if memory else value, name="critic")


def actor_and_critic_of_one_torso(
    torso: HiddenLayers, heads: Heads, kernel: Kernels, mirror: Mirror | None = None
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


def _hidden(torso: HiddenLayers, kernel: Kernels, mirror: Mirror | None) -> tuple[Any, keras.KerasTensor, list[Any]]:
    """A network's inputs, the features of its last hidden layer, and the memory [B, Z] after each step, if any."""
    if not isinstance(torso, Torso) or torso.memory is None:
        return *torso.hidden(kernel, mirror), []
    layer = MemoryLayer(torso.memory, torso.memory_size, kernel, name="memory")
    observations, memory, kept = map(keras.Input, (torso.observation_shape, (layer.memory_size,), ()))
    features, after = layer(observations, memory, kept)
    return [observations, memory, kept], torso(features, kernel), [after]


def _values(features: keras.KerasTensor, kernel: Kernels, mirror: Mirror | None, outputs: int) -> keras.KerasTensor:
    of_values = mirror and Mirror(mirror.observation, unmoved(outputs))
    return _means(DenseHead("value", outputs)(features, kernel), of_values)[0]


def _means(heads: list[keras.KerasTensor], mirror: Mirror | None) -> list[keras.KerasTensor]:
    """Heads [2B, X] → [B, X] each: the first has signs, a standard deviation has none."""
    if mirror is None:
        return heads
    entries_of_heads = mirror.action, mirror.action.unsigned
    return [MeanOfBoth(entries, mirror.weight)(head) for head, entries in zip(heads, entries_of_heads)]
