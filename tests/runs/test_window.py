"""An episode in a window: drawn by the environment, and one line where there is no screen."""

import sys

import numpy as np
import pytest
from gymnasium.spaces import Box

from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.errors import UserError
from common.rollout.evaluation import evaluate
from common.runs import window

ACTIONS = action_map(Box(-2.0, 2.0, (1,)))


class Swinging:
    """Pendulum's observation decides."""

    is_plain = True

    def act(self, observations, noise=None):
        return np.sin(9 * observations[:, :1]).astype(np.float32)


def test_the_episode_is_the_first_one_of_an_evaluation(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # a screen that nobody sees
    environment = find_environment("Pendulum-v1", 10)
    score = evaluate(Swinging(), ACTIONS, environment, 1, True, seed=3).returns[0]
    assert window.show(Swinging(), ACTIONS, environment, 3) == f"an episode of {score:.1f} in 10 steps"


def test_an_environment_that_draws_no_windows_is_refused():
    with pytest.raises(UserError, match=r"Lengths.* draws no windows .*--film"):
        window.show(Swinging(), ACTIONS, find_environment("tests/Lengths-v0"), 0)


def without_screen(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_screen_there_is_no_window(monkeypatch):
    without_screen(monkeypatch)
    with pytest.raises(UserError, match=r"no screen here.*--film"):
        window.show(Swinging(), ACTIONS, find_environment("Pendulum-v1", 10), 0)


def test_a_fault_of_the_screen_is_one_line(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "no-such-driver")
    with pytest.raises(UserError, match=r"no window for Pendulum-v1 .*--film"):
        window.show(Swinging(), ACTIONS, find_environment("Pendulum-v1", 10), 0)


@pytest.mark.parametrize(
    ("platform", "variables", "there"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, False),
        ("win32", {}, True),
    ],
)
def test_where_a_screen_is(platform, variables, there, monkeypatch):
    without_screen(monkeypatch)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert window.has_screen() is there
