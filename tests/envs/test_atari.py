"""Breakout by ale-py's vector environment and by Gymnasium's wrappers."""

import copy
import sys

import gymnasium
import numpy as np
import pytest
from collecting import WholeEpochs
from gymnasium.spaces import Box, Discrete

from common.envs import atari
from common.envs.ale_group import AleGroup
from common.envs.environment import find_environment
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.spaces import action_map
from common.envs.vector_env import make_vector_env, resolve_backend
from common.errors import UserError
from common.records import Timing
from common.rollout.evaluation import evaluate
from common.runs.film import FilmedEpisode
from ppo.presets import preset_for

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

BREAKOUT = "ALE/Breakout-v5"
ACTIONS = action_map(Discrete(4))


class Random:
    """Acts by the noise it is given, whatever it sees; without noise it does nothing at all."""

    def act(self, observations, noise=None):
        assert observations.dtype == np.uint8
        assert observations.shape[1:] == (84, 84, 4)
        if noise is None:
            return np.zeros((len(observations), 1), np.float32)
        return noise.argmax(axis=1)[:, None].astype(np.float32)  # [n, 1]


class Idle(Random):
    """Never presses a button."""

    def act(self, observations, noise=None):
        return super().act(observations)


def collector(steps, num_envs=2, limit=None, backend="ale", seed=0):
    way = "resets" if backend == "ale" else "episodes"
    envs = make_vector_env(find_environment(BREAKOUT, limit), num_envs, backend, way=way)
    return WholeEpochs(envs, ACTIONS, steps, seed, way=way)


# -- names --


def test_a_game_that_ale_py_does_not_have_keeps_its_name():
    assert atari.game_id("ALE/no game") == "ALE/no game"
    assert atari.game_id("no game") is None


@pytest.mark.parametrize("name", [BREAKOUT, "Breakout", "Breakout-v4", "BreakoutNoFrameskip-v4", "Breakout-v0"])
def test_a_game_has_several_names(name):
    assert atari.game_id(name) == BREAKOUT
    assert find_environment(name).max_episode_steps == 27_000
    assert find_environment(name, 50).max_episode_steps == 50
    assert find_environment(name, 50).make().spec.max_episode_steps == 50


@pytest.mark.parametrize("name", ["Pendulum-v1", "tests/Dot-v0", "Nothing-v0", "CartPole", "nothing at all"])
def test_others_are_no_games(name):
    assert atari.game_id(name) is None


def test_a_mode_that_a_game_has_not_is_one_line():
    with pytest.raises(UserError, match="Invalid game mode requested"):
        find_environment("ALE/Breakout-v5", env_kwargs={"mode": 3})


@pytest.mark.parametrize("name", ["ALE/Brekout-v5", "BrekoutNoFrameskip-v4"])
def test_a_game_that_there_is_not_is_refused_with_near_names(name):
    with pytest.raises(UserError, match=r"unknown environment .*did you mean .*Breakout"):
        find_environment(name).make()


@pytest.mark.parametrize("package", ["ale_py", "cv2"])
def test_a_missing_package_is_named_in_one_line(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # importing it raises ImportError
    assert not atari.has_vector_environment()
    with pytest.raises(UserError, match=r"ALE/Breakout-v5: .*requirements/atari.txt") as refusal:
        find_environment(BREAKOUT).make()
    assert "\n" not in str(refusal.value)


def test_the_size_of_images_is_for_games():
    with pytest.raises(UserError, match="image_size 42 is for Atari games, not for Pendulum-v1"):
        find_environment("Pendulum-v1", image_size=42)


def test_a_name_that_may_be_a_games_tells_where_games_come_from(monkeypatch):
    with pytest.raises(UserError, match="see gymnasium"):
        find_environment("Zzzz").make()
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UserError, match=r"'Zzzz': if it is an Atari game, run .*requirements/atari.txt"):
        find_environment("Zzzz").make()


def test_backends(monkeypatch):
    assert (
        resolve_backend("auto", find_environment(BREAKOUT))
        == resolve_backend("ale", find_environment("Breakout-v4"))
        == "ale"
    )
    assert resolve_backend("gymnasium", find_environment(BREAKOUT)) == "gymnasium"
    with pytest.raises(UserError, match="use --backend ale"):
        resolve_backend("envpool", find_environment(BREAKOUT))
    with pytest.raises(UserError, match="Pendulum-v1 is none"):
        resolve_backend("ale", find_environment("Pendulum-v1"))
    monkeypatch.setattr(atari, "has_vector_environment", lambda: False)
    assert resolve_backend("auto", find_environment(BREAKOUT)) == "gymnasium"
    with pytest.raises(UserError, match="use --backend gymnasium"):
        resolve_backend("ale", find_environment(BREAKOUT))


# -- one game --


def test_a_single_game_is_prepared():
    env = find_environment("Breakout", max_episode_steps=6).make()
    assert env.observation_space == Box(0, 255, (84, 84, 4), np.uint8)
    assert env.action_space == Discrete(4)
    observation, info = env.reset(seed=0)
    assert observation.dtype == np.uint8
    assert not observation[..., :3].any()  # nothing was before
    assert observation[..., 3].any()
    frames, ends = [info["episode_frame_number"]], []
    for _ in range(6):
        before = observation
        observation, _, terminated, truncated, info = env.step(0)
        np.testing.assert_array_equal(observation[..., :3], before[..., 1:])  # the newest is the last
        frames.append(info["episode_frame_number"])
        ends.append((terminated, truncated))
    assert np.diff(frames).tolist() == [4] * 6
    assert ends == [(False, False)] * 5 + [(False, True)]
    env.close()


def test_a_policy_that_never_fires_still_plays_all_five_lives():
    played = evaluate(Random(), ACTIONS, find_environment(BREAKOUT, 1000), 1, deterministic=True)
    assert played.lengths[0] < 300  # five balls fall


def test_a_film_shows_the_game_at_its_pace():
    take = FilmedEpisode(Random(), ACTIONS, find_environment(BREAKOUT, 5))
    frames = list(take)
    assert (len(frames), frames[0].shape, take.frame_rate) == (6, (210, 160, 3), 15)
    assert frames[0].std() > 0


# -- one life --


def test_an_episode_may_be_a_single_life_of_a_new_game():
    """As in the published Breakout programs: FIRE is left to the policy, and the first image fills the stack."""
    known = find_environment(BREAKOUT, env_kwargs={"one_life": True})
    assert (resolve_backend("auto", known), known.render_fps, known.max_episode_steps) == ("gymnasium", 15, 27_000)
    env = known.make()
    first, info = env.reset(seed=0)
    assert (first == first[..., :1]).all() and info["episode_frame_number"] == 0
    for _ in range(50):
        _, _, terminated, _, info = env.step(0)  # nobody fires, so nothing falls
        assert not terminated and info["lives"] == 5
    env.step(1)
    steps = 1
    while not terminated:
        _, _, terminated, truncated, info = env.step(0)
        steps += 1
    assert not truncated and info["lives"] == 4 and steps < 60
    again, info = env.reset(seed=0)
    np.testing.assert_array_equal(again, first)
    assert info["lives"] == 5
    env.close()


# -- many games --


@pytest.mark.parametrize("size", [84, 42])
def test_both_ways_of_stepping_show_the_same(size, monkeypatch):
    monkeypatch.setattr(atari, "IDLE_FRAMES", 0)  # else each draws its own number of them
    game = find_environment(BREAKOUT, image_size=size)
    ale, ours = AleGroup(game, 2), GymnasiumGroup(game, 2)
    first = ale.reset(0)
    assert first.shape == (2, *game.observation_space.shape) == (2, size, size, 4)
    np.testing.assert_array_equal(first, ours.reset(0))
    rng, ends, lost, replaced = np.random.default_rng(0), 0, 0, 0
    for _ in range(250):
        actions = rng.integers(0, 4, 2)
        ale.send(actions)
        ours.send(actions)
        step = ale.recv()
        for name, column in ours.recv()._asdict().items():
            theirs = getattr(step, name)
            np.testing.assert_array_equal(column, np.zeros(2, bool) if theirs is None else theirs, err_msg=name)
        replaced += int(step.replaced.sum())
        ends += step.ended.sum()
        lost += step.terminated.sum()
    assert ends >= 1
    assert lost >= 5
    assert replaced >= lost  # the first step of each life
    ale.close()
    ours.close()


def test_a_game_has_five_lives_each_of_which_terminates():
    one = collector(280)
    trajectory = one.collect(Idle(), Timing())
    one.envs.close()
    assert trajectory.observations.shape == (281, 2, 84, 84, 4)
    assert trajectory.observations.dtype == np.uint8
    assert not trajectory.truncated.any()
    for n in range(2):
        over = int(np.flatnonzero(trajectory.ended[:, n])[0])
        lost = np.flatnonzero(trajectory.terminated[: over + 1, n])
        assert len(lost) == 5
        assert lost[-1] == over
        assert trajectory.valid[: over + 1, n].all()  # also right after a life
        assert trajectory.valid[over + 1 : over + 3, n].tolist() == [False, True]
        assert trajectory.episode_steps[over, n] == over + 1
        restarted = trajectory.observations[over + 2, n]
        assert restarted[..., 3].any()
        assert not restarted[..., :3].any()


def test_a_time_limit_truncates_and_the_next_step_only_restarts():
    for backend in ("ale", "gymnasium"):
        one = collector(13, limit=5, backend=backend)
        trajectory = one.collect(Random(), Timing())
        one.envs.close()
        in_cycle = np.repeat(np.arange(13)[:, None] % 6, 2, axis=1)  # [T, N]
        np.testing.assert_array_equal(trajectory.ended, in_cycle == 4)
        np.testing.assert_array_equal(trajectory.truncated, in_cycle == 4)
        np.testing.assert_array_equal(trajectory.valid, in_cycle < 5)
        assert not trajectory.terminated.any()


def test_a_life_lost_as_time_runs_out_is_still_told():
    free = AleGroup(find_environment(BREAKOUT), 1)
    free.reset(0)
    step = 0
    while True:
        free.send(np.zeros(1, np.int64))
        step += 1
        if free.recv().terminated[0]:
            break
    free.close()
    limited = AleGroup(find_environment(BREAKOUT, step), 1)
    limited.reset(0)
    for _ in range(step):
        limited.send(np.zeros(1, np.int64))
        last = limited.recv()
    assert last.terminated[0] & last.truncated[0] & last.ended[0]
    limited.send(np.zeros(1, np.int64))
    after = limited.recv()
    assert not (after.terminated[0] | after.truncated[0] | after.ended[0])
    assert (limited.lives == 5).all()
    limited.close()


@pytest.mark.parametrize("backend", ["ale", "gymnasium"])
def test_a_seed_gives_the_same_games_whatever_was_before(backend):
    one = collector(60, backend=backend)
    seed, noise = int(one.state()["seed"]), copy.deepcopy(one.noise)
    first = one.collect(Random(), Timing()).observations
    one.restart()
    one.restart(seed)
    one.noise = noise  # as at the start
    np.testing.assert_array_equal(one.collect(Random(), Timing()).observations, first)
    other = collector(60, backend=backend, seed=1)
    assert (other.collect(Random(), Timing()).observations != first).any()
    assert (first[:, 0] != first[:, 1]).any()  # idle frames and actions differ
    one.envs.close()
    other.envs.close()


def test_another_seed_gives_other_games():
    group, seen = AleGroup(find_environment("ALE/Pong-v5"), 2), []
    for seed in (5, 6, 5):
        group.reset(seed)
        for _ in range(10):
            group.send(np.ones(2, np.int64))
            images = group.recv().observations.copy()
        seen.append(images)
    group.close()
    assert (seen[0] == seen[2]).all() and (seen[0] != seen[1]).any()


@pytest.mark.parametrize("seed", [2**31 - 1, 2**31 - 2])
def test_any_seed_will_do(seed):
    group = AleGroup(find_environment(BREAKOUT), 2)
    group.reset(seed)
    group.close()


@pytest.mark.parametrize("backend", ["ale", "gymnasium"])
def test_a_collector_goes_on_from_the_state_of_another(backend):
    first, second = collector(70, backend=backend), collector(70, backend=backend)
    first.collect(Random(), Timing())
    first.restart()
    first.collect(Random(), Timing())
    state = first.state()
    second.load_state(state)
    expected, found = first.collect(Random(), Timing()), second.collect(Random(), Timing())
    for name, array in expected._asdict().items():
        np.testing.assert_array_equal(array, getattr(found, name), err_msg=name)
    assert expected.terminated.any()
    first.envs.close()
    second.envs.close()


def test_games_are_brought_back_whichever_of_them_was_seeded(monkeypatch):
    monkeypatch.setattr(AleGroup, "GAMES_A_SEED", 2)
    first, second = collector(7, limit=10), collector(7, limit=10)
    seen = []
    for _ in range(6):  # a game and its restart are eleven steps
        state = first.state()
        expected = first.collect(Random(), Timing())
        second.load_state(state)
        for name, array in second.collect(Random(), Timing())._asdict().items():
            np.testing.assert_array_equal(array, getattr(expected, name), err_msg=name)
        seen.append(state["episodes"].tolist())
    assert seen == [[n, n] for n in (0, 0, 1, 1, 2, 3)]
    first.envs.close()
    second.envs.close()


def test_a_game_without_fire_and_without_lives_is_stepped():
    names = [action.name for action in find_environment("ALE/Freeway-v5").make().unwrapped.ale.getMinimalActionSet()]
    assert "FIRE" not in names
    group = AleGroup(find_environment("ALE/Freeway-v5", 3), 1)
    group.reset(0)
    for ended in (False, False, True, False):
        group.send(np.ones(1, np.int64))
        step = group.recv()
        assert step.ended.tolist() == step.truncated.tolist() == [ended]
        assert not step.terminated.any()
    assert gymnasium.spec("ALE/Freeway-v5").kwargs["game"] == "freeway"
    group.close()


def test_games_start_from_breakouts_settings_and_greet_nobody(capfd):
    assert [preset_for(name) for name in ("Pong", "ALE/Pong-v5", "tests/Dot-v0")] == [
        "breakout",
        "breakout",
        "default",
    ]
    find_environment("ALE/Breakout-v5").make().close()
    assert capfd.readouterr() == ("", "")
