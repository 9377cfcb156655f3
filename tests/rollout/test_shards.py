"""Collecting by shards, as workers do it: the numbers are those of one process, and any shard can be done again."""

import numpy as np
import pytest

from common.config import TrainingConfig
from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.errors import NotFiniteError, UserError
from common.records import Timing
from common.rollout.experience import Collecting, Experience
from common.rollout.policies import Dense, DenseHeads, Normalizer, NormalPolicy
from common.rollout.workers.shard import Here, Host, Recipe, Task
from common.state import State

SIZES = {"BipedalWalker-v3": (24, 4), "Pendulum-v1": (3, 1), "LunarLanderContinuous-v3": (8, 2)}


class Forgetful:
    """Performs every task in environments that are built for it, so each shard is restored from its snapshot."""

    interrupted = ""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def share(self, value):
        return value

    def run(self, tasks: list[Task]) -> list:
        return [self._perform(task) for task in tasks]

    def _perform(self, task: Task):
        host = Host(self._recipe)
        snapshot = None if task.before is None else task.snapshot()
        try:
            return host.perform(task.shard, task.method, snapshot, *task.arguments)
        finally:
            host.leave(task.shard)

    def close(self):
        pass


def policy(observation_size: int, action_size: int, seed: int = 0) -> NormalPolicy:
    rng = np.random.default_rng(seed)

    def dense(*shape: int, activation: str) -> Dense:
        return Dense(*(rng.standard_normal(s).astype(np.float32) / 4 for s in (shape, shape[1:])), activation)

    heads = dense(32, action_size, activation="linear"), dense(32, action_size, activation="softplus")
    return NormalPolicy(DenseHeads(Normalizer(None, None), (dense(observation_size, 32, activation="tanh"),), heads))


def experience(make_runner=None, env="Pendulum-v1", warn=print, how=Collecting(), **settings) -> Experience:  # noqa: B008
    environment = find_environment(env, settings.get("max_episode_steps"))
    config = TrainingConfig(**{"env": env, "num_envs": 4, "steps_per_epoch": 240, "backend": "gymnasium"} | settings)
    return Experience(config, environment, action_map(environment.action_space), 7, warn, how, None, make_runner)


def epochs(one: Experience, first: int, last: int, seen=(3, 1)) -> list[State]:
    """The state after each epoch; the policy is another one in each."""
    states = []
    for epoch in range(first, last):
        one.scores.begin_epoch()
        one.collect_whole(policy(*seen, epoch), epoch, Timing())
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
        ("LunarLanderContinuous-v3", {"backend": "envpool", "shards": 2, "restart_environments_every": 1}),
        ("Pendulum-v1", {"backend": "processes", "shards": 2, "max_episode_steps": 25}),
    ],
)
@pytest.mark.parametrize("make_runner", [Here, Forgetful])
def test_shards_that_are_restored_anywhere_collect_what_one_process_collects(env, settings, make_runner):
    """`Forgetful` restores every shard before every collection; the states are those of checkpoints."""
    if settings["backend"] == "processes" and make_runner is Here:
        settings = settings | {"num_envs": 2}
    whole = experience(None, env, **settings)
    expected = epochs(whole, 0, 4, SIZES[env])
    shards = experience(make_runner, env, **settings)
    for state, same in zip(epochs(shards, 0, 2, SIZES[env]), expected):
        assert_equal(state, same)
    resumed = experience(make_runner, env, **settings)
    resumed.load_state(expected[1])
    for state, same in zip(epochs(resumed, 2, 4, SIZES[env]), expected[2:]):
        assert_equal(state, same)
    for one in (whole, shards, resumed):
        one.close()


def test_the_division_decides_the_numbers():
    one, other = (epochs(experience(None, shards=shards), 0, 1)[0] for shards in (1, 2))
    assert not np.array_equal(one["trajectory/observations"], other["trajectory/observations"])
    with pytest.raises(UserError, match="shards is 5, but there are only 4 environments to divide: use --shards 4"):
        experience(shards=5)


@pytest.mark.parametrize("make_runner", [Here, Forgetful])
def test_episodes_that_are_cut_at_each_epoch_are_the_same(make_runner):
    how = Collecting(restart_each_epoch=True)
    one, other = (experience(runner, how=how, shards=2) for runner in (None, make_runner))
    for state, same in zip(epochs(one, 0, 3), epochs(other, 0, 3)):
        assert_equal(state, same)


@pytest.mark.parametrize("make_runner", [Here, Forgetful])
@pytest.mark.parametrize("restarts", [3, 30])
def test_failing_environments_are_counted_as_in_one_process(make_runner, restarts):
    """Those of tests/Unsound-v0 raise or return NaN, by the seed of the episode."""

    def lines(runner) -> tuple[list[str], State | str]:
        said: list[str] = []
        one = experience(
            runner, "tests/Unsound-v0", said.append, shards=3, environment_restarts=restarts, on_not_finite="skip",
            steps_per_epoch=24,
        )  # fmt: skip
        try:
            return said, epochs(one, 0, 2, (2, 1))[-1]
        except UserError as error:
            return said, str(error)

    (said, end), (same_lines, same_end) = lines(None), lines(make_runner)
    assert said == same_lines and said
    assert end == same_end if isinstance(end, str) else assert_equal(end, same_end) is None


@pytest.mark.parametrize("make_runner", [None, Here, Forgetful])
def test_a_policy_that_diverged_is_named(make_runner):
    one, broken = experience(make_runner, shards=2), policy(3, 1)
    broken._heads.hidden[0].kernel[:] = np.nan
    with pytest.raises(NotFiniteError, match="the policy returned NaN or infinity at step 0 of the epoch"):
        one.collect_whole(broken, 0, Timing())
