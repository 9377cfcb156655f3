"""Products of numbers that are rounded to bfloat16: what they give, in which layers, and that updates obey them."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from numpy.testing import assert_allclose

from Agent import Agent
from common.errors import UserError
from common.nets import rounded_products
from common.nets.flat_networks import FlatNetworks
from common.nets.from_keras import describe
from common.nets.keras_models import Torso, critic_network
from common.nets.kernels import glorot
from common.nets.rounded_products import check_precision, rounded_product
from companions.config import OffPolicyConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from ppo.config import PPOConfig

BFLOAT16 = tf.bfloat16.as_numpy_dtype


def rounded(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(BFLOAT16).astype(np.float32)


def product_and_gradients(left, right, upstream):
    with tf.GradientTape() as tape:
        tape.watch([left, right])
        product = rounded_product(left, right)
        total = tf.reduce_sum(product * upstream)
    return [product, *tape.gradient(total, [left, right])]


def test_a_product_worked_by_hand():
    """bfloat16 has steps of 1/128 from 1 to 2: 1 + 1/512 becomes 1. The sum 3 + 1/128 · 3 needs more digits."""
    left, right = tf.constant([[[1 + 1 / 512, 1 / 128]]]), tf.constant([[[3.0], [3.0]]])
    product, of_left, of_right = product_and_gradients(left, right, tf.constant([[[1 + 1 / 512]]]))
    assert product.numpy().ravel().tolist() == [3 + 3 / 128]
    assert of_left.numpy().ravel().tolist() == [3.0, 3.0]
    assert of_right.numpy().ravel().tolist() == [1.0, 1 / 128]


@pytest.mark.xla
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 9, 7), (2, 256, 64, 64), (5, 16, 256, 128)])
def test_products_and_gradients_are_those_of_rounded_numbers(shape):
    number, rows, inputs, outputs = shape
    sizes = (number, rows, inputs), (number, inputs, outputs), (number, rows, outputs)
    rng = np.random.default_rng(0)
    left, right, upstream = (rng.standard_normal(size).astype(np.float32) for size in sizes)
    compiled = tf.function(product_and_gradients, jit_compile=True, autograph=False)
    a, b, c = rounded(left), rounded(right), rounded(upstream)
    expected = a @ b, c @ b.swapaxes(1, 2), a.swapaxes(1, 2) @ c
    for found, wanted in zip(compiled(left, right, upstream), expected):
        assert_allclose(found, wanted, atol=1e-4)


def test_only_what_hidden_layers_give_each_other_is_rounded():
    """Large observations keep their digits, and so do values."""
    network = critic_network(Torso((5,), (7, 6, 5), "tanh", precision="bfloat16"), glorot(0))
    for weights in network.weights:
        weights.assign(np.random.default_rng(1).standard_normal(weights.shape))
    inputs = 1000 + np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)  # [B, S + A]
    (first, *bias), (second, *bias_2), (third, *bias_3), (last, *bias_4) = zip(*[iter(network.get_weights())] * 2)
    features = np.tanh(inputs @ first + bias[0])  # [B, 7]
    features = np.tanh(rounded(features) @ rounded(second) + bias_2[0])  # [B, 6]
    features = np.tanh(rounded(features) @ rounded(third) + bias_3[0])  # [B, 5]
    expected = features @ last + bias_4[0]  # [B, 1]
    together = FlatNetworks([network])
    assert_allclose(together.call(together.stacks(), tf.constant(inputs))[0], expected, atol=2e-5)
    assert_allclose(network(inputs), expected, atol=2e-5)
    assert np.abs(describe(network)(inputs)[0] - expected).max() > 1e-3  # acting rounds nothing


@pytest.mark.compiled
@pytest.mark.xla
def test_updates_are_the_same_in_one_call_and_in_several():
    config = OffPolicyConfig(hidden_sizes=(16, 16), learning_rate=1e-2, precision="bfloat16")
    rng = np.random.default_rng(0)
    rows, noise = (rng.standard_normal((8, 32, size)).astype(np.float32) for size in (2 * 3 + 1 + 2, 1))
    make_agent = OffPolicyAgentTrainer.make_agent
    one, other = (make_agent(Box(-1.0, 1.0, (3,)), Box(-2.0, 2.0, (1,)), config, 0) for _ in range(2))
    before = one.parameters()
    one.update(rows, noise)
    for i in range(0, 8, 2):
        other.update(rows[i : i + 2], noise[i : i + 2])
    for name, weights in one.parameters().items():
        assert_allclose(weights, other.parameters()[name], atol=1e-5)
        assert np.abs(weights - before[name]).max() > 1e-4


def test_where_tensorflow_cannot_a_line_says_so(monkeypatch):
    @tf.function
    def unknown(left, right):
        raise tf.errors.UnimplementedError(None, None, "BF16 x BF16 = F32")

    monkeypatch.setattr(rounded_products, "rounded_product", unknown)
    check_precision("float32")
    with pytest.raises(
        UserError, match=r"^TensorFlow cannot make products of bfloat16 on this .*: train .* --precision"
    ):
        check_precision("bfloat16")


@pytest.mark.xla
def test_ppo_rounds_hidden_layers_after_the_first():
    """With rounded weights 1 + 1/512 becomes 1; the first layer and the last keep it."""
    spaces = Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (1,))
    agent = Agent(*spaces, PPOConfig(hidden_sizes=(1, 1), activation="relu", precision="bfloat16"), 0)
    for weights in agent.critic.weights:
        weights.assign(np.full(weights.shape, 0.0 if len(weights.shape) == 1 else 1 + 1 / 512))
    observations, actions = np.array([[1.0, 0.0, 0.0]], np.float32), np.zeros((0, 1), np.float32)
    values, _, _ = agent.assess(observations, actions)
    assert values.tolist() == [1 + 1 / 512]  # the first layer gives 1 + 1/512, the second 1 · 1
    assert agent.values(observations).tolist() == [1 + 1 / 512]


def test_images_are_rounded_in_all_hidden_layers_and_heads_are_not():
    config = PPOConfig(shared_torso=True, precision="bfloat16", convolutions=("8x4/2",), hidden_sizes=(16,))
    agent = Agent(Box(0, 255, (12, 12, 1), np.uint8), Discrete(3), config, 0)
    kinds = {layer.name: layer.compute_dtype for layer in agent.network.layers}
    assert kinds["convolution_0"] == kinds["hidden_0"] == "bfloat16"
    assert kinds["logits"] == kinds["value"] == "float32"
    assert {weights.dtype for weights in agent.network.weights} == {"float32"}


@pytest.mark.xla
def test_one_hidden_layer_has_nothing_to_round():
    """tests/test_settings.py has the config of the other methods."""
    check_precision("bfloat16")  # here it can
    with pytest.raises(UserError, match=r"precision bfloat16 has no effect with hidden_sizes .*: add --hidden-sizes"):
        Agent(Box(-1.0, 1.0, (3,)), Discrete(2), PPOConfig(hidden_sizes=(64,), precision="bfloat16"), 0)
