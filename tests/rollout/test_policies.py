"""The NumPy copy of an actor agrees with the Keras actor and the `tfp` policy, and stays as it was."""

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.spaces import Box

from Agent import Agent
from common.funcs import RunningStatistics
from common.nets.network import UNCHANGED, Dense, Network
from common.records import Batch
from common.rollout.policies import DeterministicPolicy
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters

CHOICES = {
    "initial_std": (1.0, None),
    "activation": ("tanh", "relu"),
    "mean_activation": ("linear", "tanh"),
    "normalize_observations": (True, False),
}


def make_agent(seed: int = 0, **changes: object) -> Agent:
    """Sees 6 numbers, acts with 3; weights shifted at random, so that biases and spreads count too."""
    config = PPOConfig(
        hidden_sizes=(16, 12), initial_gains=(2**0.5, 1.0), minibatch_size=32, steps_per_epoch=64, num_envs=1, passes=2
    ).replace(**changes)
    agent = Agent(Box(-np.inf, np.inf, (6,), np.float32), Box(-1, 1, (3,), np.float32), config, seed)
    rng = np.random.default_rng(seed)
    agent.actor.set_weights([w + 0.2 * rng.standard_normal(w.shape) for w in agent.actor.get_weights()])
    agent.observe(some_observations(rng, 50))
    return agent


def some_observations(rng: np.random.Generator, count: int) -> np.ndarray:
    """[count, 6] float32, each column with a centre and a spread of its own."""
    spread, centre = np.array([1, 2, 0.5, 10, 1, 3]), np.array([0, 5, -1, 20, 0, 0])
    return (centre + spread * rng.standard_normal((count, 6))).astype(np.float32)


def train_a_little(agent: Agent, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((64, 12)).astype(np.float32)
    batch = Batch(
        observations=numbers[:, :6],
        actions=numbers[:, 6:9],
        log_probs=-(numbers[:, 9] ** 2) - 3,
        advantages=numbers[:, 10],
        value_targets=numbers[:, 11],
        weights=np.ones(64, np.float32),
        heads=np.ones((64, 6), np.float32),
        values=np.zeros(64, np.float32),
        next_observations=np.zeros((64, 0), np.float32),
        discounts=np.ones(64, np.float32),
        actor_weights=np.ones(64, np.float32),
    )
    rows = rng.permutation(64).reshape(2, 32).astype(np.int32)
    once = Hyperparameters.of(agent.config)._replace(learning_rate=0.01, critic_learning_rate=0.01, passes=1)
    agent.update(batch, rows, rows, once)


@pytest.mark.parametrize("choice", itertools.product(*CHOICES.values()), ids=str)
def test_numpy_agrees_with_keras_and_tfp(choice):
    agent = make_agent(**dict(zip(CHOICES, choice)))
    observations = some_observations(np.random.default_rng(5), 40)
    mean, std = agent.acting_policy().mean_and_std(observations)
    policy = agent.policy(agent.normalize(observations))
    np.testing.assert_allclose(mean, policy.mean(), atol=1e-5)
    np.testing.assert_allclose(np.broadcast_to(std, mean.shape), policy.stddev(), atol=1e-5, rtol=1e-5)
    assert np.ptp(mean, axis=0).min() > 0.01  # the observations matter


def test_observations_are_normalised_by_what_was_observed():
    agent = make_agent(normalize_observations=True)
    agent.observation_statistics = RunningStatistics((6,))
    seen = some_observations(np.random.default_rng(0), 50)
    agent.observe(seen[:20])
    agent.observe(seen[20:])
    found = agent.normalize(seen)
    np.testing.assert_allclose(found, (seen - seen.mean(0)) / seen.std(0), atol=1e-4)
    # 1e6 standard deviations away: cut to 10
    far = seen.mean(0) + 1e6 * seen.std(0)
    np.testing.assert_array_equal(agent.normalize(far[None]), np.full((1, 6), 10.0))
    assert agent.normalize(seen).dtype == np.float32


def test_a_vanished_std_is_lifted_to_the_same_floor_in_both():
    for kind in CHOICES["initial_std"]:
        agent = make_agent(initial_std=kind)
        spread = agent.actor.get_layer("std")
        spread.set_weights(
            [np.full_like(w, -200.0) if w.ndim == 1 else np.zeros_like(w) for w in spread.get_weights()]
        )
        observations = some_observations(np.random.default_rng(0), 4)
        _, std = agent.acting_policy().mean_and_std(observations)
        np.testing.assert_array_equal(
            np.broadcast_to(std, (4, 3)), agent.policy(agent.normalize(observations)).stddev()
        )
        assert np.float32(1e-6) == std.min() == std.max()


def test_act_adds_std_times_noise_to_the_mean():
    agent = make_agent(initial_std=None)
    policy = agent.acting_policy()
    rng = np.random.default_rng(2)
    observations, noise = some_observations(rng, 10), rng.standard_normal((10, 3)).astype(np.float32)
    mean, std = policy.mean_and_std(observations)
    np.testing.assert_allclose(policy.act(observations, noise), mean + std * noise, rtol=1e-6)
    np.testing.assert_array_equal(policy.act(observations), mean)
    np.testing.assert_array_equal(policy.act(observations, np.zeros_like(noise)), mean)
    assert policy.act(observations, noise).dtype == np.float32


def test_sampled_actions_have_the_policys_density():
    agent = make_agent(initial_std=0.5)
    rng = np.random.default_rng(3)
    observation = some_observations(rng, 1)
    many = np.repeat(observation, 40_000, axis=0)
    actions = agent.acting_policy().act(many, rng.standard_normal((40_000, 3)).astype(np.float32))
    policy = agent.policy(agent.normalize(observation))
    # the mean of 40,000 samples is off by σ / 200 at one standard error; four of them allowed
    np.testing.assert_allclose(
        actions.mean(axis=0), policy.mean()[0], atol=4 * float(policy.stddev().numpy().max()) / 200
    )
    np.testing.assert_allclose(actions.std(axis=0), policy.stddev()[0], rtol=0.02)


def test_act_leaves_its_arguments_alone():
    for normalize in (True, False):
        agent = make_agent(activation="relu", normalize_observations=normalize)
        rng = np.random.default_rng(4)
        observations, noise = some_observations(rng, 5), rng.standard_normal((5, 3)).astype(np.float32)
        before = observations.copy(), noise.copy()
        agent.acting_policy().act(observations, noise)
        np.testing.assert_array_equal(observations, before[0])
        np.testing.assert_array_equal(noise, before[1])


def shift_weights(agent: Agent) -> None:
    for variable in agent.actor.trainable_variables:
        variable.assign_add(0.1 * np.ones(variable.shape))


def observe_others(agent: Agent) -> None:
    agent.observe(100 + some_observations(np.random.default_rng(7), 500))


@pytest.mark.parametrize("std", CHOICES["initial_std"])
@pytest.mark.parametrize("move", [shift_weights, observe_others, train_a_little])
def test_what_happens_to_the_agent_afterwards_does_not_change_it(eager, std, move):
    agent = make_agent(initial_std=std, normalize_observations=True)
    observations = some_observations(np.random.default_rng(6), 10)
    policy = agent.acting_policy()
    before = [array.copy() for array in policy.mean_and_std(observations)]
    move(agent)
    for found, old in zip(policy.mean_and_std(observations), before):
        np.testing.assert_array_equal(found, old)
    assert not np.allclose(agent.acting_policy().mean_and_std(observations)[0], before[0], atol=1e-4)


# -- in other processes --


def test_acting_imports_no_tensorflow(tmp_path):
    policy = make_agent().acting_policy()
    (tmp_path / "policy").write_bytes(pickle.dumps(policy))
    act = (
        "import pickle, sys, numpy; b = pickle.load(open(sys.argv[1], 'rb'));"
        "print(b.act(numpy.zeros((2, 6))).tolist());"
        "assert not {'tensorflow', 'keras', 'scipy'} & {name.split('.')[0] for name in sys.modules}"
    )
    ended = subprocess.run(
        [sys.executable, "-c", act, tmp_path / "policy"], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip() == str(policy.act(np.zeros((2, 6))).tolist())


def test_exploration_noise_is_scaled_by_its_standard_deviation():
    head = Dense(np.zeros((2, 1), np.float32), np.array([0.5], np.float32))
    policy = DeterministicPolicy(Network(UNCHANGED, (), (head,)), 0.1)
    actions = policy.act(np.ones((3, 2), np.float32), np.array([[1.0], [-2.0], [9.0]], np.float32))
    np.testing.assert_allclose(actions, [[0.6], [0.3], [1.0]], rtol=1e-6)  # 0.5 + 0.1·noise, at most 1
