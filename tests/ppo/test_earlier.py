"""Earlier trajectories that an update learns from: their weights, their places in the batch, their state."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from same_state import assert_same_state, resumed_and_whole
from test_batch import made, trajectory

from common.env_wrappers import reward_design
from ppo import losses
from ppo.batch import EPSILON, LARGEST_WEIGHT, EarlierTrajectories, weighted
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

CONFIG = PPOConfig(gamma=0.5, gae_lambda=0.5, minibatch_size=4)
STEPS = PPOConfig(steps_per_epoch=8, num_envs=2, minibatch_size=5)  # 32 rows of four trajectories and one of padding
TINY = PPOConfig(
    env="Pendulum-v1", max_episode_steps=20, backend="gymnasium", num_envs=2, steps_per_epoch=64, hidden_sizes=(8,),
    epochs=4, passes=1, minibatch_size=24, adopt_best=False, learning_rate=1e-2, reused_trajectories=2,
)  # fmt: skip


def numbered(number: float, rows: int = 9):
    """A batch of 8 steps and a row of padding, with a number in every column."""
    batch = made(CONFIG).batch
    return batch._replace(
        advantages=np.full(rows, number, np.float32), log_probs=np.zeros(rows, np.float32),
        observations=np.full((rows, 1), number, np.float32), actions=np.zeros((rows, 1), np.float32),
        value_targets=np.zeros(rows, np.float32), weights=np.ones(rows, np.float32),
        heads=np.zeros((rows, 0), np.float32), values=np.zeros(rows, np.float32),
        next_observations=np.zeros((rows, 0), np.float32), discounts=np.ones(rows, np.float32),
        actor_weights=np.ones(rows, np.float32),
    )  # fmt: skip


def kept(most: int, *log_probs: float) -> EarlierTrajectories:
    earlier = EarlierTrajectories(most, lambda _: None)
    for log_prob in log_probs:
        earlier.add(trajectory(), np.full(8, log_prob, np.float32))
    return earlier


def test_an_advantage_is_weighted_by_the_ratio_of_the_policies():
    batch = numbered(2.0)
    acted = np.log(np.array([1, 2, 4, 0.8, 0.5, 0.1, 1e-30, 1e30], np.float32))
    expected = [2.0, 1.0, 0.5, 2.5, 2 * LARGEST_WEIGHT, 2 * LARGEST_WEIGHT, 2 * LARGEST_WEIGHT, 2e-30]
    assert_allclose(weighted(batch, acted).advantages, [*expected, 2.0], rtol=1e-5)
    assert_array_equal(batch.advantages, 2.0)  # no argument is changed


@pytest.mark.parametrize("advantage", [2.0, -2.0])
@pytest.mark.parametrize("step", [-0.5, -0.1, 0.0, 0.1, 0.5])
def test_the_surrogate_of_weighted_advantages_clips_around_the_present_policy(advantage, step):
    acted, present, new = -1.2, -1.0, -1.0 + step
    ratio, centre = np.exp(new - acted), np.exp(present - acted)
    by_hand = -min(ratio * advantage, np.clip(ratio, centre * 0.8, centre * 1.2) * advantage)
    batch = numbered(advantage)._replace(log_probs=np.full(9, present, np.float32))
    batch = weighted(batch, np.full(8, acted, np.float32))
    loss = losses.clipped_surrogate(
        tf.fill([8], np.float32(new)), batch.log_probs[:8], batch.advantages[:8], batch.weights[:8], 0.2
    )
    assert float(loss) == pytest.approx(by_hand, rel=1e-5)


def test_the_newest_trajectory_comes_first_and_fills_the_missing_places():
    earlier = kept(3, -np.log(2), 0.0)  # the last one added is the newest of them
    numbers = iter([10.0, 20.0])
    joined = earlier.joined(numbered(1.0), lambda _: numbered(next(numbers)), 8, STEPS.minibatch_size)
    places = np.repeat([1, 10, 20, 1], 8)
    assert_array_equal(joined.observations[:, 0], [*places, 0])  # with a row of padding, once
    assert_allclose(joined.advantages[:32], np.repeat([1, 10, 20 * LARGEST_WEIGHT, 1], 8))
    assert joined.weights[-1] == 0 and len(joined.weights) == 33
    without_padding = kept(1, 0.0).joined(numbered(1.0, 8), lambda _: numbered(2.0, 8), 8, 4)
    assert len(without_padding.weights) == 16


def test_the_oldest_is_forgotten():
    assert [acted.log_probs[0] for acted in kept(2, 1.0, 2.0, 3.0).kept] == [3.0, 2.0]
    assert list(kept(0, 1.0).kept) == []


def test_the_state_is_what_is_kept():
    one, other = kept(2, 1.0, 2.0), EarlierTrajectories(2, lambda _: None)
    other.load_state(one.state())
    assert [acted.log_probs[0] for acted in other.kept] == [2.0, 1.0]
    for name in ("observations", "rewards", "valid", "replaced", "outputs"):
        assert_array_equal(getattr(other.kept[0].trajectory, name), getattr(trajectory(), name))
    one.load_state({})
    assert list(one.kept) == []


def test_a_damaged_state_is_refused():
    state = kept(1, 1.0).state()
    with pytest.raises(ValueError, match="log_probs is"):
        kept(1).load_state(state | {"0/log_probs": np.zeros(7, np.float32)})

    def refuse(arrays):
        assert set(arrays) == set(trajectory()._asdict()) - {"outputs", "memory", "infos"}
        raise ValueError("no trajectory")

    with pytest.raises(ValueError, match="no trajectory"):
        EarlierTrajectories(1, refuse).load_state(state)


# -- in the trainer --


def updates(config: PPOConfig, epochs: int):
    """The trainer, and for every update its batch, its rows and the trajectory that it was made of."""
    trainer, seen = PPOAgentTrainer(config), []
    learn = trainer.agent.update

    def watch(batch, actor_rows, critic_rows, hyperparameters):
        seen.append((batch, actor_rows, critic_rows, trainer.collector.trajectory))
        return learn(batch, actor_rows, critic_rows, hyperparameters)

    trainer.agent.update = watch
    trainer.train(epochs)
    trainer.close()
    return trainer, seen


def test_an_update_learns_from_the_last_trajectories(eager):
    _, seen = updates(TINY, 4)
    trajectories = [[first, *(s[3] for s in seen[max(0, i - 2) : i][::-1])] for i, (*_, first) in enumerate(seen)]
    for (batch, actor_rows, critic_rows, _), expected in zip(seen, trajectories):
        expected += [expected[0]] * (3 - len(expected))
        actions = np.concatenate([t.actions.reshape(64, 1) for t in expected])
        assert_array_equal(batch.actions, actions)  # 192 rows are a multiple of 24
        for rows in (actor_rows, critic_rows):
            assert rows.shape == (192 // 24, 24)
            assert_array_equal(np.sort(rows.ravel()), np.arange(192))


def test_earlier_steps_are_judged_by_the_present_networks(eager):
    config = TINY.replace(gae_lambda=0.0, normalize_advantages="none", reused_trajectories=1)
    trainer = PPOAgentTrainer(config)
    trainer.train(2)
    agent, earlier, newest = trainer.agent, trainer.earlier.kept[0], trainer.collector.trajectory
    seen, values = [], agent.values
    agent.update = lambda batch, *_: seen.append((batch, values(earlier.trajectory.observations.reshape(66, 3)))) or {}
    with pytest.raises(KeyError):  # an update that returns no metrics
        trainer.train(1)
    [(batch, v)] = seen
    merged = trainer.reward_statistics
    v = v.reshape(33, 2)
    shaped = reward_design(config.reward_design, config.reward_factor, 20)(
        earlier.trajectory.rewards, earlier.trajectory.terminated, earlier.trajectory.truncated,
        earlier.trajectory.episode_steps,
    )  # fmt: skip
    valid = earlier.trajectory.valid
    rewards = np.where(valid, shaped, 0.0) / (merged.std + EPSILON)
    advantages = np.where(valid, rewards + config.gamma * v[1:] - v[:-1], 0.0)  # [T, N], λ 0, nothing terminates
    log_probs = batch.log_probs[64:128]
    weights = np.minimum(np.exp(log_probs - earlier.log_probs), LARGEST_WEIGHT)
    assert_allclose(batch.advantages[64:128], advantages.ravel() * weights, rtol=2e-4, atol=2e-4)
    assert_allclose(batch.values[64:128], v[:-1].ravel(), rtol=1e-4, atol=1e-5)
    assert np.abs(log_probs - earlier.log_probs).max() > 1e-3  # the policy has moved
    assert_array_equal(batch.observations[:64], agent.normalize(newest.observations[:-1]).reshape(64, 3))
    trainer.close()


IMAGES = dict(
    env="tests/Dot-v0", max_episode_steps=None, convolutions=("2x4/2", "3x3/1"), num_envs=1,
    steps_per_epoch=32, shared_torso=True,
)  # fmt: skip


@pytest.mark.parametrize("changes", [dict(objective="kl_penalty", minibatch_size=25, updates_per_epoch=2), IMAGES])
def test_a_resumed_run_has_the_same_earlier_trajectories(changes, request):
    if changes is not IMAGES:
        request.getfixturevalue("eager")  # images are acted upon by a compiled call
    resumed, whole, state = resumed_and_whole(lambda: PPOAgentTrainer(TINY.replace(**changes)), 1, 3)
    assert any(name.startswith("earlier/") for name in state)
    assert len(whole.earlier.kept) == 2
    assert_same_state(resumed.state(), whole.state())


def test_an_update_that_was_undone_keeps_no_trajectory(eager):
    trainer = PPOAgentTrainer(TINY.replace(learning_rate=1e30, on_not_finite="skip"))
    trainer.warn = lambda line: None
    trainer.train(1)
    assert list(trainer.earlier.kept) == []
    trainer.close()
