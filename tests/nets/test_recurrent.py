"""Cells that remember are Keras's, whoever computes them; a memory is emptied where an episode is over."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from common.nets.from_keras import describe
from common.nets.keras_models import DenseHead, Torso, actor_network
from common.nets.kernels import orthogonal

STEPS, UNITS = 5, 3
LAYERS = {"gru": keras.layers.GRU, "lstm": keras.layers.LSTM}


def actor(kind: str) -> keras.Model:
    """With biases that are not 0."""
    torso = Torso((2,), (4,), "tanh", memory=kind, memory_size=UNITS)
    model = actor_network(torso, DenseHead("out", 2), orthogonal(0))
    rng = np.random.default_rng(0)
    model.set_weights([rng.standard_normal(weights.shape) for weights in model.get_weights()])
    return model


@pytest.mark.parametrize("kind", LAYERS)
def test_sequences_and_single_steps_agree_with_keras(kind):
    model, rng = actor(kind), np.random.default_rng(1)
    seen = rng.standard_normal((2, STEPS, 2)).astype(np.float32)  # two sequences
    cell, hidden, head = (model.get_layer(name) for name in ("memory", "hidden_0", "out"))
    whole = LAYERS[kind](UNITS, return_sequences=True)
    whole.build((None, STEPS, 2))
    whole.set_weights(cell.get_weights())
    empty = np.zeros((2, cell.memory_size), np.float32)
    with tf.GradientTape(persistent=True) as tape:
        expected = head(hidden(whole(seen)))  # [2, STEPS, 2]
        found, after = model([seen.reshape(-1, 2), empty, np.ones(2 * STEPS, np.float32)])
        found = tf.reshape(found, expected.shape)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for one, other in zip(cell.trainable_variables, whole.trainable_variables):
        np.testing.assert_allclose(tape.gradient(found, one), tape.gradient(expected, other), atol=1e-4)

    network, memory = describe(model), empty.copy()
    for t in range(STEPS):
        np.testing.assert_allclose(network(seen[:, t], memory)[0], expected[:, t], atol=1e-5)
    np.testing.assert_allclose(memory, np.reshape(after, (2, STEPS, -1))[:, -1], atol=1e-5)
    np.testing.assert_allclose(network(seen[:, 0])[0], expected[:, 0], atol=1e-5)  # as an episode begins


def test_nothing_is_remembered_of_an_episode_that_is_over():
    model, rng = actor("lstm"), np.random.default_rng(1)
    seen, kept = rng.standard_normal((STEPS, 2)).astype(np.float32), np.array([1, 0, 1, 1, 1], np.float32)
    before = rng.standard_normal((1, 2 * UNITS)).astype(np.float32)
    found, after = map(np.asarray, model([seen, before, kept]))
    assert (after[1] == 0).all() and (after[[0, 2, 3, 4]] != 0).all()
    kernel, empty = model.get_layer("memory").cell.recurrent_kernel, np.zeros((1, 2 * UNITS), np.float32)
    outputs, gradients = [], []
    for rows, memory in ((slice(None), before), (slice(2), before), (slice(2, None), empty)):
        with tf.GradientTape() as tape:
            outputs.append(model([seen[rows], memory, kept[rows]])[0])
        gradients.append(tape.gradient(outputs[-1], kernel))
    np.testing.assert_allclose(found[2:], outputs[2], atol=1e-6)
    np.testing.assert_allclose(gradients[0], gradients[1] + gradients[2], atol=1e-5)
    forgetful, _ = model([seen, 0 * before, kept])
    assert np.abs(found[:2] - forgetful[:2]).min() > 1e-3
