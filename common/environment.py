"""What is known of an environment, found out once by building it."""

import contextlib
import dataclasses
from dataclasses import dataclass

import gymnasium

from common import atari
from common.make_env import make_env


@dataclass(frozen=True)
class Environment:
    """An environment as the rest of the code knows it: its spaces, its step limit, and how to build one.

    Attributes:
        id: the name that was typed, such as "BipedalWalker-v3" or "my_module:Mine-v0".
        max_episode_steps: the step limit in force; None where there is none.
        observation_space: of what `make` returns: a Box of numbers [S], or of images [H, W, C] uint8.
        action_space: of what `make` returns.
        native_observation_space: before flattening.
        render_modes: those that it can draw in.
        render_fps: pictures a second that show its own pace.
        gymnasium_id: its versioned id where it is one of Gymnasium's own; EnvPool may carry it, too.
        atari_game: ale-py's id where it is an Atari game.
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

    def make(self, render_mode: str | None = None) -> gymnasium.Env:
        """One of them, with its own rewards, flat observations or images, and the step limit.

        Args:
            render_mode: "rgb_array" to film it.

        Raises:
            UserError: it cannot be built.
        """
        return make_env(self.id, self.max_episode_steps, render_mode)

    def limited_to(self, max_episode_steps: int | None) -> "Environment":
        """The same environment with another step limit; None keeps the one in force."""
        if max_episode_steps is None:
            return self
        return dataclasses.replace(self, max_episode_steps=max_episode_steps)


def look_up(env_id: str, max_episode_steps: int | None = None) -> Environment:
    """Build an environment, note what must be known of it, and close it.

    Args:
        env_id: a registered name, as in `gymnasium.make`.
        max_episode_steps: truncate after so many steps; None keeps the environment's own limit.

    Raises:
        UserError: the name is unknown, a package is missing, or a space is not supported.
    """
    with contextlib.closing(make_env(env_id, max_episode_steps)) as env:
        return Environment(
            id=env_id,
            max_episode_steps=_step_limit(env),
            observation_space=env.observation_space,
            action_space=env.action_space,
            native_observation_space=env.unwrapped.observation_space,
            render_modes=tuple(env.metadata.get("render_modes", ())),
            render_fps=int(env.metadata.get("render_fps") or 30),
            gymnasium_id=_gymnasium_id(env),
            atari_game=atari.game_id(env_id),
        )


def _step_limit(env: gymnasium.Env) -> int | None:
    """The smallest limit of its `TimeLimit` wrappers; None where there is none."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)


def _gymnasium_id(env: gymnasium.Env) -> str | None:
    spec = env.unwrapped.spec
    if spec is None or not str(spec.entry_point).startswith("gymnasium.envs."):
        return None
    return spec.id
