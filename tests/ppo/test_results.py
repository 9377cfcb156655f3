"""The mean of an epoch's updates."""

import math

import pytest

from PPOAgentTrainer import mean_metrics

NAN = math.nan


def test_one_update_is_its_own_mean():
    row = {"loss_actor": 3.0, "kl_coefficient": NAN}
    assert mean_metrics([row]) is row


@pytest.mark.parametrize(
    ("values", "mean"),
    [((1.0, 2.0, 6.0), 3.0), ((1.0, NAN, 6.0), 3.5), ((NAN, NAN, 5.0), 5.0), ((NAN, NAN), NAN)],
)
def test_updates_that_were_undone_are_left_out(values, mean):
    found = mean_metrics([{"loss_actor": value} for value in values])
    assert found == {"loss_actor": pytest.approx(mean, nan_ok=True)}
