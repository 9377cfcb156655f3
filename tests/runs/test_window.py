"""An episode in a window: seen on a real screen, drawn by the environment, and one line where there is no screen."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pygame
import pytest
import tiny_envs
from gymnasium.spaces import Box
from run_program import call

from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.errors import UserError
from common.rollout.evaluation import evaluate
from common.runs import film, window
from ppo.config import PPOConfig
from programs import watch

ROOT = Path(__file__).resolve().parents[2]
DEAD = ":55555"  # no screen has this number
ACTIONS = action_map(Box(-2.0, 2.0, (1,)))


class Swinging:
    """Pendulum's observation decides."""

    is_plain = True

    def act(self, observations, noise=None):
        return np.sin(9 * observations[:, :1]).astype(np.float32)


def test_watch_shows_a_window_that_is_seen(screen):
    command = [sys.executable, "-m", "programs", "watch", "fast-walker"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        try:
            while program.poll() is None and np.mean(screen()[:, :, :3].any(axis=2)) < 0.2:  # all is black before
                time.sleep(0.2)
            assert program.returncode is None, "it ended, and there was no window"
        finally:
            program.kill()


def test_a_screen_that_does_not_answer_gets_a_film(tmp_path):
    command = [sys.executable, "-m", "programs", "watch", "cartpole", "--max-episode-steps", "10"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env=os.environ | {"DISPLAY": DEAD, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("filmed an episode of 10.0: cartpole.mp4\n", "")


@pytest.mark.parametrize("shown", [["--film", "--gif"], []])
def test_watch_draws_mujoco_apart_from_tensorflow(shown, screen, monkeypatch, tmp_path, capsys):
    """If it drew here, it would end this process."""
    import common.learning.quiet_start  # noqa: F401  TensorFlow, as an agent imports it

    monkeypatch.chdir(tmp_path)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    agent = SimpleNamespace(acting_policy=Swinging, action_map=ACTIONS)
    loaded = agent, PPOConfig(), find_environment("InvertedPendulum-v5", 5)
    monkeypatch.setattr(watch.Arguments, "load", lambda *_: loaded)
    assert call(monkeypatch, watch, "runs/a-run", *shown) == 0
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert "an episode of " in capsys.readouterr().out


def test_a_film_opens_no_window_where_there_is_a_screen(screen, monkeypatch):
    def render(self):
        surface = pygame.display.set_mode((300, 300))  # as some environments do for pictures too
        surface.fill("white")
        pygame.display.flip()
        assert not screen()[:, :, :3].any()
        return pygame.surfarray.array3d(surface)

    monkeypatch.setattr(tiny_envs.Lengths, "render", render)
    frames = list(film.FilmedEpisode(Swinging(), ACTIONS, find_environment("tests/Lengths-v0")))
    assert len(frames) > 1 and frames[0].min() == 255


def test_the_episode_is_the_first_one_of_an_evaluation(screen):
    environment = find_environment("Pendulum-v1", 10)
    score = evaluate(Swinging(), ACTIONS, environment, 1, True, seed=3).returns[0]
    assert window.show(Swinging(), ACTIONS, environment, 3) == f"an episode of {score:.1f} in 10 steps"


def test_an_environment_that_draws_no_windows_is_refused():
    with pytest.raises(UserError, match=r"Lengths.* draws no windows .*--film"):
        window.show(Swinging(), ACTIONS, find_environment("tests/Lengths-v0"), 0)


def test_without_a_screen_there_is_no_window(monkeypatch):
    monkeypatch.setenv("DISPLAY", DEAD)
    with pytest.raises(UserError, match=r"no screen here.*--film"):
        window.show(Swinging(), ACTIONS, find_environment("Pendulum-v1", 10), 0)


def test_a_fault_of_the_screen_is_one_line(screen, monkeypatch):
    def full(*_, **__):
        raise pygame.error("no memory for a window")

    monkeypatch.setattr(pygame.display, "set_mode", full)
    with pytest.raises(UserError, match=r"no window for Pendulum-v1 .*no memory for a window.*--film"):
        window.show(Swinging(), ACTIONS, find_environment("Pendulum-v1", 10), 0)


@pytest.mark.parametrize(
    ("platform", "variables", "there"),
    [
        ("linux", {}, True),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": DEAD}, False),
        ("linux", {"DISPLAY": "", "WAYLAND_DISPLAY": "no-such-wayland"}, False),
        ("linux", {"SDL_VIDEODRIVER": "dummy"}, False),
        ("linux", {"SDL_VIDEODRIVER": "no-such-driver"}, False),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, False),
        ("win32", {}, True),
    ],
)
def test_where_a_screen_is(platform, variables, there, screen, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert window.has_screen() is there
