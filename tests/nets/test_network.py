"""One network is the same in NumPy, TensorFlow, stacked TensorFlow and ONNX; a layer that is unknown is named."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box
from numpy.testing import assert_allclose, assert_array_equal

from common.envs.mirrors import Entries, Mirror
from common.envs.spaces import action_map
from common.errors import UserError
from common.nets.batch_renormalization import RenormalizedNetworks
from common.nets.flat_networks import FlatNetworks, flat
from common.nets.from_keras import describe
from common.nets.keras_models import Convolution, DenseHead, NormalHeads, Torso, actor_network
from common.nets.kernels import glorot
from common.nets.network import Constant, Normalizer, forward
from common.nets.tensorflow_operations import TENSORFLOW
from common.rollout.policies import DeterministicPolicy
from programs import onnx_files

ACTION = DenseHead("mean", 2, "tanh")
NORMAL = NormalHeads(2, "tanh", 1.0, 0.5)
MIRROR = Mirror(Entries((-1, 3, 2), (0.0, 0.1, -0.1)), Entries((2, 1)), 0.3)
IMAGES = Torso((9, 8, 3), (6,), "relu", convolutions=(Convolution(4, 3, 2), Convolution(5, 2, 1)))
NETWORKS = {
    "dense": (Torso((3,), (8, 5), "tanh"), ACTION, None),
    "no hidden layer": (Torso((3,), (), "tanh"), ACTION, None),
    "layer norm": (Torso((3,), (8, 5), "relu", layer_norm=True), ACTION, None),
    "mirror": (Torso((3,), (8,), "relu"), ACTION, MIRROR),
    "mirror and layer norm": (Torso((3,), (8, 5), "tanh", layer_norm=True), ACTION, MIRROR),
    "mirror and batch norm": (Torso((3,), (8, 5), "relu", batch_norm=True), ACTION, MIRROR),
    "mirror and two heads": (Torso((3,), (8,), "softplus"), NORMAL, MIRROR),
    "convolutions": (IMAGES, NORMAL, None),
}


def models(name):
    """Two Keras models of one shape with random weights, and raw observations [n, *shape] for them."""
    torso, heads, mirror = NETWORKS[name]
    rng = np.random.default_rng(0)
    found = [actor_network(torso, heads, glorot(seed), mirror) for seed in (1, 2)]
    for model in found:
        model.set_weights([array + rng.normal(0, 0.3, array.shape) for array in model.get_weights()])
    if torso.convolutions:
        return found, rng.integers(0, 256, (4, *torso.observation_shape)).astype(np.uint8)
    return found, rng.standard_normal((4, *torso.observation_shape)).astype(np.float32)


@pytest.mark.parametrize("name", NETWORKS)
def test_numpy_tensorflow_and_onnx_agree_with_keras(name, tmp_path):
    (model, _), raw = models(name)
    expected = [np.asarray(output) for output in keras.tree.flatten(model(raw))]
    network = describe(model)
    assert np.ptp(expected[0]) > 0.1
    for found in (network(raw), forward(TENSORFLOW, network, raw)):
        for ours, keras_s in zip(found, expected, strict=True):
            assert_allclose(np.broadcast_to(ours, keras_s.shape), keras_s, atol=1e-5)
    file = tmp_path / "policy.onnx"
    first = network.first_head()
    onnx_files.write_onnx(DeterministicPolicy(first, 0.0), first, action_map(Box(-1, 1, (2,))), raw.shape[1:], file)
    assert_allclose(onnx_files.read_onnx(file)(raw), expected[0], atol=1e-5)


@pytest.mark.parametrize("name", [name for name, (_, heads, _) in NETWORKS.items() if heads is ACTION])
def test_stacked_networks_agree_with_keras_before_and_after_their_weights_change(name):
    both, raw = models(name)
    normalizes = "batch norm" in name
    together = (RenormalizedNetworks if normalizes else FlatNetworks)(both)
    for _ in range(2):
        found = together.call(together.stacks(), tf.constant(raw))  # [networks, B, out]
        assert_allclose(found, [model(raw) for model in together.pull()], atol=1e-5)
        together.weights.assign(0.5 * together.weights)
    for keras_s, ours in zip(both[0].get_weights(), describe(both[0]).arrays, strict=True):
        assert_array_equal(keras_s, ours)
    assert_array_equal(flat(together.stacks()), together.weights)  # gradients come in the order of the weights
    if normalizes:  # by statistics of both
        return
    second = together.call([stack[1:] for stack in together.stacks()], tf.constant(raw))
    assert_allclose(second, [together.pull()[1](raw)], atol=1e-5)


@pytest.mark.parametrize("name", ["dense", "mirror and layer norm"])
def test_observations_are_normalised_alike(name):
    (model, _), raw = models(name)
    network = describe(model, Normalizer(np.float32([0.5, 0, -0.5]), np.float32([2, 1, 300])))
    by_hand = np.clip((raw - network.normalize.shift) * network.normalize.scale, -10, 10)
    assert np.abs(by_hand).max() == 10
    for found in (network(raw), forward(TENSORFLOW, network, raw)):
        assert_allclose(found[0], model(by_hand), atol=1e-5)


def test_a_standard_deviation_that_states_do_not_change_is_a_constant_within_its_bounds():
    (model, _), _ = models("mirror and two heads")
    model.get_layer("std").log_std.assign([-200.0, 0.0])
    head = describe(model).heads[1]
    assert isinstance(head, Constant)
    assert_allclose(head.values, [1e-6, 1.0])


# -- layers that are unknown --


def row(*layers):
    return keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(2)], name="actor")


def beside(join):
    inputs = keras.Input((6,))
    one, other = keras.layers.Dense(4, name="one")(inputs), keras.layers.Dense(4, name="other")(inputs)
    return keras.Model(inputs, join(one, other), name="actor")


def twice():
    inputs, layer = keras.Input((6,)), keras.layers.Dense(6, name="again")
    return keras.Model(inputs, keras.layers.Dense(2, name="last")(layer(layer(inputs))), name="actor")


def images(*layers):
    return keras.Sequential([keras.Input((8, 8, 1)), *layers, keras.layers.Flatten(), keras.layers.Dense(2)])


UNKNOWN = {
    "Dropout": (lambda: row(keras.layers.Dropout(0.5, name="x")), r"x \(Dropout\)"),
    "BatchNormalization": (lambda: row(keras.layers.BatchNormalization(name="x")), r"x \(BatchNormalization\)"),
    "an activation": (lambda: row(keras.layers.Dense(4, "gelu", name="x")), r"x \(Dense\)"),
    "a function": (lambda: row(keras.layers.Dense(4, lambda x: 2 * x, name="x")), r"x \(Dense\)"),
    "an activation alone": (lambda: row(keras.layers.Activation("tanh", name="x")), r"x \(Activation\)"),
    "no bias": (lambda: row(keras.layers.Dense(4, use_bias=False, name="x")), r"x \(Dense\)"),
    "no scale": (lambda: row(keras.layers.LayerNormalization(scale=False, name="x")), r"x \(LayerNormalization\)"),
    "a network in it": (lambda: row(row()), r"actor \(Sequential\)"),
    "an operation": (lambda: beside(lambda one, other: keras.ops.tanh(one)), r"\(Tanh\)"),
    "a sum": (lambda: beside(lambda *both: keras.layers.Add(name="x")(both)), r"x \(Add\)"),
    "heads of two torsos": (
        lambda: beside(lambda one, other: [one, keras.layers.Dense(2)(other)]),
        r"other \(Dense\)",
    ),
    "a layer twice": (twice, r"again \(Dense\)"),
    "padding": (lambda: images(keras.layers.Conv2D(4, 3, padding="same", name="x")), r"x \(Conv2D\)"),
    "uneven strides": (lambda: images(keras.layers.Conv2D(4, 3, (1, 2), name="x")), r"x \(Conv2D\)"),
    "no flat features": (lambda: keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Conv2D(4, 3, name="x")]), "x"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_layer_that_is_unknown_is_named(what):
    make, named = UNKNOWN[what]
    with pytest.raises(UserError, match=rf"^the layer .*{named}.* of the network .* cannot be copied"):
        describe(make())


def test_layers_that_cannot_be_stacked_are_computed_by_keras():
    """Dropout would vanish, and a layer without a bias would take another's."""
    both = [row(keras.layers.Dropout(0.5), keras.layers.Dense(4, use_bias=False)) for _ in range(2)]
    together, raw = FlatNetworks(both), np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    for _ in range(2):
        assert_allclose(together.call(together.stacks(), raw), [model(raw) for model in together.pull()], atol=1e-6)
        together.weights.assign(0.5 * together.weights)
    dropped = [together.call(together.stacks(), raw, training=True) for _ in range(2)]
    assert np.abs(dropped[0] - dropped[1]).max() > 0.01  # the random state goes on
