"""A fall costs more once the score is good enough, and a resumed run knows how far that has gone."""

import math

import numpy as np
import pytest
from test_shards import experience, policy

from common.errors import UserError
from common.records import Timing
from ppo.config import PPOConfig

COSTS = {"reward_design": "ends_told_apart", "fall_costs": (1.0, 20.0, 100.0), "fall_cost_scores": (20.0, 150.0)}
SHAPED = {"reward_design": "ends_told_apart"}
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
    assert costs(experience(**ONE, reward_design="fall_penalty", fall_costs=(7.0,)), 0, 4) == [7.0] * 4


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
    with pytest.raises(ValueError, match=f"fall cost {passed + 1} of 3"):
        one.load_state(one.state() | {"fall/costs_passed": np.array(passed)})


def test_what_is_shaped_by_one_cost_has_no_state_of_its_own():
    assert not any(name.startswith("fall/") for name in experience(**ONE).state())


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (SHAPED | {"fall_costs": (1.0, 2.0)}, "expected one cost more than scores"),
        (SHAPED | {"fall_costs": (1.0, 2.0)}, "give --fall-cost-scores too, with one number"),
        (SHAPED | {"fall_costs": (1.0, 2.0, 3.0)}, "give --fall-cost-scores too, with 2 numbers"),
        (SHAPED | {"fall_cost_scores": (1.0,)}, "give --fall-cost-scores too, with no number"),
        ({"fall_cost_scores": (1.0,)}, "fall_cost_scores .* has no effect with reward_design unchanged"),
        (
            SHAPED | {"fall_costs": (1.0, 2.0, 3.0), "fall_cost_scores": (5.0, 5.0)},
            "expected each above the one before",
        ),
        ({"fall_costs": (2.0,)}, "fall_costs .* has no effect with reward_design unchanged: add --reward-design"),
        ({"fall_costs": (-1.0,)}, r"fall_costs is \(-1\.0,\): expected 0 or more for each number"),
        (
            {"fall_costs": (1.0, 2.0), "fall_cost_scores": (math.nan,)},
            r"fall_cost_scores is \(nan,\): expected -1000000 to 1000000",
        ),
    ],
)
def test_wrong_costs_are_refused(settings, line):
    with pytest.raises(UserError, match=line) as error:
        PPOConfig(**settings)
    assert "\n" not in str(error.value)
