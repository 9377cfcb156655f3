"""Environments in processes of their own, which hold no TensorFlow and end with the process that trains."""

import contextlib
import ctypes
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

import gymnasium
import numpy as np

from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.groups import Fault, Step, quiet_gymnasium
from common.envs.seeded_episodes import Past, SeededEpisodes
from common.envs.worker_processes import interrupts_held_back, without_program
from common.user_code import describe, own_traceback

# A fork of this process would inherit TensorFlow's threads and the lock of the run; the fork server has neither.
START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PRELOADED = ["numpy", "gymnasium", "common.envs.process_group"]
PR_SET_PDEATHSIG = 1
PATIENCE = 5.0  # seconds for an exception on its way from a process


class ProcessGroup:
    """Gymnasium's asynchronous vector environment, one for each environment, so that each fails for itself.

    Args:
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
        self._envs: list[_Process | None] = []
        self._seed = 0

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or not self._envs:
            self.close()
            self._seed = seed or 0
            self._envs = [None] * self.num_envs
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
        try:
            for i, past in pasts.items():
                self._start(i, past)
            for i, past in pasts.items():
                self._observations[i] = self._envs[i].started(self._time_limit * (1 + len(past.actions)))
        except Exception as error:
            self.close()
            raise start_error(self._environment.id, error) from error
        return self._observations[list(pasts)]  # [k, *shape]

    def _start(self, i: int, past: Past) -> None:
        if self._envs[i] is not None:
            self._envs[i].kill()
        self._restarts[i], self._episodes[i] = past.restart, past.episode
        self._ended[i], self._failed[i] = past.over, False
        self._envs[i] = _Process(self._environment, self._seed, i, self._rebuild, past)

    def send(self, actions: np.ndarray) -> None:
        self._deadline = time.monotonic() + self._time_limit
        for i, env in enumerate(self._envs):
            if self._ended[i]:
                self._episodes[i] += 1
            if self._failed[i]:
                self._start(i, Past(self._restarts[i], self._episodes[i]))
                self._failed[i] = True  # until it has started
            else:
                with contextlib.suppress(OSError):  # of a dead process; `recv` finds out
                    env.step_async(actions[i : i + 1])

    def recv(self) -> Step:
        """The next step; its arrays are new ones, its observations are overwritten by the one after."""
        rewards = np.zeros(self.num_envs)  # [n]
        terminated, truncated, lost, replaced, failed = np.zeros((5, self.num_envs), bool)  # [n] each
        for i, env in enumerate(self._envs):
            left = max(0.0, self._deadline - time.monotonic())
            if self._failed[i]:
                try:
                    self._observations[i] = env.started(left)
                except Exception as error:
                    self.close()
                    raise start_error(self._environment.id, error) from error
                continue
            try:
                with quiet_gymnasium():
                    observations, reward, terminations, truncations, info = env.step_wait(left)
            except Exception as error:
                self.faults.append(Fault(i, *env.what_failed(error, self._time_limit)))
                env.kill()
                failed[i] = True
                continue
            self._observations[i] = observations[0]
            rewards[i], terminated[i], truncated[i] = reward[0], terminations[0], truncations[0]
            lost[i], replaced[i] = (info.get(name, [False])[0] for name in ("life_lost", "action_replaced"))
        self._failed, self._ended = failed, terminated | truncated | failed
        return Step(self._observations, rewards, terminated | lost, truncated, self._ended.copy(), failed, replaced)

    def close(self) -> None:
        for env in self._envs:
            if env is not None:
                env.kill()
        self._envs = []


class _Process(gymnasium.vector.AsyncVectorEnv):
    """One environment in a process, which begins to build it at once."""

    def __init__(self, environment: Environment, seed: int, index: int, rebuild: bool, past: Past) -> None:
        spaces = environment.observation_space, environment.action_space
        arguments = (environment.make, *spaces, seed, index, rebuild, past)
        maker = functools.partial(_make_in_process, os.getpid(), environment.spec, arguments)
        if START_METHOD == "forkserver":
            multiprocessing.set_forkserver_preload(PRELOADED)
        with without_program(), interrupts_held_back():
            super().__init__([maker], shared_memory=False, copy=False, context=START_METHOD)
        self.reset_async()

    def _check_spaces(self) -> None:
        """Both are the ones that were handed over; asking would wait without a limit."""

    def started(self, time_limit: float) -> np.ndarray:
        """The observation after building and bringing back, [*shape]."""
        with quiet_gymnasium():
            return self.reset_wait(time_limit)[0][0]

    def what_failed(self, error: Exception, time_limit: float) -> tuple[str, str]:
        """One line, and its traceback where there is one."""
        process, [pipe] = self.processes[0], self.parent_pipes
        # Gymnasium closed the pipe after the environment raised, or could not read what it returned.
        if pipe is None or not isinstance(error, multiprocessing.TimeoutError | EOFError | OSError):
            return describe(error), own_traceback(error)
        process.join(0.1)  # so that a process that is dying is dead
        if not process.is_alive():
            return f"its process died (exit code {process.exitcode})", ""
        return f"its process did not answer within {time_limit:g} s", ""

    def _raise_if_errors(self, successes: Sequence[bool]) -> None:
        """As Gymnasium's, which would wait for ever for an exception that cannot be pickled."""
        deadline = time.monotonic() + PATIENCE
        while not all(successes) and self.error_queue.empty():
            if time.monotonic() > deadline:
                self.parent_pipes[0].close()
                self.parent_pipes[0] = None
                raise RuntimeError("it raised an exception that cannot be sent to another process")
            time.sleep(0.01)
        super()._raise_if_errors(successes)

    def kill(self) -> None:
        """End the process without asking it anything, since it may hang."""
        if self.closed:
            return
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.parent_pipes:
            if pipe is not None:
                pipe.close()
        self.closed = True


# -- in the process --


def _make_in_process(
    parent: int, spec: gymnasium.envs.registration.EnvSpec | None, arguments: tuple[Any, ...]
) -> SeededEpisodes:
    """An environment that its first reset builds; the parent calls this, too, to read its spaces."""
    if os.getpid() != parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C and SIGTERM are left to the process that trains
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _end_with_parent()
        if spec is not None:
            gymnasium.registry[spec.id] = spec
    return SeededEpisodes(*arguments)


def _end_with_parent() -> None:
    """By the kernel on Linux, where the fork server ends with the parent; by a thread elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    sentinel = multiprocessing.parent_process().sentinel
    threading.Thread(target=_exit_after, args=(sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
