"""What actions cost by their size, from a score on, in what is learned but not in scores."""

import dataclasses

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from test_shards import experience, policy

from common.env_wrappers import reward_design
from common.errors import UserError
from common.records import Timing
from companions.config import OffPolicyConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

ONE = {"env": "tests/Falls-v0", "num_envs": 1, "steps_per_epoch": 24, "score_window": 8}
COST = {"action_cost": ("0.25",)}
LATER = {"action_cost": ("0.25@20",)}


def subtracted(one, first, last):
    """What was subtracted from the rewards of each trajectory, [T, 1], and the sizes of its actions."""
    found = []
    for epoch in range(first, last):
        one.scores.begin_epoch()
        one.collect(policy(2, 1, epoch, scale=0.4), epoch, Timing())
        trajectory = one.trajectory
        sizes = np.abs(np.clip(trajectory.actions, -1, 1)).sum(axis=-1) * trajectory.valid  # [T, 1]
        found.append((np.where(trajectory.valid, trajectory.rewards, 0) - one.shaped_rewards, sizes))
    return found


def test_each_action_costs_its_clipped_size():
    costs, sizes = (np.concatenate(column) for column in zip(*subtracted(experience(**ONE, **COST), 0, 6)))
    assert (sizes == 1.0).any() and ((sizes > 0) & (sizes < 1.0)).any()  # some actions are clipped
    np.testing.assert_allclose(costs, 0.25 * sizes, rtol=1e-5)


def test_every_number_of_an_action_counts_and_designs_are_kept():
    settings = {"env": "tests/Target-v0", "num_envs": 2, "steps_per_epoch": 24, "reward_design": "steps_at_end"}
    one = experience(**settings, **COST)
    one.collect(policy(2, 2, 0, scale=0.4), 0, Timing())
    trajectory = one.trajectory
    plain = reward_design("steps_at_end", 1.0, None)(
        trajectory.rewards, trajectory.terminated, trajectory.truncated, trajectory.episode_steps
    )
    sizes = np.abs(np.clip(trajectory.actions, -1, 1)).sum(axis=-1)  # [T, N]
    assert trajectory.actions.shape[-1] == 2
    np.testing.assert_allclose(one.shaped_rewards, np.where(trajectory.valid, plain - 0.25 * sizes, 0), rtol=1e-12)


def test_the_cost_begins_with_a_score_that_is_reached_exactly_and_stays():
    holds = [bool(cost.any()) for cost, _ in subtracted(experience(**ONE, **LATER), 0, 5)]
    assert holds == [False, False, True, True, True]  # scores −100, 20, 200, −100, −100


def test_a_resumed_run_goes_on_with_the_cost_it_had():
    one = experience(**ONE, **LATER)
    subtracted(one, 0, 4)
    resumed = experience(**ONE, **LATER)
    resumed.load_state(one.state())
    np.testing.assert_array_equal(resumed.shaped_rewards, one.shaped_rewards)
    (there, _), (here, _) = *subtracted(resumed, 4, 5), *subtracted(one, 4, 5)
    assert here.any()
    np.testing.assert_array_equal(there, here)


def test_scores_do_not_contain_it():
    plain, costly = experience(**ONE), experience(**ONE, **COST)
    for one in (plain, costly):
        subtracted(one, 0, 2)
    assert plain.scores.moving_mean == costly.scores.moving_mean == 20.0
    assert costly.shaped_rewards.sum() < plain.shaped_rewards.sum()


def test_a_replay_buffer_holds_rewards_less_the_cost():
    config = OffPolicyConfig(
        env="tests/Target-v0", num_envs=2, steps_per_epoch=24, epochs=2, warmup_steps=47, backend="gymnasium"
    )
    kept = []
    for cost in ("0", "0.25"):
        trainer = OffPolicyAgentTrainer(dataclasses.replace(config, action_cost=(cost,)))
        trainer.warn = lambda line: None
        trainer.train()
        kept.append(trainer.replay.unpack(trainer.replay.state()["rows"]))
        trainer.close()
    plain, costly = kept
    sizes = np.abs(plain.actions[:40]).sum(axis=-1)  # chosen at random, before the first update
    np.testing.assert_array_equal(plain.actions[:40], costly.actions[:40])
    np.testing.assert_allclose((plain.rewards - costly.rewards)[:40], 0.25 * sizes, rtol=1e-5, atol=1e-6)
    assert sizes.any()


def test_choices_have_no_size_and_no_environment_is_left_open():
    opened, closed = [], []

    class Pole(CartPoleEnv):
        def __init__(self):
            super().__init__()
            opened.append(self)

        def close(self):
            closed.append(self)

    config = PPOConfig(action_cost=("0.1",), num_envs=2, steps_per_epoch=64, minibatch_size=64)
    with pytest.raises(UserError, match=r"the actions of Pole\(\) are choices: give --action-cost 0"):
        PPOAgentTrainer(config, make_env=Pole)
    assert opened and set(opened) == set(closed)
