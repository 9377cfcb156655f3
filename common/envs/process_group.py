"""Environments in one process each. The processes hold no TensorFlow and end with the process that trains."""

import errno
import functools
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle
import numpy as np

from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.groups import Fault, Step
from common.envs.seeded_episodes import READ, Past, SeededEpisodes
from common.envs.worker_processes import CannotStartError, TimeLimit, Worker
from common.errors import UserError
from common.user_code import describe, own_traceback, told_elsewhere

Answer = tuple[
    np.ndarray, Any, bool, bool, bool, bool
]  # observation, reward, terminated, truncated, and those of READ


class ProcessGroup:
    """Environments of which each is a `Worker`, so that it can fail alone.

    Args:
        environment: what to build.
        num_envs: n, how many.
        rebuild: see `SeededEpisodes`.
        time_limit: seconds that building, resetting and each step may take before the process counts as failed.
    """

    def __init__(
        self, environment: Environment, num_envs: int, rebuild: bool = False, time_limit: float = 60.0
    ) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []
        self.parts = [slice(i, i + 1) for i in range(num_envs)]
        self._environment, self._rebuild, self._time_limit = environment, rebuild, time_limit
        self._workers: dict[int, Worker] = {}  # by index, [n] after a reset
        self._seed = 0

    @property
    def processes(self) -> list[BaseProcess]:
        """The process of each environment, [n]; empty before the first reset."""
        return [self._workers[i].process for i in sorted(self._workers)]

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is not None or not self._workers:
            self.close()
            self._seed = seed or 0
            space = self._environment.observation_space
            self._observations = np.zeros((self.num_envs, *space.shape), space.dtype)  # [n, *shape]
            self._restarts, self._episodes = np.zeros((2, self.num_envs), int)  # [n] each; see `Past`
            self._ended, self._failed = np.zeros((2, self.num_envs), bool)  # [n] each
            pasts = dict.fromkeys(range(self.num_envs), Past())
        else:
            pasts = {i: Past(self._restarts[i], self._episodes[i] + 1) for i in range(self.num_envs)}
        self.bring_back(pasts)
        return self._observations

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        """See `Group.bring_back`; each environment gets a new process."""
        try:
            for i, past in pasts.items():
                self._start(i, past)
            for i, past in pasts.items():
                limit = TimeLimit(self._time_limit * (1 + len(past.actions)))
                self._observations[i] = self._workers[i].result(limit)[0]
        except Exception as error:
            self.close()
            raise start_error(self._environment.id, error) from error
        return self._observations[list(pasts)]  # [k, *shape]

    def _start(self, i: int, past: Past) -> None:
        """Start a process, which builds its environment at once."""
        if i in self._workers:
            self._workers[i].end()
        self._restarts[i], self._episodes[i] = past.restart, past.episode
        self._ended[i], self._failed[i] = past.over, False
        known = self._environment
        spaces = known.observation_space, known.action_space
        make = functools.partial(SeededEpisodes, known.make, *spaces, self._seed, i, self._rebuild, past)
        worker = self._workers[i] = Worker(cloudpickle.dumps(_InProcess(make)))
        try:
            worker.start()
        except CannotStartError as error:
            raise _refused(error.__cause__) from error
        worker.give(0, [None])

    def send(self, actions: np.ndarray) -> None:
        """See `Group.send`."""
        self._left = TimeLimit(self._time_limit)
        for i, worker in sorted(self._workers.items()):
            if self._ended[i]:
                self._episodes[i] += 1
            if self._failed[i]:
                self._start(i, Past(self._restarts[i], self._episodes[i]))
            else:
                worker.give(0, [actions[i]])

    def recv(self) -> Step:
        """See `Group.recv`; the next step overwrites only the observations."""
        rewards = np.zeros(self.num_envs)  # [n]
        terminated, truncated, lost, replaced, failed = np.zeros((5, self.num_envs), bool)  # [n] each
        for i, worker in sorted(self._workers.items()):
            try:
                answer: Answer = worker.result(self._left)
                self._observations[i], rewards[i] = answer[:2]
                terminated[i], truncated[i], lost[i], replaced[i] = answer[2:]
            except Exception as error:
                self.faults.append(Fault(i, describe(error), own_traceback(error)))
                worker.end()
                failed[i] = True
        self._failed, self._ended = failed, terminated | truncated | failed
        return Step(self._observations, rewards, terminated | lost, truncated, self._ended.copy(), failed, replaced)

    def close(self) -> None:
        """Kill every process."""
        for worker in self._workers.values():
            worker.end()
        self._workers = {}


class _InProcess:
    """What a process computes: called with None it resets its environment, with an action it steps it.

    Errors reach the training process with the place in the user's file.
    """

    def __init__(self, make: Callable[[], SeededEpisodes]) -> None:
        self._make = make
        self._env: SeededEpisodes | None = None
        self._ended = False

    def __call__(self, action: np.ndarray | None) -> Answer:
        with told_elsewhere():
            if self._env is None:
                self._env = self._make()
            if action is None or self._ended:
                self._ended = False
                return self._env.reset()[0], 0.0, False, False, False, False
            observation, reward, terminated, truncated, info = self._env.step(action)
            self._ended = bool(terminated or truncated)
            lost, replaced = (info.get(name, False) for name in READ)
            return observation, reward, terminated, truncated, lost, replaced


def _refused(cause: BaseException | None) -> UserError:
    """Why a process cannot be started on this machine or by this process; it is not the environment's fault."""
    failed = "no process can be started for an environment"
    if isinstance(cause, AssertionError):
        return UserError(
            f"{failed}, since workers of multiprocessing.Pool may start none: use concurrent.futures."
            "ProcessPoolExecutor in its place, or another backend"
        )
    advice = "use fewer --num-envs, or another --backend"
    if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
        advice = f"allow more with 'ulimit -n 4096', {advice}"
    elif "AF_UNIX" in str(cause):
        advice = "set TMPDIR to a folder with a shorter path, such as /tmp"
    return UserError(f"{failed} ({getattr(cause, 'strerror', None) or cause}): {advice}")
