"""Collecting on a scripted environment whose every step is known."""

import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from collecting import WholeEpochs
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv

from common.envs.environment import find_environment
from common.envs.envpool_group import EnvPoolGroup
from common.envs.groups import Step, quiet_gymnasium
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.seeded_episodes import RestoreMethod, episode_seed
from common.envs.spaces import BoxMap
from common.envs.vector_env import VectorEnv, make_vector_env
from common.errors import UserError
from common.records import Timing, Trajectory
from common.rollout.not_finite import not_finite_action

ENDS = [(3, True, False), (2, False, True), (1, True, True), (4, True, False)]  # steps, terminated, truncated
ACTIONS = Box(np.array([0, -2], np.float32), np.array([10, 2], np.float32))


class ScriptedEnv(gymnasium.Env):
    """Episode k has ENDS[k % 4]'s steps and end. The observation is episode, step, and the action that led here.

    The reward is 10 · episode + step. `bad`: (episode, step, "observation" | "reward") of a NaN.
    """

    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = ACTIONS

    def __init__(
        self, first_episode: int = 0, bad: tuple[int, int, str] | None = None, render_mode: str | None = None
    ) -> None:
        self.episode, self.t, self.bad = first_episode - 1, 0, bad

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        return self._observation(np.zeros(2)), {}

    def step(self, action):
        steps, terminated, truncated = ENDS[self.episode % 4]
        self.t += 1
        assert self.t <= steps, "stepped beyond the end"
        over = self.t == steps
        reward = np.nan if self.bad == (self.episode, self.t, "reward") else 10.0 * self.episode + self.t
        return self._observation(action), reward, over and terminated, over and truncated, {}

    def _observation(self, action) -> np.ndarray:
        broken = self.bad == (self.episode, self.t, "observation")
        return np.array([np.nan if broken else self.episode, self.t, *action], np.float32)


def register(name: str, **kwargs: object) -> str:
    """The id of a ScriptedEnv made with these arguments."""
    env_id = f"RolloutTest{name}-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, ScriptedEnv, kwargs=kwargs)
    return env_id


FROM_0, FROM_1, FROM_2 = (register(f"From{k}", first_episode=k) for k in range(3))


class RandomPolicy:
    """Acts with the noise it is given, whatever it sees."""

    def act(self, observations: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return noise


def collector(envs: VectorEnv, steps: int, seed: int = 0, way: RestoreMethod = "episodes") -> WholeEpochs:
    return WholeEpochs(envs, BoxMap(ACTIONS), steps, seed, way=way)


def collect(*group_ids: str, steps: int, seed: int = 0) -> Trajectory:
    """One epoch of groups of one environment each."""
    envs = VectorEnv([GymnasiumGroup(find_environment(env_id), 1) for env_id in group_ids])
    trajectory = collector(envs, steps, seed).collect(RandomPolicy(), Timing())
    envs.close()
    return trajectory


# Episodes 0 (3 steps, terminated), 1 (2, truncated), 2 (1, both), 3 (4, terminated), each followed by a restart:
# episode, step, reward, terminated, truncated, valid, episode steps of each row
BY_HAND = np.array(
    [
        (0, 0, 1, 0, 0, 1, 1),
        (0, 1, 2, 0, 0, 1, 2),
        (0, 2, 3, 1, 0, 1, 3),
        (0, 3, 0, 0, 0, 0, 0),  # sees episode 0's true final observation, its action is ignored
        (1, 0, 11, 0, 0, 1, 1),
        (1, 1, 12, 0, 1, 1, 2),
        (1, 2, 0, 0, 0, 0, 0),
        (2, 0, 21, 1, 1, 1, 1),
        (2, 1, 0, 0, 0, 0, 0),
        (3, 0, 31, 0, 0, 1, 1),
        (3, 1, 32, 0, 0, 1, 2),
        (3, 2, 33, 0, 0, 1, 3),
        (3, 3, 34, 1, 0, 1, 4),
        (3, 4, 0, 0, 0, 0, 0),
        (4, 0, 41, 0, 0, 1, 1),
    ]
)
LAST_OBSERVATION = [4, 1]


def assert_rows(trajectory: Trajectory, expected: np.ndarray, last: list[int], n: int = 0) -> None:
    assert trajectory.observations[:, n, :2].tolist() == [*expected[:, :2].tolist(), last]
    assert trajectory.rewards[:, n].tolist() == expected[:, 2].tolist()
    for i, name in enumerate(("terminated", "truncated", "valid"), start=3):
        assert getattr(trajectory, name)[:, n].tolist() == expected[:, i].astype(bool).tolist(), name
    assert trajectory.ended[:, n].tolist() == (expected[:, 3] + expected[:, 4] > 0).tolist()
    assert trajectory.episode_steps[:, n].tolist() == expected[:, 6].tolist()


def test_an_epoch_lines_up_as_worked_by_hand():
    assert_rows(collect(FROM_0, steps=len(BY_HAND)), BY_HAND, LAST_OBSERVATION)


@pytest.mark.parametrize("cut", range(1, len(BY_HAND)))
def test_an_epoch_cut_anywhere_goes_on_in_the_next(cut):
    envs = VectorEnv([GymnasiumGroup(find_environment(FROM_0), 1)])
    one = collector(envs, cut)
    first = one.collect(RandomPolicy(), Timing())
    assert_rows(first, BY_HAND[:cut], BY_HAND[cut, :2].tolist())
    second = one.collect(RandomPolicy(), Timing())
    np.testing.assert_array_equal(second.observations[0], first.observations[-1])
    both = min(len(BY_HAND), 2 * cut)
    for name, i in (("valid", 5), ("episode_steps", 6), ("rewards", 2)):
        assert getattr(second, name)[: both - cut, 0].tolist() == BY_HAND[cut:both, i].tolist(), name
    envs.close()


def test_each_action_reaches_the_environment_in_the_step_it_is_stored_with():
    trajectory = collect(FROM_0, FROM_1, steps=30)
    mapped = BoxMap(ACTIONS)(trajectory.actions.reshape(-1, 2)).reshape(30, 2, 2)
    valid = trajectory.valid
    np.testing.assert_array_equal(trajectory.observations[1:, :, 2:][valid], mapped[valid])
    assert (trajectory.observations[1:, :, 2:][~valid] == 0).all()  # an ignored action
    assert (np.abs(trajectory.actions) > 1).any()  # stored as drawn, not as clipped


def test_the_policy_acts_on_the_observation_its_action_is_stored_with():
    class Watching:
        def act(self, observations, noise):
            return np.stack([observations[:, 0] / 8, observations[:, 1] / 8], axis=1) + 0 * noise

    envs = VectorEnv([GymnasiumGroup(find_environment(env_id), 1) for env_id in (FROM_0, FROM_2)])
    trajectory = collector(envs, 20).collect(Watching(), Timing())
    np.testing.assert_array_equal(trajectory.actions, trajectory.observations[:-1, :, :2] / 8)
    envs.close()


# -- groups --


class LoggingGroup:
    """Writes down what is asked of it; its environments see the group's number, their own, and the time."""

    def __init__(self, number: int, num_envs: int, log: list[tuple[str, int]]) -> None:
        self.number, self.num_envs, self.log = number, num_envs, log
        self.t = 0
        self.faults = []
        self.parts = [slice(0, num_envs)]
        self.seeds: list[int | None] = []

    def _observations(self) -> np.ndarray:
        rows = [[self.number, i, self.t, 0] for i in range(self.num_envs)]
        return np.array(rows, np.float32)

    def reset(self, seed):
        self.seeds.append(seed)
        self.t = 0
        return self._observations()

    def send(self, actions):
        assert actions.shape == (self.num_envs, 2)
        self.log.append(("send", self.number))

    def recv(self):
        self.log.append(("recv", self.number))
        self.t += 1
        never = np.zeros(self.num_envs, bool)
        return Step(self._observations(), 100.0 * self.number + np.arange(self.num_envs), never, never, never)

    def close(self):
        self.log.append(("close", self.number))


def test_groups_of_unequal_size_own_consecutive_columns():
    envs = VectorEnv([LoggingGroup(0, 2, []), LoggingGroup(1, 1, []), LoggingGroup(2, 3, [])])
    trajectory = collector(envs, 4).collect(RandomPolicy(), Timing())
    for t in range(5):
        # group, environment, time
        expected = [[0, 0, t], [0, 1, t], [1, 0, t], [2, 0, t], [2, 1, t], [2, 2, t]]
        assert trajectory.observations[t, :, :3].tolist() == expected
    assert trajectory.rewards.tolist() == [[0, 1, 100, 200, 201, 202]] * 4


def test_one_group_steps_while_the_policy_chooses_for_the_other():
    log: list[tuple[str, int]] = []
    envs = VectorEnv([LoggingGroup(0, 1, log), LoggingGroup(1, 1, log)])
    collector(envs, 2).collect(RandomPolicy(), Timing())
    assert log == [
        *(("send", 0), ("send", 1)),
        *(("recv", 0), ("send", 0), ("recv", 1), ("send", 1)),
        *(("recv", 0), ("recv", 1)),
    ]
    envs.close()
    assert log[-2:] == [("close", 0), ("close", 1)]


def test_groups_are_seeded_apart_and_only_at_the_start():
    def seeds(seed: int) -> list[list[int | None]]:
        groups = [LoggingGroup(0, 2, []), LoggingGroup(1, 2, [])]
        one = collector(VectorEnv(groups), 2, seed)
        one.restart()
        return [group.seeds for group in groups]

    (first, again), (second, _) = seeds(0)
    assert first != second
    assert again is None
    assert seeds(0) == seeds(0)
    assert seeds(0) != seeds(1)


def test_the_seed_fixes_the_noise_and_epochs_differ():
    first, second, other = (collect(FROM_0, steps=10, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.actions, second.actions)
    assert not np.isclose(first.actions, other.actions).any()
    envs = VectorEnv([GymnasiumGroup(find_environment(FROM_0), 1)])
    one = collector(envs, 10)
    epochs = [one.collect(RandomPolicy(), Timing()).actions for _ in range(2)]
    assert not np.isclose(epochs[0], epochs[1]).any()
    envs.close()


def test_restart_throws_running_episodes_away():
    for steps in (2, 3):  # within episode 0, and right at its end
        envs = VectorEnv([GymnasiumGroup(find_environment(FROM_0), 1)])
        one = collector(envs, steps)
        one.collect(RandomPolicy(), Timing())
        one.restart()
        trajectory = one.collect(RandomPolicy(), Timing())
        assert trajectory.observations[0, 0, :2].tolist() == [1, 0]
        assert trajectory.rewards[:2, 0].tolist() == [11, 12]
        assert trajectory.valid[:2, 0].all()
        assert trajectory.episode_steps[:2, 0].tolist() == [1, 2]
        envs.close()


def test_an_epoch_is_not_changed_by_the_next():
    envs = VectorEnv([GymnasiumGroup(find_environment(FROM_0), 1), GymnasiumGroup(find_environment(FROM_1), 1)])
    one = collector(envs, 5)
    first = one.collect(RandomPolicy(), Timing())
    copies = [array.copy() for array in first]
    one.collect(RandomPolicy(), Timing())
    for array, copy in zip(first, copies):
        np.testing.assert_array_equal(array, copy)
    envs.close()


# -- state --


def mixed_collector(steps: int) -> WholeEpochs:
    """Two groups of scripted environments, one of them of two; they know how many episodes there were."""
    groups = [GymnasiumGroup(find_environment(FROM_0), 2), GymnasiumGroup(find_environment(FROM_1), 1)]
    return collector(VectorEnv(groups), steps, seed=3, way="history")


@pytest.mark.parametrize("restart_after", [0, 1, 2])
@pytest.mark.parametrize("steps", [3, 5])
def test_a_collector_goes_on_from_the_state_of_another(steps, restart_after):
    first, second = mixed_collector(steps), mixed_collector(steps)
    for epoch in range(1, 3):
        first.collect(RandomPolicy(), Timing())
        if epoch == restart_after:
            first.restart()
    state = first.state()
    expected = [first.collect(RandomPolicy(), Timing()) for _ in range(2)]
    second.collect(RandomPolicy(), Timing())  # whatever it did before is forgotten
    second.load_state(state)
    for trajectory in expected:
        for name, array in second.collect(RandomPolicy(), Timing())._asdict().items():
            np.testing.assert_array_equal(array, getattr(trajectory, name), err_msg=name)
    first.envs.close()
    second.envs.close()


# -- NaN --


@pytest.mark.parametrize(
    ("what", "episode", "t", "steps", "where"),
    [
        ("reward", 0, 1, 8, "at step 0 "),  # the step that leads to (0, 1) is the epoch's first
        ("observation", 0, 3, 8, "at step 2 "),  # an episode's true final observation
        ("observation", 1, 0, 8, "at step 3 "),  # returned by the restart
        ("reward", 1, 2, 8, "at step 5 "),
        ("reward", 0, 3, 3, "at step 2 "),  # the last step of the epoch
        ("observation", 0, 3, 3, "at step 2 "),
        ("observation", 0, 0, 8, "at a reset"),
    ],
)
def test_nan_is_refused_naming_environment_and_step(what, episode, t, steps, where):
    broken = register(f"Nan{what}{episode}{t}", bad=(episode, t, what))
    with pytest.raises(UserError, match=f"environment 1 returned NaN or infinity as {what} {where}") as error:
        collect(FROM_0, broken, steps=steps)
    assert "\n" not in str(error.value)


# -- real environments --


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_a_walkers_time_limit_truncates_and_the_next_step_only_restarts(backend):
    if backend == "envpool":
        pytest.importorskip("envpool")
    limit = 7
    envs = make_vector_env(find_environment("BipedalWalker-v3", limit), 4, backend)
    space = Box(-1, 1, (4,), np.float32)
    one = WholeEpochs(envs, BoxMap(space), 30, seed=0)
    first = one.collect(RandomPolicy(), Timing())
    second = one.collect(RandomPolicy(), Timing())
    one.restart()
    third = one.collect(RandomPolicy(), Timing())
    envs.close()
    # No walker falls within 7 steps. Rows of a cycle: 7 steps, the last truncated, and a restart.
    rows = np.arange(60)
    for trajectory, row in ((first, rows[:30]), (second, rows[30:]), (third, rows[:30])):
        in_cycle = np.repeat(row[:, None] % (limit + 1), 4, axis=1)  # [T, N]
        np.testing.assert_array_equal(trajectory.truncated, in_cycle == limit - 1)
        assert not trajectory.terminated.any()
        np.testing.assert_array_equal(trajectory.valid, in_cycle < limit)
        np.testing.assert_array_equal(trajectory.episode_steps, (in_cycle + 1) % (limit + 1))
        assert (trajectory.rewards[~trajectory.valid] == 0).all()
        assert (trajectory.rewards[trajectory.valid] != 0).all()
        # Speeds of hips and knees: a walker that just started is at rest, the one time ran out for is moving.
        speeds = np.abs(trajectory.observations[:-1][..., [5, 7, 10, 12]]).max(axis=-1)  # [T, N]
        starts = in_cycle == 0
        assert speeds[starts].max() < 0.05
        assert speeds[~trajectory.valid].min() > 0.05
    np.testing.assert_array_equal(second.observations[0], first.observations[-1])


@pytest.mark.parametrize("env_id, limit", [("BipedalWalker-v3", 30), ("Pendulum-v1", 9)])
def test_a_group_steps_as_gymnasiums_vector_environment(env_id, limit):
    environment = find_environment(env_id, limit)
    group, whole = GymnasiumGroup(environment, 3), SyncVectorEnv([environment.make] * 3)
    seeds = [episode_seed(4, i, 0, 0) for i in range(3)]
    np.testing.assert_array_equal(group.reset(4), whole.reset(seed=seeds)[0])
    rng = np.random.default_rng(0)
    for t in range(limit):
        actions = rng.uniform(-1, 1, whole.action_space.shape).astype(np.float32)
        group.send(actions)
        step = group.recv()
        for ours, theirs in zip(step[:4], whole.step(actions)[:4]):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
        assert (step.ended == (t == limit - 1)).all()
    group.close()
    whole.close()


@pytest.mark.parametrize("env_id", ["BipedalWalker-v3", "Pendulum-v1"])
def test_envpools_native_interface_steps_as_its_public_one(env_id):
    envpool = pytest.importorskip("envpool")
    group = EnvPoolGroup(find_environment(env_id, 20), 3, num_threads=1)
    public = envpool.make(env_id, env_type="gymnasium", num_envs=3, num_threads=1, max_episode_steps=20, seed=5)
    np.testing.assert_array_equal(group.reset(5), public.reset()[0])
    rng = np.random.default_rng(0)
    for _ in range(50):
        actions = rng.uniform(-1, 1, (3, *public.action_space.shape))
        group.send(actions)
        expected = public.step(actions.astype(np.float32))
        for ours, theirs in zip(group.recv()[:4], expected, strict=False):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
    group.close()


def test_a_non_finite_action_is_the_environments_fault_only_where_it_saw_something_non_finite():
    seen = np.ones((3, 2, 2), np.float32)
    assert str(not_finite_action(seen, 4, 7)).startswith("the policy returned NaN or infinity at step 7")
    seen[1, 0, 1] = np.inf
    error = not_finite_action(seen, 4, 7)
    assert error.fault.startswith("environment 5 returned NaN or infinity as observation at step 6")
    assert str(error) == error.fault + ", or collect such epochs again with --on-not-finite skip"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # workers send it
    assert "environment 5" in str(not_finite_action(seen, 4, 0)) and "at a reset" in str(not_finite_action(seen, 4, 0))


def test_gymnasiums_own_messages_are_kept_back_and_its_level_comes_back():
    level = gymnasium.logger.min_level
    with warnings.catch_warnings(), quiet_gymnasium():
        warnings.simplefilter("error")
        gymnasium.logger.error("said here in other words")
    assert gymnasium.logger.min_level == level


def test_the_parts_of_an_envpool_group_play_what_one_pool_plays():
    pytest.importorskip("envpool")
    seen = []
    for parts in (1, 2):
        group = EnvPoolGroup(find_environment("Pendulum-v1", 20), 4, 1, parts)
        seen.append(group.reset(5))
        group.close()
    np.testing.assert_array_equal(*seen)
