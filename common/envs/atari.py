"""Atari games of the Arcade Learning Environment, prepared as DQN's were (Mnih et al. 2015), as images [H, H, 4].

A step repeats its action for four frames and returns the maximum of the last two, in grey, scaled to H × H pixels
by the areas of its own, H = 84 if no setting says otherwise.
An observation stacks the images of the last four steps, the newest last. After a restart up to 30 frames pass without
an action. There are no sticky actions. Rewards are the game's own points, and an episode is a whole game of at most
27,000 steps (30 minutes of play).

Training and evaluation treat lives alike:

- If the game has a FIRE button, the first step of a life presses it in place of the policy's action: without FIRE
  Breakout serves no ball, and a policy that never fires would wait until the time is up. The actor does not learn
  from that step, because the action was not its own. The critic does: FIRE follows from that state whatever the policy
  chooses, so the state's value is that of FIRE.
- The step that loses a life reports it. Training treats it as a termination, so that nothing is bootstrapped across
  it, but the game continues with the next step; see `common.envs.groups.Step`.

With `one_life` in `env_kwargs` an episode is a single life, as in the published Breakout programs: the game begins
anew after each lost life, no frames pass without an action, FIRE is left to the policy, and the first image fills the
stack.

Two classes step the games: `make_atari` uses Gymnasium's wrappers, and `ale_group.AleGroup` uses ale-py's vector
environment, which runs no Python between frames.
"""

import functools
import importlib.util
import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from common.errors import UserError

FRAMES_A_STEP = 4
STACKED = 4
SIZE = 84  # pixels, height and width, if the settings do not say
IDLE_FRAMES = 30  # the most frames that pass without an action after a restart
STEP_LIMIT = 27_000
NAMES = re.compile(r"(?:ALE/)?([A-Z]\w*?)(?:NoFrameskip|Deterministic)?(?:-v[045])?")
LIFE_LOST, ACTION_REPLACED = "atari/life_lost", "atari/action_replaced"  # in an info; see `FireEachLife`
INSTALL = "run 'pip install -r requirements/atari.txt'"
MISSING = f"Atari needs packages that are missing: {INSTALL}"


def game_id(env_id: str) -> str | None:
    """ale-py's id of a game, such as `ALE/Breakout-v5`; None for another environment.

    `Breakout`, `Breakout-v4` and `BreakoutNoFrameskip-v4` all mean the same game here: they differ only in frames per
    step and sticky actions, which this module fixes.

    Raises:
        UserError: the id is certainly a game's, but ale-py is not installed.
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
    """Whether an unregistered name could be that of a game, given that ale-py is not installed."""
    return NAMES.fullmatch(env_id) is not None and importlib.util.find_spec("ale_py") is None


def make_atari(
    game: str, max_episode_steps: int | None, render_mode: str | None, env_kwargs: Mapping[str, Any], image_size: int
) -> gymnasium.Env:
    """One game, with observations [image_size, image_size, 4] uint8, of 27,000 steps where there is no other limit.

    Args:
        env_kwargs: further arguments for ale-py, such as mode and difficulty; and `one_life`, a bool.

    Raises:
        gymnasium.error.Error: there is no such game.
        UserError: OpenCV is missing, or `env_kwargs` sets what this module fixes.
    """
    # `AtariPreprocessing` repeats frames, and `TimeLimit` bounds the steps.
    fixed: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0, "max_num_frames_per_episode": 0}
    env_kwargs = dict(env_kwargs)
    one_life = env_kwargs.pop("one_life", False)
    if clash := sorted(set(env_kwargs) & {*fixed, "obs_type"}):
        raise UserError(f"env_kwargs names {', '.join(clash)}, which is fixed for Atari games: leave it out")
    env = gymnasium.make(game, render_mode=render_mode, disable_env_checker=True, **fixed, **env_kwargs)
    try:
        idle = 0 if one_life else IDLE_FRAMES
        env = gymnasium.wrappers.AtariPreprocessing(
            env, idle, FRAMES_A_STEP, image_size, terminal_on_life_loss=one_life
        )
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"{game}: {MISSING}") from error
    env.metadata = {**env.metadata, "render_fps": 60 // FRAMES_A_STEP}  # one picture per step
    env = env if one_life else FireEachLife(env)
    padding = "reset" if one_life else "zero"
    env = gymnasium.wrappers.FrameStackObservation(env, STACKED, padding_type=padding)  # [4, H, H]
    space = gymnasium.spaces.Box(0, 255, (image_size, image_size, STACKED), np.uint8)
    channels_last = functools.partial(np.moveaxis, source=0, destination=-1)
    env = gymnasium.wrappers.TransformObservation(env, channels_last, space)  # [H, H, 4]
    return gymnasium.wrappers.TimeLimit(env, max_episode_steps or STEP_LIMIT)


class FireEachLife(gymnasium.Wrapper):
    """Presses FIRE in the first step of each life.

    In the info, `ACTION_REPLACED` says that a step pressed FIRE, and `LIFE_LOST` that it lost a life.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._fire = fire(env.get_wrapper_attr("get_action_meanings")())
        self._lives, self._first = 0, True

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's; begins a game."""
        observation, info = self.env.reset(**kwargs)
        self._lives, self._first = info["lives"], True
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's, with `LIFE_LOST` and `ACTION_REPLACED` in the info."""
        replaced = self._first and self._fire is not None
        observation, reward, terminated, truncated, info = self.env.step(self._fire if replaced else action)
        self._first, self._lives = info["lives"] < self._lives, info["lives"]
        info = {**info, LIFE_LOST: self._first, ACTION_REPLACED: replaced}
        return observation, reward, terminated, truncated, info


def fire(meanings: list[str]) -> int | None:
    """The index of the action FIRE in the names of a game's actions; None if the game has none."""
    return meanings.index("FIRE") if "FIRE" in meanings else None


def has_vector_environment() -> bool:
    """Whether OpenCV and ale-py are installed, and ale-py with its vector environment, which some wheels lack."""
    try:
        import ale_py
        import cv2  # noqa: F401  `ale_group.AleGroup` lays images out with it
    except ImportError:
        return False
    return hasattr(ale_py, "ALEVectorInterface")
