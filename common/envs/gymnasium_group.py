"""Environments of Gymnasium, stepped in this process."""

import abc
import functools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.groups import Fault, Step
from common.envs.seeded_episodes import Answer, RestorePoint, SeededEpisodes
from common.user_code import describe, own_traceback


class SeparateGroup(abc.ABC):
    """n environments that answer and fail one by one; `rebuild`: see `SeededEpisodes`."""

    def __init__(self, environment: Environment, num_envs: int, rebuild: bool = False) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []
        self.parts = [slice(i, i + 1) for i in range(num_envs)]
        self._environment, self._rebuild = environment, rebuild
        space = environment.observation_space
        self._observations = np.zeros((num_envs, *space.shape), space.dtype)  # [n, *shape]

    def _joined(self, answers: Iterable[Callable[[], Answer]]) -> Step:
        """The step of all environments, whose observations replace those before. An answer may raise anything."""
        rewards = np.zeros(self.num_envs)  # [n]
        terminated, truncated, lost, replaced, failed = np.zeros((5, self.num_envs), bool)  # [n] each
        infos: dict[int, tuple[float, ...]] = {}
        seen = self._observations
        for i, answer in enumerate(answers):
            try:
                seen[i], rewards[i], terminated[i], truncated[i], lost[i], replaced[i], told, _ = answer()
                if told:
                    infos[i] = told
            except Exception as error:  # an environment is the user's code
                self.faults.append(Fault(i, describe(error), own_traceback(error)))
                self._give_up(i)
                failed[i] = True
        ended = terminated | truncated | failed
        return Step(seen, rewards, terminated | lost, truncated, ended, failed, replaced, infos)

    @abc.abstractmethod
    def _give_up(self, i: int) -> None:
        """End an environment that failed; the next step begins an episode in a new one."""


class GymnasiumGroup(SeparateGroup):
    """Environments that step one after the other in this thread, when `recv` asks for the result."""

    def __init__(self, environment: Environment, num_envs: int, rebuild: bool = False) -> None:
        super().__init__(environment, num_envs, rebuild)
        self._envs: list[SeededEpisodes] = []  # built by the first reset
        self._actions = np.zeros(0)  # [n, *action] of the step that `send` started

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is None and self._envs:
            return self._begun({i: env.next_episode for i, env in enumerate(self._envs)})
        self.close()
        self._envs = [SeededEpisodes(self._environment, seed or 0, i, self._rebuild) for i in range(self.num_envs)]
        return self.restore(dict.fromkeys(range(self.num_envs), RestorePoint()))

    def restore(self, points: Mapping[int, RestorePoint]) -> np.ndarray:
        """See `Group.restore`."""
        return self._begun({i: functools.partial(self._envs[i].restore, point) for i, point in points.items()})

    def _begun(self, starts: Mapping[int, Callable[[], np.ndarray]]) -> np.ndarray:
        try:
            for i, start in starts.items():
                self._observations[i] = start()
        except Exception as error:
            raise start_error(self._environment.id, error) from error
        return self._observations[list(starts)]  # [k, *shape]

    def send(self, actions: np.ndarray) -> None:
        """See `Group.send`; the step itself happens in `recv`."""
        self._actions = actions

    def recv(self) -> Step:
        """See `Group.recv`; the next step overwrites only the observations."""
        return self._joined(functools.partial(env.step, action) for env, action in zip(self._envs, self._actions))

    def _give_up(self, i: int) -> None:
        self._envs[i].give_up()

    def close(self) -> None:
        """Close every environment."""
        for env in self._envs:
            env.close()
        self._envs = []
