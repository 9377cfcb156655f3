"""Collecting by shards, as workers do it: the numbers are those of one process, and any shard can be done again."""

import time
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from collecting import Forgetful, Reliable

from common.config import TrainingConfig
from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.errors import NotFiniteError, UserError
from common.nets.network import UNCHANGED, Dense, Network
from common.records import Timing
from common.rollout import collector as collectors
from common.rollout.collector import CollectingPlan, Collector
from common.rollout.policies import DeterministicPolicy, NormalPolicy, WarmUp
from common.rollout.workers import envs as worker_envs
from common.rollout.workers.shard import resolve_shards, shards_for_workers
from common.state import State

SIZES = {"BipedalWalker-v3": (24, 4), "Pendulum-v1": (3, 1), "LunarLanderContinuous-v3": (8, 2)}
LEARNING, TWO_ROWS = (
    CollectingPlan(rows_per_yield=7),
    CollectingPlan(rows_per_yield=2),
)  # learned from at once


def policy(observation_size: int, action_size: int, seed: int = 0, scale: float = 0.25) -> NormalPolicy:
    rng = np.random.default_rng(seed)

    def dense(*shape: int, activation: str) -> Dense:
        return Dense(*(rng.standard_normal(s).astype(np.float32) * scale for s in (shape, shape[1:])), activation)

    heads = dense(32, action_size, activation="linear"), dense(32, action_size, activation="softplus")
    return NormalPolicy(Network(UNCHANGED, (dense(observation_size, 32, activation="tanh"),), heads))


def one_layer(observation_size: int, weight: float = 1.0) -> Network:
    head = Dense(np.full((observation_size, 1), weight, np.float32), np.zeros(1, np.float32), "tanh")
    return Network(UNCHANGED, (), (head,))


def experience(make_team=None, env="Pendulum-v1", warn=print, how=CollectingPlan(), **settings) -> Collector:  # noqa: B008
    environment = find_environment(env, settings.get("max_episode_steps"))
    config = TrainingConfig(**{"env": env, "num_envs": 4, "steps_per_epoch": 240, "backend": "gymnasium"} | settings)
    return Collector(config, environment, action_map(environment.action_space), 7, warn, how, None, make_team)


def epochs(one: Collector, first: int, last: int, seen=(3, 1)) -> list[State]:
    """The state after each epoch; the policy is another one in each."""
    states = []
    for epoch in range(first, last):
        one.scores.begin_epoch()
        one.collect(policy(*seen, epoch), epoch, Timing())
        states.append(one.state())
    return states


def assert_equal(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name, strict=True)


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("BipedalWalker-v3", {"backend": "gymnasium", "shards": 4, "max_episode_steps": 50}),
        ("BipedalWalker-v3", {"backend": "envpool", "shards": 3, "max_episode_steps": 50}),
        ("Pendulum-v1", {"backend": "gymnasium", "shards": None, "max_episode_steps": 25}),
        ("LunarLanderContinuous-v3", {"backend": "envpool", "shards": 2}),
        ("Pendulum-v1", {"backend": "processes", "shards": 2, "max_episode_steps": 25}),
    ],
)
@pytest.mark.parametrize("make_team", [Reliable, Forgetful])
def test_shards_that_are_restored_anywhere_collect_what_one_process_collects(env, settings, make_team, monkeypatch):
    """`Forgetful` restores every shard before every collection; the states are those of checkpoints."""
    monkeypatch.setattr(collectors, "default_restart_interval", lambda *_: 1)
    if settings["backend"] == "processes" and make_team is Reliable:
        settings = settings | {"num_envs": 2}
    whole = experience(None, env, **settings)
    expected = epochs(whole, 0, 4, SIZES[env])
    shards = experience(make_team, env, **settings)
    for state, same in zip(epochs(shards, 0, 2, SIZES[env]), expected):
        assert_equal(state, same)
    resumed = experience(make_team, env, **settings)
    resumed.load_state(expected[1])
    for state, same in zip(epochs(resumed, 2, 4, SIZES[env]), expected[2:]):
        assert_equal(state, same)
    for one in (whole, shards, resumed):
        one.close()


@pytest.mark.parametrize("how", [CollectingPlan(), LEARNING])
def test_seconds_of_workers_are_divided_between_environments_and_policy(how):
    one, timing = experience(how=how, shards=2, steps_per_epoch=2400), Timing()
    began = time.perf_counter()
    one.collect(policy(3, 1), 0, timing)
    whole = time.perf_counter() - began
    assert 0.1 * whole < timing.policy < timing.environment + timing.policy < whole


def test_the_division_decides_the_numbers():
    one, other = (epochs(experience(None, shards=shards), 0, 1)[0] for shards in (1, 2))
    assert not np.array_equal(one["trajectory/observations"], other["trajectory/observations"])
    with pytest.raises(UserError, match="shards is 5, but there are only 4 environments to divide: use --shards 4"):
        experience(shards=5)


@pytest.mark.parametrize("make_team", [Reliable, Forgetful])
def test_episodes_that_are_cut_at_each_epoch_are_the_same(make_team):
    how = CollectingPlan(restart_each_epoch=True)
    one, other = (experience(runner, how=how, shards=2) for runner in (None, make_team))
    for state, same in zip(epochs(one, 0, 3), epochs(other, 0, 3)):
        assert_equal(state, same)
        assert (state["collector/episode_steps"] == 60).all()  # of 200 that an episode has


@pytest.mark.parametrize("make_team", [Reliable, Forgetful])
@pytest.mark.parametrize(("how", "restarts"), [(CollectingPlan(), 3), (CollectingPlan(), 30), (TWO_ROWS, 30)])
def test_failing_environments_are_counted_as_in_one_process(make_team, how, restarts):
    """Those of tests/Unsound-v0 raise or return NaN, by the seed of the episode."""

    def lines(runner) -> tuple[list[str], State | str]:
        said: list[str] = []
        one = experience(
            runner, "tests/Unsound-v0", said.append, how, shards=3, environment_restarts=restarts,
            on_not_finite="skip", steps_per_epoch=24,
        )  # fmt: skip
        try:
            return said, epochs(one, 0, 2, (2, 1))[-1]
        except UserError as error:
            return said, str(error)

    (said, end), (same_lines, same_end) = lines(None), lines(make_team)
    assert said == same_lines and said
    assert end == same_end if isinstance(end, str) else assert_equal(end, same_end) is None


class Brittle(gymnasium.Env):
    """One breaks in its third step, and from then on nothing can be built; all others break in their second."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    seeds: ClassVar[list[int]] = []  # of all resets
    last, is_over = -1, False  # the seed of the first one's episode; whether nothing can be built any more

    def __init__(self):
        if Brittle.is_over:
            raise OSError("nothing is built any more")

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.seed = 0, seed
        Brittle.seeds.append(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        is_last = self.seed == Brittle.last
        Brittle.is_over |= is_last and self.steps == 3
        if Brittle.last != -1 and self.steps == (3 if is_last else 2):
            raise ValueError("it broke")
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("make_team", [None, Reliable])
def test_what_happened_before_an_error_is_said_before_it(make_team, monkeypatch):
    """The first shard ends the run in its third step, and the second one has a failure in its second."""
    said: list[str] = []
    for name in ("last", "is_over"):
        monkeypatch.setattr(Brittle, name, getattr(Brittle, name))
    environment = find_environment("", 20, maker=Brittle)
    config = TrainingConfig(num_envs=2, steps_per_epoch=40, backend="gymnasium", shards=2, environment_restarts=2)
    mapped = action_map(environment.action_space)
    one = Collector(config, environment, mapped, 7, said.append, make_team=make_team)
    Brittle.last = Brittle.seeds[-2]
    with pytest.raises(UserError, match="nothing is built any more"):
        one.collect(policy(1, 1), 0, Timing())
    assert [line.split(" of the epoch")[0] for line in said[:2]] == [
        "warning: environment 1 failed at step 1", "warning: environment 0 failed at step 2"
    ]  # fmt: skip


@pytest.mark.parametrize("make_team", [None, Reliable, Forgetful])
def test_a_policy_that_diverged_is_named(make_team):
    one, broken = experience(make_team, shards=2), policy(3, 1, scale=np.nan)
    with pytest.raises(NotFiniteError, match="the policy returned NaN or infinity at step 0 of the epoch"):
        one.collect(broken, 0, Timing())


def test_workers_get_up_to_sixteen_shards_and_auto_that_stands_for_gymnasium_four():
    config, environment = TrainingConfig(num_envs=32, steps_per_epoch=3200), find_environment("Pendulum-v1")
    assert shards_for_workers(config) == 16 and resolve_shards(config, "gymnasium", environment) == 4
    assert shards_for_workers(config.replace(num_envs=4)) == 4
    few = config.replace(num_envs=2)
    assert resolve_shards(few, "gymnasium", environment) == 2
    assert shards_for_workers(config.replace(shards=3)) == resolve_shards(
        config.replace(shards=3), "gymnasium", environment
    )
    assert resolve_shards(config.replace(backend="gymnasium"), "gymnasium", environment) is None
    assert resolve_shards(config, "envpool", environment) is None
    assert resolve_shards(config, "gymnasium", find_environment("tests/Dot-v0")) is None


# -- rows that are learned from before the epoch is over --


def learning(one: Collector, at_random: int = 0, size: int = 7) -> list[State]:
    """States after some epochs whose policy changes whenever rows come; until a number of times it acts at random."""
    rng, states, came = np.random.default_rng(5), [], []

    def actor() -> Network:
        arrays = [rng.standard_normal(shape).astype(np.float32) / 2 for shape in ((3, 8), (8,), (8, 1), (1,))]
        return Network(UNCHANGED, (Dense(*arrays[:2], "tanh"),), (Dense(*arrays[2:], "tanh"),))

    for epoch in range(3):
        acting = DeterministicPolicy(actor(), 0.3)
        policy = WarmUp(acting, lambda n: rng.uniform(-1, 1, (n, 1)).astype(np.float32))
        policy.random = len(came) < at_random

        def learn(rows: slice, policy=policy, acting=acting) -> None:
            came.append((rows.start, rows.stop))
            policy.random = len(came) < at_random
            acting.heads = actor()

        one.scores.begin_epoch()
        one.collect(policy, epoch, Timing(), learn)
        states.append(one.state())
    assert came == [(first, min(first + size, 60)) for first in range(0, 60, size)] * 3
    return states


@pytest.mark.parametrize("make_team", [Reliable, Forgetful])
@pytest.mark.parametrize("shards", [1, 3])
def test_rows_that_are_learned_from_as_they_come_are_the_same(make_team, shards):
    for size, at_random in ((7, 12), (1, 70)):  # the random actions end within the second epoch
        how = CollectingPlan(rows_per_yield=size)
        one, other = (experience(runner, how=how, shards=shards, max_episode_steps=25) for runner in (None, make_team))
        states = learning(one, at_random=at_random, size=size), learning(other, at_random=at_random, size=size)
        for state, same in zip(*states, strict=True):
            assert_equal(state, same)


@pytest.mark.parametrize("make_team", [None, Reliable, Forgetful])
def test_a_policy_that_diverges_between_two_rows_is_named(make_team):
    one, acting = experience(make_team, how=LEARNING, shards=2), DeterministicPolicy(one_layer(3), 0.3)

    def learn(rows: slice) -> None:
        if rows.stop == 14:
            acting.heads = one_layer(3, np.nan)

    with pytest.raises(NotFiniteError, match="the policy returned NaN or infinity at step 15 of the epoch"):
        one.collect(acting, 0, Timing(), learn)


def test_a_failure_that_cannot_be_repeated_is_told_where_a_worker_must_repeat_it(monkeypatch):
    """By "history" an environment is restored by all its actions, and one of them had failed."""
    monkeypatch.setattr(collectors, "find_restore_method", lambda *_: "history")
    settings = {"shards": 3, "environment_restarts": 30, "on_not_finite": "skip", "steps_per_epoch": 24}
    one = experience(Forgetful, "tests/Unsound-v0", lambda _: None, TWO_ROWS, **settings)
    acting = DeterministicPolicy(one_layer(2), 0.3)
    with pytest.raises(UserError, match="which cannot be repeated: continue from the last checkpoint with --resume"):
        for epoch in range(4):
            one.collect(acting, epoch, Timing())


def test_environments_whose_turn_it_is_are_built_again_once_an_epoch(monkeypatch):
    monkeypatch.setattr(collectors, "find_restore_method", lambda *_: "history")
    monkeypatch.setattr(collectors, "default_restart_interval", lambda *_: 2)
    one, restarts = experience(how=CollectingPlan(per_epoch=2)), []
    for epoch in range(5):
        one.scores.begin_epoch()
        for _ in range(2):
            one.collect(policy(3, 1), epoch, Timing())
        restarts.append(one.state()["collector/restarts"].tolist())
    assert restarts == [[0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1], [1, 2, 2, 1], [2, 2, 2, 2]]


def test_no_more_episodes_are_believed_than_a_run_has_steps():
    """A forged number would be counted up to."""
    one, most = experience(epochs=2), 3 * 240  # the first trajectory may come before the first epoch
    [state] = epochs(one, 0, 1)
    with pytest.raises(UserError, match="did not repeat what they did"):
        one.load_state(state | {"collector/episodes": np.full(4, most)})
    with pytest.raises(ValueError, match=f"cannot have begun more than {most} episodes"):
        one.load_state(state | {"collector/episodes": np.full(4, most + 1)})


def test_seconds_are_divided_as_in_the_workers():
    total = Timing(environment=1.0, policy=1.0)
    worker_envs._share_out(8.0, [Timing(environment=2.0, policy=1.0), Timing(environment=1.0)], total)  # noqa: SLF001
    assert (total.environment, total.policy) == (7.0, 3.0)
