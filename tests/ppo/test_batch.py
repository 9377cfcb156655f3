"""From a trajectory to a flat batch: what does not count is left out of every mean and standard deviation."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from common.funcs import RunningStatistics
from common.records import Trajectory
from ppo.batch import EPSILON, flat_batch, minibatch_rows, padded_rows, scaled_rewards
from ppo.config import PPOConfig

REWARDS = np.array([[1.0, 4.0], [2.0, 0.0], [0.0, 7.0], [5.0, 3.0]])  # [T, N]
VALUES = np.array([[1.0, 2.0], [3.0, 40.0], [50.0, 1.0], [2.0, 6.0], [4.0, 8.0]])  # [T+1, N]
VALID = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)  # [T, N] an end at (1, 0) and at (0, 1), then a restart
ENDED = np.array([[0, 1], [1, 0], [0, 0], [0, 0]], bool)  # [T, N]
CONFIG = PPOConfig(gamma=0.5, gae_lambda=0.5, minibatch_size=4)


def trajectory(terminated: bool = True) -> Trajectory:
    nowhere = np.zeros((4, 2), bool)
    return Trajectory(
        observations=np.arange(10.0, dtype=np.float32).reshape(5, 2, 1),
        actions=np.zeros((4, 2, 1), np.float32),
        rewards=REWARDS,
        terminated=ENDED if terminated else nowhere,
        truncated=nowhere if terminated else ENDED,
        ended=ENDED,
        valid=VALID,
        episode_steps=np.ones((4, 2), np.int64),
        replaced=nowhere,
        outputs=np.empty((5, 2, 0), np.float32),
    )


def made(config: PPOConfig, statistics: RunningStatistics | None = None, **of_trajectory: bool):
    return flat_batch(
        trajectory(**of_trajectory),
        REWARDS,
        lambda observations: observations,
        lambda observations, actions, outputs: (VALUES.ravel(), np.zeros(8), np.zeros((8, 0))),
        config.gamma,
        config,
        statistics or RunningStatistics(),
    )


def by_hand(terminated: bool = True) -> np.ndarray:
    """Advantages [T, N], γ = λ = ½."""
    bootstrap = 0.0 if terminated else 1.0
    first = np.zeros(4)
    first[3] = 5 + 4 / 2 - 2
    first[1] = 2 + bootstrap * 50 / 2 - 3
    first[0] = 1 + 3 / 2 - 1 + first[1] / 4
    second = np.zeros(4)
    second[3] = 3 + 8 / 2 - 6
    second[2] = 7 + 6 / 2 - 1 + second[3] / 4
    second[0] = 4 + bootstrap * 40 / 2 - 2
    return np.stack([first, second], axis=1)


@pytest.mark.parametrize("terminated", [True, False])
def test_advantages_targets_and_discounts_worked_by_hand(terminated):
    batch = made(CONFIG.replace(normalize_advantages="none"), terminated=terminated).batch
    advantages = by_hand(terminated)
    assert_allclose(batch.advantages, advantages.ravel())
    assert_allclose(batch.value_targets, (advantages + VALUES[:-1]).ravel())
    assert_allclose(batch.discounts, 0.5 * ~(ENDED & terminated).ravel())
    assert_array_equal(batch.weights, VALID.ravel())
    assert_array_equal(batch.values, VALUES[:-1].ravel())
    one_step = made(CONFIG.replace(value_target="one_step"), terminated=terminated).batch
    following = np.where(ENDED & terminated, 0.0, VALUES[1:])
    assert_allclose(one_step.value_targets, (REWARDS + 0.5 * following).ravel())


def test_a_timeout_taken_for_an_end_bootstraps_from_nothing():
    config = CONFIG.replace(normalize_advantages="none", quirks=("truncation_is_terminal",))
    assert_allclose(made(config, terminated=False).batch.advantages, by_hand(terminated=True).ravel())


def test_nothing_may_be_bootstrapped_at_an_epochs_end():
    config = CONFIG.replace(normalize_advantages="none", quirks=("restart_at_epoch_end",))
    bootstrapped = made(config).batch.advantages.reshape(4, 2)  # [T, N]
    cut = made(config.replace(quirks=("terminal_at_epoch_end",))).batch.advantages.reshape(4, 2)
    after_end = config.gamma * VALUES[-1] * VALID[-1]  # [N], what the last step no longer has
    assert_allclose(bootstrapped[-1] - cut[-1], after_end, rtol=1e-5)
    assert after_end.any()


def test_an_epochs_standardisation_leaves_out_steps_that_only_restart():
    batch = made(CONFIG.replace(normalize_advantages="epoch")).batch
    counted = by_hand()[VALID]
    assert_allclose(batch.advantages[VALID.ravel()], (counted - counted.mean()) / counted.std(), rtol=1e-5)


def test_running_standardisation_leaves_out_steps_that_only_restart():
    before = RunningStatistics()
    before.update(np.array([10.0, -3.0]))
    prepared = made(CONFIG.replace(normalize_advantages="running_std"), before)
    known = np.append(by_hand()[VALID], [10.0, -3.0])
    assert prepared.advantage_statistics.count == 8 and before.count == 2
    assert prepared.advantage_statistics.std == pytest.approx(known.std())
    divided = by_hand() / (known.std() + EPSILON)  # [T, N], the mean stays
    assert_allclose(prepared.batch.advantages, divided.ravel(), rtol=1e-5)
    config = CONFIG.replace(normalize_advantages="running_std", value_target="normalized_advantage")
    assert_allclose(made(config, before).batch.value_targets, (divided + VALUES[:-1]).ravel(), rtol=1e-5)


def test_explained_variance_leaves_out_steps_that_only_restart():
    advantages = by_hand()[VALID]
    targets = advantages + VALUES[:-1][VALID]
    assert made(CONFIG).explained_variance == pytest.approx(1 - advantages.var() / targets.var())


@pytest.mark.parametrize("reward_scaling", ["rewards", "returns"])
def test_the_rewards_standard_deviation_leaves_out_steps_that_only_restart(reward_scaling):
    config = CONFIG.replace(reward_scaling=reward_scaling)
    scaled, statistics = scaled_rewards(REWARDS, trajectory(), 0.5, config, RunningStatistics())
    to_go = np.array([[1 + 2 / 2, 4], [2, 0], [0, 7 + 3 / 2], [5, 3]])
    measured = {"rewards": REWARDS, "returns": to_go}[reward_scaling][VALID]
    assert statistics.count == 6
    assert statistics.std == pytest.approx(measured.std())
    assert_allclose(scaled, REWARDS / (measured.std() + EPSILON))


@pytest.mark.parametrize("reward_scaling", ["rewards", "standardized_rewards", "epoch_rewards"])
def test_rewards_are_scaled_by_all_so_far_or_by_those_of_the_update_alone(reward_scaling):
    config, before = CONFIG.replace(reward_scaling=reward_scaling), RunningStatistics().merged(np.array([50.0, -50.0]))
    scaled, _ = scaled_rewards(REWARDS, trajectory(), 0.5, config, before)
    measured = REWARDS[VALID] if reward_scaling == "epoch_rewards" else np.append(REWARDS[VALID], [50.0, -50.0])
    mean = measured.mean() if reward_scaling == "standardized_rewards" else 0.0
    assert_allclose(scaled[VALID], (REWARDS[VALID] - mean) / (measured.std() + EPSILON))


def test_a_row_to_fill_minibatches_up_with_counts_for_nothing():
    batch = made(CONFIG.replace(minibatch_size=5)).batch
    assert [len(column) for column in batch] == [9] * len(batch)
    assert batch.weights[8] == batch.actor_weights[8] == 0
    assert len(made(CONFIG.replace(minibatch_size=8)).batch.weights) == 8


def test_an_action_that_was_replaced_teaches_the_critic_alone():
    replaced = np.zeros((4, 2), bool)
    replaced[3, 1] = True
    batch = flat_batch(
        trajectory()._replace(replaced=replaced), REWARDS, lambda observations: observations,
        lambda observations, actions, outputs: (VALUES.ravel(), np.zeros(8), np.zeros((8, 0))), 0.5, CONFIG,
        RunningStatistics(),
    ).batch  # fmt: skip
    assert_array_equal(batch.weights, VALID.ravel())
    assert_array_equal(batch.actor_weights, (VALID & ~replaced).ravel())


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 4), st.integers(0, 1000))
def test_each_pass_visits_each_sample_once(samples, minibatch_size, passes, seed):
    rows = minibatch_rows(samples, minibatch_size, passes, np.random.default_rng(seed))
    per_pass = int(np.ceil(samples / minibatch_size))
    assert rows.shape == (passes * per_pass, minibatch_size)
    assert rows.dtype == np.int32
    filled_up = per_pass * minibatch_size - samples
    for one_pass in rows.reshape(passes, -1):
        assert sorted(one_pass) == [*range(samples), *[samples] * filled_up]
        assert (one_pass[samples:] == samples).all()  # whole minibatches first
    assert padded_rows(samples, minibatch_size) == (filled_up > 0)


def test_every_pass_has_an_order_of_its_own_which_the_generator_fixes():
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    orders = [*minibatch_rows(100, 100, 3, rng), *minibatch_rows(100, 100, 1, rng), np.arange(100)]
    for first, second in pairwise(orders):
        assert (first != second).any()
    assert_array_equal(minibatch_rows(100, 100, 3, again), orders[:3])
