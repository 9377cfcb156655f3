"""Atari games of the Arcade Learning Environment, prepared as DQN's were (Mnih et al. 2015), as images [84, 84, 4].

Four frames a step, the last two pooled by their maximum, grey, 84 × 84, the last four steps' images stacked with the
newest last, up to 30 idle frames after a restart, no sticky actions. Rewards are the game's own points and an episode
is a whole game, of 27,000 steps (30 minutes of play) at most.

Two things are done about lives, in training and in evaluation alike:

- The first step of a life presses FIRE in place of the action where the game has that button: without it Breakout
  serves no ball, and a policy that never fires would stand there for the rest of the game. The actor does not learn
  from that step, whose action was not its own. The critic does: whatever the policy chooses, FIRE is what follows from
  that state, so its value is that of FIRE.
- The step that loses a life reports it. Training takes that for a termination, so that nothing is bootstrapped across
  it, but the game goes on with the next step; see `common.envs.groups.Step`.

There are two ways to step them: `make_atari` with Gymnasium's wrappers, and `ale_group.AleGroup` with ale-py's
own vector environment, which needs no Python between frames.
"""

import importlib.util
import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from common.errors import UserError

FRAMES_A_STEP = 4
STACKED = 4
SIZE = 84  # pixels, of both sides
IDLE_FRAMES = 30  # at most, after a restart
STEP_LIMIT = 27_000
NAMES = re.compile(r"(?:ALE/)?([A-Z]\w*?)(?:NoFrameskip|Deterministic)?(?:-v[045])?")
INSTALL = "run 'pip install -r requirements/atari.txt'"
MISSING = f"Atari needs packages that are missing: {INSTALL}"


def game_id(env_id: str) -> str | None:
    """The id that ale-py has for a game, `ALE/Breakout-v5`, or None for another environment.

    `Breakout`, `Breakout-v4` and `BreakoutNoFrameskip-v4` mean the same: what tells these apart, frames a step and
    sticky actions, is settled here.

    Raises:
        UserError: it names a game, but ale-py is not installed.
    """
    certain = env_id.startswith("ALE/") or "NoFrameskip" in env_id
    known = gymnasium.registry.get(env_id)
    if known is not None and not str(known.entry_point).startswith("ale_py"):
        return None
    match = NAMES.fullmatch(env_id)
    if match is None and not certain:
        return None
    try:
        import ale_py  # registers its games
    except ImportError as error:
        if certain:
            raise UserError(f"{env_id}: {MISSING}") from error
        return None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else each emulator greets
    name = f"ALE/{match[1]}-v5" if match else env_id
    return name if certain or name in gymnasium.registry else None


def may_be_a_game(env_id: str) -> bool:
    """Whether a name that nothing knows looks like a game's, and ale-py is not there to tell."""
    return NAMES.fullmatch(env_id) is not None and importlib.util.find_spec("ale_py") is None


def make_atari(
    game: str,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> gymnasium.Env:
    """One game.

    Args:
        game: as `game_id` returns it.
        max_episode_steps: truncate after so many steps; None takes 27,000.
        render_mode: "rgb_array" to film it.
        env_kwargs: more for ale-py, such as mode and difficulty.

    Raises:
        gymnasium.error.Error: there is no such game.
        UserError: OpenCV is missing, or `env_kwargs` has what is settled here.
    """
    settled = {"frameskip": 1, "repeat_action_probability": 0.0, "max_num_frames_per_episode": 0}  # steps: see below
    env_kwargs = env_kwargs or {}
    if clash := sorted(set(env_kwargs) & {*settled, "obs_type"}):
        raise UserError(f"env_kwargs names {', '.join(clash)}, which is settled for Atari games: leave it out")
    env = gymnasium.make(game, render_mode=render_mode, disable_env_checker=True, **settled, **env_kwargs)
    try:
        env = gymnasium.wrappers.AtariPreprocessing(env, IDLE_FRAMES, FRAMES_A_STEP, SIZE)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"{game}: {MISSING}") from error
    env = Lives(env)
    env = gymnasium.wrappers.FrameStackObservation(env, STACKED, padding_type="zero")  # [4, 84, 84]
    space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, STACKED), np.uint8)
    env = gymnasium.wrappers.TransformObservation(env, _channels_last, space)  # [84, 84, 4]
    return gymnasium.wrappers.TimeLimit(env, max_episode_steps or STEP_LIMIT)


def _channels_last(frames: np.ndarray) -> np.ndarray:
    return np.moveaxis(frames, 0, -1)  # [84, 84, 4]


class Lives(gymnasium.Wrapper):
    """Presses FIRE in the first step of each life, which `info["action_replaced"]` says; `info["life_lost"]` says
    that the step lost one.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.metadata = {**env.metadata, "render_fps": 60 // FRAMES_A_STEP}  # a picture a step
        self._fire = fire(env.unwrapped.get_action_meanings())
        self._lives, self._first = 0, True

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._lives, self._first = info["lives"], True
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        replaced = self._first and self._fire is not None
        if replaced:
            action = self._fire
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._first = info["lives"] < self._lives
        self._lives = info["lives"]
        info = {**info, "life_lost": self._first, "action_replaced": replaced}
        return observation, reward, terminated, truncated, info


def fire(meanings: list[str]) -> int | None:
    """The number of the action FIRE, where the game has it."""
    return meanings.index("FIRE") if "FIRE" in meanings else None


def has_vector_environment() -> bool:
    """Whether ale-py is installed with its vector environment, which not every platform's wheel has."""
    try:
        import ale_py
        import cv2  # noqa: F401  `ale_group.AleGroup` lays images out with it
    except ImportError:
        return False
    return hasattr(ale_py, "ALEVectorInterface")
