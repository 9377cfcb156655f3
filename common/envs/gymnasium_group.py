"""Environments of Gymnasium, stepped in this process."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.groups import Fault, Step
from common.envs.seeded_episodes import ACTION_REPLACED, LIFE_LOST, RestorePoint, SeededEpisodes
from common.user_code import describe, own_traceback


class BoxVectorEnv(gymnasium.vector.SyncVectorEnv):
    """`SyncVectorEnv` for Box spaces and next-step autoreset, without infos.

    With one BipedalWalker environment the general `SyncVectorEnv.step` takes 12% longer than this one (the log).
    An environment that raises begins another episode; see `Group`.

    Args:
        makers: each builds one environment.
        name: of the environment, for messages.
        faults: failures are appended to this list.

    Attributes:
        life_lost: [n] bool: by its info, the last step lost a life.
        replaced: [n] bool: by its info, the last step took another action than the one sent.
        failed: [n] bool: the environment raised in the last step.
        ended: [n] bool: the last step ended the episode.
    """

    def __init__(self, makers: Sequence[Callable[[], SeededEpisodes]], name: str, faults: list[Fault]) -> None:
        super().__init__(makers, copy=False)
        self._name, self._faults = name, faults
        self.life_lost, self.replaced, self.failed = (np.zeros(self.num_envs, bool) for _ in range(3))  # [n] each
        self.ended = self._autoreset_envs  # [n]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """One step of every environment with actions [n, *action].

        Returns:
            Observations [n, *shape], rewards, terminated and truncated [n], and no infos. The next step overwrites
            the arrays.

        Raises:
            UserError: an environment that failed in the step before cannot be started again.
        """
        self.failed = np.zeros(self.num_envs, bool)  # [n]
        for i, env in enumerate(self.envs):
            info: dict[str, Any] = {}
            try:
                if self._autoreset_envs[i]:
                    self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
                    self._observations[i], _ = env.reset()
                else:
                    (self._observations[i], self._rewards[i], self._terminations[i], self._truncations[i], info) = (
                        env.step(actions[i])
                    )
            except Exception as error:  # the environment is the user's code and may raise anything
                self._note_fault(i, error)
            self.life_lost[i] = info.get(LIFE_LOST, False)
            self.replaced[i] = info.get(ACTION_REPLACED, False)
        self.ended = self._autoreset_envs = self._terminations | self._truncations | self.failed
        return self._observations, self._rewards, self._terminations, self._truncations, {}

    def _seeded(self, i: int) -> SeededEpisodes:
        env = self.envs[i]
        assert isinstance(env, SeededEpisodes), "`makers` build these"
        return env

    def _note_fault(self, i: int, error: Exception) -> None:
        self._faults.append(Fault(i, describe(error), own_traceback(error)))
        self._seeded(i).give_up()
        self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
        self.failed[i] = True

    def restore(self, i: int, point: RestorePoint) -> np.ndarray:
        """Restore environment i; its last observation [*shape]."""
        self._seeded(i).point = point
        self._observations[i], _ = self.envs[i].reset()
        self._autoreset_envs[i] = self.failed[i] = False  # `SeededEpisodes` itself knows if the episode is over
        return self._observations[i]


class GymnasiumGroup:
    """Gymnasium's vector environment. It steps in this thread, when `recv` asks for the result.

    Args:
        environment: what to build.
        num_envs: n, how many.
        rebuild: see `SeededEpisodes`.
    """

    def __init__(self, environment: Environment, num_envs: int, rebuild: bool = False) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []
        self.parts = [slice(i, i + 1) for i in range(num_envs)]
        self._environment, self._rebuild = environment, rebuild
        self._envs: Any = None  # a `BoxVectorEnv`, built by the first reset
        self._actions = np.zeros(0)  # [n, *action] of the step that `send` started

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is not None or self._envs is None:
            self.close()
            known = self._environment
            spaces = known.observation_space, known.action_space
            makers = [
                functools.partial(SeededEpisodes, known.make, *spaces, seed or 0, i, self._rebuild)
                for i in range(self.num_envs)
            ]
            self._envs = BoxVectorEnv(makers, known.id, self.faults)
        self._envs.failed[:] = False  # what failed before begins anew
        try:
            return self._envs.reset()[0]
        except Exception as error:
            raise start_error(self._environment.id, error) from error

    def restore(self, points: Mapping[int, RestorePoint]) -> np.ndarray:
        """See `Group.restore`."""
        try:
            return np.stack([self._envs.restore(i, point) for i, point in points.items()])  # [k, *shape]
        except Exception as error:
            raise start_error(self._environment.id, error) from error

    def send(self, actions: np.ndarray) -> None:
        """See `Group.send`; the step itself happens in `recv`."""
        self._actions = actions

    def recv(self) -> Step:
        """See `Group.recv`."""
        envs = self._envs
        observations, rewards, terminated, truncated, _ = envs.step(self._actions)
        return Step(
            observations, rewards, terminated | envs.life_lost, truncated, envs.ended, envs.failed, envs.replaced
        )

    def close(self) -> None:
        """Close every environment."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None
