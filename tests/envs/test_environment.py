"""What is known of an environment."""

import dataclasses
import importlib.util
import os
import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import tiny_envs

from common.envs import vector_env
from common.envs.environment import find_environment
from common.envs.vector_env import make_vector_env, resolve_backend
from common.errors import UserError


def test_a_walkers_record():
    walker = find_environment("BipedalWalker-v3")
    assert (walker.id, walker.gymnasium_id, walker.max_episode_steps) == ("BipedalWalker-v3", "BipedalWalker-v3", 1600)
    assert (walker.observation_space.shape, walker.action_space.shape) == ((24,), (4,))
    assert "rgb_array" in walker.render_modes and walker.atari_game is None


@pytest.mark.parametrize(
    ("shape", "dtype", "kept"),
    [((3, 8, 8, 1), np.uint8, np.uint8), ((3, 8), np.uint8, np.float32), ((3, 8, 8, 1), np.float64, np.float32)],
)
def test_only_images_stay_bytes(shape, dtype, kept):
    observations = np.ones(shape, dtype)
    copied = vector_env.copied_observations(observations)
    assert copied.dtype == kept and not np.shares_memory(copied, observations)


def test_the_limit_is_that_of_the_environment_that_was_built():
    assert find_environment("CartPole-v1").max_episode_steps == 500
    assert find_environment("CartPole-v1", 7).max_episode_steps == 7
    assert find_environment("CliffWalking-v1").max_episode_steps is None
    assert find_environment("CartPole").gymnasium_id == "CartPole-v1"  # Gymnasium finds the newest version


def test_mujoco_that_is_missing_is_named_with_the_file_that_installs_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # importing it raises ImportError
    with pytest.raises(UserError, match=r"^HalfCheetah-v5 needs MuJoCo: pip install -r requirements/mujoco.txt$"):
        find_environment("HalfCheetah-v5")


def test_another_limit_leaves_the_rest_alone():
    short = find_environment("Pendulum-v1").limited_to(3)
    env = short.make()
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[3] for _ in range(3)]
    assert ends == [False, False, True]
    assert short.limited_to(None) is short


def test_flat_observations_and_what_they_were_before():
    taxi = find_environment("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3")
    assert taxi.observation_space.shape == (500,)
    assert isinstance(taxi.native_observation_space, gymnasium.spaces.Discrete)


@pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is an extra")
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("Pendulum-v1", "envpool"),
        ("CarRacing-v3", "gymnasium"),
        ("FrozenLake-v1", "gymnasium"),
        ("Blackjack-v1", "gymnasium"),
    ],
)
def test_envpool_steps_flat_observations_alone(name, backend):
    environment = find_environment(name)
    assert resolve_backend("auto", environment) == backend
    if backend == "gymnasium":  # though EnvPool has it
        with pytest.raises(UserError, match="or not with flat observations: use --backend gymnasium"):
            resolve_backend("envpool", environment)


@pytest.mark.parametrize(
    "changes",
    [
        {"kwargs": {"hardcore": True}},
        {"max_episode_steps": 50},
        {"entry_point": "tiny_envs:Plain"},
        {"additional_wrappers": (gymnasium.wrappers.NormalizeReward.wrapper_spec(),)},
    ],
)
def test_what_a_module_registers_under_gymnasiums_own_name_is_not_taken_for_it(monkeypatch, changes):
    own = gymnasium.registry["BipedalWalker-v3"]
    assert find_environment("BipedalWalker-v3").gymnasium_id == "BipedalWalker-v3"
    monkeypatch.setitem(gymnasium.registry, own.id, dataclasses.replace(own, **changes))
    environment = find_environment("BipedalWalker-v3")
    assert environment.gymnasium_id is None and resolve_backend("auto", environment) == "gymnasium"


@pytest.mark.parametrize(("asked", "each"), [(None, 4), (3, 3)])
def test_the_cores_are_divided_among_the_groups(monkeypatch, asked, each):
    threads = []

    class Group(SimpleNamespace):
        def __init__(self, environment, num_envs, num_threads, num_parts):
            threads.append(num_threads)
            super().__init__(num_envs=num_envs, parts=[])

    monkeypatch.setattr(vector_env, "EnvPoolGroup", Group)
    monkeypatch.setattr(vector_env.os, "cpu_count", lambda: 8)
    make_vector_env(find_environment("Pendulum-v1"), 20, "envpool", 2, threads=asked)
    assert threads == [each, each]


def test_what_a_library_writes_while_it_builds_an_environment_is_not_shown(capfd, monkeypatch):
    class Loud(tiny_envs.Lengths):
        def __init__(self):
            os.write(2, b"WARNING: this model is old\n")  # as C++ code does
            super().__init__()

    spec = gymnasium.envs.registration.EnvSpec("tests/Loud-v0", Loud)
    monkeypatch.setitem(gymnasium.registry, "tests/Loud-v0", spec)
    find_environment("tests/Loud-v0").make().close()
    assert capfd.readouterr().err == ""
