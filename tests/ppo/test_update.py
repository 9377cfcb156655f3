"""One update by itself: which passes its metrics are of, when `max_kl` ends it, how gradients are clipped."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose

from Agent import Agent
from common.records import Batch
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters

SPACE = gymnasium.spaces.Box(-1.0, 1.0, (3,))
ACTIONS = gymnasium.spaces.Box(-1.0, 1.0, (1,))
CONFIG = PPOConfig(hidden_sizes=(8,), passes=3, minibatch_size=16, learning_rate=2e-3, normalize_advantages="none")
MEANS_OVER_ALL = ("loss_actor", "loss_critic", "gradient_norm_actor", "gradient_norm_critic")
pytestmark = pytest.mark.usefixtures("eager")


def agent(**changes: object) -> Agent:
    return Agent(SPACE, ACTIONS, CONFIG.replace(**changes), seed=1)


@pytest.fixture
def batch() -> Batch:
    """Of 64 steps, drawn by the policy that learns from it."""
    numbers = np.random.default_rng(0)
    observations = numbers.normal(size=(64, 3)).astype(np.float32)
    actions = numbers.normal(size=(64, 1)).astype(np.float32)
    values, log_probs, heads = agent().assess(observations, actions)
    return Batch(
        observations=observations,
        actions=actions,
        log_probs=log_probs,
        advantages=(actions[:, 0] + numbers.normal(size=64)).astype(np.float32),
        value_targets=(5 * observations[:, 0]).astype(np.float32),
        weights=np.ones(64, np.float32),
        heads=heads,
        values=values,
        next_observations=observations[:, :0],
        discounts=np.ones(64, np.float32),
        actor_weights=np.ones(64, np.float32),
    )


def rows(passes: int) -> np.ndarray:
    """Four minibatches a pass, in an order of its own."""
    numbers = np.random.default_rng(2)
    return np.concatenate([numbers.permutation(64).reshape(4, 16) for _ in range(passes)]).astype(np.int32)


def pass_by_pass(batch: Batch, passes: int) -> tuple[list[dict[str, float]], list[list[np.ndarray]]]:
    """The metrics of every pass, each an update of its own, and the weights after it."""
    learner, metrics, weights = agent(), [], []
    for own in np.split(rows(passes), passes):
        metrics.append(learner.update(batch, own, own, Hyperparameters.of(CONFIG)._replace(passes=1)))
        weights.append(learner.actor.get_weights() + learner.critic.get_weights())
    return metrics, weights


def test_losses_are_means_over_all_passes_and_the_rest_over_the_last(batch):
    single, _ = pass_by_pass(batch, 3)
    together = agent().update(batch, rows(3), rows(3), Hyperparameters.of(CONFIG))
    for name in together:
        if name in MEANS_OVER_ALL:
            expected = np.mean([metrics[name] for metrics in single])
            assert expected != pytest.approx(single[-1][name], rel=1e-4)
        else:
            expected = single[-1][name]
        assert together[name] == pytest.approx(expected, rel=1e-4, abs=1e-7), name
    assert together["approximate_kl"] != pytest.approx(single[0]["approximate_kl"], rel=0.01)
    assert together["entropy"] != pytest.approx(single[0]["entropy"], rel=1e-5)


def test_max_kl_is_compared_with_the_mean_of_one_pass_alone(batch):
    single, weights = pass_by_pass(batch, 3)
    first, second, third = (metrics["approximate_kl"] for metrics in single)
    assert first < second < third

    def taken(max_kl: float) -> int:
        """Passes after which an update with this limit has ended."""
        learner = agent(max_kl=max_kl)
        learner.update(batch, rows(3), rows(3), Hyperparameters.of(CONFIG))
        found = learner.actor.get_weights() + learner.critic.get_weights()
        [passes] = [
            i + 1
            for i, known in enumerate(weights)
            if all(np.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(known, found))
        ]
        return passes

    assert taken(first * 0.9) == 1
    assert taken((first + second) / 2) == 2
    assert taken(second + first / 2) == 3  # both passes together were beyond it, neither alone


@pytest.mark.parametrize("shared_torso", [False, True])
def test_gradients_are_clipped_at_the_norm_that_was_asked_for(batch, shared_torso):
    limit, rate = 0.05, 0.01
    learner = agent(
        max_gradient_norm=limit, adam_epsilon=1.0, shared_torso=shared_torso, learning_rate=rate,
        critic_learning_rate=None, anneal=(),
    )  # fmt: skip
    networks = [learner.network] if shared_torso else [learner.actor, learner.critic]
    before = [[np.array(variable) for variable in network.trainable_variables] for network in networks]
    metrics = learner.update(batch, rows(1)[:1], rows(1)[:1], Hyperparameters.of(learner.config)._replace(passes=1))
    for network, old in zip(networks, before):
        moved = np.concatenate([(b - np.array(v)).ravel() for b, v in zip(old, network.trainable_variables)])
        # Adam's first step is rate · √(1 − β₂) · g / (√(1 − β₂) · |g| + ε), solved for g here.
        root = np.sqrt(0.001)
        gradient = np.abs(moved) / (root * (rate - np.abs(moved)))
        assert_allclose(np.linalg.norm(gradient), limit, rtol=0.02)
    assert metrics["gradient_norm_actor"] > 2 * limit  # reported as it was before
    assert metrics["gradient_norm_critic"] > 2 * limit
