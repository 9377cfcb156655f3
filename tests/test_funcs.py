"""The mathematics of `common.funcs` against numbers worked by hand and against slow, obvious references."""

from itertools import pairwise

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from common import funcs
from common.funcs import RunningStatistics, colored_noise
from common.records import Episodes, Timing
from common.results import EpochResult, format_seconds, from_columns, score_text, with_info
from common.rollout.rewards import finished_episodes

fast = settings(max_examples=150, deadline=None, derandomize=True, database=None)

RUNNING, TERMINATED, TRUNCATED, BOTH = range(4)
DISCOUNTS = st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0])


def flags(ends: np.ndarray, first_is_reset: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How each step wants to end [T, N] → terminated, truncated, valid; the step after an end only restarts."""
    terminated, truncated = np.zeros(ends.shape, bool), np.zeros(ends.shape, bool)
    valid = np.ones(ends.shape, bool)
    valid[0] = ~first_is_reset
    for t in range(ends.shape[0]):
        for n in range(ends.shape[1]):
            if t > 0:
                valid[t, n] = not (terminated[t - 1, n] or truncated[t - 1, n])
            if valid[t, n]:
                terminated[t, n] = ends[t, n] in (TERMINATED, BOTH)
                truncated[t, n] = ends[t, n] in (TRUNCATED, BOTH)
    return terminated, truncated, valid


@st.composite
def records(draw):
    """Flags and random numbers of an epoch: terminated, truncated, valid, rewards [T, N], values [T+1, N]."""
    steps, num_envs = draw(st.integers(1, 25)), draw(st.integers(1, 4))
    how = st.sampled_from([RUNNING, RUNNING, RUNNING, TERMINATED, TRUNCATED, BOTH])
    ends = draw(hnp.arrays(np.int64, (steps, num_envs), elements=how))
    first_is_reset = draw(hnp.arrays(bool, num_envs))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Rewards and values of autoreset steps are arbitrary here: nothing may depend on them.
    rewards, values = numbers.normal(size=(steps, num_envs)), numbers.normal(size=(steps + 1, num_envs)) * 3
    return *flags(ends, first_is_reset), rewards, values


def segments(terminated, truncated, valid, n) -> list[list[int]]:
    """The steps of environment n, episode by episode."""
    found, running = [], []
    for t in range(len(valid)):
        if not valid[t, n]:
            continue
        running.append(t)
        if terminated[t, n] or truncated[t, n]:
            found.append(running)
            running = []
    return [*found, running] if running else found


def advantages_by_definition(rewards, values, terminated, truncated, valid, gamma, gae_lambda):
    """Â_t = Σ_k (γλ)^(k−t) δ_k over the rest of t's own episode, one sum a step."""
    advantages = np.zeros(rewards.shape)
    for n in range(rewards.shape[1]):
        for steps in segments(terminated, truncated, valid, n):
            for t in steps:
                for k in steps:
                    if k < t:
                        continue
                    following = 0.0 if terminated[k, n] else values[k + 1, n]
                    delta = rewards[k, n] + gamma * following - values[k, n]
                    advantages[t, n] += (gamma * gae_lambda) ** (k - t) * delta
    return advantages


# -- generalized_advantages --


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers)[:, None]


@pytest.mark.parametrize(
    ("terminated", "truncated", "restarts", "advantages"),
    [
        # γλ = 1/4
        # δ3 = 3 + 10/2 − 6 = 2      Â3 = 2
        # δ2 = 0 +  6/2 − 8 = −5     Â2 = −5 + 2/4       = −4.5
        # δ1 = 5 +  8/2 − 2 = 7      Â1 =  7 − 4.5/4     = 5.875
        # δ0 = 1 +  2/2 − 4 = −2     Â0 = −2 + 5.875/4   = −0.53125
        (False, False, False, [-0.53125, 5.875, -4.5, 2]),
        # Truncated, it bootstraps: δ1 = 5 + 8/2 − 2 = 7 from V = 8 of the true final observation; nothing comes from
        # beyond. Â1 = 7, Â0 = −2 + 7/4 = −0.25; step 2 only restarts: 0; Â3 = 2 as before.
        (False, True, True, [-0.25, 7, 0, 2]),
        # An end cuts even where no restart follows: Â2 = −4.5, and yet Â1 = δ1 = 7, Â0 = −2 + 7/4 = −0.25.
        (False, True, False, [-0.25, 7, -4.5, 2]),
        # Terminated, it does not bootstrap: Â1 = δ1 = 5 + 0 − 2 = 3, Â0 = −2 + 3/4 = −1.25.
        (True, False, False, [-1.25, 3, -4.5, 2]),
        (True, False, True, [-1.25, 3, 0, 2]),
        (True, True, True, [-1.25, 3, 0, 2]),  # whether or not the time was up as well
    ],
)
def test_advantages_worked_by_hand(terminated, truncated, restarts, advantages):
    """r = 1, 5, 0, 3; V = 4, 2, 8, 6, 10; γ = λ = .5. The episode may end at step 1 and restart at step 2."""
    found = funcs.generalized_advantages(
        rewards=column(1, 5, 0, 3),
        values=column(4, 2, 8, 6, 10),
        terminated=column(False, terminated, False, False),
        truncated=column(False, truncated, False, False),
        valid=column(True, True, not restarts, True),
        gamma=0.5,
        gae_lambda=0.5,
    )
    assert found[:, 0].tolist() == advantages


@fast
@given(records(), DISCOUNTS, DISCOUNTS)
def test_advantages_agree_with_their_definition(record, gamma, gae_lambda):
    terminated, truncated, valid, rewards, values = record
    arguments = (rewards, values, terminated, truncated, valid, gamma, gae_lambda)
    found = funcs.generalized_advantages(*arguments)
    np.testing.assert_allclose(found, advantages_by_definition(*arguments), rtol=1e-9, atol=1e-9)
    assert (found[~valid] == 0).all()


def test_rewards_to_go_worked_by_hand():
    # γ = ½: 3; 0 where the environment restarts; 5, cut by the end; 1 + 5/2
    found = funcs.rewards_to_go(
        column(1, 5, 0, 3), column(0, 0, 0, 0) > 0, column(0, 1, 0, 0) > 0, column(1, 1, 0, 1) > 0, 0.5
    )
    assert found[:, 0].tolist() == [3.5, 5, 0, 3]


def test_advantages_are_float64_and_do_not_change_their_arguments():
    arrays = [column(1, 5).astype(np.float32), column(4, 2, 8).astype(np.float32)]
    copies = [array.copy() for array in arrays]
    nowhere, everywhere = np.zeros((2, 1), bool), np.ones((2, 1), bool)
    assert funcs.generalized_advantages(*arrays, nowhere, nowhere, everywhere, 0.9, 0.9).dtype == np.float64
    for array, copy in zip(arrays, copies):
        np.testing.assert_array_equal(array, copy)


# -- episode_steps --


def test_episode_steps_count_on_and_start_anew_after_a_restart():
    valid = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)
    steps = funcs.episode_steps(valid, np.array([0, 7, 9]))
    # column 0: a new episode of 2 steps, a restart, 1 step; column 1: the 8th step of a running episode,
    # a restart, 2 steps; column 2: the epoch before ended an episode of 9 steps, so the restart comes first.
    assert steps.T.tolist() == [[1, 2, 0, 1], [8, 0, 1, 2], [0, 1, 2, 3]]
    assert steps.dtype == np.int64


@fast
@given(records(), st.data())
def test_episode_steps_agree_with_a_counter_and_with_any_split(record, data):
    _, _, valid, _, _ = record
    carry = data.draw(hnp.arrays(np.int64, valid.shape[1], elements=st.integers(0, 50)))
    expected, count = np.zeros(valid.shape, int), carry.copy()
    for t in range(len(valid)):
        for n in range(valid.shape[1]):
            count[n] = count[n] + 1 if valid[t, n] else 0
            expected[t, n] = count[n]
    np.testing.assert_array_equal(funcs.episode_steps(valid, carry), expected)
    cut = data.draw(st.integers(1, len(valid)))
    first = funcs.episode_steps(valid[:cut], carry)
    second = funcs.episode_steps(valid[cut:], first[-1])
    np.testing.assert_array_equal(np.concatenate([first, second]), expected)


# -- finished_episodes --


def test_finished_episodes_worked_by_hand():
    rewards = np.array([[1.0, 10], [2, 20], [0, 30], [4, 40]])
    originals = rewards * 100
    ended = np.array([[0, 0], [1, 0], [0, 1], [0, 0]], bool)
    lengths = np.array([[1, 4], [2, 5], [0, 6], [1, 0]])
    carry = np.array([[0.0, 5], [0, 7]])
    episodes, carried = finished_episodes(rewards, originals, ended, lengths, carry)
    # environment 0: 1 + 2 = 3 in 2 steps; environment 1: 5 + 10 + 20 + 30 = 65 in 6 steps
    assert episodes.returns.tolist() == [3, 65]
    # 100 + 200 = 300; 7 + 1000 + 2000 + 3000 = 6007
    assert episodes.original_returns.tolist() == [300, 6007]
    assert episodes.lengths.tolist() == [2, 6]
    # left running: 0 + 4 = 4 and 40; 400 and 4000
    assert carried.tolist() == [[4, 40], [400, 4000]]
    assert carry.tolist() == [[0, 5], [0, 7]], "the argument was changed"


def episodes_by_counting(rewards, originals, ended, valid) -> Episodes:
    """Episodes one after the other, from counters that start at 0."""
    rows = []
    counters = np.zeros((valid.shape[1], 3))
    for t in range(len(valid)):
        for n in range(valid.shape[1]):
            if valid[t, n]:
                counters[n] += [rewards[t, n], originals[t, n], 1]
            if ended[t, n]:
                rows.append(counters[n].copy())
                counters[n] = 0
    return Episodes(*np.array(rows).reshape(-1, 3).T)


@fast
@given(records(), st.data())
def test_a_record_split_into_epochs_has_the_episodes_of_the_whole(record, data):
    terminated, truncated, valid, rewards, values = record
    valid[0] = True  # a record's first step is not a restart
    rewards = np.where(valid, np.round(rewards * 8), 0)  # whole numbers: sums are exact
    originals = np.where(valid, np.round(values[:-1] * 8), 0)
    ended = terminated | truncated
    cuts = sorted(data.draw(st.sets(st.integers(1, len(valid)), max_size=5)) | {0, len(valid)})
    behind, carry, parts = np.zeros(valid.shape[1], int), np.zeros((2, valid.shape[1])), []
    for start, end in pairwise(cuts):
        epoch = slice(start, end)
        lengths = funcs.episode_steps(valid[epoch], behind)
        part, carry = finished_episodes(rewards[epoch], originals[epoch], ended[epoch], lengths, carry)
        behind = lengths[-1]
        parts.append(part)
    expected = episodes_by_counting(rewards, originals, ended, valid)
    for i, name in enumerate(Episodes._fields):
        found = np.concatenate([part[i] for part in parts])
        np.testing.assert_array_equal(found, expected[i], err_msg=name)


# -- RunningStatistics --


@fast
@given(st.integers(1, 60), st.sampled_from([(), (3,), (2, 2)]), st.data())
def test_running_statistics_of_any_split_are_numpys_of_the_whole(count, shape, data):
    numbers = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    samples = numbers.normal(numbers.normal(scale=100), 3, size=(count, *shape))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=6)))  # equal cuts give empty batches
    statistics = RunningStatistics(shape)
    for part in np.split(samples, cuts):
        statistics.update(part)
    assert statistics.count == count
    np.testing.assert_allclose(statistics.mean, samples.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(statistics.std, samples.std(axis=0), rtol=1e-7, atol=1e-9)


def test_running_statistics_keep_small_deviations_from_a_large_mean():
    statistics = RunningStatistics()
    statistics.update(np.empty(0))
    assert (statistics.std, statistics.count) == (1, 0)  # before anything was seen
    for _ in range(100):
        statistics.update(1e8 + np.array([-1.0, 1.0]))
    assert statistics.std == pytest.approx(1.0, rel=1e-6)


# -- the rest --


def test_explained_variance_worked_by_hand():
    target = np.array([1.0, 2, 3, 4])  # variance (2.25 + .25 + .25 + 2.25) / 4 = 1.25
    assert funcs.explained_variance(target, target) == 1
    assert funcs.explained_variance(np.full(4, 9.0), target) == 0
    # differences 1, 1, −1, −1: variance 1; 1 − 1 / 1.25 = .2
    assert funcs.explained_variance(np.array([0.0, 1, 4, 5]), target) == pytest.approx(0.2)
    # differences 2, 4, 6, 8: variance (9 + 1 + 1 + 9) / 4 = 5; 1 − 5 / 1.25 = −3
    assert funcs.explained_variance(-target, target) == pytest.approx(-3)
    for constant in (0.0, 2.0, 0.1):
        assert np.isnan(funcs.explained_variance(np.arange(1000.0), np.full(1000, constant)))


@pytest.mark.parametrize(
    ("fraction", "value"), [(-1, 8), (0, 8), (0.25, 6.5), (0.5, 5), (1, 2), (3, 2)]
)  # from 8 to 2: 8 − 6 · fraction
def test_linear_schedule_worked_by_hand(fraction, value):
    assert funcs.linear_schedule(8, 2, fraction) == value


@pytest.mark.parametrize("fraction, value", [(-1, 0.9), (0, 0.9), (0.5, 0.99), (1, 0.999), (2, 0.999)])
def test_discount_schedule_multiplies_the_horizon(fraction, value):
    assert funcs.discount_schedule(0.9, 0.999, fraction) == pytest.approx(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00:00"),
        (3725.4, "1:02:05"),  # 3600 + 2 · 60 + 5.4
        (59.6, "0:01:00"),
        (3599.7, "1:00:00"),
        (100 * 3600 + 59, "100:00:59"),
    ],
)
def test_seconds_are_written_as_hours_minutes_seconds(seconds, text):
    assert format_seconds(seconds) == text


# -- KL penalty, standardising --


def test_the_kl_coefficient_follows_a_sequence_worked_by_hand():
    # target .01: doubled above .015, halved below .00667
    coefficient, seen = 1.0, []
    for divergence in (0.016, 0.5, 0.015, 0.01, 0.0067, 0.0066, 0.0, 0.0151):
        coefficient = funcs.adapted_kl_coefficient(coefficient, divergence, 0.01)
        seen.append(coefficient)
    assert seen == [2, 4, 4, 4, 4, 2, 1, 2]


def test_standardizing_counts_only_what_is_valid():
    # of 1, 3, 5 the mean is 3 and the standard deviation √(8/3)
    samples, valid = np.array([1.0, 3.0, 100.0, 5.0]), np.array([True, True, False, True])
    found = funcs.standardize(samples, valid)
    assert found[valid] == pytest.approx(np.array([-2, 0, 2]) / np.sqrt(8 / 3))


# -- coloured noise --


@pytest.mark.parametrize("steps", [1, 2, 5, 64, 101])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_coloured_noise_is_standard_normal_at_every_step(steps, exponent):
    # A linear map of independent normal numbers: its rows' norms are the standard deviations.
    rows = colored_noise(np.eye(steps), exponent)  # [T, T]
    assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-12)
    white = np.random.default_rng(0).standard_normal((steps, 2, 3)).astype(np.float32)
    colored = colored_noise(white, exponent)
    assert (colored.shape, colored.dtype) == (white.shape, white.dtype)
    assert_allclose(colored, np.einsum("ts,sna->tna", rows, white), rtol=1e-4, atol=1e-5)
    if exponent == 0:
        assert_allclose(colored, white, atol=1e-6)


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_coloured_noise_has_the_power_of_its_colour(exponent):
    white = np.random.default_rng(1).standard_normal((256, 4000))
    power = np.square(np.abs(np.fft.rfft(colored_noise(white, exponent), axis=0))).mean(axis=1)  # [F]
    for slow, fast in ((1, 4), (8, 32), (25, 100)):
        assert power[slow] / power[fast] == pytest.approx((fast / slow) ** exponent, rel=0.15)
    assert power[0] == pytest.approx(power[1], rel=0.15)


def test_seconds_of_an_epoch_by_stage_and_its_speed():
    columns = Timing(environment=1.0, policy=2.0, update=5.0, validation=4.0).columns(160)
    assert columns == {
        "seconds": 12.0, "seconds_environment": 1.0, "seconds_policy": 2.0, "seconds_update": 5.0,
        "seconds_validation": 4.0, "validation_steps": 0, "steps_per_second": 20.0,
    }  # fmt: skip


def test_columns_that_an_older_table_lacks_are_empty():
    [row] = from_columns({"seconds": np.array([2.0]), "epoch": np.array([1.0])}, EpochResult)
    assert (row.epoch, row.seconds, row.episodes, row.is_best) == (1, 2.0, 0, False)
    assert np.isnan(row.score) and np.isnan(row.loss_actor)


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (307.12, "307.1"),
        (0.955, "0.955"),
        (-0.04, "-0.0400"),
        (2.5, "2.5"),
        (0.0, "0.0"),
        (9.99, "9.99"),
        (10.04, "10.0"),
    ],
)
def test_small_scores_have_three_digits(score, text):
    assert score_text(score) == text


def test_a_logged_number_of_info_is_a_column_of_the_row():
    columns = {"epoch": np.array([1.0]), "seconds": np.array([2.0]), "info_speed": np.array([0.5])}
    [row] = from_columns(columns, with_info(EpochResult, ("speed",)))
    assert (row.epoch, row.info_speed) == (1, 0.5) and with_info(EpochResult, ()) is EpochResult
