"""The probe that finds how environments are restored, and what it answers where it finds nothing."""

import itertools
import types

import gymnasium
import numpy as np
import pytest
import tiny_envs

from common.envs.environment import find_environment
from common.envs.seeded_episodes import RestoreMethod
from common.envs.spaces import action_map
from common.rollout import probe
from common.rollout.probe import PROBED, find_restore_method
from PPOAgentTrainer import PPOAgentTrainer


def found(env_id: str, backend: str = "gymnasium") -> RestoreMethod:
    environment = find_environment(env_id)
    return find_restore_method(environment, backend, action_map(environment.action_space))


class Clock:
    """Shows what `seconds` was set to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr(probe, "time", types.SimpleNamespace(monotonic=lambda: self.seconds))


class Counted(gymnasium.Wrapper):
    """Takes time on a clock: so many seconds to be built and for each step."""

    clock: Clock
    seconds = dict(build=0.0, step=0.0)  # noqa: RUF012
    counts = dict(build=0, step=0)  # noqa: RUF012

    def __init__(self, render_mode=None, env=tiny_envs.Lengths):
        super().__init__(env())
        self._take("build")

    def step(self, action):
        self._take("step")
        return self.env.step(action)

    def _take(self, what: str) -> None:
        Counted.counts[what] += 1
        Counted.clock.seconds += Counted.seconds[what]


class Unseeded(tiny_envs.Plain):
    """Its seed decides nothing."""

    def step(self, action):
        return np.random.random(2).astype(np.float32), 1.0, False, False, {}  # noqa: NPY002


class LaterUnseeded(tiny_envs.Plain):
    """Its seed decides nothing from the fiftieth step of an episode on."""

    def reset(self, seed=None, options=None):
        self._steps = 0
        return super().reset(seed=seed)

    def step(self, action):
        self._steps += 1
        seen = np.random.random(2) if self._steps > 50 else np.zeros(2)  # noqa: NPY002
        return seen.astype(np.float32), 1.0, False, False, {}


class SeededGlobally(Unseeded):
    """Its seed decides all, for every environment of the process."""

    def reset(self, seed=None, options=None):
        if seed is not None:
            np.random.seed(seed)  # noqa: NPY002
        return super().reset(seed=seed)


class ChangesItsAction(tiny_envs.Plain):
    """Shows the action, and changes the array that it was given."""

    def step(self, action):
        seen = np.repeat(action, 2)
        action *= 0.5
        return seen, 1.0, False, False, {}


gymnasium.register("tests/ChangesItsAction-v0", ChangesItsAction)
gymnasium.register("tests/Unseeded-v0", Unseeded)
gymnasium.register("tests/LaterUnseeded-v0", LaterUnseeded)
gymnasium.register("tests/SeededGlobally-v0", SeededGlobally)
gymnasium.register("tests/Counted-v0", Counted)
gymnasium.register("tests/CountedSchedule-v0", Counted, kwargs={"env": tiny_envs.Schedule})


@pytest.fixture
def counted(monkeypatch):
    """The class; its clock stands still where nothing else is said."""
    monkeypatch.setattr(Counted, "clock", Clock(monkeypatch), raising=False)
    monkeypatch.setattr(Counted, "seconds", dict(build=0.0, step=0.0))
    monkeypatch.setattr(Counted, "counts", dict(build=0, step=0))
    return Counted


@pytest.mark.parametrize(
    ("env_id", "backend", "way"),
    [
        ("BipedalWalker-v3", "envpool", "resets"),
        ("LunarLander-v3", "envpool", "history"),
        ("CartPole-v1", "gymnasium", "episodes"),
        ("BipedalWalker-v3", "gymnasium", "rebuilt"),
        ("tests/ChangesItsAction-v0", "gymnasium", "episodes"),
        ("tests/Schedule-v0", "gymnasium", "history"),  # what it pays depends on the episodes before
    ],
)
def test_what_the_probe_finds(monkeypatch, env_id, backend, way):
    if backend == "envpool":
        pytest.importorskip("envpool")
    Clock(monkeypatch)
    assert found(env_id, backend) == way


@pytest.mark.parametrize(("env_id", "way"), [("BipedalWalker-v3", "resets"), ("LunarLander-v3", "history")])
def test_what_the_probe_finds_of_compiled_environments_depends_on_no_clock(monkeypatch, env_id, way):
    pytest.importorskip("envpool")
    hurried = types.SimpleNamespace(monotonic=itertools.count(step=1000).__next__)
    monkeypatch.setattr(probe, "time", hurried)
    assert found(env_id, "envpool") == way


@pytest.mark.parametrize("env_id", ["tests/Counted-v0", "tests/CountedSchedule-v0"])
def test_slow_environments_are_built_for_every_episode(counted, env_id):
    """Also what cannot be restored by its running episode is right then; few steps are taken to find out."""
    counted.seconds["step"] = 0.1
    assert found(env_id) == "rebuilt"
    assert counted.counts["step"] <= probe.PATIENCE / 0.1 + 2 * PROBED
    assert counted.counts["build"] <= 3 * PROBED


def test_environments_that_are_slow_to_build_are_built_seldom(counted):
    counted.seconds["build"] = 3.0
    assert found("tests/Counted-v0") == "history"
    assert counted.counts["build"] <= 6 * PROBED


def test_environments_that_are_not_too_slow_are_judged(counted):
    counted.seconds.update(build=0.2, step=0.002)
    assert found("tests/Counted-v0") == "episodes"
    assert found("tests/CountedSchedule-v0") == "history"


def test_environments_that_fail_are_built_for_every_episode():
    assert found("tests/Raising-v0") == "rebuilt"


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("tests/Unseeded-v0", "tests/Unseeded-v0 does not do the same twice"),
        ("tests/LaterUnseeded-v0", "tests/LaterUnseeded-v0 does not do the same twice"),
        ("tests/SeededGlobally-v0", "an episode of tests/SeededGlobally-v0 depends on those before it"),
        ("tests/Schedule-v0", "an episode of tests/Schedule-v0 depends on those before it"),
    ],
)
def test_an_environment_whose_seed_does_not_decide_all_is_told_before_training(
    tiny, monkeypatch, capsys, env_id, said
):
    Clock(monkeypatch)
    trainer = PPOAgentTrainer(tiny.replace(env=env_id, max_episode_steps=150))
    assert trainer.collector.envs.record.way == "history"
    trainer.close()
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"warning: {said}")
