"""Observations that the off-policy methods normalise: statistics, updates, acting copy, export, resume."""

import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.testing import assert_allclose, assert_array_equal
from same_state import assert_same_state, resumed_and_whole

from common.errors import DivergedError
from companions.config import OffPolicyConfig, SACConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.SACAgentTrainer import SACAgentTrainer
from programs import policy_files

S, A, B = 3, 1, 8
SPACES = Box(-np.inf, np.inf, (S,)), Box(-2.0, 2.0, (A,))
SMALL = dict(
    env="Pendulum-v1", max_episode_steps=20, num_envs=2, epochs=3, steps_per_epoch=60, hidden_sizes=(8,),
    warmup_steps=40, replay_size=500, batch_size=8, train_every=16, updates_per_train=3, learning_rate=1e-2,
    best_metric="mean_episode_reward", score_window=1, adopt_best=False, normalize_observations=True,
)  # fmt: skip
KINDS = {"td3": (OffPolicyConfig, OffPolicyAgentTrainer.make_agent), "sac": (SACConfig, SACAgentTrainer.make_agent)}
MEAN, STD = np.array([100.0, -3.0, 0.0]), np.array([10.0, 0.1, 1.0])

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def made(kind, **changes):
    config, make = kind
    return make(*SPACES, config(hidden_sizes=(8,), learning_rate=1e-2).replace(**changes), 0)


def observations(count: int, seed: int = 0) -> np.ndarray:
    return (MEAN + STD * np.random.default_rng(seed).standard_normal((count, S))).astype(np.float32)


def rows_of(first: np.ndarray, second: np.ndarray, seed: int = 1) -> np.ndarray:
    """Packed transitions [1, B, W] from these observations to those."""
    rng = np.random.default_rng(seed)
    rest = rng.uniform(-1, 1, (len(first), A + 1)), rng.integers(0, 2, (len(first), 1))
    return np.concatenate([first, *rest, second], axis=1, dtype=np.float32)[None]


def test_an_update_with_normalisation_is_one_with_observations_that_were_normalised(kind):
    first, second = observations(B), observations(B, seed=2)
    normalizing, plain = made(kind, normalize_observations=True), made(kind)
    normalizing.observe(first), plain.observe(first)
    assert plain.observation_statistics.count == 0 and plain.normalizer().shift is None
    statistics = np.float64(first).mean(axis=0), np.float64(first).std(axis=0)
    by_hand = [np.clip((o - statistics[0]) / statistics[1], -10, 10) for o in (first, second)]
    noise = np.random.default_rng(3).standard_normal((1, B, plain.update_noise_size)).astype(np.float32)
    found, expected = normalizing.update(rows_of(first, second), noise), plain.update(rows_of(*by_hand), noise)
    for name, values in expected.items():
        assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)
    weights = plain.parameters()
    assert {name for name in normalizing.parameters() if name not in weights} == {
        "observations/count", "observations/mean", "observations/m2",
    }  # fmt: skip
    for name, values in weights.items():
        assert_allclose(normalizing.parameters()[name], values, atol=1e-4, err_msg=name)
    assert_allclose(normalizing.values(first), plain.values(by_hand[0]), rtol=1e-3, atol=1e-5)


def mode(agent, normalized):
    """The deterministic actions of the Keras actor, [n, A]."""
    output = agent.actor(normalized).numpy()
    return output if output.shape[1] == agent.action_size else np.tanh(output[:, : agent.action_size])


def test_the_acting_copy_and_the_export_normalise_and_clip(kind, tmp_path):
    agent = made(kind, normalize_observations=True)
    policy = agent.acting_policy()
    raw = observations(50)
    raw[0] = [1e6, 0, 0]  # far beyond ten standard deviations
    assert_allclose(policy.act(raw), mode(agent, raw), atol=1e-6)  # nothing is known
    agent.observe(observations(1000, seed=4))
    normalized = np.clip((raw - agent.observation_statistics.mean) / agent.observation_statistics.std, -10, 10)
    expected = mode(agent, normalized.astype(np.float32))
    assert np.abs(policy.act(raw) - expected).max() > 1e-3  # until it is refreshed
    policy.heads = agent.acting_network()
    assert_allclose(policy.act(raw), expected, atol=1e-5)
    assert_allclose(agent.acting_policy().act(raw), expected, atol=1e-5)
    written = policy_files.export(agent, tmp_path)
    assert_allclose(policy_files.read_litert(written[1].path)(raw), 2 * np.asarray(expected), atol=1e-4)


def test_each_valid_observation_counts_once_and_a_resumed_run_is_the_run_that_was_not_stopped():
    """In the loop that all four methods share."""
    resumed, whole, state = resumed_and_whole(lambda: OffPolicyAgentTrainer(OffPolicyConfig(**SMALL)), 1, 3)
    assert "agent/observations/mean" in state
    assert_same_state(resumed.state(), whole.state())
    statistics, rows = whole.agent.observation_statistics, whole.replay.state()["rows"]
    assert statistics.count == whole.steps == len(rows) < 180  # autoreset steps are left out
    assert_allclose(statistics.mean, rows[:, :S].mean(axis=0), atol=1e-5)
    assert_allclose(statistics.std, rows[:, :S].std(axis=0), atol=1e-5)


def test_an_undone_update_takes_the_statistics_back(kind):
    agent = made(kind, normalize_observations=True)
    agent.observe(observations(10))
    before = agent.learned_state()
    agent.observe(observations(10, seed=5))
    spoilt = rows_of(observations(B), np.full((B, S), np.nan))
    with pytest.raises(DivergedError):
        agent.update(spoilt, np.zeros((1, B, agent.update_noise_size), np.float32))
    agent.load_learned_state(before)
    for name, values in agent.learned_state().items():
        assert_array_equal(values, before[name])
