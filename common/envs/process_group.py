"""Environments in one process each. The processes hold no TensorFlow and end with the process that trains."""

import contextlib
import errno
import functools
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.groups import Fault, Step, quiet_gymnasium
from common.envs.seeded_episodes import READ, Past, SeededEpisodes
from common.envs.worker_processes import TimeLimit, depend_on_parent, signals_held_back, without_program
from common.errors import UserError
from common.user_code import describe, own_traceback, told_elsewhere

# A fork of this process would inherit TensorFlow's threads and the lock of the run; the fork server has neither.
START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PRELOADED = ["numpy", "gymnasium", "common.envs.process_group"]
_NO_ANSWER = multiprocessing.TimeoutError | EOFError | OSError | gymnasium.error.NoAsyncCallError
PATIENCE = 5.0  # seconds to wait for a process to send its exception
FILES = 16  # that may be opened while a process starts


class ProcessGroup:
    """One of Gymnasium's asynchronous vector environments per environment, so that each can fail alone.

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
        self._envs: dict[int, _Process] = {}  # by index, [n] after a reset
        self._seed = 0

    @property
    def processes(self) -> list[multiprocessing.process.BaseProcess]:
        """The process of each environment, [n]; empty before the first reset."""
        return [self._envs[i].processes[0] for i in sorted(self._envs)]

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is not None or not self._envs:
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
                self._observations[i] = self._envs[i].started(TimeLimit(self._time_limit * (1 + len(past.actions))))
        except Exception as error:
            self.close()
            raise start_error(self._environment.id, error) from error
        return self._observations[list(pasts)]  # [k, *shape]

    def _start(self, i: int, past: Past) -> None:
        if i in self._envs:
            self._envs[i].kill()
        self._restarts[i], self._episodes[i] = past.restart, past.episode
        self._ended[i], self._failed[i] = past.over, False
        self._envs[i] = _Process(self._environment, self._seed, i, self._rebuild, past)

    def send(self, actions: np.ndarray) -> None:
        """See `Group.send`."""
        self._left = TimeLimit(self._time_limit)
        for i, env in sorted(self._envs.items()):
            if self._ended[i]:
                self._episodes[i] += 1
            if self._failed[i]:
                self._start(i, Past(self._restarts[i], self._episodes[i]))
                self._failed[i] = True  # until it has started
            else:
                with contextlib.suppress(OSError):  # the process died; `recv` reports it
                    env.step_async(actions[i : i + 1])

    def recv(self) -> Step:
        """See `Group.recv`; the next step overwrites only the observations."""
        rewards = np.zeros(self.num_envs)  # [n]
        terminated, truncated, lost, replaced, failed = np.zeros((5, self.num_envs), bool)  # [n] each
        for i, env in sorted(self._envs.items()):
            if self._failed[i]:
                try:
                    self._observations[i] = env.started(self._left)
                except Exception as error:
                    self.faults.append(Fault(i, *env.what_failed(error, self._time_limit)))
                    env.kill()
                    failed[i] = True
                continue
            try:
                with quiet_gymnasium():
                    observations, reward, terminations, truncations, info = env.step_wait(self._left)  # type: ignore[arg-type]
            except Exception as error:
                self.faults.append(Fault(i, *env.what_failed(error, self._time_limit)))
                env.kill()
                failed[i] = True
                continue
            self._observations[i] = observations[0]
            rewards[i], terminated[i], truncated[i] = reward[0], terminations[0], truncations[0]
            lost[i], replaced[i] = (info.get(name, [False])[0] for name in READ)
        self._failed, self._ended = failed, terminated | truncated | failed
        return Step(self._observations, rewards, terminated | lost, truncated, self._ended.copy(), failed, replaced)

    def close(self) -> None:
        """Kill every process."""
        for env in self._envs.values():
            env.kill()
        self._envs = {}


class _Process(gymnasium.vector.AsyncVectorEnv):
    """One environment in its own process, which starts to build it at once."""

    def __init__(self, environment: Environment, seed: int, index: int, rebuild: bool, past: Past) -> None:
        spaces = environment.observation_space, environment.action_space
        arguments = (environment.make, *spaces, seed, index, rebuild, past)
        maker = functools.partial(_make_in_process, os.getpid(), environment.spec, arguments)
        if START_METHOD == "forkserver":
            multiprocessing.set_forkserver_preload(PRELOADED)
        with _causes_told(), without_program(), signals_held_back():
            super().__init__([maker], shared_memory=False, copy=False, context=START_METHOD)
        self.reset_async()

    def _check_spaces(self) -> None:
        """Do nothing: the spaces are those of the record, and asking the process would wait without a time limit."""

    def _poll_pipe_envs(self, timeout: Any = None) -> bool:
        """As in Gymnasium, where a `TimeLimit` is not known."""
        if not isinstance(timeout, TimeLimit):
            return super()._poll_pipe_envs(timeout)
        [pipe] = self.parent_pipes
        return pipe is not None and not pipe.closed and timeout.answers(pipe)

    def started(self, time_limit: TimeLimit) -> np.ndarray:
        """Wait until the environment is built and restored; its observation [*shape]."""
        try:
            with quiet_gymnasium():
                return self.reset_wait(time_limit)[0][0]  # type: ignore[arg-type]
        except multiprocessing.TimeoutError:
            raise TimeoutError(f"no answer within {time_limit.seconds:.3g} s, see --environment-time-limit") from None

    def what_failed(self, error: Exception, time_limit: float) -> tuple[str, str]:
        """The failure in one line, and its traceback, empty if there is none."""
        process, [pipe] = self.processes[0], self.parent_pipes
        # Without a pipe the environment raised: Gymnasium closed the pipe.
        if pipe is None or not isinstance(error, _NO_ANSWER):
            return describe(error), own_traceback(error)
        process.join(0.1)  # gives a dying process time to end
        if not process.is_alive():
            return f"its process died (exit code {process.exitcode})", ""
        return f"its process did not answer within {time_limit:g} s", ""

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """As in Gymnasium, which waits forever for an exception that a process did not send.

        Raises:
            RuntimeError: the process did not send its exception in time.
        """
        successes = list(successes)
        deadline = time.monotonic() + PATIENCE
        while not all(successes) and self.error_queue.empty():
            if time.monotonic() > deadline:
                self.parent_pipes[0].close()
                self.parent_pipes[0] = None  # type: ignore[call-overload]  # as Gymnasium itself marks a closed pipe
                raise RuntimeError("its process ended before it said what went wrong")
            time.sleep(0.01)
        super()._raise_if_errors(successes)

    def kill(self) -> None:
        """Kill the process without asking it to end, since it may hang."""
        if self.closed:
            return
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.parent_pipes:
            if pipe is not None:
                pipe.close()
        self.closed = True


@contextlib.contextmanager
def _causes_told() -> Iterator[None]:
    """Within this context a process is started; what keeps it from starting is not the environment's fault.

    Raises:
        UserError: it cannot be started on this machine or by this process.
    """
    failed = "no process can be started for an environment"
    if multiprocessing.current_process().daemon:
        raise UserError(
            f"{failed}, since workers of multiprocessing.Pool may start none: use concurrent.futures."
            "ProcessPoolExecutor in its place, or another backend"
        )
    try:
        with contextlib.ExitStack() as opened:  # later the fork server would print a traceback
            for _ in range(FILES):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
    except OSError as error:
        advice = "use fewer --num-envs, or another --backend"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            advice = f"allow more with 'ulimit -n 4096', {advice}"
        elif "AF_UNIX" in str(error):
            advice = "set TMPDIR to a folder with a shorter path, such as /tmp"
        raise UserError(f"{failed} ({error.strerror or error}): {advice}") from error


# -- in the process --


class _ToldEpisodes(SeededEpisodes):
    """Episodes whose errors reach the training process with the place in the user's file."""

    def reset(self, **arguments: Any) -> Any:
        with told_elsewhere():
            return super().reset(**arguments)

    def step(self, action: np.ndarray) -> Any:
        with told_elsewhere():
            return super().step(action)


def _make_in_process(
    parent: int, spec: gymnasium.envs.registration.EnvSpec | None, arguments: tuple[Any, ...]
) -> SeededEpisodes:
    """An environment that is built at its first reset. Gymnasium also calls this in the parent, to read its spaces."""
    if os.getpid() != parent:
        depend_on_parent()
        if spec is not None:
            gymnasium.registry[spec.id] = spec
    return _ToldEpisodes(*arguments)
