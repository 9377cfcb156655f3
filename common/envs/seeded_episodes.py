"""An environment in which every episode has its own seed, so that each episode can be repeated alone."""

import contextlib
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from common.envs.atari import ACTION_REPLACED, LIFE_LOST
from common.envs.environment import Environment
from common.envs.logged_info import logged_numbers

RestoreMethod = Literal["episodes", "rebuilt", "resets", "history"]
"""How environments are restored; `common.rollout.repeatable` says what each way means."""


class RestorePoint(NamedTuple):
    """How to restore one environment: a known start, and the actions since."""

    restart: int = 0  # how many times it was built again from its own seed, at the start of an epoch
    episode: int = 0  # the episode in which the actions begin, counted from 0 since that restart
    actions: np.ndarray = np.zeros((0,))  # [L, *action] as the environment takes them, autoreset steps included
    over: bool = False  # the episode has ended, so the next step begins the next one


def episode_seed(seed: int, index: int, restart: int, episode: int) -> int:
    """An episode's seed in [0, 2³¹), from the run's seed, the environment's index, and a `RestorePoint`'s numbers."""
    return int(np.random.SeedSequence([seed, index, restart, episode]).generate_state(1)[0]) % 2**31


class Answer(NamedTuple):
    """What a step of one environment returned."""

    observation: np.ndarray  # [*shape]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    life_lost: bool = False
    replaced: bool = False  # another action was taken than the one sent
    infos: tuple[float, ...] = ()  # the numbers of info that are logged, if the episode is over
    point: RestorePoint | None = None  # without actions, the episode that a process has got to by repeating them


class SeededEpisodes:
    """One environment with next-step autoreset, which is built when its first episode begins; seeds: `episode_seed`.

    With `rebuild` it is built again for every episode. Box2D needs it: what its world does after a reset depends on
    the bodies it held before.
    """

    def __init__(self, environment: Environment, seed: int, index: int, rebuild: bool = False) -> None:
        self._environment, self._seed, self._index, self._rebuild = environment, seed, index, rebuild
        self._env: gymnasium.Env | None = None
        self._restart = self._episode = 0
        self._over = False

    def restore(self, point: RestorePoint) -> np.ndarray:
        """Build the environment and restore it to a point; its last observation [*shape], zeros if it failed there."""
        self.close()
        self._restart, self._episode, self._over = point.restart, point.episode, point.over
        if point.over and not len(point.actions):  # the next step begins another episode
            return np.zeros(self._environment.observation_space.shape, self._environment.observation_space.dtype)
        self._over = False
        observation = self._begin()
        for action in point.actions:
            observation = self.step(action).observation
        self._over |= point.over
        return observation

    @property
    def point(self) -> RestorePoint:
        """The beginning of the running episode."""
        return RestorePoint(self._restart, self._episode, over=self._over)

    def next_episode(self) -> np.ndarray:
        """Begin the next episode; its first observation [*shape]."""
        self._episode += 1
        self._over = False
        return self._begin()

    def step(self, action: Any) -> Answer:
        """One step; if the episode is over, the next one begins instead."""
        if self._over:
            return Answer(self.next_episode())
        assert self._env is not None, "`restore` comes first"
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._over = bool(terminated or truncated)
        lost, replaced = info.get(LIFE_LOST, False), info.get(ACTION_REPLACED, False)
        names = self._environment.log_info if self._over else ()
        infos = logged_numbers(info, names) if names else ()
        return Answer(self._as_declared(observation), float(reward), terminated, truncated, lost, replaced, infos)

    def give_up(self) -> None:
        """Close an environment that failed; the next step builds a new one for the next episode."""
        self.close()
        self._over = True

    def _as_declared(self, observation: np.ndarray) -> np.ndarray:
        return np.asarray(observation, self._environment.observation_space.dtype)

    def _begin(self) -> np.ndarray:
        if self._rebuild:
            self.close()
        if self._env is None:
            self._env = self._environment.make()
        seed = episode_seed(self._seed, self._index, self._restart, self._episode)
        return self._as_declared(self._env.reset(seed=seed)[0])

    def close(self) -> None:
        """Close the environment, if one is built."""
        if self._env is not None:
            env, self._env = self._env, None
            with contextlib.suppress(Exception, SystemExit):  # a failure to close does not matter any more
                env.close()
