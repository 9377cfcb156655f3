"""Sizes, initial weights and seeds of the networks."""

import keras
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from Agent import Agent
from common.nets.keras_models import DenseHead, NormalHeads, Torso, actor_network, critic_network
from common.nets.kernels import glorot, orthogonal
from ppo import architecture
from ppo.config import PPOConfig
from ppo.presets import BIPEDAL_WALKER_2021


def walker_agent(seed: int = 0, **changes: object) -> Agent:
    observations, actions = Box(-np.inf, np.inf, (24,), np.float32), Box(-1, 1, (4,), np.float32)
    return Agent(observations, actions, BIPEDAL_WALKER_2021.replace(**changes), seed)


def small_actor(initial_std: float | None = None, seed: int = 0) -> keras.Model:
    heads = NormalHeads(2, "linear", 0.01, initial_std)
    return actor_network(Torso((5,), (16, 8), "tanh"), heads, orthogonal(seed))


def dense_layers(network: keras.Model) -> list[keras.layers.Dense]:
    return [layer for layer in network.layers if isinstance(layer, keras.layers.Dense)]


def test_the_2021_rule_gives_240_98_40_for_24_observations_and_4_actions():
    # 10·24 = 240; √(240 · 40) = √9600 = 97.98 → 98; 10·4 = 40
    assert architecture.torso_sizes((), 24, 4) == (240, 98, 40)
    # 10·3 = 30; √(30 · 10) = 17.3 → 18; 10·1 = 10
    assert architecture.torso_sizes((), 3, 1) == (30, 18, 10)
    # 10·4 = 40; √(40 · 10) = 20 exactly; 10·1 = 10
    assert architecture.torso_sizes((), 4, 1) == (40, 20, 10)
    assert architecture.torso_sizes((64, 32), 24, 4) == (64, 32)  # asked for


@pytest.mark.parametrize("shared_torso", [False, True])
def test_weights_may_begin_as_pytorchs(shared_torso):
    """Uniform within ±1/√(inputs of a unit), biases too, of convolutions and dense layers."""
    config = PPOConfig(initial_gains=(), shared_torso=shared_torso, hidden_sizes=(128,))
    agents = [Agent(Box(0, 255, (84, 84, 4), np.uint8), Discrete(4), config, seed) for seed in (0, 0, 1)]
    for name, inputs in (("convolution_0", 4 * 8 * 8), ("hidden_0", 7 * 7 * 64), ("logits", 128)):
        kernel, bias = agents[0].actor.get_layer(name).get_weights()
        bound = 1 / np.sqrt(inputs)
        for numbers in (kernel, bias):
            assert 0.5 * bound < np.abs(numbers).max() <= bound
        assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)  # of a uniform distribution
        again, other = (agent.actor.get_layer(name).get_weights()[0] for agent in agents[1:])
        assert (again == kernel).all() and (other != kernel).any()
    assert agents[0].critic.get_layer("value").get_weights()[1].any()


def test_parameter_counts_are_those_of_the_2021_study():
    agent = walker_agent()
    # torso: 24·240 + 240 = 6,000; 240·98 + 98 = 23,618; 98·40 + 40 = 3,960; together 33,578
    # actor: two heads of 40·4 + 4 = 164: 33,906; critic: 40 + 1 = 41: 33,619
    assert agent.actor.count_params() == 33_906
    assert agent.critic.count_params() == 33_619


def test_a_state_independent_std_is_one_number_an_action():
    # 5·16 + 16 = 96; 16·8 + 8 = 136; mean 8·2 + 2 = 18; std 2: 252
    actor = small_actor(0.5)
    assert actor.count_params() == 252
    _, std = actor(np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32))
    np.testing.assert_allclose(std, np.full((7, 2), 0.5), rtol=1e-6)


def test_activations_are_those_asked_for():
    agent = walker_agent()
    assert [layer.activation.__name__ for layer in dense_layers(agent.actor)] == ["tanh"] * 4 + ["softplus"]
    assert [layer.activation.__name__ for layer in dense_layers(agent.critic)] == ["tanh"] * 3 + ["linear"]
    agent = walker_agent(activation="relu", mean_activation="linear", hidden_sizes=(8,), initial_std=1.0)
    assert [layer.activation.__name__ for layer in dense_layers(agent.actor)] == ["relu", "linear"]
    assert [layer.activation.__name__ for layer in dense_layers(agent.critic)] == ["relu", "linear"]


def assert_orthogonal(kernel: np.ndarray, gain: float) -> None:
    """The shorter side's vectors are perpendicular, each of length `gain`."""
    short = kernel if kernel.shape[0] <= kernel.shape[1] else kernel.T
    np.testing.assert_allclose(short @ short.T / gain**2, np.eye(len(short)), atol=1e-5)


def test_kernels_are_orthogonal_with_gain_1_and_biases_zero():
    agent, other = walker_agent(), walker_agent(4)
    for network, of_another_seed in ((agent.actor, other.actor), (agent.critic, other.critic)):
        layers = dense_layers(network)
        assert len(layers) >= 4
        for layer, other_layer in zip(layers, dense_layers(of_another_seed)):
            kernel, bias = layer.get_weights()
            assert_orthogonal(kernel, 1.0)
            assert (bias == 0).all()
            assert not np.allclose(kernel, other_layer.get_weights()[0], atol=1e-3)
    actor = small_actor()  # whose mean has a gain of its own
    assert_orthogonal(actor.get_layer("mean").get_weights()[0], 0.01)
    assert_orthogonal(actor.get_layer("std").get_weights()[0], 1.0)


def test_a_seed_gives_the_weights_that_recorded_runs_began_with():
    """The first numbers of the first and the last kernel of seed 0, printed on 23 November 2026."""
    torso = Torso((3,), (4,), "relu")
    began = {
        small_actor(): ([-0.16611004, 0.0082864], [0.21713269, -0.3704299]),
        actor_network(torso, DenseHead("mean", 1, "tanh"), glorot(0)): (
            [0.42643905, 0.21903265],
            [-0.99453986, -0.13055748],
        ),
        critic_network(Torso((4,), (4,), "relu"), glorot(0)): ([0.39889723, 0.20488626], [-0.99453986, -0.13055748]),
    }
    for network, (first, last) in began.items():
        kernels = [array for array in network.get_weights() if array.ndim == 2]
        np.testing.assert_allclose(kernels[0].ravel()[:2], first, rtol=1e-4)
        np.testing.assert_allclose(kernels[-1].ravel()[:2], last, rtol=1e-4)


def test_no_two_layers_of_one_shape_start_alike():
    agent = walker_agent()
    actor, critic = dense_layers(agent.actor), dense_layers(agent.critic)
    pairs = [*zip(actor[:3], critic[:3]), (actor[3], actor[4])]
    for first, second in pairs:
        assert first.kernel.shape == second.kernel.shape
        assert not np.allclose(first.get_weights()[0], second.get_weights()[0], atol=1e-3)
