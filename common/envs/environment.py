"""What is known about an environment: it is built once to find out."""

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import gymnasium
import numpy as np

from common.config import TrainingConfig
from common.envs import atari
from common.envs.action_masks import WithActionMask
from common.envs.action_repeat import RepeatedActions
from common.envs.environment_check import CheckedSteps, check_environment
from common.envs.make_env import EnvironmentSource, MakeEnv, step_limit, takes_render_mode
from common.envs.registered import gymnasiums_own
from common.envs.spaces import DISCRETE, is_image
from common.envs.supported_spaces import as_numbers_or_image
from common.errors import StartError, UserError
from common.user_code import closed


@dataclass(frozen=True, kw_only=True)
class Environment(EnvironmentSource):
    """What the rest of the code knows about an environment: how to build one, its spaces, and its step limit.

    The id has the version. `max_episode_steps` is the limit in force, None if there is none. The spec is None where
    the id names a module that registers it, and for Atari games.

    Attributes:
        observation_space: of the environments that `make` returns: a Box of numbers [S], or of images [H, W, C] uint8.
        action_space: of the environments that `make` returns.
        native_observation_space: before flattening.
        render_modes: the environment's own, such as "rgb_array".
        render_fps: pictures per second at the environment's own pace; with `action_repeat`, one for each action.
        gymnasium_id: the versioned id of one of Gymnasium's own environments without env_kwargs, registered as
            Gymnasium itself does, which EnvPool may also offer; else None.
        atari_game: ale-py's id of an Atari game; else None.
        action_repeat: for how many steps of the environment itself each action is held.
        action_masks: whether the environment's action mask stands behind each observation.
        log_info: names of the numbers in info that are logged.
        draws_with_mujoco: whether its pictures are drawn by Gymnasium's renderer for MuJoCo.
        remarks: what the user should know of its spaces, a line each.
    """

    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.Space
    native_observation_space: gymnasium.Space
    render_modes: tuple[str, ...] = ()
    render_fps: float = 30
    gymnasium_id: str | None = None
    atari_game: str | None = None
    action_repeat: int = 1
    action_masks: bool = False
    log_info: tuple[str, ...] = ()
    draws_with_mujoco: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def _is_users(self) -> bool:
        """Whether it may be the user's own, so that what it returns is checked."""
        return self.gymnasium_id is None and self.atari_game is None

    @property
    def most_actions(self) -> int | None:
        """The largest number of actions in an episode; None if there is no limit."""
        return None if self.max_episode_steps is None else -(-self.max_episode_steps // self.action_repeat)

    def make(self, render_mode: str | None = None) -> gymnasium.Env:
        """A new environment with its own rewards, flat observations or images, and the step limit.

        Raises:
            UserError: it cannot be built.
        """
        env = self.make_native(render_mode)
        env = as_numbers_or_image(CheckedSteps(env) if self._is_users else env)
        env = RepeatedActions(env, self.action_repeat) if self.action_repeat > 1 else env
        return WithActionMask(env) if self.action_masks else env

    def limited_to(self, max_episode_steps: int | None) -> "Environment":
        """The same environment with another step limit; None keeps the one in force."""
        return self if max_episode_steps is None else dataclasses.replace(self, max_episode_steps=max_episode_steps)

    def holding(self, action_repeat: int | None) -> "Environment":
        """The same environment with each action held for another number of steps; None keeps the number.

        Raises:
            UserError: it is an Atari game, and the number is above 1.
        """
        if action_repeat is None:
            return self
        if action_repeat > 1 and self.atari_game is not None:
            raise UserError(f"actions cannot be held for {self.id}: Atari games hold each one for four frames already")
        render_fps = self.render_fps * self.action_repeat / action_repeat
        return dataclasses.replace(self, action_repeat=action_repeat, render_fps=render_fps)

    def check(self, restarts: int = 0) -> tuple[str, ...]:
        """Reset and step the environment once if it is the user's own or has a mask, to find mistakes before training.

        Args:
            restarts: how often it is built again if its reset fails, and reset with another seed.

        Returns:
            What the user should know of it, a line each.

        Raises:
            UserError: its reset or its step fails, or returns a value that does not fit its spaces.
        """
        if not (self._is_users or self.action_masks):
            return ()
        for seed in range(restarts + 1):
            try:
                with closed(self.make_native()) as env:
                    has_mask = check_environment(self.id, env, self.action_masks, seed)
                break
            except StartError:
                if seed == restarts:
                    raise
        untold = has_mask and not self.action_masks and isinstance(self.action_space, DISCRETE)
        return ("it says which actions are allowed; with --action-masks no others are taken",) if untold else ()


def find_environment(
    env_id: str,
    max_episode_steps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    maker: MakeEnv | None = None,
    action_repeat: int = 1,
    wrappers: tuple[str, ...] = (),
    action_masks: bool = False,
    image_size: int = atari.SIZE,
) -> Environment:
    """Build an environment, record what is known about it, and close it.

    For the arguments see `Environment` and `EnvironmentSource`; a `maker` needs no id.

    Raises:
        UserError: the name is unknown, a package is missing, or a space is not supported.
    """
    env_id = env_id if maker is None else name_of(maker)
    atari_game = atari.game_id(env_id) if maker is None else None
    _check_named(env_id, maker, atari_game is not None, wrappers, image_size)
    kwargs = env_kwargs or {}
    source = EnvironmentSource(
        id=env_id, max_episode_steps=max_episode_steps, env_kwargs=kwargs, wrappers=wrappers, maker=maker,
        image_size=image_size,
    )  # fmt: skip
    env = source.make_native()
    with closed(env):
        if maker is not None:
            _check_new(source, env)
        flat = prepared(env_id, env, action_masks)
        built = env.unwrapped.spec if maker is None and atari_game is None else None
        spec = None if built is None else gymnasium.spec(built.id)
        module, colon, _ = env_id.rpartition(":")
        is_gymnasiums = spec is not None and spec == gymnasiums_own().get(spec.id) and not (wrappers or kwargs)
        changed = dataclasses.replace(
            source,
            id=env_id if spec is None else module + colon + spec.id,  # with the version that Gymnasium chose
            max_episode_steps=step_limit(env),
            spec=None if spec is None or ":" in env_id else _sendable(spec),
        )
        assert isinstance(flat.observation_space, gymnasium.spaces.Box), "`as_numbers_or_image` makes it one"
        return Environment(
            **vars(changed),
            observation_space=flat.observation_space,
            action_space=flat.action_space,
            native_observation_space=env.observation_space,
            render_modes=_render_modes(env, maker),
            render_fps=_render_fps(env),
            gymnasium_id=spec.id if spec is not None and is_gymnasiums else None,
            atari_game=atari_game,
            action_masks=action_masks,
            draws_with_mujoco=hasattr(env.unwrapped, "mujoco_renderer"),
            remarks=tuple(_remarks(env)),
        ).holding(action_repeat)


def _check_named(
    env_id: str, maker: MakeEnv | None, is_game: bool, wrappers: tuple[str, ...], image_size: int
) -> None:
    """Raises UserError for a function's environment without it, and what is only for Atari games, or not for them."""
    if maker is None and env_id.endswith(")"):
        raise UserError(
            f"the environment {env_id} was made by a function of a Python program: use it from there with "
            "make_env=the function, or name a registered one with --env"
        )
    if wrappers and is_game:
        raise UserError(f"wrappers are not for {env_id}: Atari games are prepared here already; leave --wrappers out")
    if image_size != atari.SIZE and not is_game:
        raise UserError(f"image_size {image_size} is for Atari games, not for {env_id}: leave --image-size out")


def prepared(env_id: str, env: gymnasium.Env, action_masks: bool) -> gymnasium.Env:
    """The environment with its observations as the networks get them.

    Raises:
        UserError: they cannot be made.
    """
    env = as_numbers_or_image(env)
    if action_masks and is_image(env.observation_space):
        raise UserError(f"action_masks is for observations with numbers, {env_id} shows images alone: leave it out")
    if action_masks and not isinstance(env.action_space, DISCRETE):
        kind = type(env.action_space).__name__
        raise UserError(f"action_masks is for actions that are choices, {env_id} has {kind} actions: leave it out")
    return WithActionMask(env) if action_masks else env


def _remarks(env: gymnasium.Env) -> Iterator[str]:
    """What the user should know of an environment's spaces."""
    if env.has_wrapper_attr("left_out"):
        yield f"observations have the text {', '.join(env.get_wrapper_attr('left_out'))}, which is left out"
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Box) and (constant := np.flatnonzero(space.low == space.high)).size:
        yield (
            f"{constant.size} of the {space.low.size} dimensions of action_space have one value only (number "
            f"{', '.join(map(str, constant[:9] + 1))}), where the agent cannot change anything"
        )


def _render_fps(env: gymnasium.Env) -> int:
    """Pictures per second, 30 if the metadata do not tell."""
    fps = (env.metadata or {}).get("render_fps")
    return max(1, round(float(fps))) if isinstance(fps, Real) and math.isfinite(fps) and fps else 30


def environment_of(config: TrainingConfig, maker: MakeEnv | None = None) -> Environment:
    """What is known about the environment that the settings name; arguments and errors: see `find_environment`."""
    kwargs, limit, repeat = config.env_kwargs, config.max_episode_steps, config.action_repeat[0]
    own = config.wrappers, config.action_masks, config.image_size
    found = find_environment(config.env, limit, kwargs, maker, repeat, *own)
    return dataclasses.replace(found, log_info=config.log_info)


def played_environment_of(config: TrainingConfig, maker: MakeEnv | None = None) -> Environment:
    """The environment of the settings as a trained agent plays it: its actions are held for `play_action_repeat`."""
    return environment_of(config, maker).holding(config.play_action_repeat)


def name_of(maker: MakeEnv) -> str:
    """'make_rocket()', as run folders and messages name a function or class that builds environments.

    Raises:
        UserError: it is neither a function nor a class.
    """
    if isinstance(maker, gymnasium.Env) or not callable(maker):
        raise UserError(
            f"make_env is {maker!r:.80}: expected a function or class that builds a new environment, "
            "like lambda: Mine()"
        )
    function = getattr(maker, "func", maker)  # of a functools.partial
    name = getattr(function, "__name__", type(function).__name__)
    return ("lambda" if name == "<lambda>" else name) + "()"


def _check_new(source: EnvironmentSource, env: gymnasium.Env) -> None:
    """Raises UserError if a function returns the same environment twice, since several are stepped at once."""
    with closed(env):  # perhaps only one may exist
        pass
    with closed(source.make_native()) as other:
        if other.unwrapped is env.unwrapped:
            raise UserError(f"{source.id} returned the same environment twice: expected a new one from each call")


def _sendable(spec: gymnasium.envs.registration.EnvSpec) -> gymnasium.envs.registration.EnvSpec:
    """The spec with the class itself if it names one of `__main__`, which is another module in other processes."""
    entry: Any = spec.entry_point
    if isinstance(entry, str) and entry.startswith("__main__:"):
        spec, entry = copy.copy(spec), gymnasium.envs.registration.load_env_creator(entry)
        spec.entry_point = entry
    return spec


def _render_modes(env: gymnasium.Env, maker: MakeEnv | None) -> tuple[str, ...]:
    if maker is not None and not takes_render_mode(maker):
        return () if env.render_mode is None else (env.render_mode,)
    return tuple((env.metadata or {}).get("render_modes") or ())
