"""The description of a Keras model: its layers, one after the other, as a `Network`.

A model with another layer cannot be described. It can still be trained and called through Keras, as an actor that
sees images acts (`common.learning.compiled.KerasHeads`).
"""

from dataclasses import replace
from typing import Any, NoReturn

import keras
import numpy as np

from common.envs.mirrors import Sides
from common.errors import UserError
from common.nets import network
from common.nets.batch_normalization import BatchNormalization
from common.nets.keras_layers import Columns, MeanOfBoth, StateIndependentStd, WithMirrorImage
from common.nets.keras_models import BatchRenormalization, WithMask
from common.nets.memory_layer import MemoryLayer
from common.nets.rounded_products import RoundedDense
from common.nets.tensorflow_operations import TENSORFLOW

_OPTIONS: dict[type, dict[str, Any]] = {
    keras.layers.Dense: {"use_bias": True},
    RoundedDense: {"use_bias": True},
    keras.layers.Conv2D: {
        "use_bias": True, "padding": "valid", "groups": 1, "dilation_rate": (1, 1), "data_format": "channels_last"
    },
    keras.layers.LayerNormalization: {"center": True, "scale": True, "axis": -1},
    BatchRenormalization: {},
    keras.layers.Rescaling: {},
    keras.layers.Flatten: {"data_format": "channels_last"},
    MemoryLayer: {},
}  # fmt: skip
"""The layers of a torso, with the only values of their options that are known."""
_NORMALIZATIONS: Any = {
    keras.layers.LayerNormalization: network.LayerNormalization,
    BatchRenormalization: BatchNormalization,
}
_OTHERS = (
    keras.layers.InputLayer, keras.layers.Activation, keras.layers.Concatenate, Columns, WithMirrorImage, MeanOfBoth,
    StateIndependentStd,
)  # fmt: skip


def describe(model: keras.Model, normalize: network.Normalizer = network.UNCHANGED) -> network.Network:
    """A copy of a model as it is now; later training does not change it.

    Args:
        model: a torso of layers in a row, and after it one head, or several in parallel.
        normalize: maps raw observations to the model's.

    Raises:
        UserError: a layer of the model is unknown here, or is not in a row with the others.
    """
    if isinstance(model, WithMask):
        return replace(describe(model.network, normalize), mask_size=model.mask_size)
    layers = getattr(model, "operations", model.layers)  # a Sequential model has layers alone
    for layer in layers:
        if type(layer) not in (*_OPTIONS, *_OTHERS):
            _refuse(model, layer)
    made_by = {
        id(tensor): (layer, node.input_tensors)
        for layer in layers
        for node in layer._inbound_nodes  # noqa: SLF001  `Sequential.add` calls again, `output` is of the first call
        for tensor in node.output_tensors
    }
    outputs = [output for output in model.outputs if not isinstance(made_by[id(output)][0], MemoryLayer)]
    paths = [_path(model, output, made_by) for output in outputs]
    means: list[Any] = [path.pop() if isinstance(path[-1], MeanOfBoth) else None for path in paths]
    heads = tuple(_head(model, path.pop()) for path in paths)
    torso = paths[0]
    mirror = torso.pop(0) if torso and isinstance(torso[0], WithMirrorImage) else None
    for path, mean in zip(paths, means):
        if path not in (torso, [mirror, *torso]):
            _refuse(model, (path or torso)[-1])
        if (mean is None) != (mirror is None):
            _refuse(model, mean or mirror)
    sides = () if mirror is None else tuple(Sides(mirror.entries, mean.entries, mean.weight) for mean in means)
    return network.Network(normalize, _torso(model, torso, made_by), heads, sides)


def can_describe(model: keras.Model) -> bool:
    """Whether `describe` knows all layers of a model."""
    try:
        describe(model)
    except UserError:
        return False
    return True


def _path(model: keras.Model, tensor: Any, made_by: dict[int, Any]) -> list[Any]:
    """The layers that lead from the model's input to a tensor, or from the last Concatenate."""
    path: list[Any] = []
    while tensor is not model.inputs[0]:
        layer, inputs = made_by.get(id(tensor), (model, ()))
        if isinstance(layer, keras.layers.Concatenate):
            return [layer, *path]
        if isinstance(layer, MemoryLayer):
            inputs = inputs[:1]  # its features
        if len(inputs) != 1 or layer in path:  # several inputs, or a layer that is called twice
            _refuse(model, layer)
        path.insert(0, layer)
        [tensor] = inputs
    return path


def _torso(model: keras.Model, layers: list[Any], made_by: dict[int, Any]) -> tuple[network.Layer, ...]:
    found: list[Any] = []
    if layers and isinstance(layers[0], keras.layers.Concatenate):
        join, *layers = layers
        [tensors, *others] = [inputs for layer, inputs in made_by.values() if layer is join]
        if others or join.axis not in (-1, 1) or len(tensors[0].shape) != 2:
            _refuse(model, join)
        paths = [_path(model, tensor, made_by) for tensor in tensors]
        found.append(network.Joined(tuple(_torso(model, path, made_by) for path in paths)))
    for layer in layers:
        if isinstance(layer, keras.layers.Activation) and found and getattr(found[-1], "activation", "") == "linear":
            found[-1] = found[-1]._replace(activation=_activation(model, layer))
        else:
            found.append(_described(model, layer))
    return tuple(found)


def _head(model: keras.Model, layer: Any) -> network.Dense | network.Constant:
    if isinstance(layer, StateIndependentStd):
        return network.Constant(np.clip(np.exp(layer.get_weights()[0]), network.MIN_STD, network.MAX_STD))  # [A]
    head = _described(model, layer)
    return head if isinstance(head, network.Dense) else _refuse(model, layer)


def _described(model: keras.Model, layer: Any) -> network.Layer:
    if isinstance(layer, Columns):
        return layer.cut
    options = _OPTIONS.get(type(layer))  # None where a layer stands that belongs elsewhere
    if options is None or any(np.any(getattr(layer, name) != np.array(value)) for name, value in options.items()):
        _refuse(model, layer)
    if isinstance(layer, keras.layers.Rescaling):
        return network.Rescaling(layer.scale, layer.offset)
    if isinstance(layer, keras.layers.Flatten):
        return network.Flatten()
    if isinstance(layer, MemoryLayer):
        described = layer.layer()
        return type(described)(*map(np.array, described))
    if len(layer.weights) != (4 if isinstance(layer, BatchRenormalization) else 2):
        _refuse(model, layer)  # Keras has options that add or leave out some
    if normalization := _NORMALIZATIONS.get(type(layer)):
        return normalization(*layer.get_weights(), epsilon=layer.epsilon)
    one, other = layer.get_weights()
    activation = _activation(model, layer)
    if isinstance(layer, keras.layers.Dense):
        return network.Dense(one, other, activation, isinstance(layer, RoundedDense))
    if len(set(layer.strides)) > 1:
        _refuse(model, layer)
    return network.Convolution(one, other, activation, layer.strides[0])


def _activation(model: keras.Model, layer: Any) -> str:
    names = [name for name, function in TENSORFLOW.activations.items() if function is layer.activation]
    return names[0] if names else _refuse(model, layer)


def _refuse(model: keras.Model, layer: Any) -> NoReturn:
    raise UserError(
        f"the layer {layer.name} ({type(layer).__name__}) of the network {model.name} cannot be copied for acting and "
        "exports: build it of Dense, Conv2D, LayerNormalization, Activation, Rescaling and Flatten in a row, with the "
        f"activations {', '.join(TENSORFLOW.activations)}"
    )
