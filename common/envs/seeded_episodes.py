"""An environment in which every episode has its own seed, so that each episode can be repeated alone."""

import contextlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, SupportsFloat

import gymnasium
import numpy as np

LIFE_LOST, ACTION_REPLACED = "atari/life_lost", "atari/action_replaced"  # in an info; see `common.envs.atari.Lives`
READ = (LIFE_LOST, ACTION_REPLACED)  # what of an info is kept; other values may not be picklable

Way = Literal["episodes", "rebuilt", "resets", "history"]
"""How environments are restored; `common.rollout.repeatable` says what each way means."""


class Past(NamedTuple):
    """How to restore one environment: a known start, and the actions since."""

    restart: int = 0  # how many times it was built again from its own seed, at the start of an epoch
    episode: int = 0  # the episode in which the actions begin, counted from 0 since that restart
    actions: np.ndarray = np.zeros((0,))  # [L, *action] as the environment takes them, autoreset steps included
    over: bool = False  # the episode has ended, so the next step begins the next one


def episode_seed(seed: int, index: int, restart: int, episode: int) -> int:
    """An episode's seed in [0, 2³¹), from the run's seed, the environment's index, and the numbers in `Past`."""
    return int(np.random.SeedSequence([seed, index, restart, episode]).generate_state(1)[0]) % 2**31


class SeededEpisodes(gymnasium.Env):
    """One environment, built at its first reset. Each `reset` begins the next episode with that episode's seed.

    Args:
        make: builds the environment.
        observation_space, action_space: of the environment that `make` builds.
        seed, index: see `episode_seed`.
        rebuild: build the environment again for every episode. Box2D needs it: what its world does after a reset
            depends on the bodies it held before.
        past: where the first reset restores the environment to; None begins the first episode.

    Attributes:
        past: if set, the next reset builds a new environment and restores it to this point.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env],
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        seed: int = 0,
        index: int = 0,
        rebuild: bool = False,
        past: Past | None = None,
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.metadata, self.render_mode = {}, None
        self._make, self._seed, self._index, self._rebuild = make, seed, index, rebuild
        self._env: Any = None  # built by the first reset
        self._restart = self._episode = 0
        self._over = False
        self.past: Past | None = past or Past()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The first observation of the next episode, or the last one of `past`; `seed` and `options` are ignored."""
        past, self.past = self.past, None
        if past is not None:
            return self._as_declared(self._bring_back(past)), {}
        self._episode += 1
        self._over = False
        return self._as_declared(self._begin()), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step; if a restored episode is already over, the next one begins instead (next-step autoreset)."""
        if self._over:
            return self.reset()[0], 0.0, False, False, {}
        observation, reward, terminated, truncated, info = self._env.step(action)
        if isinstance(reward, np.ndarray):
            reward = reward.item()
        observation = self._as_declared(observation)
        return observation, reward, terminated, truncated, {name: info[name] for name in READ if name in info}

    def give_up(self) -> None:
        """Close an environment that failed; the next reset builds a new one for the next episode."""
        self._close()

    def _as_declared(self, observation: np.ndarray) -> np.ndarray:
        """The observation in the dtype of the observation space, which vector environments require."""
        return np.asarray(observation, self.observation_space.dtype)

    def _begin(self) -> np.ndarray:
        if self._rebuild:
            self._close()
        if self._env is None:
            self._env = self._make()
        return self._env.reset(seed=episode_seed(self._seed, self._index, self._restart, self._episode))[0]

    def _bring_back(self, past: Past) -> np.ndarray:
        self._close()
        self._restart, self._episode = past.restart, past.episode
        observation, over = self._begin(), False
        for action in past.actions:
            if over:
                self._episode += 1
                observation, over = self._begin(), False
            else:
                observation, _, terminated, truncated, _ = self._env.step(action)
                over = terminated or truncated
        self._over = over or past.over
        return observation

    def _close(self) -> None:
        if self._env is not None:
            env, self._env = self._env, None
            with contextlib.suppress(Exception):  # a failure to close does not matter any more
                env.close()

    def close(self) -> None:
        """Close the environment, if one is built."""
        self._close()
