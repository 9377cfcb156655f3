"""SAC, TQC, CrossQ: log-probabilities, targets and losses by hand, the temperature, and the loop that they share."""

import dataclasses
import functools
import pickle
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from collecting import Reliable, mean_return
from gymnasium.spaces import Box
from numpy.testing import assert_allclose, assert_array_equal
from same_state import assert_same_state, resumed_and_whole
from tensorflow_probability import bijectors, distributions

from common.envs.image_rows import ImagePart, RowWithImagesSpace
from common.errors import DivergedError, UserError
from common.learning import trainer_base
from common.nets import batch_renormalization
from common.nets.flat_networks import FlatNetworks
from common.nets.network import MAX_LOG_STD, MIN_LOG_STD
from common.records import Transitions
from common.rollout.workers.cluster import WorkerPlacement
from companions.config import (
    SACConfig,
    SACSettings,
)
from companions.quantiles import quantile_huber_loss, smallest_quantiles
from companions.replay import ReplayBuffer
from companions.sac_presets import PRESETS, preset_for
from companions.SACAgent import SACAgent
from companions.SACAgentTrainer import SACAgentTrainer
from companions.squashed_normal import squashed_normal, temperature_loss
from companions.TQCAgent import TQCAgent

S, A, B = 3, 2, 16
ROOT = Path(__file__).resolve().parents[2]
SPACES_OF = Box(-np.inf, np.inf, (S,)), Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 5.0], np.float32))
TINY = SACConfig(
    env="Pendulum-v1", max_episode_steps=20, num_envs=2, epochs=3, steps_per_epoch=42, hidden_sizes=(8,),
    warmup_steps=40, replay_size=100, batch_size=8, train_every=16, updates_per_train=3, learning_rate=1e-2,
    best_metric="mean_episode_reward", score_window=1, adopt_best=False,
)  # fmt: skip
unpack = ReplayBuffer(0, S, A).unpack
TQC = dict(quantiles=5, dropped_quantiles=1)
CROSSQ = dict(crossq=True, policy_delay=3, adam_beta=0.5, critic_hidden_sizes=(12,))
compiled, pytestmark = pytest.mark.compiled, pytest.mark.usefixtures("eager")


def made(**changes) -> SACAgent:
    config = SACConfig(hidden_sizes=(8, 8), learning_rate=1e-2).replace(**changes)
    return SACAgentTrainer.make_agent(*SPACES_OF, config, 0)


def drawn(updates: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((updates, B, 2 * S + A + 2)).astype(np.float32)
    rows[..., S : S + A] = np.clip(rows[..., S : S + A], -1, 1)
    rows[..., S + A + 1] = rng.random((updates, B)) < 0.2
    return rows, rng.standard_normal((updates, B, 2 * A)).astype(np.float32)


def zeros(rewards: list[float], terminated: list[float]) -> Transitions:
    """Transitions with these rewards and ends, all else 0."""
    count = len(rewards)
    shapes = (count, S), (count, A)
    observations, actions = (np.zeros(shape, np.float32) for shape in shapes)
    return Transitions(observations, actions, np.float32(rewards), np.float32(terminated), observations)


def answering(agent: SACAgent, values: list[list[float]]) -> SACAgent:
    """Target critics that answer constants, and an actor with μ = 0 and σ = 1."""
    for network in (agent.actor, *agent.target_critics):
        network.set_weights([np.zeros_like(weight) for weight in network.get_weights()])
    for critic, numbers in zip(agent.target_critics, values, strict=True):
        critic.layers[-1].bias.assign(numbers)
    for networks in agent.flat_networks().values():
        networks.weights.assign(FlatNetworks(networks.networks).weights)
    return agent


LOG_PROB_AT_ZERO = -0.5 * np.log(2 * np.pi)  # of tanh(0) for μ = 0, σ = 1: the tanh has slope 1 there


# -- the policy --


def test_log_probabilities_are_those_of_tfps_squashed_normal():
    rng = np.random.default_rng(0)
    mean, log_std = rng.normal(size=(2, 50, A))
    noise = rng.standard_normal((50, A))
    actions, log_probs = squashed_normal(tf.constant(np.concatenate([mean, log_std], axis=1)), tf.constant(noise))
    squashed = distributions.TransformedDistribution(distributions.Normal(mean, np.exp(log_std)), bijectors.Tanh())
    unsquashed = mean + np.exp(log_std) * noise
    slope = bijectors.Tanh().forward_log_det_jacobian(unsquashed, event_ndims=0)
    expected = distributions.Normal(mean, np.exp(log_std)).log_prob(unsquashed) - slope
    assert_allclose(log_probs, np.sum(expected, axis=1), rtol=1e-10)
    inside = np.abs(actions.numpy()).max(axis=1) < 0.99  # tfp inverts tanh, which is exact in the middle only
    assert inside.sum() > 10
    assert_allclose(log_probs[inside], np.sum(squashed.log_prob(actions), axis=1)[inside], rtol=1e-6)


def test_gradients_of_actions_and_log_probabilities_are_those_of_finite_differences():
    rng = np.random.default_rng(1)
    heads, noise = tf.constant(rng.normal(size=(1, 2 * A))), tf.constant(rng.standard_normal((1, A)))

    def both(x: tf.Tensor) -> tf.Tensor:
        actions, log_probs = squashed_normal(x, noise)
        return tf.concat([actions[0], log_probs], axis=0)  # [A + 1]

    with tf.GradientTape() as tape:
        tape.watch(heads)
        outputs = both(heads)
    slopes = tape.jacobian(outputs, heads)[:, 0]  # [A + 1, 2A]
    for i, step in enumerate(1e-6 * np.eye(2 * A)):
        expected = (both(heads + step[None]) - both(heads - step[None])) / 2e-6
        assert_allclose(slopes[:, i], expected, atol=1e-8)


def test_log_probabilities_stay_finite_where_tanh_is_1_and_log_std_is_cut():
    heads = tf.constant([[40.0, 0.0], [-40.0, 0.0], [0.0, 90.0], [0.0, -90.0]])
    actions, log_probs = squashed_normal(heads, tf.constant([[0.0], [0.0], [1.0], [1.0]]))
    # e² = 7.389; log N = −½ − 2 − ½ log 2π; the slope's logarithm is 2·(log 2 − u − softplus(−2u)).
    wide = -0.5 - 2 - 0.5 * np.log(2 * np.pi) - 2 * (np.log(2) - np.exp(2) - np.log1p(np.exp(-2 * np.exp(2))))
    assert_allclose(actions[:, 0], [1, -1, np.tanh(np.exp(2)), np.exp(-20)], rtol=1e-5)
    expected = [80 - 2 * np.log(2) + LOG_PROB_AT_ZERO, 80 - 2 * np.log(2) + LOG_PROB_AT_ZERO, wide]
    assert_allclose(log_probs, [*expected, -0.5 + 20 + LOG_PROB_AT_ZERO], rtol=1e-5)


@pytest.mark.parametrize("changes", [{}, TQC, {"hidden_sizes": ()}, CROSSQ, {**CROSSQ, "hidden_sizes": ()}])
def test_the_frozen_copy_acts_as_the_actor_and_refreshes(changes):
    agent = made(**changes)
    policy = pickle.loads(pickle.dumps(agent.acting_policy()))
    observations = 3 * np.random.default_rng(0).standard_normal((50, S)).astype(np.float32)
    noise = np.random.default_rng(1).standard_normal((50, A)).astype(np.float32)
    for _ in range(2):
        mean, log_std = np.split(agent.actor(observations).numpy(), 2, axis=1)
        action, log_std = np.tanh(mean), np.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)
        assert_allclose(policy.act(observations), action, atol=1e-6)
        sampled, _ = agent.sample(agent.flat_networks()["actor"].stacks(), observations, noise)
        assert_allclose(policy.act(observations, noise), sampled, atol=1e-6)
        assert_allclose(sampled, np.tanh(np.arctanh(action.astype(float)) + np.exp(log_std) * noise), atol=1e-4)
        agent.update(*drawn(3))
        assert np.abs(policy.act(observations) - np.tanh(agent.actor(observations)[:, :A])).max() > 1e-4
        policy.heads = agent.acting_network()
    assert policy.is_plain and "Normal" in policy.noise


# -- targets and losses by hand --

MANY = np.random.default_rng(0).permutation(150).reshape(3, 2, 25)  # [critics, B, quantiles]
MANY_SORTED = np.sort(MANY.transpose(1, 0, 2).reshape(2, 75))


def test_the_target_of_sac_worked_by_hand():
    """γ = ½, α = 2, log π = −log 2π for two dimensions: 1 + ½·(min(4, 2) + 2·log 2π); terminated: 1."""
    agent = answering(made(gamma=0.5, temperature=2.0), [[4.0], [2.0]])
    target = agent.targets(zeros([1, 1], [0, 1]), np.zeros((2, 2 * A), np.float32))
    assert_allclose(target, [1 + 0.5 * (2 + 2 * np.log(2 * np.pi)), 1], rtol=1e-6)


def test_the_target_of_tqc_worked_by_hand():
    """Pooled 1 1 2 3 5 9, without the two largest; α = 1, so each is raised by log 2π before γ = ½."""
    agent = answering(made(gamma=0.5, quantiles=3, dropped_quantiles=1), [[5.0, 1.0, 2.0], [1.0, 9.0, 3.0]])
    target = agent.targets(zeros([1, 1], [0, 1]), np.zeros((2, 2 * A), np.float32))
    kept = np.array([1.0, 1.0, 2.0, 3.0])
    assert_allclose(np.sort(target), [1 + 0.5 * (kept + np.log(2 * np.pi)), [1, 1, 1, 1]], rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "dropped", "kept"),
    [
        ([[[3, 1], [0, 7]], [[2, 8], [5, 6]]], 0, [[1, 2, 3, 8], [0, 5, 6, 7]]),  # [critics, B, quantiles]
        ([[[3, 1], [0, 7]], [[2, 8], [5, 6]]], 1, [[1, 2], [0, 5]]),
        ([[[4, 4, 1]], [[4, 2, 4]]], 1, [[1, 2, 4, 4]]),  # of equal ones, one at a time
        ([[[4, 4, 1]], [[4, 2, 4]]], 2, [[1, 2]]),
        *((MANY, dropped, MANY_SORTED[:, : 3 * (25 - dropped)]) for dropped in (3, 4, 24)),  # 9, 12 and 72 of 75
    ],
)
def test_the_largest_quantiles_of_each_transition_are_dropped(values, dropped, kept):
    assert_array_equal(np.sort(smallest_quantiles(tf.constant(values, tf.float32), dropped)), kept)


def test_the_quantile_huber_loss_worked_by_hand():
    """τ = ¼, ¾; θ = 0, 1; y = ½ and 3.

    θ = 0: δ = ½, 3: ¼·⅛ and ¼·2½. θ = 1: δ = −½: |¾ − 1|·⅛; δ = 2: ¾·1½. Their mean over four, for two critics twice.
    """
    values, target = tf.constant([[[0.0, 1.0]]] * 2), tf.constant([[0.5, 3.0]])
    terms = [0.25 * 0.125, 0.25 * 2.5, 0.25 * 0.125, 0.75 * 1.5]
    assert float(quantile_huber_loss(values, target)) == pytest.approx(2 * np.mean(terms))


def test_the_gradient_of_the_quantile_huber_loss_is_its_slope():
    """Its closed form against differences of the loss: within and beyond the bend of the Huber loss, on both sides."""
    values = np.array([[[-2.0, 0.3, 1.9]], [[0.1, 0.2, 4.0]]], np.float32)  # [critics, B, M]
    target = tf.constant([[0.5, 3.0, -0.4, 1.2]])  # [B, T]
    watched = tf.constant(values)
    with tf.GradientTape() as tape:
        tape.watch(watched)
        loss = 5.0 * quantile_huber_loss(watched, target)
    gradient = tape.gradient(loss, watched).numpy()
    for place in np.ndindex(values.shape):
        step = np.zeros_like(values)
        step[place] = 1e-2
        up, down = (float(quantile_huber_loss(tf.constant(values + sign * step), target)) for sign in (1, -1))
        assert gradient[place] == pytest.approx(5.0 * (up - down) / 2e-2, abs=1e-3)


def test_one_quantile_is_plain_sac():
    """The mean squared error of the smallest; and TQC of one critic with one quantile agrees in all but its loss."""
    assert type(made()) is SACAgent and type(made(**TQC)) is TQCAgent
    values, target = tf.constant([[1.0, 2.0], [0.0, 4.0]]), tf.constant([0.0, 2.0])  # [critics, B], [B]
    assert float(made().critic_loss(values, target)) == pytest.approx((1 + 0) / 2 + (0 + 4) / 2)
    assert made().estimate(values).numpy().tolist() == [0, 2]
    of_tqc = tf.constant([[[1.0, 2.0]], [[3.0, 10.0]]])  # [critics, B, quantiles]
    assert made(**TQC).estimate(of_tqc).numpy().tolist() == [4.0]  # the mean of all
    config = SACConfig(hidden_sizes=(8,), critics=1)
    object.__setattr__(config, "dropped_quantiles", 0)  # a config refuses what has no effect on SAC
    sac, tqc = SACAgent(*SPACES_OF, config, 0), TQCAgent(*SPACES_OF, config, 0)
    rows, noise = drawn(1)
    batch = unpack(tf.constant(rows[0]))
    assert_array_equal(sac.targets(batch, noise[0]), tqc.targets(batch, noise[0])[:, 0])
    assert_array_equal(sac.estimate(values[:1]), tqc.estimate(values[:1, :, None]))


def test_the_actor_learns_from_critics_that_have_learned_already():
    """The loss α·log π − min Q of the actor before its step, by Keras networks; and Adam's first step along it."""
    rows, noise = drawn(1)
    agent, twin = made(temperature=0.5), made(temperature=0.5)
    twin.update(rows, noise)  # its critics are now those that the actor should have seen
    batch = unpack(tf.constant(rows[0]))
    actor, critics = agent.actor, twin.critics
    with tf.GradientTape() as tape:
        actions, log_probs = squashed_normal(actor(batch.observations), noise[0][:, A:])
        values = [critic(tf.concat([batch.observations, actions], axis=1))[:, 0] for critic in critics]
        loss = tf.reduce_mean(0.5 * log_probs - tf.reduce_min(values, axis=0))
    gradients = tape.gradient(loss, actor.trainable_variables)
    before = [variable.numpy() for variable in actor.trainable_variables]
    found = agent.update(rows, noise)
    assert found["loss_actor"] == pytest.approx(float(loss), rel=1e-4)
    assert found["entropy"] == pytest.approx(-float(tf.reduce_mean(log_probs)), rel=1e-4)
    assert found["temperature"] == pytest.approx(0.5)
    for variable, was, gradient in zip(agent.actor.trainable_variables, before, gradients):
        g = gradient.numpy()
        clear = np.abs(g) > 1e-3  # where ε and rounding do not matter
        assert_allclose(variable.numpy()[clear], (was - 1e-2 * np.sign(g))[clear], atol=1e-4)


# -- the temperature --


def test_the_temperatures_loss_worked_by_hand():
    """−log α·(mean log π + H̄) = −½·(1 + 2)."""
    loss = temperature_loss(tf.constant([0.5]), tf.constant([0.0, 2.0]), 2.0)
    assert float(loss) == pytest.approx(-1.5)


@pytest.mark.parametrize(("target_entropy", "sign"), [(50.0, 1), (-50.0, -1), (None, -1), ("fixed", 0)])
def test_the_temperature_rises_where_entropy_is_too_low(target_entropy, sign):
    """An untrained policy's entropy is about −1 a dimension at least, and −A is asked for by default."""
    learned = {"target_entropy": target_entropy} if target_entropy != "fixed" else {"learn_temperature": False}
    agent = made(temperature=0.5, **learned)
    assert agent.target_entropy == (target_entropy if sign and target_entropy else -A)
    was = agent.temperature
    assert was == pytest.approx(0.5)
    metrics = agent.update(*drawn(1))
    assert np.log(agent.temperature / was) == pytest.approx(sign * 1e-2, rel=1e-2)  # Adam's first step
    assert metrics["temperature"] == pytest.approx(was)


# -- the update that DDPG shares --


@pytest.mark.parametrize("changes", [{}, TQC, CROSSQ, {"policy_delay": 2}, {"hard_update_every": 3}])
def test_many_updates_in_one_call_are_as_many_calls(changes):
    rows, noise = drawn(7)
    one, other = made(**changes), made(**changes)
    expected, found, i = one.update(rows, noise), [], 0
    for count in (3, 1, 3):
        found.append(other.update(rows[i : i + count], noise[i : i + count]))
        i += count
    for name, values in one.learned_state().items():
        assert_allclose(values, other.learned_state()[name], atol=2e-5, err_msg=name)
    for name, values in expected.items():
        assert_allclose(np.concatenate([metrics[name] for metrics in found]), values, rtol=1e-3, atol=1e-4)


@compiled
@pytest.mark.xla
@pytest.mark.parametrize("changes", [TQC, {**CROSSQ, "policy_delay": 1}])
def test_a_compiled_update_is_the_update(changes, monkeypatch):
    monkeypatch.setattr(batch_renormalization, "WARM_UP", 2)  # later updates are corrected
    rows, noise = drawn(5)
    one, other = made(**changes), made(**changes)
    one.update(rows, noise)
    tf.config.run_functions_eagerly(True)
    other.update(rows, noise)
    tf.config.run_functions_eagerly(False)
    for name, values in one.parameters().items():
        assert_allclose(values, other.parameters()[name], atol=1e-4, err_msg=name)


def test_there_is_no_target_actor_and_target_critics_follow():
    agent, (rows, noise) = made(tau=0.25, critics=3), drawn(1)
    assert set(agent.parameters()) == {"actor", "critics", "target_critics", "log_temperature"}
    assert len(agent.critics) == 3
    was = agent.parameters()["target_critics"]
    agent.update(rows, noise)
    now = agent.parameters()
    assert_allclose(now["target_critics"], 0.75 * was + 0.25 * now["critics"], atol=1e-6)


def test_crossq_learns_from_one_pass_over_both_states_and_has_no_target_networks():
    """Its loss and target, by Keras networks that normalise the joint batch."""
    rows, noise = drawn(1)
    agent = made(**CROSSQ, temperature=0.5, gamma=0.9)
    statistics = {"statistics/actor", "statistics/critics"}
    assert set(agent.parameters()) == {"actor", "critics", "log_temperature", *statistics}
    before = agent.parameters()
    batch = unpack(tf.constant(rows[0]))
    actions, log_probs = squashed_normal(agent.actor(batch.next_observations), noise[0][:, :A])
    now, then = (batch.observations, batch.actions), (batch.next_observations, actions)
    joint = tf.concat([tf.concat(pair, axis=1) for pair in (now, then)], axis=0)
    both = np.array([critic(joint, training=True)[:, 0] for critic in agent.critics])  # [critics, 2B]
    values, next_values = np.split(both, 2, axis=1)
    target = batch.rewards + 0.9 * (1 - batch.terminated) * (next_values.min(axis=0) - 0.5 * log_probs)
    found = agent.update(rows, noise)
    assert found["loss_critic"] == pytest.approx(np.square(values - target).mean(axis=1).sum(), rel=1e-4)
    assert found["mean_target"] == pytest.approx(np.mean(target), rel=1e-4)
    assert found["mean_value"] == pytest.approx(values[0].mean(), rel=1e-4)
    moved = {name: np.abs(agent.parameters()[name] - array).max() for name, array in before.items()}
    assert {name for name, most in moved.items() if most > 0} == {"critics", "statistics/critics"}  # the actor waits
    agent.load_parameters(before)
    assert_same_state(agent.parameters(), before)


def test_crossqs_actor_normalises_its_batch_and_leaves_the_critics_statistics_alone():
    """Its loss α·log π − min Q in the third update, by Keras critics with their running statistics."""
    rows, noise = drawn(3)
    agent, twin = (made(**CROSSQ | {"policy_delay": delay}, temperature=0.5) for delay in (3, 4))
    agent.update(rows[:2], noise[:2])
    batch, before = unpack(tf.constant(rows[2])), agent.parameters()["statistics/actor"]
    actions, log_probs = squashed_normal(agent.actor(batch.observations, training=True), noise[2][:, A:])
    found = agent.update(rows[2:], noise[2:])
    twin.update(rows, noise)  # its actor waits for one more update
    assert_array_equal(agent.parameters()["statistics/critics"], twin.parameters()["statistics/critics"])
    inputs = tf.concat([batch.observations, actions], axis=1)
    lowest = tf.reduce_min([critic(inputs)[:, 0] for critic in agent.critics], axis=0)
    assert found["loss_actor"][0] == pytest.approx(float(tf.reduce_mean(0.5 * log_probs - lowest)), rel=1e-4)
    numbers = np.concatenate([batch.observations.numpy().mean(axis=0), batch.observations.numpy().var(axis=0)])
    assert_allclose(
        agent.parameters()["statistics/actor"][: 2 * S], 0.99 * before[: 2 * S] + 0.01 * numbers, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("spaces", "networks"),
    [
        (SPACES_OF, lambda space, *_: keras.Sequential([keras.Input(space.shape), keras.layers.Dense(4)])),
        ((RowWithImagesSpace(Box(0, 1, (250,)), (ImagePart(0, (9, 9, 3), False, 0.0, 1.0),)), SPACES_OF[1]), None),
    ],
)
def test_crossq_is_for_numbers_and_networks_of_this_project(spaces, networks):
    with pytest.raises(UserError, match=r"crossq does not go with (images|networks of your own): use --no-crossq"):
        SACAgentTrainer.make_agent(*spaces, SACConfig(**CROSSQ), 0, networks)


def test_actor_temperature_and_targets_wait_for_the_delay():
    agent, (rows, noise) = made(policy_delay=3), drawn(3)
    for i in range(3):
        before = agent.parameters()
        metrics = agent.update(rows[i : i + 1], noise[i : i + 1])
        moved = {name: (agent.parameters()[name] != array).any() for name, array in before.items()}
        assert moved.pop("critics")
        assert set(moved.values()) == {i == 2}
        assert np.isfinite(metrics["entropy"]) == (i == 2)


def test_values_are_those_of_the_first_critic():
    observations = np.random.default_rng(0).standard_normal((4, S)).astype(np.float32)
    for agent in (made(), made(**TQC)):
        inputs = np.concatenate([observations, np.tanh(agent.actor(observations)[:, :A])], axis=1)
        assert_allclose(agent.values(observations), np.mean(agent.critics[0](inputs), axis=1), rtol=1e-5)


# -- the loop --


ROUNDED = {"precision": "bfloat16", "hidden_sizes": (32, 32)}
CROSSQ_ROUNDED = {**CROSSQ, **ROUNDED, "quantiles": 1, "critic_hidden_sizes": (32, 32)}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="float32"),
        pytest.param({**CROSSQ, "quantiles": 1}, id="CrossQ"),
        pytest.param(CROSSQ_ROUNDED, id="CrossQ in bfloat16", marks=pytest.mark.xla),
        pytest.param(ROUNDED, id="bfloat16", marks=pytest.mark.xla),
    ],
)
def test_a_resumed_run_is_the_run_that_was_not_stopped(changes, monkeypatch):
    config = TINY.replace(**TQC, num_envs=1, policy_delay=2, train_every=13).replace(**changes)
    monkeypatch.setattr(batch_renormalization, "WARM_UP", 4)  # its critics correct before the stop, its actor after
    resumed, whole, state = resumed_and_whole(lambda: SACAgentTrainer(config), 2, 3)
    assert_same_state(resumed.state(), whole.state())
    assert {"agent/log_temperature", "agent/temperature_adam/0", "replay/rows", "trainer/rng"} <= set(state)
    assert not any(name.startswith("exploration") for name in state)


def test_the_table_has_entropy_and_temperature():
    trainer = SACAgentTrainer(TINY.replace(epochs=2))
    trainer.train()
    trainer.close()
    row = vars(trainer.results[-1])
    assert row["temperature"] < 1 and np.isfinite(row["entropy"])
    assert all(np.isfinite(row[name]) for name in ("loss_critic", "loss_actor", "mean_value", "mean_target"))
    assert (row["updates"], row["replay_filled"]) == (trainer.agent.updates, 80)
    assert "exploration_std" not in row


class Distant(Reliable):
    """Gives its tasks a policy that was pickled, as workers get it."""

    def perform(self, tasks, snapshot, policy=None):
        return super().perform(tasks, snapshot, pickle.loads(pickle.dumps(policy)))


@pytest.mark.parametrize("changes", [{}, CROSSQ])
def test_workers_step_the_same(monkeypatch, changes):
    """tests/rollout/test_workers.py has real ones, for TD3."""
    config = TINY.replace(num_envs=4, shards=2, steps_per_epoch=84, train_every=20, **changes)
    monkeypatch.setattr(trainer_base, "WorkerPoolFactory", lambda *_: Distant)
    states = []
    for workers in (2, 0):
        trainer = SACAgentTrainer(config, workers=WorkerPlacement(workers))
        trainer.train(2)
        trainer.collector.close()
        states.append(trainer.state())
    assert_same_state(*states)
    assert states[0]["agent/updates"] > 10


EVERYTHING = dict(
    quantiles=5, dropped_quantiles=1, n_step=2, layer_norm=True, normalize_observations=True, symmetry=True
)


@compiled
@pytest.mark.parametrize("changes", [{}, EVERYTHING, {"crossq": True, "adam_beta": 0.5}])
def test_pendulum_is_learned_in_three_thousand_steps(changes):
    config = PRESETS["pendulum-sac"].replace(epochs=4, adopt_best=False, best_metric="total_reward", **changes)
    trainer = SACAgentTrainer(config)
    trainer.train()
    trainer.close()
    assert mean_return(trainer, 20) > -400  # −1,200 untrained


# -- settings --

ALTERNATIVES: dict[str, tuple[object, dict[str, object]]] = {
    "crossq": (True, {}),
    "critics": (1, {}),
    "policy_delay": (2, {}),
    "learn_temperature": (False, {}),
    "temperature": (0.1, {"learn_temperature": False}),
    "target_entropy": (0.5, {}),
    "quantiles": (4, {}),
    "dropped_quantiles": (3, {"quantiles": 4}),
}
SHAPES = ("crossq", "critics", "quantiles")  # they change what there is


@functools.cache
def outcome(config: SACConfig) -> dict[str, np.ndarray]:
    trainer = SACAgentTrainer(config)
    trainer.train()
    trainer.close()
    return trainer.agent.parameters()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(SACSettings)])
def test_every_setting_changes_what_is_learned(name):
    """Those that SAC alone has; test_off_policy.py has the others."""
    value, needed = ALTERNATIVES[name]
    config = TINY.replace(**{"epochs": 2} | needed)
    assert getattr(config, name) != value
    one, other = outcome(config), outcome(config.replace(**{name: value}))
    if name in SHAPES:
        assert {k: v.shape for k, v in one.items()} != {k: v.shape for k, v in other.items()}
    else:
        assert max(np.abs(one[k] - other[k]).max() for k in one) > 1e-4


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"quantiles": 0}, "quantiles is 0: expected 1 or more"),
        ({"quantiles": 3, "dropped_quantiles": 3}, "dropped_quantiles 3 leaves none of 3 quantiles: use "
         "--dropped-quantiles 2 or less"),
        ({"quantiles": 3, "crossq": True}, "quantiles 3 does not go with crossq: use --quantiles 1, or --no-crossq"),
        ({"dropped_quantiles": 9}, "dropped_quantiles 9 has no effect with quantiles 1: add --quantiles 25, or leave "
         "--dropped-quantiles out"),
        ({"learn_temperature": False, "target_entropy": -1.0}, "target_entropy -1.0 has no effect with "
         "learn_temperature False: add --learn-temperature, or leave --target-entropy out"),
        ({"temperature": 0.0}, "temperature is 0.0: expected above 0"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_one_line(changes, line):
    with pytest.raises(UserError) as error:
        TINY.replace(**changes)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
    three = TINY.replace(quantiles=3)
    assert three.replace(dropped_quantiles=2).dropped_quantiles == 2  # the bound is allowed
    assert three.replace(dropped_quantiles=1).replace(quantiles=1).dropped_quantiles == 2  # not read


def test_presets_are_what_is_published():
    sac = PRESETS["sac"]
    assert sac == SACConfig() == PRESETS[preset_for("Some-v0")]
    assert (sac.hidden_sizes, sac.learning_rate, sac.batch_size, sac.gamma, sac.tau, sac.replay_size) == (
        (256, 256), 3e-4, 256, 0.99, 0.005, 1_000_000,
    )  # fmt: skip
    assert (sac.critics, sac.quantiles, sac.target_entropy, sac.learn_temperature) == (2, 1, None, True)
    assert PRESETS["tqc"] == sac.replace(quantiles=25) and PRESETS["tqc"].dropped_quantiles == 2
    crossq = PRESETS["crossq"]
    assert (crossq.hidden_sizes, crossq.critic_hidden_sizes, crossq.learning_rate, crossq.policy_delay) == (
        (256, 256), (2048, 2048), 1e-3, 3,
    )  # fmt: skip
    assert (crossq.adam_beta, crossq.warmup_steps, crossq.batch_size, crossq.gamma) == (0.5, 5000, 256, 0.99)
    cheetah = {"env": "HalfCheetah-v5"}
    assert PRESETS["mujoco-sac"] == sac.replace(**cheetah) and PRESETS["mujoco-tqc"] == PRESETS["tqc"].replace(
        **cheetah
    )
    assert PRESETS["mujoco-crossq"] == crossq.replace(critic_hidden_sizes=(256, 256), **cheetah)


def test_an_infinite_temperature_has_diverged():
    agent = made()
    agent.check_finite()
    agent.load_parameters(agent.parameters() | {"log_temperature": np.array([90.0], np.float32)})
    with pytest.raises(DivergedError, match="the temperature is infinite"):
        agent.check_finite()


def test_an_entropy_that_no_policy_has_is_refused():
    config = SACConfig(env="Pendulum-v1", target_entropy=0.7)
    with pytest.raises(UserError, match=r"target_entropy is 0\.7, .* of 1 action dimensions .* is at most 0\.69"):
        SACAgentTrainer(config)
    agent = SACAgentTrainer.make_agent(Box(-1, 1, (3,)), Box(-1, 1, (1,)), config, 0)
    assert agent.target_entropy == 0.7  # stored runs are loaded
