"""Policies over discrete actions: against `tfp` and SciPy, the frozen copy against the network; they learn."""

import numpy as np
import pytest
import tensorflow as tf
from collecting import batch_of, mean_return
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from scipy.special import log_softmax
from scipy.stats import chisquare

from Agent import Agent
from common.nets import distributions
from common.records import Timing
from ppo.batch import minibatch_rows
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

CHOICES = (3, 2, 4)
SPACES = {"Discrete": Discrete(4), "MultiDiscrete": MultiDiscrete([3, 2, 4]), "MultiBinary": MultiBinary(3)}


def drawn(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """logits [rows, 9] and actions [rows, 3]."""
    rng = np.random.default_rng(0)
    actions = np.stack([rng.integers(count, size=rows) for count in CHOICES], axis=1)
    return rng.normal(0, 2, (rows, sum(CHOICES))).astype(np.float32), actions.astype(np.float32)


def log_probabilities(logits: np.ndarray) -> list[np.ndarray]:
    return [log_softmax(part.astype(float), axis=1) for part in np.split(logits, np.cumsum(CHOICES)[:-1], axis=1)]


# -- the distribution --


def test_log_prob_and_entropy_are_scipys_summed_over_the_numbers_of_an_action():
    logits, actions = drawn()
    policy = distributions.categorical_policy(tf.constant(logits), CHOICES)
    parts = log_probabilities(logits)
    chosen = sum(part[np.arange(40), actions[:, i].astype(int)] for i, part in enumerate(parts))
    np.testing.assert_allclose(distributions.log_prob(policy, actions), chosen, atol=1e-5)
    entropy = sum(-(np.exp(part) * part).sum(axis=1) for part in parts)
    np.testing.assert_allclose(distributions.entropy(policy), entropy, atol=1e-5)


def test_kl_is_the_sum_of_the_parts_and_the_normals_closed_form():
    logits, _ = drawn()
    old, new = (distributions.categorical_policy(tf.constant(x), CHOICES) for x in (logits, logits[::-1].copy()))
    parts, others = log_probabilities(logits), log_probabilities(logits[::-1])
    expected = sum((np.exp(p) * (p - q)).sum(axis=1) for p, q in zip(parts, others))
    np.testing.assert_allclose(distributions.kl_divergence(old, new), expected, rtol=1e-4, atol=1e-5)
    # N(0, 1) from N(1, 2): log 2 + (1 + 1)/8 − 1/2 = .443147, in each of two dimensions
    normals = [
        distributions.normal_policy(tf.fill((1, 2), m), tf.fill((1, 2), s)) for m, s in ((0.0, 1.0), (1.0, 2.0))
    ]
    assert float(distributions.kl_divergence(*normals)[0]) == pytest.approx(2 * 0.443147, abs=1e-5)


def test_gradients_are_finite_where_choices_are_ruled_out():
    logits = tf.Variable(drawn()[0])
    with tf.GradientTape() as tape:
        policy = distributions.categorical_policy(logits, CHOICES)
        loss = tf.reduce_sum(distributions.entropy(policy) + distributions.log_prob(policy, drawn()[1]))
    assert np.isfinite(tape.gradient(loss, logits)).all()


# -- acting --


def agent(kind: str) -> Agent:
    return Agent(Box(-1, 1, (5,)), SPACES[kind], PPOConfig(hidden_sizes=(8,), initial_gains=(2**0.5, 2.0)), seed=1)


@pytest.mark.parametrize("kind", SPACES)
def test_the_frozen_copy_is_the_network_and_draws_from_its_distribution(kind):
    one = agent(kind)
    policy = one.acting_policy()
    observation = np.random.default_rng(0).uniform(-1, 1, (1, 5)).astype(np.float32)
    np.testing.assert_allclose(policy.logits(observation), one.actor(observation), atol=1e-5)
    distribution = one.policy(observation)
    draws = 20_000
    noise = np.random.default_rng(1).standard_normal((draws, one.action_map.noise_size)).astype(np.float32)
    actions = policy.act(np.repeat(observation, draws, axis=0), noise)
    for i, count in enumerate(one.choices):
        probabilities = tf.nn.softmax(distribution.logits[0, i])[:count].numpy().astype(float)
        counts = np.bincount(actions[:, i].astype(int), minlength=count)
        assert chisquare(counts, draws * probabilities / probabilities.sum()).pvalue > 1e-4
        assert policy.act(observation)[0, i] == probabilities.argmax()


# -- training --


def test_what_is_named_is_learned():
    """Three action dimensions, each told by another part of a Dict observation: guessing 5.33, knowing 12."""
    config = PPOConfig(
        env="tests/Matching-v0", num_envs=8, epochs=12, steps_per_epoch=1024, minibatch_size=128, hidden_sizes=(32,),
        learning_rate=1e-2, gamma=0.5, passes=6, adopt_best=False,
    )  # fmt: skip
    trainer = PPOAgentTrainer(config)
    assert trainer.config.backend == "gymnasium"
    trainer.train()
    trainer.close()
    assert mean_return(trainer, 50) > 11.5
    row = trainer.results[0]
    assert np.isnan(row.mean_std)
    assert row.approximate_kl > 0
    assert row.entropy <= np.log(3) + 2 * np.log(2) + 1e-5


# -- the KL penalty --

SMALL = PPOConfig(
    env="CartPole-v1", backend="gymnasium", num_envs=2, epochs=2, steps_per_epoch=128, minibatch_size=32, passes=3,
    hidden_sizes=(8,), learning_rate=1e-2, anneal=(), adopt_best=False,
)  # fmt: skip


def updates(config: PPOConfig, kl_coefficient: float = 1.0) -> tuple[np.ndarray, int]:
    """The approximate KL of each minibatch of an update, and how many minibatches were taken."""
    trainer = PPOAgentTrainer(config)
    trainer.train(0)
    trainer.collector.collect(trainer.agent.acting_policy(), 0, Timing())
    batch = batch_of(trainer)
    rows = minibatch_rows(128, 32, 3, np.random.default_rng(0))
    rates = np.full(2, config.learning_rate, np.float32)
    numbers = np.array([*rates, 3, config.clip_range, 0.5, 0.0, kl_coefficient], np.float32)
    metrics, taken, _ = trainer.agent.compiled_update(batch, rows, rows, numbers, 4)
    trainer.close()
    return metrics["approximate_kl"].numpy(), int(taken)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_penalty_keeps_the_policy_where_it_was(eager, env):
    free, _ = updates(SMALL.replace(env=env, objective="kl_penalty"), 1e-6)
    held, _ = updates(SMALL.replace(env=env, objective="kl_penalty"), 100.0)
    both, _ = updates(SMALL.replace(env=env, objective="clip+kl"), 100.0)
    assert free[0] == pytest.approx(0, abs=1e-6)  # nothing has moved yet
    assert held[-4:].mean() < 0.3 * free[-4:].mean()
    assert both[-4:].mean() < 0.3 * free[-4:].mean()


@pytest.mark.parametrize(("target", "factor", "bound"), [(1e-9, 2.0, 1024.0), (1e9, 0.5, 1 / 1024)])
def test_the_coefficient_adapts_while_training_and_is_part_of_the_state(eager, target, factor, bound):
    trainer = PPOAgentTrainer(SMALL.replace(objective="kl_penalty", desired_kl=target))
    trainer.train(2)
    assert trainer.agent.kl_coefficient == factor**2  # no update moves so little, or so far
    other = PPOAgentTrainer(trainer.config)
    other.load_state(trainer.state())
    assert other.agent.kl_coefficient == factor**2
    assert [row.kl_coefficient for row in trainer.results] == [1.0, factor]
    batch = batch_of(trainer)
    batch = batch._replace(heads=batch.heads + np.array([0.1, 0], np.float32))  # of another policy
    for _ in range(15):
        trainer.agent.adapt_kl_coefficient(batch)
    assert trainer.agent.kl_coefficient == bound  # from which it finds back
    trainer.close(), other.close()


@pytest.mark.parametrize("changes", [{"passes": 1, "minibatch_size": 128}, {"recompute_targets": True}])
@pytest.mark.parametrize(("target", "coefficient"), [(1e-9, 2.0), (1e9, 0.5)])
def test_the_coefficient_adapts_once_an_update_to_where_all_its_passes_led(changes, target, coefficient, eager):
    trainer = PPOAgentTrainer(SMALL.replace(objective="kl_penalty", desired_kl=target, epochs=1, **changes))
    trainer.train()
    trainer.close()
    assert trainer.agent.kl_coefficient == coefficient


def test_the_divergence_is_that_of_the_policies_where_samples_count(eager):
    trainer = PPOAgentTrainer(SMALL.replace(objective="kl_penalty"))
    trainer.train(0)
    agent, rng = trainer.agent, np.random.default_rng(0)
    observations, old = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)
    now = np.asarray(tf.concat(agent.actor(observations), axis=1))
    log_p, log_q = log_softmax(old, axis=1), log_softmax(now, axis=1)
    expected = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)[:3].mean()
    weights = np.array([1, 1, 1, 0, 0], np.float32)
    assert float(agent.compiled_divergence(observations, old, weights)) == pytest.approx(expected, rel=1e-4)
    trainer.close()


@pytest.mark.parametrize(("max_kl", "passes"), [(None, 3), (0.0, 1)])
def test_passes_with_targets_anew_report_the_divergence_of_the_last_and_end_above_max_kl(max_kl, passes, eager):
    trainer = PPOAgentTrainer(SMALL.replace(recompute_targets=True, max_kl=max_kl))
    calls, update = [], trainer.agent.update
    trainer.agent.update = lambda *arguments: calls.append(update(*arguments)) or calls[-1]
    trainer.train(1)
    trainer.close()
    row, divergences = trainer.results[-1], [metrics["approximate_kl"] for metrics in calls]
    assert len(set(divergences)) == passes and row.approximate_kl == pytest.approx(divergences[-1])
    assert row.loss_critic == pytest.approx(np.mean([metrics["loss_critic"] for metrics in calls]))
