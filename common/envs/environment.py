"""What is known of an environment, found out once by building it."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from common.envs import atari
from common.envs.environment_check import check_environment
from common.envs.make_env import MakeEnv, make_env, make_native_env, step_limit, takes_render_mode
from common.envs.spaces import as_numbers_or_image
from common.errors import UserError
from common.user_code import closed


@dataclass(frozen=True)
class Environment:
    """An environment as the rest of the code knows it: its spaces, its step limit, and how to build one.

    Attributes:
        id: its name with the version, such as "BipedalWalker-v3" or "my_module:Mine-v0"; or "function()".
        max_episode_steps: the step limit in force; None where there is none.
        observation_space: of what `make` returns: a Box of numbers [S], or of images [H, W, C] uint8.
        action_space: of what `make` returns.
        native_observation_space: before flattening.
        render_modes: those that it can draw in.
        render_fps: pictures a second that show its own pace.
        gymnasium_id: its versioned id where it is one of Gymnasium's own, as it is; EnvPool may carry it, too.
        atari_game: ale-py's id where it is an Atari game.
        env_kwargs: what its constructor is given.
        maker: the function or class that builds it, where it is not Gymnasium's registry.
        spec: Gymnasium's of it where no module is named that registers it, so that another process can.
    """

    id: str
    max_episode_steps: int | None
    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.Space
    native_observation_space: gymnasium.Space
    render_modes: tuple[str, ...] = ()
    render_fps: int = 30
    gymnasium_id: str | None = None
    atari_game: str | None = None
    env_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    maker: MakeEnv | None = None
    spec: gymnasium.envs.registration.EnvSpec | None = None

    def make(self, render_mode: str | None = None) -> gymnasium.Env:
        """One of them, with its own rewards, flat observations or images, and the step limit.

        Args:
            render_mode: "rgb_array" to film it.

        Raises:
            UserError: it cannot be built.
        """
        if self.spec is not None:
            gymnasium.registry.setdefault(self.spec.id, self.spec)
        return make_env(self.id, self.max_episode_steps, render_mode, self.env_kwargs, self.maker)

    def limited_to(self, max_episode_steps: int | None) -> "Environment":
        """The same environment with another step limit; None keeps the one in force."""
        if max_episode_steps is None:
            return self
        return dataclasses.replace(self, max_episode_steps=max_episode_steps)

    def check(self) -> None:
        """Take a step in one of the user's own, so that what it does wrong is told before anything is trained.

        Raises:
            UserError: its reset or its step fails, or returns what does not fit its spaces.
        """
        if self.gymnasium_id is None and self.atari_game is None:
            env = make_native_env(self.id, self.max_episode_steps, None, self.env_kwargs, self.maker)
            with closed(env):
                check_environment(self.id, env)


def find_environment(
    env_id: str,
    max_episode_steps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    maker: MakeEnv | None = None,
) -> Environment:
    """Build an environment, note what must be known of it, and close it.

    Args:
        env_id: a registered name, as in `gymnasium.make`; not read where there is a `maker`.
        max_episode_steps: truncate after so many steps; None keeps the environment's own limit.
        env_kwargs: for its constructor.
        maker: a function or class that builds a new one each time, in place of `gymnasium.make`.

    Raises:
        UserError: the name is unknown, a package is missing, or a space is not supported.
    """
    if maker is not None:
        env_id = name_of(maker)
    elif env_id.endswith(")"):
        raise UserError(
            f"the environment {env_id} was made by a function of a Python program: use it from there with "
            "make_env=the function, or name a registered one with --env"
        )
    env_kwargs = env_kwargs or {}
    env = make_native_env(env_id, max_episode_steps, None, env_kwargs, maker)
    with closed(env):
        gymnasium_id = None if maker is not None else _gymnasium_id(env)
        atari_game = None if maker is not None else atari.game_id(env_id)
        if maker is not None:
            _check_new(env_id, env, maker, env_kwargs)
        spec = None if maker is not None or atari_game is not None else gymnasium.spec(env.unwrapped.spec.id)
        flat = as_numbers_or_image(env)
        return Environment(
            id=env_id if spec is None else _full_id(env_id, spec),
            max_episode_steps=step_limit(env),
            observation_space=flat.observation_space,
            action_space=flat.action_space,
            native_observation_space=env.observation_space,
            render_modes=_render_modes(env, maker),
            render_fps=max(1, round((env.metadata or {}).get("render_fps") or 30)),
            gymnasium_id=gymnasium_id if not env_kwargs else None,
            atari_game=atari_game,
            env_kwargs=env_kwargs,
            maker=maker,
            spec=None if spec is None or ":" in env_id else _sendable(spec),
        )


def name_of(maker: MakeEnv) -> str:
    """'make_rocket()', as run folders and messages name a function or class that builds environments.

    Raises:
        UserError: it is neither.
    """
    if isinstance(maker, gymnasium.Env) or not callable(maker):
        raise UserError(
            f"make_env is {maker!r:.80}: expected a function or class that builds a new environment, "
            "like lambda: Mine()"
        )
    function = getattr(maker, "func", maker)  # of a functools.partial
    name = getattr(function, "__name__", type(function).__name__)
    return ("lambda" if name == "<lambda>" else name) + "()"


def _check_new(name: str, env: gymnasium.Env, maker: Callable, env_kwargs: Mapping[str, Any]) -> None:
    """Raises UserError where a function returns one environment again and again: several are stepped at once."""
    other = make_native_env(name, None, None, env_kwargs, maker)
    if other.unwrapped is env.unwrapped:
        raise UserError(f"{name} returned the same environment twice: expected a new one from each call")
    with closed(other):
        pass


def _sendable(spec: gymnasium.envs.registration.EnvSpec) -> gymnasium.envs.registration.EnvSpec:
    """With the class itself where it is named as one of the running program, which is another in other processes."""
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
        spec = copy.copy(spec)
        spec.entry_point = gymnasium.envs.registration.load_env_creator(spec.entry_point)
    return spec


def _full_id(env_id: str, spec: gymnasium.envs.registration.EnvSpec) -> str:
    """With the version that Gymnasium chose where none was typed, so that a run folder means it for good."""
    module, colon, _ = env_id.rpartition(":")
    return module + colon + spec.id


def _render_modes(env: gymnasium.Env, maker: MakeEnv | None) -> tuple[str, ...]:
    if maker is not None and not takes_render_mode(maker):
        return () if env.render_mode is None else (env.render_mode,)
    return tuple((env.metadata or {}).get("render_modes") or ())


def _gymnasium_id(env: gymnasium.Env) -> str | None:
    spec = env.unwrapped.spec
    if spec is None or not str(spec.entry_point).startswith("gymnasium.envs."):
        return None
    return spec.id
