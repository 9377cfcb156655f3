"""Environments in one process each. The processes hold no TensorFlow and end with the process that trains."""

import errno
import functools
from collections.abc import Mapping

import cloudpickle
import numpy as np

from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.groups import Step
from common.envs.gymnasium_group import SeparateGroup
from common.envs.seeded_episodes import Answer, RestorePoint, SeededEpisodes
from common.envs.worker_processes import CannotStartError, ResponseTimeLimit, Worker
from common.errors import UserError
from common.user_code import told_elsewhere


class ProcessGroup(SeparateGroup):
    """Environments of which each is a `Worker`, so that it can fail alone.

    Args:
        time_limit: seconds that building, resetting and each step may take before the process counts as failed.
    """

    def __init__(
        self, environment: Environment, num_envs: int, rebuild: bool = False, time_limit: float = 60.0
    ) -> None:
        super().__init__(environment, num_envs, rebuild)
        self._time_limit = time_limit
        self._workers: dict[int, Worker] = {}  # by index, [n] after a reset
        self._points: dict[int, RestorePoint] = {}  # by index, the running episode without its actions
        self._failed: set[int] = set()  # indices of those that failed in the last step
        self._seed = 0

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is None and self._workers:
            points = {i: _next_episode(point) for i, point in self._points.items()}
        else:
            self.close()
            self._seed = seed or 0
            points = dict.fromkeys(range(self.num_envs), RestorePoint())
        return self.restore(points)

    def restore(self, points: Mapping[int, RestorePoint]) -> np.ndarray:
        """See `Group.restore`; each environment gets a new process."""
        try:
            self._failed -= set(points)
            for i, point in points.items():
                self._start(i, point)
            for i, point in points.items():
                limit = ResponseTimeLimit(self._time_limit * (1 + len(point.actions)))
                answer = self._workers[i].result(limit)
                self._observations[i], self._points[i] = answer.observation, answer.point
        except Exception as error:
            for i in points:  # the others go on
                if i in self._workers:
                    self._workers.pop(i).end()
            if isinstance(error.__cause__, CannotStartError):
                raise  # starting it again would not help
            raise start_error(self._environment.id, error) from error
        return self._observations[list(points)]  # [k, *shape]

    def _start(self, i: int, point: RestorePoint) -> None:
        """Start a process, which builds its environment at once."""
        if i in self._workers:
            self._workers[i].end()
        self._points[i] = point._replace(actions=point.actions[:0])
        env = SeededEpisodes(self._environment, self._seed, i, self._rebuild)
        worker = self._workers[i] = Worker(cloudpickle.dumps(functools.partial(_in_process, env, point)))
        try:
            worker.start()
        except CannotStartError as error:
            raise _refused(error.__cause__) from error
        worker.give(None)

    def send(self, actions: np.ndarray) -> None:
        """See `Group.send`."""
        self._left = ResponseTimeLimit(self._time_limit)
        failed, self._failed = self._failed, set()
        for i, worker in sorted(self._workers.items()):
            if self._points[i].over:
                self._points[i] = _next_episode(self._points[i])
            if i in failed:
                self._start(i, self._points[i])
            else:
                worker.give(actions[i])

    def recv(self) -> Step:
        """See `Group.recv`; the next step overwrites only the observations."""
        step = self._joined(functools.partial(self._workers[i].result, self._left) for i in range(self.num_envs))
        self._points = {i: point._replace(over=bool(step.ended[i])) for i, point in self._points.items()}
        return step

    def _give_up(self, i: int) -> None:
        self._workers[i].end()
        self._failed.add(i)

    def close(self) -> None:
        """Kill every process."""
        for worker in self._workers.values():
            worker.end()
        self._workers = {}


def _next_episode(point: RestorePoint) -> RestorePoint:
    return RestorePoint(point.restart, point.episode + 1)


def _in_process(env: SeededEpisodes, point: RestorePoint, action: np.ndarray | None) -> Answer:
    """What a process computes: without an action it restores its environment, else it steps it."""
    with told_elsewhere():
        return Answer(env.restore(point), point=env.point) if action is None else env.step(action)


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
