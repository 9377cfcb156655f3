"""Batch renormalisation: numbers worked by hand, its gradient, and what the running statistics become."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from common.nets.batch_normalization import BatchNormalization
from common.nets.batch_renormalization import WARM_UP, RenormalizedNetworks, batch_renormalized
from common.nets.keras_models import DenseHead, Torso, actor_network
from common.nets.kernels import glorot


@pytest.mark.parametrize(
    ("corrected", "running_std", "expected"),
    [
        (False, 2.0, [-1, 3]),  # (x − 2) / 1 is −1 and 1, times γ = 2, and β = 1
        (True, 2.0, [1, 3]),  # r = 1 / 2 and d = (2 − 1) / 2: 0 and 1
        (True, 0.1, [5, 17]),  # r = 3, which would be 10, and d = 5, which would be 10: 2 and 8
        (True, 10.0, [1 + 2 * (0.1 - 1 / 3), 1 + 2 * (0.1 + 1 / 3)]),  # r = 1 / 3, which would be 1 / 10
    ],
)
def test_batch_renormalisation_worked_by_hand(corrected, running_std, expected):
    numbers = (tf.constant([[[number]]]) for number in (2.0, 1.0, 1.0, running_std**2))
    layer = BatchNormalization(*numbers, epsilon=0.0)  # γ, β and the running μ = 1 and σ²
    result, mean, variance = batch_renormalized(tf.constant([[[1.0], [3.0]]]), layer, tf.constant(corrected))
    assert_allclose(result[0, :, 0], expected, rtol=1e-5)
    assert (mean.numpy().item(), variance.numpy().item()) == (2.0, 1.0)


def test_its_gradient_is_that_of_its_formula():
    """No gradient goes through r and d; everything else is left to TensorFlow here."""
    rng = np.random.default_rng(0)
    features, scale, shift, mean, variance, weights = (
        tf.constant(rng.uniform(0.5, 2.0, shape), tf.float32)
        for shape in ((2, 7, 4), *((2, 1, 4),) * 4, (2, 7, 4))  # [networks, B, units]
    )

    def by_moments(features, layer, _):
        mean, variance = tf.nn.moments(features, axes=[1], keepdims=True)
        std, running = tf.sqrt(variance + layer.epsilon), tf.sqrt(layer.variance + layer.epsilon)
        r, d = (tf.stop_gradient(correction) for correction in (std / running, (mean - layer.mean) / running))
        return layer.scale * ((features - mean) / std * r + d) + layer.shift, mean, variance

    found = []
    for function in (by_moments, batch_renormalized):
        with tf.GradientTape() as tape:
            tape.watch([features, scale, shift])
            result, *_ = function(2.5 * features, BatchNormalization(scale, shift, mean, variance), tf.constant(True))
            loss = tf.reduce_sum(weights * result**2)
        found.append([result, *tape.gradient(loss, [features, scale, shift])])
    for expected, ours in zip(*found):
        assert np.abs(expected).max() > 0.1
        assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)


def test_an_update_is_keras_s_batch_normalisation_until_it_is_warm():
    networks = [
        actor_network(Torso((3,), (8, 5), "relu", batch_norm=True), DenseHead("mean", 2), glorot(seed))
        for seed in (1, 2)
    ]
    together, rows = RenormalizedNetworks(networks), tf.random.stateless_normal((6, 3), (1, 2))
    together.updates = tf.Variable(WARM_UP - 1)
    found = together.call(together.stacks(), rows, training=True)
    assert_allclose(found, [network(rows, training=True) for network in networks], atol=1e-5)
    running = np.concatenate([np.ravel(v) for network in networks for v in network.non_trainable_weights])
    assert_allclose(together.statistics, running, atol=1e-6)
    together.updates.assign(WARM_UP)
    corrected = together.call(together.stacks(), rows, training=True)
    assert np.abs(corrected - found).max() > 0.1
    still = np.array(together.statistics)
    together.call(together.stacks(), rows)
    assert (still == together.statistics).all()
