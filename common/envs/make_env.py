"""Builds environments with their own observations and their step limit."""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from common.envs import atari
from common.envs.registered import constructor_error, make_registered, unknown_environment, wrapped
from common.envs.supported_spaces import check_spaces, without_texts
from common.errors import UserError

MakeEnv = Callable[..., gymnasium.Env]
"""Builds a new environment: a function or class. It gets `env_kwargs`, and `render_mode` if it has that argument."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSource:
    """What an environment is built from."""

    id: str  # a registered name, as in `gymnasium.make`, such as "BipedalWalker-v3", or "function()"
    max_episode_steps: int | None = None  # steps of the environment itself; None keeps its own limit
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)  # arguments for the constructor
    wrappers: tuple[str, ...] = ()  # names of the classes that wrap it, module:Class, the outermost last
    maker: MakeEnv | None = None  # the function or class that builds it; None for Gymnasium's registry
    spec: gymnasium.envs.registration.EnvSpec | None = None  # is built in place of what is registered as `id`
    image_size: int = atari.SIZE  # height and width of an Atari game's images, in pixels

    def make_native(self, render_mode: str | None = None) -> gymnasium.Env:
        """A new environment with its own rewards and its own observations, but for texts; `render_mode` films it.

        Raises:
            UserError: unknown name (the message suggests similar ones), missing package, faulty constructor,
                unsupported space, or a limit above the environment's own `TimeLimit`.
        """
        env = wrapped(self.id, self._make_unwrapped(render_mode), self.wrappers)
        try:
            for name in ("observation_space", "action_space"):
                _check_space(self.id, env, name)
            env = without_texts(env)
            check_spaces(self.id, env.observation_space, env.action_space)
            self._check_limit(env)
        except UserError:
            with contextlib.suppress(Exception, SystemExit):
                env.close()
            raise
        return env

    def _make_unwrapped(self, render_mode: str | None) -> gymnasium.Env:
        if self.maker is not None:
            return self._make_own(self.maker, render_mode)
        game = atari.game_id(self.id) if self.spec is None else None
        if game is None:
            return make_registered(self.id, self.spec, self.max_episode_steps, render_mode, self.env_kwargs)
        try:
            return atari.make_atari(game, self.max_episode_steps, render_mode, self.env_kwargs, self.image_size)
        except gymnasium.error.Error as error:
            raise unknown_environment(self.id) from error
        except (TypeError, RuntimeError) as error:
            raise constructor_error(self.id, error, self.env_kwargs) from error

    def _make_own(self, maker: MakeEnv, render_mode: str | None) -> gymnasium.Env:
        rendering = {"render_mode": render_mode} if render_mode is not None and takes_render_mode(maker) else {}
        try:
            env = maker(**rendering, **self.env_kwargs)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise constructor_error(self.id, error, self.env_kwargs) from error
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{self.id} returned {env!r:.80}: expected a new gymnasium.Env")
        limit = self.max_episode_steps
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)

    def _check_limit(self, env: gymnasium.Env) -> None:
        asked, limit = self.max_episode_steps, step_limit(env)
        if asked is not None and limit is not None and limit < asked:
            raise UserError(
                f"max_episode_steps is {asked}, but {self.id} brings a TimeLimit of its own that ends episodes after "
                f"{limit} steps: use --max-episode-steps {limit} or less, or leave that wrapper out"
            )


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


def _check_space(name: str, env: gymnasium.Env, which: str) -> None:
    space = getattr(env, which, None)
    if space is None:
        raise UserError(f"{name} has no {which}: set self.{which} in its constructor")
    if not isinstance(space, gymnasium.Space):
        raise UserError(
            f"{name} has {space!r:.80} as {which}: expected one of gymnasium.spaces, like Box(-1, 1, (2,))"
        )
