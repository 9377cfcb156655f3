"""Comparison of trainers' states, which hold times that differ from run to run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from common.results import TIMING_COLUMNS


def assert_same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """The same names and, but for times, the same numbers."""
    assert one.keys() == other.keys()
    for name in one:
        if name.removeprefix("results/") not in TIMING_COLUMNS:
            assert np.array_equal(one[name], other[name], equal_nan=True), name


def resumed_and_whole(make: Callable[[], Any], first: int, last: int) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """A trainer resumed after `first` epochs and one that was not, both at epoch `last`; and the state between."""
    whole, resumed, states = make(), make(), []
    whole.train(last, lambda _: states.append({name: np.array(array) for name, array in whole.state().items()}))
    resumed.load_state(states[first - 1])
    resumed.train(last - first)
    for trainer in (whole, resumed):
        trainer.close()
    return resumed, whole, states[first - 1]
