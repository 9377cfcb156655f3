"""Copies Keras actors into the plain arrays that `common.rollout.policies` acts with."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from common.envs.mirrors import Mirror, Sides
from common.errors import UserError
from common.learning.compiled import Compiled
from common.learning.mirrored import MeanOfBoth, WithMirrorImage, entries_of_heads
from common.learning.networks import StateIndependentStd
from common.learning.rounded_products import RoundedDense
from common.rollout.policies import (
    ACTIVATIONS,
    MAX_STD,
    MIN_STD,
    UNCHANGED,
    Constant,
    Convolved,
    Dense,
    DenseHeads,
    DeterministicPolicy,
    ImageLayers,
    Normalizer,
    SquashedPolicy,
)

_DENSE = (keras.layers.Dense, RoundedDense, StateIndependentStd)
HEADS = ("mean", "std", "logits")  # the names of their layers, means before standard deviations
IMAGES_A_CALL = 8  # when acting, whatever their number


class ImageHeads:
    """The heads of an actor that sees images, and the values if its network has them; it is the live one, no copy."""

    def __init__(self, network: keras.Model) -> None:
        self.compiled = Compiled(network)

    def __call__(self, images: np.ndarray) -> list[np.ndarray]:
        """images [n, height, width, channels] → each of its outputs, [n, ...]; one shape, so one compilation."""
        parts = []
        for first in range(0, len(images), IMAGES_A_CALL):
            part = images[first : first + IMAGES_A_CALL]
            missing = IMAGES_A_CALL - len(part)
            padded = np.pad(part, [(0, missing), (0, 0), (0, 0), (0, 0)]) if missing else part
            parts.append([output.numpy()[: len(part)] for output in tf.nest.flatten(self.compiled(padded))])
        return [np.concatenate(outputs) for outputs in zip(*parts)]


def known_layers(network: keras.Model, *known: type[keras.layers.Layer]) -> list[Any]:
    """The layers of these types, in their order, for whoever computes them without Keras.

    Inputs and the layers of a mirror may stand among them, and functions such as `keras.ops.tanh` after the last.

    Raises:
        UserError: the network has another layer, which would be skipped.
    """
    operations = list(network.operations)
    last = max(i for i, operation in enumerate(operations) if type(operation) in known)
    for i, operation in enumerate(operations):
        expected = type(operation) in (*known, keras.layers.InputLayer, WithMirrorImage, MeanOfBoth)
        if not expected and (i < last or isinstance(operation, keras.layers.Layer)):
            raise UserError(
                f"the layer {operation.name!r} of the network {network.name!r} is of type {type(operation).__name__}: "
                f"expected {', '.join(kind.__name__ for kind in known)}; build the network of these layers"
            )
    return [operation for operation in operations if type(operation) in known]


def dense_heads(actor: keras.Model, normalize: Normalizer, mirror: Mirror | None = None) -> DenseHeads:
    """The heads of an actor made by `networks.policy_actor`; later training does not change the copy."""
    return _heads(known_layers(actor, *_DENSE), normalize, mirror)


def _heads(layers: list[keras.layers.Layer], normalize: Normalizer, mirror: Mirror | None = None) -> DenseHeads:
    hidden = tuple(_dense(layer) for layer in layers if layer.name.startswith("hidden_"))
    named = {layer.name: layer for layer in layers}
    heads = tuple(_head(named[name]) for name in HEADS if name in named)
    if mirror is None:
        return DenseHeads(normalize, hidden, heads)
    sides = [Sides(mirror.observation, entries, mirror.weight) for entries in entries_of_heads(mirror)]
    return DenseHeads(normalize, hidden, heads, tuple(sides[: len(heads)]))


def image_layers(actor: keras.Model) -> ImageLayers:
    """A copy of the layers of an actor that sees images, made by `networks.policy_actor`."""
    layers = known_layers(actor, *_DENSE, keras.layers.Conv2D, keras.layers.Rescaling, keras.layers.Flatten)
    convolutions = (layer for layer in layers if isinstance(layer, keras.layers.Conv2D))
    return ImageLayers(tuple(map(_convolved, convolutions)), _heads(layers, UNCHANGED))


def deterministic(
    actor: keras.Model, weights: list[np.ndarray], std: float, normalize: Normalizer, sides: Sides | None = None
) -> DeterministicPolicy:
    """A policy with the activations of an actor made by `companions.architecture.deterministic_actor`.

    Args:
        weights: kernels and biases, layer by layer.
        std, normalize, sides: see `DeterministicPolicy`.
    """
    return DeterministicPolicy(_activations(actor), weights, std, normalize, sides)


def squashed(
    actor: keras.Model, weights: list[np.ndarray], normalize: Normalizer, sides: Sides | None = None
) -> SquashedPolicy:
    """A policy with the activations of an actor made by `companions.architecture.squashed_actor`.

    Args:
        weights: kernels and biases, layer by layer.
        normalize, sides: see `SquashedPolicy`.
    """
    return SquashedPolicy(_activations(actor), weights, normalize, sides)


def _activations(actor: keras.Model) -> list[str]:
    """Of its dense layers, from first to last."""
    return [_activation(layer) for layer in known_layers(actor, keras.layers.Dense)]


def _dense(layer: keras.layers.Dense) -> Dense:
    kernel, bias = layer.get_weights()
    return Dense(kernel, bias, _activation(layer))


def _convolved(layer: keras.layers.Conv2D) -> Convolved:
    kernel, bias = layer.get_weights()
    return Convolved(kernel, bias, layer.strides[0], _activation(layer))


def _activation(layer: keras.layers.Dense | keras.layers.Conv2D) -> str:
    name = layer.activation.__name__
    assert name in ACTIVATIONS, f"{name} is missing in common.rollout.policies"
    return name


def _head(layer: keras.layers.Layer) -> Dense | Constant:
    if isinstance(layer, StateIndependentStd):
        return Constant(np.clip(np.exp(layer.get_weights()[0]), MIN_STD, MAX_STD))  # [A]
    return _dense(layer)
