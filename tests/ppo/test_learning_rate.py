"""The learning rates' factor, by hand."""

import math

import numpy as np
import pytest

from ppo.live_settings import RateByDivergence


@pytest.mark.parametrize(
    ("divergence", "factor"),
    [
        (0.0131, 1 / 1.15),
        (0.0129, 1.0),
        (0.0078, 1.0),
        (0.0076, 1.15),
        (math.nan, 1.0),
        (math.inf, 1 / 1.15),
    ],
)
def test_the_factor_changes_outside_of_the_tolerance_alone(divergence, factor):
    rate = RateByDivergence(0.01)
    rate.follow(divergence)
    assert rate.factor == pytest.approx(factor)


def test_the_factor_is_bounded_and_restored():
    for divergence, bound in ((1.0, 1 / 20), (0.0, 20)):
        rate, other = RateByDivergence(0.01), RateByDivergence(0.01)
        for _ in range(50):
            rate.follow(divergence)
        other.load_state(rate.state())
        assert other.factor == rate.factor == bound


def test_without_a_desired_divergence_there_is_nothing_to_change_or_to_store():
    rate = RateByDivergence(None)
    rate.follow(1.0)
    assert (rate.factor, rate.state()) == (1.0, {})
    rate.load_state({})
    assert rate.factor == 1.0


@pytest.mark.parametrize("factor", [0.0499, 20.01, math.nan])
def test_a_damaged_factor_is_refused(factor):
    with pytest.raises(ValueError, match="the learning rate's factor is"):
        RateByDivergence(0.01).load_state({"factor": np.array(factor)})
