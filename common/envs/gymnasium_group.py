"""Environments of Gymnasium, stepped in this process."""

import functools
from collections.abc import Callable, Mapping

import gymnasium
import numpy as np

from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.groups import Fault, Step
from common.envs.seeded_episodes import Past, SeededEpisodes
from common.user_code import describe, own_traceback


class BoxVectorEnv(gymnasium.vector.SyncVectorEnv):
    """`SyncVectorEnv` for Box spaces and next-step autoreset, without infos.

    Where there is one environment its general `step` takes 12% longer than this one with the walker (LOG.md).
    An environment that raises begins another episode; see `Group`.

    Args:
        name: of the environment, for messages.
        faults: new ones are appended to it.

    Attributes:
        life_lost, replaced, failed, ended: [n] bool; the last step lost a life, or took another action than it was
            given, by its info; the environment failed in it; it ended the episode.
    """

    def __init__(self, makers: list[Callable[[], SeededEpisodes]], name: str, faults: list[Fault]) -> None:
        super().__init__(makers, copy=False)
        self._name, self._faults = name, faults
        self.life_lost, self.replaced, self.failed = (np.zeros(self.num_envs, bool) for _ in range(3))  # [n] each
        self.ended = self._autoreset_envs  # [n]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """As `SyncVectorEnv.step`; the arrays it returns are used again by the next step."""
        failed_before, self.failed = self.failed, np.zeros(self.num_envs, bool)  # [n]
        for i, env in enumerate(self.envs):
            info = {}
            try:
                if self._autoreset_envs[i]:
                    self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
                    self._observations[i], _ = env.reset()
                else:
                    (self._observations[i], self._rewards[i], self._terminations[i], self._truncations[i], info) = (
                        env.step(actions[i])
                    )
            except Exception as error:  # somebody else's code: whatever it raises is a fault of the environment
                if failed_before[i]:
                    raise start_error(self._name, error) from error
                self._note_fault(i, error)
            self.life_lost[i] = info.get("life_lost", False)
            self.replaced[i] = info.get("action_replaced", False)
        self.ended = self._autoreset_envs = self._terminations | self._truncations | self.failed
        return self._observations, self._rewards, self._terminations, self._truncations, {}

    def _note_fault(self, i: int, error: Exception) -> None:
        self._faults.append(Fault(i, describe(error), own_traceback(error)))
        self.envs[i].give_up()
        self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
        self.failed[i] = True

    def bring_back(self, i: int, past: Past) -> np.ndarray:
        """The last observation of an environment that was brought back."""
        self.envs[i].past = past
        self._observations[i], _ = self.envs[i].reset()
        self._autoreset_envs[i] = self.failed[i] = False  # if the episode is over, the environment knows it
        return self._observations[i]


class GymnasiumGroup:
    """Gymnasium's vector environment: steps in this thread, when its result is asked for.

    Args:
        rebuild: see `SeededEpisodes`.
    """

    def __init__(self, environment: Environment, num_envs: int, rebuild: bool = False) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []
        self.parts = [slice(i, i + 1) for i in range(num_envs)]
        self._environment, self._rebuild = environment, rebuild
        self._envs: BoxVectorEnv | None = None
        self._actions: np.ndarray | None = None

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or self._envs is None:
            self.close()
            known = self._environment
            spaces = known.observation_space, known.action_space
            makers = [
                functools.partial(SeededEpisodes, known.make, *spaces, seed or 0, i, self._rebuild)
                for i in range(self.num_envs)
            ]
            self._envs = BoxVectorEnv(makers, known.id, self.faults)
        try:
            return self._envs.reset()[0]
        except Exception as error:
            raise start_error(self._environment.id, error) from error

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        try:
            return np.stack([self._envs.bring_back(i, past) for i, past in pasts.items()])  # [k, *shape]
        except Exception as error:
            raise start_error(self._environment.id, error) from error

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> Step:
        envs = self._envs
        observations, rewards, terminated, truncated, _ = envs.step(self._actions)
        return Step(
            observations, rewards, terminated | envs.life_lost, truncated, envs.ended, envs.failed, envs.replaced
        )

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None
