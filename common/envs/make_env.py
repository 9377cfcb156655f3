"""Builds environments: the only place that decides the order of wrappers and the step limit."""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from common.envs import atari
from common.envs.environment_check import CheckedSteps
from common.envs.registered import constructor_error, make_registered, unknown_environment, wrapped
from common.envs.spaces import as_numbers_or_image, check_spaces, without_texts
from common.errors import UserError

MakeEnv = Callable[..., gymnasium.Env]
"""Builds a new environment: a function or class. It gets `env_kwargs`, and `render_mode` if it has that argument."""


def make_env(
    env_id: str,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    maker: MakeEnv | None = None,
    checked: bool = False,
    wrappers: Sequence[str] = (),
) -> gymnasium.Env:
    """A single Gymnasium environment with its own, unshaped reward and flat observations [S], or images [H, W, C].

    Args:
        env_id: a registered name, as in `gymnasium.make`; Atari games are prepared by `common.envs.atari`.
        max_episode_steps: truncate after this many steps; None keeps the environment's own limit.
        render_mode: "rgb_array" to film it.
        env_kwargs: arguments for its constructor.
        maker: builds it in place of `gymnasium.make`; `env_id` is then its name in messages.
        checked: whether it checks what it returns in every step; see `CheckedSteps`.
        wrappers: names of classes that wrap it, module:Class.

    Raises:
        UserError: unknown name (the message suggests similar ones), missing package, faulty constructor, unsupported
            space, or a limit above the environment's own `TimeLimit`.
    """
    env = make_native_env(env_id, max_episode_steps, render_mode, env_kwargs, maker, wrappers)
    return as_numbers_or_image(CheckedSteps(env) if checked else env)


def make_native_env(
    env_id: str,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    maker: MakeEnv | None = None,
    wrappers: Sequence[str] = (),
) -> gymnasium.Env:
    """As `make_env`, but with the environment's own observations, which need not be flat; texts are left out."""
    kwargs = env_kwargs or {}
    if maker is not None:
        env = _make_own(env_id, maker, max_episode_steps, render_mode, kwargs)
    elif (game := atari.game_id(env_id)) is not None:
        env = _make_atari(env_id, game, max_episode_steps, render_mode, kwargs)
    else:
        env = make_registered(env_id, max_episode_steps, render_mode, kwargs)
    try:
        env = wrapped(env_id, env, wrappers)
        _, action_space = (_space(env_id, env, name) for name in ("observation_space", "action_space"))
        env = without_texts(env)
        check_spaces(env_id, env.observation_space, action_space)
        _check_limit(env_id, env, max_episode_steps)
    except UserError:
        with contextlib.suppress(Exception):
            env.close()
        raise
    return env


def step_limit(env: gymnasium.Env) -> int | None:
    """The smallest limit, in steps, of an environment's `TimeLimit` wrappers; None if it has none."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)  # noqa: SLF001  no public name
        env = env.env
    return min(limits, default=None)


def takes_render_mode(maker: MakeEnv) -> bool:
    """Whether a function or class has an argument `render_mode`."""
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # a class written in C
        return False
    return any(p.name == "render_mode" or p.kind is p.VAR_KEYWORD for p in parameters)


def _make_own(
    name: str, maker: MakeEnv, max_episode_steps: int | None, render_mode: str | None, kwargs: Mapping[str, Any]
) -> gymnasium.Env:
    rendering = {"render_mode": render_mode} if render_mode is not None and takes_render_mode(maker) else {}
    try:
        env = maker(**rendering, **kwargs)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise constructor_error(name, error, kwargs) from error
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{name} returned {env!r:.80}: expected a new gymnasium.Env")
    return env if max_episode_steps is None else gymnasium.wrappers.TimeLimit(env, max_episode_steps)


def _make_atari(
    env_id: str, game: str, max_episode_steps: int | None, render_mode: str | None, kwargs: Mapping[str, Any]
) -> gymnasium.Env:
    try:
        return atari.make_atari(game, max_episode_steps, render_mode, kwargs)
    except gymnasium.error.Error as error:
        raise unknown_environment(env_id) from error
    except TypeError as error:
        raise constructor_error(env_id, error, kwargs) from error


def _space(name: str, env: gymnasium.Env, which: str) -> gymnasium.Space:
    space = getattr(env, which, None)
    if space is None:
        raise UserError(f"{name} has no {which}: set self.{which} in its constructor")
    if not isinstance(space, gymnasium.Space):
        raise UserError(
            f"{name} has {space!r:.80} as {which}: expected one of gymnasium.spaces, like Box(-1, 1, (2,))"
        )
    return space


def _check_limit(name: str, env: gymnasium.Env, asked: int | None) -> None:
    limit = step_limit(env)
    if asked is not None and limit is not None and limit < asked:
        raise UserError(
            f"max_episode_steps is {asked}, but {name} brings a TimeLimit of its own that ends episodes after {limit} "
            f"steps: use --max-episode-steps {limit} or less, or leave that wrapper out"
        )
