"""The one place where wrapper order and step limits of an environment are written."""

import difflib
import warnings

import gymnasium

from common import atari
from common.errors import UserError
from common.spaces import check_spaces, is_image


def make_env(env_id: str, max_episode_steps: int | None = None, render_mode: str | None = None) -> gymnasium.Env:
    """A single Gymnasium environment with its own, unshaped reward and a flat observation, or an image [H, W, C].

    Args:
        env_id: a registered name, as in `gymnasium.make`; Atari games are prepared by `common.atari`.
        max_episode_steps: truncate after so many steps; None keeps the environment's own limit.
        render_mode: "rgb_array" to film it.

    Raises:
        UserError: unknown name (near names are told), missing extra, unsupported space.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "out of date" notices are ours to settle, not the user's
            env = _make(env_id, max_episode_steps, render_mode)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"{env_id} needs a package that is missing: {error}") from error
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(env_id, gymnasium.registry, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "see gymnasium.pprint_registry() for the names"
        if not near and atari.may_be_a_game(env_id):
            hint = f"if it is an Atari game, {atari.INSTALL}"
        raise UserError(f"unknown environment {env_id!r}: {hint}") from error
    except (ModuleNotFoundError, ImportError) as error:
        raise UserError(f"{env_id} cannot be loaded: {error}; install the package it needs") from error
    try:
        check_spaces(env_id, env.observation_space, env.action_space)
    except UserError:
        env.close()
        raise
    space = env.observation_space
    if not is_image(space) and (not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1):
        env = gymnasium.wrappers.FlattenObservation(env)  # a Discrete number becomes one 1 among 0s
    return env


def _make(env_id: str, max_episode_steps: int | None, render_mode: str | None) -> gymnasium.Env:
    game = atari.game_id(env_id)
    if game is not None:
        return atari.make_atari(game, max_episode_steps, render_mode)
    rendering = {} if render_mode is None else {"render_mode": render_mode}  # not every one takes it
    return gymnasium.make(env_id, max_episode_steps=max_episode_steps, disable_env_checker=True, **rendering)
