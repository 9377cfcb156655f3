"""What falls and the sizes of actions cost, from a score on, in what is learned but not in scores."""

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

COSTS = {"reward_design": "outcome_bonus", "fall_cost": ("1", "20@20", "100@150")}
SHAPED = {"reward_design": "outcome_bonus"}
ONE = {"env": "tests/Falls-v0", "num_envs": 1, "steps_per_epoch": 24, "score_window": 8}


def costs(one, first, last):
    """What each fall costs in each trajectory; all of one trajectory cost the same."""
    found = []
    for epoch in range(first, last):
        one.scores.begin_epoch()
        one.collect(policy(2, 1, epoch), epoch, Timing())
        ends = one.trajectory.terminated & one.trajectory.valid
        (cost,) = set(-one.shaped_rewards[ends])
        assert ends.sum() == 8
        found.append(float(cost))
    return found


def test_the_cost_rises_after_a_score_that_is_reached_exactly_and_stays():
    one = experience(**ONE, **COSTS)
    assert costs(one, 0, 5) == [1.0, 1.0, 20.0, 100.0, 100.0]  # scores −100, 20, 200, −100, −100


def test_one_cost_holds_all_the_time():
    assert costs(experience(**ONE, reward_design="fall_penalty", fall_cost=("7",)), 0, 4) == [7.0] * 4


def test_no_score_reaches_nothing():
    one = experience(**ONE | {"score_window": 25}, **COSTS)  # 25 episodes are there after the fourth trajectory
    assert costs(one, 0, 5) == [1.0, 1.0, 1.0, 1.0, 20.0]


def test_a_resumed_run_goes_on_with_the_cost_it_had():
    one = experience(**ONE, **COSTS)
    costs(one, 0, 4)
    resumed = experience(**ONE, **COSTS)
    resumed.load_state(one.state())
    np.testing.assert_array_equal(resumed.shaped_rewards, one.shaped_rewards)
    assert costs(resumed, 4, 6) == costs(one, 4, 6) == [100.0, 100.0]


@pytest.mark.parametrize("passed", [-1, 3])
def test_a_damaged_cost_is_refused(passed):
    one = experience(**ONE, **COSTS)
    costs(one, 0, 1)
    with pytest.raises(ValueError, match=f"fall_cost {passed + 1} of 3"):
        one.load_state(one.state() | {"fall/fall_cost": np.array(passed)})


def test_what_is_shaped_by_one_cost_has_no_state_of_its_own():
    assert not any(name.startswith("fall/") for name in experience(**ONE).state())


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (SHAPED | {"fall_cost": ()}, "fall_cost : expected costs with rising scores, like 1 10@0 40@150"),
        (SHAPED | {"fall_cost": ("1", "2")}, "fall_cost 1 2: expected costs with rising scores"),
        (SHAPED | {"fall_cost": ("1", "2@5", "3@5")}, "fall_cost 1 2@5 3@5: expected costs with rising scores"),
        (SHAPED | {"fall_cost": ("-1",)}, "fall_cost is '-1': expected a cost of 0 or more, or COST@SCORE, like 10@0"),
        (SHAPED | {"fall_cost": ("1@nan",)}, "fall_cost is '1@nan': expected a cost"),
        (SHAPED | {"fall_cost": ("1@",)}, "fall_cost is '1@': expected a cost"),
        ({"action_cost": ("much",)}, "action_cost is 'much': expected a cost"),
        ({"fall_cost": ("2",)}, "fall_cost .* has no effect with reward_design unchanged: add --reward-design"),
    ],
)
def test_wrong_costs_are_refused(settings, line):
    with pytest.raises(UserError, match=line) as error:
        PPOConfig(**settings)
    assert "\n" not in str(error.value)


# -- actions --

ACTION_COST, LATER_ACTION_COST = {"action_cost": ("0.25",)}, {"action_cost": ("0.25@20",)}


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
    costs, sizes = (np.concatenate(column) for column in zip(*subtracted(experience(**ONE, **ACTION_COST), 0, 6)))
    assert (sizes == 1.0).any() and ((sizes > 0) & (sizes < 1.0)).any()  # some actions are clipped
    np.testing.assert_allclose(costs, 0.25 * sizes, rtol=1e-5)


def test_every_number_of_an_action_counts_and_designs_are_kept():
    settings = {"env": "tests/Target-v0", "num_envs": 2, "steps_per_epoch": 24, "reward_design": "steps_at_end"}
    one = experience(**settings, **ACTION_COST)
    one.collect(policy(2, 2, 0, scale=0.4), 0, Timing())
    trajectory = one.trajectory
    plain = reward_design("steps_at_end", 1.0, None)(
        trajectory.rewards, trajectory.terminated, trajectory.truncated, trajectory.episode_steps
    )
    sizes = np.abs(np.clip(trajectory.actions, -1, 1)).sum(axis=-1)  # [T, N]
    assert trajectory.actions.shape[-1] == 2
    np.testing.assert_allclose(one.shaped_rewards, np.where(trajectory.valid, plain - 0.25 * sizes, 0), rtol=1e-12)


def test_the_cost_begins_with_a_score_that_is_reached_exactly_and_stays():
    holds = [bool(cost.any()) for cost, _ in subtracted(experience(**ONE, **LATER_ACTION_COST), 0, 5)]
    assert holds == [False, False, True, True, True]  # scores −100, 20, 200, −100, −100


def test_scores_do_not_contain_it():
    plain, costly = experience(**ONE), experience(**ONE, **ACTION_COST)
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
