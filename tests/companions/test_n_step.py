"""Returns over several steps, by hand: ends of episodes, epochs, autoreset steps, failures; and what is learned."""

import contextlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from same_state import assert_same_state, resumed_and_whole

from common.errors import UserError
from common.records import Transitions
from companions.config import OffPolicyConfig, SACConfig
from companions.losses import temporal_difference_target
from companions.n_step import NStepReturns
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.replay import ReplayBuffer
from companions.SACAgentTrainer import SACAgentTrainer

GAMMA = 0.5
SMALL = dict(
    env="Pendulum-v1", max_episode_steps=20, num_envs=2, epochs=3, steps_per_epoch=42, hidden_sizes=(8,), n_step=3,
    warmup_steps=40, replay_size=500, batch_size=8, train_every=16, updates_per_train=3, learning_rate=1e-2,
    best_metric="mean_episode_reward", score_window=1, adopt_best=False, gamma=GAMMA,
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("eager_module")


class Steps:
    """Steps of one environment whose observation is their number; `end` is what follows a step."""

    def __init__(self, n: int) -> None:
        self.returns, self.number = NStepReturns(n, GAMMA, 1, (1, 1)), 0

    def __call__(self, *ends: str, begins: bool = False) -> list[tuple[int, float, float, int]]:
        """Take steps with the rewards 1, 2, 4 … of their numbers' powers of two.

        Args:
            ends: "" goes on, "terminated", "truncated"; "autoreset" is no valid step.
            begins: the first of them begins an episode.

        Returns:
            Number of the first step, return, 1 − γ^(m − 1)·(1 − terminated) and number of the observation after it.
        """
        count = len(ends)
        numbers = self.number + np.arange(count, dtype=np.float32)[:, None, None]  # [K, 1, 1]
        self.number += count
        is_ = {kind: np.array([[end == kind] for end in ends]) for kind in ("terminated", "truncated", "autoreset")}
        rows = Transitions(numbers, -numbers, 2.0 ** numbers[..., 0], is_["terminated"], numbers + 1)
        first = np.zeros((count, 1), bool)
        first[0] = begins
        out = self.returns(rows, ~is_["autoreset"], is_["terminated"] | is_["truncated"], first)
        assert_array_equal(out.actions, -out.observations)
        columns = out.observations[:, 0], out.rewards, out.terminated, out.next_observations[:, 0]
        return [tuple(float(value) for value in row) for row in zip(*columns)]


def test_three_steps_worked_by_hand():
    """1 + ½·2 + ¼·4 = 3; 2 + ½·4 + ¼·8 = 6. They bootstrap with γ³ = γ·(1 − ¾)."""
    steps = Steps(3)
    assert steps("", "") == []
    assert steps("", "") == [(0, 3, 0.75, 3), (1, 6, 0.75, 4)]


@pytest.mark.parametrize(
    ("n", "ends", "transitions"),
    [
        # Steps 1 and 2 have fewer followers: 2 + ½·4 = 4, and 4. Nothing follows them.
        (3, ("", "", "terminated"), [(0, 3, 1, 3), (1, 4, 1, 3), (2, 4, 1, 3)]),
        # A timeout bootstraps over the steps there were: γ³, γ² and γ.
        (3, ("", "", "truncated"), [(0, 3, 0.75, 3), (1, 4, 0.5, 3), (2, 4, 0, 3)]),
        # Episodes that are shorter than n.
        (5, ("", "truncated"), [(0, 2, 0.5, 2), (1, 2, 0, 2)]),
        (5, ("terminated",), [(0, 1, 1, 1)]),
    ],
)
def test_an_end_ends_all_that_wait_worked_by_hand(n, ends, transitions):
    found = Steps(n)(*ends)
    assert found == transitions
    # r₀ + γ·r₁ + … + γᵐ·Q' with Q' = 8, or without it after a termination; m = 3, 2 or 1.
    _, reward, terminated, following = found[0]
    target = temporal_difference_target(np.float32([reward]), np.float32([terminated]), np.float32([8]), GAMMA)
    assert_allclose(target, [reward + 8 * GAMMA**following * (ends[-1] != "terminated")])


def test_nothing_is_joined_across_an_autoreset_step():
    steps = Steps(2)
    assert steps("", "truncated", "autoreset", "") == [(0, 2, 0.5, 2), (1, 2, 0, 2)]
    assert steps("") == [(3, 8 + 8, 0.5, 5)]


def test_an_episode_that_was_cut_off_is_bootstrapped_where_it_was_cut():
    """Its environment failed or was built again: the next valid step begins an episode though none ended."""
    steps = Steps(3)
    assert steps("", "", "autoreset") == []
    assert steps("", begins=True) == [(0, 2, 0.5, 2), (1, 2, 0, 2)]
    assert steps("", "") == [(3, 8 + 8 + 8, 0.75, 6)]


def test_environments_do_not_mix():
    returns = NStepReturns(2, GAMMA, 2, (1, 1))
    numbers = np.array([[[0.0], [100.0]], [[1.0], [101.0]]], np.float32)  # [K, N, 1]
    no = np.zeros((2, 2), bool)
    out = returns(Transitions(numbers, numbers, numbers[..., 0], no, numbers + 1), ~no, no, no)
    assert out.observations.ravel().tolist() == [0, 100]
    assert out.rewards.tolist() == [0.5, 150.5]
    assert out.next_observations.ravel().tolist() == [2, 102]


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(
    st.integers(1, 5), st.lists(st.sampled_from(["", "terminated", "truncated"]), max_size=15), st.lists(st.integers())
)
def test_however_the_steps_are_cut_into_calls_the_transitions_are_the_same(n, ends, cuts):
    whole, parts = Steps(n), Steps(n)
    expected, found = (whole(*ends) if ends else []), []
    bounds = sorted({0, len(ends), *(cut % (len(ends) + 1) for cut in cuts)})
    for low, high in itertools.pairwise(bounds):
        found += parts(*ends[low:high])
        restored = NStepReturns(n, GAMMA, 1, (1, 1))
        restored.load_state(parts.returns.state())
        parts.returns = restored
    assert found == expected


def test_a_state_of_other_steps_is_refused():
    steps = Steps(3)
    steps("", "")
    state = steps.returns.state()
    assert state["counts"].tolist() == [2] and state["observations"].shape == (2, 1)
    with pytest.raises(ValueError, match="cannot wait"):
        NStepReturns(2, GAMMA, 1, (1, 1)).load_state(state)
    with pytest.raises(ValueError, match="cannot wait"):
        NStepReturns(3, GAMMA, 1, (1, 1)).load_state(state | {"counts": np.array([1])})


# -- the loop --


def remembered(trainer: OffPolicyAgentTrainer) -> Transitions:
    replay: ReplayBuffer = trainer.replay
    return replay.unpack(replay.state()["rows"])


def test_what_is_remembered_is_what_the_trajectory_says():
    """Pendulum truncates after 20 steps; the step after an end is not remembered; an epoch ends within an episode."""
    config = OffPolicyConfig(**SMALL).replace(num_envs=1, steps_per_epoch=30, warmup_steps=80, epochs=3)
    trainer = OffPolicyAgentTrainer(config)
    rewards, observations = [], []
    for _ in range(2):
        trainer.train(1)
        trajectory = trainer.collector.trajectory
        rewards += trajectory.rewards[trajectory.valid].tolist()
        observations += trajectory.observations[:-1][trajectory.valid].tolist()
    memory, lengths = remembered(trainer), [20, 20, 18]
    trainer.close()
    starts = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    ends = starts + np.repeat(lengths, lengths)
    steps = [min(3, end - i) for i, end in enumerate(ends)]
    waiting = 2  # of the last episode, which goes on
    expected = [sum(GAMMA**j * rewards[i + j] for j in range(m)) for i, m in enumerate(steps)]
    assert len(memory.rewards) == len(rewards) - waiting
    assert_allclose(memory.rewards, expected[:-waiting], rtol=1e-5)
    assert_allclose(memory.terminated, [1 - GAMMA ** (m - 1) for m in steps[:-waiting]])
    assert_array_equal(memory.observations, np.float32(observations)[:-waiting])
    for i in range(10):
        assert_array_equal(memory.next_observations[i], np.float32(observations[i + 3]))
    assert_array_equal(memory.next_observations[17], memory.next_observations[19])


def test_nothing_is_joined_across_an_environment_that_failed():
    """`Raising` shows the number of the step, and fails in step 20: windows of m steps go on by m."""
    config = OffPolicyConfig(**SMALL).replace(
        env="tests/Raising-v0", max_episode_steps=None, environment_restarts=1000, epochs=3, steps_per_epoch=84
    )
    trainer = OffPolicyAgentTrainer(config)
    trainer.warn = lambda line: None
    trainer.train(2)
    memory, waiting = remembered(trainer), trainer.state()["n_step/counts"].sum()
    trainer.close()
    first, last = memory.observations[:, 0], memory.next_observations[:, 0]
    steps = 1 - np.log2(1 - memory.terminated)  # m, from 1 − ½^(m − 1); none terminated
    assert_array_equal(last - first, steps)
    assert_array_equal(np.bincount(steps.astype(int))[1:3] > 4, [True, True])  # several failures, each with 1 and 2
    assert len(first) == trainer.steps - waiting


def test_a_resumed_run_is_the_run_that_was_not_stopped():
    """The first epoch ends within episodes of both environments."""
    config = SACConfig(**SMALL).replace(steps_per_epoch=60)
    with contextlib.closing(SACAgentTrainer(config.replace(n_step=1))) as trainer:
        assert not any(name.startswith("n_step") for name in trainer.state())
    resumed, whole, state = resumed_and_whole(lambda: SACAgentTrainer(config), 1, 3)
    assert state["n_step/counts"].tolist() == [2, 2]
    assert_same_state(resumed.state(), whole.state())


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"n_step": 0}, "n_step is 0: expected 1 or more"),
        ({"n_step": 21}, "warmup_steps 40 is over before one of 2 environments took n_step 21 steps: use "
         "--warmup-steps 42 or more"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_one_line(changes, line):
    with pytest.raises(UserError) as error:
        SACConfig(**SMALL | changes)
    assert str(error.value) == line
    assert SACConfig(**SMALL | {"n_step": 20}).n_step == 20
    assert SACConfig(**SMALL | {"n_step": 1, "warmup_steps": 1}).n_step == 1
