"""The replay buffer against a list that forgets its oldest entries."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.records import Transitions
from companions.replay import ReplayBuffer

S, A = 3, 2


def transitions(first: int, count: int) -> Transitions:
    """Transitions whose every number tells which one it is and which column."""
    number = np.arange(first, first + count, dtype=np.float32)[:, None]
    column = 10_000 * np.arange(2 * S + A + 2, dtype=np.float32)
    table = number + column  # [K, W]
    return Transitions(table[:, :S], table[:, S : S + A], table[:, S + A], table[:, S + A + 1], table[:, S + A + 2 :])


def held(buffer: ReplayBuffer) -> set[int]:
    return {int(row[0]) for row in buffer.state()["rows"]}


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(capacity=st.integers(1, 9), counts=st.lists(st.integers(0, 20), max_size=12))
def test_it_holds_the_newest(capacity, counts):
    buffer, expected, first = ReplayBuffer(capacity, S, A), deque(maxlen=capacity), 0
    for count in counts:
        buffer.add(transitions(first, count))
        expected.extend(range(first, first + count))
        first += count
        assert held(buffer) == set(expected)
        assert buffer.size == len(expected)


def test_a_sample_is_whole_transitions_of_those_it_holds():
    buffer = ReplayBuffer(7, S, A)
    buffer.add(transitions(0, 5)), buffer.add(transitions(5, 5))
    rows = buffer.sample(50, 4, np.random.default_rng(0))
    assert rows.shape == (50, 4, 2 * S + A + 2) and rows.dtype == np.float32
    numbers = rows[..., 0].astype(int)
    assert set(numbers.ravel()) == set(range(3, 10))
    sampled, expected = buffer.unpack(rows), transitions(0, 10)
    for mine, theirs in zip(sampled, expected):
        np.testing.assert_array_equal(mine, theirs[numbers])


def test_every_transition_is_as_likely_as_any_other():
    buffer = ReplayBuffer(10, S, A)
    buffer.add(transitions(0, 8))
    counts = np.bincount(buffer.sample(1000, 80, np.random.default_rng(1))[..., 0].astype(int).ravel())
    assert len(counts) == 8
    assert np.abs(counts - 10_000).max() < 500  # five standard deviations


@pytest.mark.parametrize("added", [3, 7, 12])
def test_it_goes_on_where_it_was(added):
    one, other = ReplayBuffer(7, S, A), ReplayBuffer(7, S, A)
    one.add(transitions(0, added))
    other.load_state({name: np.array(array) for name, array in one.state().items()})
    for buffer in (one, other):
        buffer.add(transitions(100, 3))
    draws = [buffer.sample(5, 5, np.random.default_rng(2)) for buffer in (one, other)]
    np.testing.assert_array_equal(*draws)
