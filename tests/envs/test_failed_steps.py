"""Steps that nothing, or not everything, may be learned from: the environment failed, or took another action."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import tiny_envs
from collecting import batch_of, next_trajectory
from numpy.testing import assert_allclose, assert_array_equal

from common.envs.atari import ACTION_REPLACED
from common.nets import distributions
from common.records import Batch
from common.rollout import collector
from common.rollout.rewards import finished_episodes
from companions.config import OffPolicyConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from ppo import losses
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters
from PPOAgentTrainer import PPOAgentTrainer

FAILS = 19  # the step of environment 0 that fails, counted from 0; the next one only restarts it
CONFIG = PPOConfig(
    env="tests/Raising-v0", backend="gymnasium", num_envs=2, steps_per_epoch=80, minibatch_size=40, hidden_sizes=(4,),
    reward_design="outcome_bonus", reward_scaling="none", normalize_advantages="none", gae_lambda=0.9,
)  # fmt: skip


class Serving(tiny_envs.Endless):
    """Takes another action in the first step of an episode, as a game does that begins with FIRE."""

    def reset(self, seed=None, options=None):
        self._first = True
        return super().reset(seed=seed)

    def step(self, action):
        *rest, info = super().step(action)
        replaced, self._first = self._first, False
        return *rest, {**info, ACTION_REPLACED: replaced}


gymnasium.register("tests/Serving-v0", Serving, max_episode_steps=5)


@pytest.fixture
def fails_once(tmp_path, monkeypatch):
    """Environment 0 fails in step 19; the probe would meet that before."""
    monkeypatch.setattr(collector, "find_restore_method", lambda *_: "episodes")
    monkeypatch.setitem(gymnasium.registry["tests/Raising-v0"].kwargs, "marks", tmp_path)


@pytest.fixture
def trainer(fails_once, eager):
    """One that has collected an epoch with a failure."""
    trainer = PPOAgentTrainer(CONFIG)
    trainer.warn = lambda line: None
    next_trajectory(trainer)
    yield trainer
    trainer.close()


def columns(trainer: PPOAgentTrainer) -> dict[str, np.ndarray]:
    """The numbers [T, N] of the batch that is learned from."""
    batch = batch_of(trainer)
    shape = trainer.collector.trajectory.valid.shape
    names = ("weights", "actor_weights", "value_targets", "advantages")
    return {name: getattr(batch, name)[: np.prod(shape)].reshape(shape) for name in names}


def test_a_failed_step_weighs_nothing_and_ends_nothing(trainer):
    trajectory = trainer.collector.trajectory
    assert trajectory.observations[FAILS : FAILS + 3, 0, 0].tolist() == [19, 19, 0]
    assert not trajectory.terminated.any()
    assert np.argwhere(trajectory.truncated).tolist() == [[29, 1]]
    counts = np.ones((40, 2), bool)
    counts[[FAILS, FAILS + 1, 30], [0, 0, 1]] = False
    assert_array_equal(trajectory.valid, counts)
    learned = columns(trainer)
    assert_array_equal(learned["weights"], counts)
    assert_array_equal(learned["actor_weights"], counts)


def test_the_step_before_a_failed_one_bootstraps_from_its_own_next_observation(trainer):
    trajectory, learned = trainer.collector.trajectory, columns(trainer)
    value, following, restarted = trainer.agent.values(np.array([[18], [19], [0]], np.float32))
    assert trajectory.observations[FAILS, 0].tolist() == [19]
    assert abs(following - restarted) > 1e-4
    assert_allclose(learned["value_targets"][FAILS - 1, 0], 1 + CONFIG.gamma * following, rtol=1e-5)
    assert_allclose(learned["advantages"][FAILS - 1, 0], 1 + CONFIG.gamma * following - value, rtol=1e-4)


def test_a_failed_step_is_not_rewarded_as_an_end(trainer):
    """Designs reward an end with +1; here only that of environment 1, which ran out of time, is one."""
    trajectory = trainer.collector.trajectory
    everything = trajectory._replace(rewards=0 * trajectory.rewards, valid=np.ones_like(trajectory.valid))
    assert np.argwhere(trainer.collector.shaped(everything)).tolist() == [[29, 1]]
    assert trainer.collector.shaped_rewards[FAILS, 0] == 0
    assert trainer.collector.scores.columns()["total_reward"] == 80 - 3  # 1 a step, and 1 for running out of time


def test_an_episode_that_failed_is_not_counted(trainer):
    first = trainer.collector.scores.columns()
    trainer.collector.scores.begin_epoch()
    assert (first["episodes"], first["avg_steps"], first["avg_reward_orig"]) == (1, 30, 30)
    next_trajectory(trainer)  # both episodes that were under way end
    second = trainer.collector.scores.columns()
    assert (second["episodes"], second["avg_steps"], second["avg_reward_orig"]) == (2, 30, 30)
    assert second["total_episodes"] == 3


def test_finished_episodes_leave_out_those_that_failed_worked_by_hand():
    rewards = np.array([[1.0, 1], [2, 2], [4, 4], [8, 8]])
    ended = np.array([[0, 0], [1, 1], [0, 0], [1, 0]], bool)
    failed = np.array([[0, 0], [1, 0], [0, 0], [0, 0]], bool)
    lengths = np.array([[1, 1], [2, 2], [0, 0], [2, 1]])
    episodes, carry = finished_episodes(rewards, 10 * rewards, ended, lengths, np.zeros((2, 2)), failed)
    assert episodes.returns.tolist() == [3, 12]  # of column 1, and of column 0 after the failure
    assert episodes.original_returns.tolist() == [30, 120]
    assert episodes.lengths.tolist() == [2, 2]
    assert carry.tolist() == [[0, 12], [0, 120]]


@pytest.mark.parametrize("train_every", [2, 16, 80])  # rows are stored so many steps at a time
def test_a_failed_step_is_not_stored_for_replay(fails_once, eager, train_every):
    config = OffPolicyConfig(
        env="tests/Raising-v0", backend="gymnasium", num_envs=2, epochs=9, steps_per_epoch=80, hidden_sizes=(4,),
        warmup_steps=80, replay_size=100, batch_size=8, train_every=train_every, adopt_best=False,
    )  # fmt: skip
    trainer = OffPolicyAgentTrainer(config)
    trainer.warn = lambda line: None
    trainer.train(1)
    trainer.close()
    assert trainer.replay.size == trainer.steps == 80 - 3  # the failed step, the restarts after it and after an end
    stored = trainer.replay.unpack(trainer.replay.state()["rows"])
    assert_array_equal(stored.next_observations, stored.observations + 1)
    assert_array_equal(stored.rewards, 1)
    assert_array_equal(stored.terminated, 0)


# -- an action that was replaced --


def test_a_replaced_action_weighs_nothing_for_the_actor_alone(eager):
    trainer = PPOAgentTrainer(CONFIG.replace(env="tests/Serving-v0", reward_design="unchanged"))
    next_trajectory(trainer)
    learned, step = columns(trainer), np.repeat(np.arange(40)[:, None] % 6, 2, axis=1)  # [T, N] of the episode
    trainer.close()
    assert_array_equal(trainer.collector.trajectory.replaced, step == 0)
    assert_array_equal(learned["weights"], step < 5)  # the sixth only restarts
    assert_array_equal(learned["actor_weights"], (step > 0) & (step < 5))


def batch_of_four() -> Batch:
    """The third action was replaced."""
    rng, nothing = np.random.default_rng(0), np.zeros((4, 0), np.float32)
    numbers = rng.standard_normal((5, 4)).astype(np.float32)  # [5, B]
    columns = dict(zip(("log_probs", "advantages", "value_targets", "values", "discounts"), numbers))
    weights = dict(weights=np.ones(4, np.float32), actor_weights=np.array([1, 1, 0, 1], np.float32))
    actions = rng.uniform(-1, 1, (4, 2)).astype(np.float32)  # [B, A]
    return Batch(observations=nothing, actions=actions, heads=nothing, next_observations=nothing, **columns, **weights)


def spoiled(batch: Batch) -> Batch:
    """Another third sample."""
    columns = {name: getattr(batch, name).copy() for name in ("actions", "log_probs", "advantages", "value_targets")}
    for name, number in (("actions", 0.9), ("log_probs", -7.0), ("advantages", 100.0), ("value_targets", 50.0)):
        columns[name][2] = number
    return batch._replace(**columns)


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "clip", "normalize_advantages": "minibatch"},
        {"objective": "kl_penalty"},
        {"objective": "clip+kl", "quirks": ("density_entropy",)},
    ],
    ids=lambda changes: changes["objective"],
)
def test_the_actor_ignores_a_replaced_action(changes):
    config, coefficients = PPOConfig(**changes), Hyperparameters(1.0, 1.0, 1, 0.2, 0.5, 0.3)
    heads = tf.constant(np.random.default_rng(1).uniform(0.2, 0.6, (4, 4)), tf.float32)  # [B, 2A]
    acted = distributions.normal_policy(*tf.split(heads + 0.1, 2, axis=1))
    found = []
    for batch in (batch_of_four(), spoiled(batch_of_four())):
        with tf.GradientTape() as tape:
            tape.watch(heads)
            policy = distributions.normal_policy(*tf.split(heads, 2, axis=1))
            old = None if config.objective == "clip" else acted
            loss, metrics = losses.policy_loss(config, policy, old, batch, coefficients, 0.7)
        gradient = tape.gradient(loss, heads).numpy()  # [B, 2A]
        assert (gradient[2] == 0).all()
        assert (gradient[[0, 1, 3]] != 0).any(axis=1).all()
        found.append([float(metric) for metric in metrics.values()])
    assert found[0] == found[1]


@pytest.mark.parametrize("value_loss", ["squared", "clipped", "smooth_l1"])
def test_the_critic_learns_from_a_replaced_action(value_loss):
    config, coefficients = PPOConfig(value_loss=value_loss), Hyperparameters(1.0, 1.0, 1, 0.2, 0.5, 0.3)
    values = tf.constant([0.1, 0.2, 0.3, 0.4])
    one, other = (
        float(losses.value_loss(config, values, None, batch, coefficients))
        for batch in (batch_of_four(), spoiled(batch_of_four()))
    )
    assert other > one + 1
