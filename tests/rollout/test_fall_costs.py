"""A fall costs more once the score is good enough, and a resumed run knows how far that has gone."""

import numpy as np
import pytest
from test_shards import experience, policy

from common.errors import UserError
from common.records import Timing
from ppo.config import PPOConfig

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
