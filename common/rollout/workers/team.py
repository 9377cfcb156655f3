"""The workers of a run on Ray: who steps which shards, and who replaces whom."""

import atexit
import contextlib
import dataclasses
import os
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from threadpoolctl import threadpool_info

from common import progress
from common.errors import UserError
from common.rollout.workers.cluster import Cluster, Workers
from common.rollout.workers.shard import Columns, Here, Host, Recipe, Task
from common.user_code import describe

LOSSES = 5  # of workers while they performed the same task, after which the run ends
PATIENCE = 60.0  # seconds that a task may take at least
SLOWEST = 10.0  # times what tasks take by the median, that one may take
START = 60.0  # seconds for the first worker to start
TOGETHER = 10.0  # seconds for the others, after which the first epoch begins without them
TICK = 1.0  # seconds between looks at the clock


class Remote:
    """What a worker process runs: a `Host` made from a pickled recipe.

    Args:
        path: folders in which the training process finds modules.
        recipe: by cloudpickle.
    """

    def __init__(self, path: list[str], recipe: bytes) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        self._host: Host | None = None
        self._problem = ""
        try:
            self._host = Host(cloudpickle.loads(recipe))
        except Exception as error:  # such as a module that this process does not find
            self._problem = describe(error)

    def hello(self) -> tuple[str, tuple[str, int], dict[str, Any]]:
        """What keeps it from working, empty if nothing does; address of its machine and process; its `computing`."""
        import ray

        return self._problem, (ray.util.get_node_ip_address(), os.getpid()), computing()

    def perform(self, *task: Any) -> Any:
        """See `Host.perform`."""
        assert self._host is not None, "a worker with a problem gets no tasks"
        return self._host.perform(*task)


def computing() -> dict[str, Any]:
    """What decides how this process rounds: NumPy's version and the kernels of its BLAS; and which modules it has."""
    kernels = {str(pool.get("architecture")) for pool in threadpool_info() if pool["user_api"] == "blas"}
    return {"numpy": np.__version__, "kernels": kernels, "modules": {name.split(".")[0] for name in sys.modules}}


@dataclasses.dataclass(eq=False)
class Worker:
    """A worker as the training process sees it."""

    number: int
    actor: Any
    hello: Any  # reference to its first answer
    is_ready: bool = False
    node: str = ""  # address of its machine
    process: int = 0
    since: float = 0.0  # when it began the task that it performs now

    def __str__(self) -> str:
        return f"worker {self.number}" + ("" if self.node in ("", "127.0.0.1") else f" on {self.node}")


@dataclasses.dataclass(eq=False)
class Begun:
    """Tasks that workers perform."""

    tasks: list[Task]
    values: dict[int, Any] = dataclasses.field(default_factory=dict)  # task → what it returned
    losses: Counter[int] = dataclasses.field(default_factory=Counter)  # of workers, by task
    waiting: dict[Any, tuple[Worker, int]] = dataclasses.field(default_factory=dict)  # reference → who, which task
    repeated: dict[int, int] = dataclasses.field(default_factory=dict)  # task → steps that a restore makes before it


class Shared(NamedTuple):
    """A value in Ray's object store."""

    value: Any
    reference: Any


class _VanishedError(Exception):
    """The cluster is gone."""


class Team:
    """Workers that perform tasks; lost ones are replaced, and their tasks are performed again. See `Runner`.

    Args:
        recipe: of the environments.
        cluster: where the workers run.
        number: how many there are at most; never more than shards.
        warn: called with a line about each worker that is lost.

    Attributes:
        workers: those that have started, or were asked for.
        homes: shard → who performs its tasks.

    Raises:
        UserError: the environment cannot be sent to workers.
    """

    def __init__(self, recipe: Recipe, cluster: Cluster, number: int, warn: Callable[[str], None] = print) -> None:
        import ray

        self._ray, self._cluster, self._recipe, self._warn = ray, cluster, recipe, warn
        shards = len(recipe.build().groups)
        if number > shards:
            warn(f"{number} workers were asked for, and {shards} started: a run of {_count(shards, 'shard')} has no "
                 "work for more")  # fmt: skip
        self._number = min(number, shards)
        self._content = ray.put(_pickled(recipe))
        self._class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Remote)
        self._computing = computing()
        self.interrupted = ""
        self._here: Here | None = None  # performs the tasks once the cluster is gone
        self.workers: list[Worker] = []
        self.homes: dict[int, Worker] = {}
        self._held: dict[int, tuple[Worker, int]] = {}  # shard → who holds it, and the stamp of its state
        self._durations: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=256))  # method → seconds
        self._step_seconds: deque[float] = deque(maxlen=256)  # of collected steps
        self._has_begun = False
        self._started = self._broken = 0  # workers; those that died before their first answer
        for _ in range(self._number):
            self._start()

    @property
    def ready(self) -> int:
        """How many workers have started."""
        return sum(worker.is_ready for worker in self.workers)

    # -- tasks --

    def share(self, value: Any) -> Any:
        """See `Runner`."""
        if self._here is not None:
            return value
        try:
            return Shared(value, self._ray.put(value))
        except Exception:  # `perform` finds out whether the cluster is gone
            return value

    def perform(self, tasks: list[Task]) -> list[Any]:
        """See `Runner`. Once the cluster is gone this process performs the tasks."""
        if self._here is None:
            try:
                self._check_cluster()  # workers answer without it, but after a minute Ray ends this process
                self._admit()
                self._balance()
                begun = Begun(tasks)
                for i in range(len(tasks)):
                    self._give(i, begun)
                return self._answers(begun)
            except _VanishedError:
                self.interrupted = f"the Ray cluster at {self._cluster.address} is gone"
                self.workers.clear()
                self._cluster.close()
                self._here = Here(self._recipe)
        return self._here.perform([task._replace(arguments=tuple(map(_value, task.arguments))) for task in tasks])

    def _answers(self, begun: Begun) -> list[Any]:
        """Wait for all tasks; those of a lost worker are given to another one."""
        tasks, waiting = begun.tasks, begun.waiting
        while waiting:
            progress.tell("shards", len(tasks) - len(waiting), len(tasks))
            for reference in self._answered(list(waiting)):
                if reference not in waiting:  # its worker was lost in this turn
                    continue
                worker, i = waiting[reference]
                try:
                    begun.values[i] = self._ray.get(reference)
                except self._ray.exceptions.RayTaskError:  # a mistake in this code, not in the user's
                    raise
                except self._ray.exceptions.RayError as error:
                    self._replace(worker, _cause(error), begun)
                    continue
                del waiting[reference]
                self._note(worker, tasks[i], begun.values[i])
            for worker in {worker for worker, _ in waiting.values()}:
                its = [i for one, i in waiting.values() if one is worker]
                limit = self._limit(tasks[its[0]].method, sum(begun.repeated.get(i, 0) for i in its))
                if time.monotonic() - worker.since > limit:
                    self._replace(worker, f"it did not answer within {limit:.0f} s", begun)
        return [begun.values[i] for i in range(len(tasks))]

    def _give(self, i: int, begun: Begun) -> None:
        """Let a worker perform the task of this number."""
        task = begun.tasks[i]
        worker = self._home(task.shard)
        needs = task.before is not None and self._held.get(task.shard) != (worker, task.before)
        snapshot = task.snapshot() if needs else None
        self._held.pop(task.shard, None)
        arguments = [value.reference if isinstance(value, Shared) else value for value in task.arguments]
        if all(worker is not one for one, _ in begun.waiting.values()):
            worker.since = time.monotonic()
        try:
            reference = worker.actor.perform.remote(task.shard, task.method, snapshot, *arguments)
        except Exception as error:
            self._check_cluster(error)
            raise
        begun.waiting[reference] = worker, i
        if snapshot is not None:
            begun.repeated[i] = sum(len(past.actions) for past in snapshot.pasts.values())

    def _answered(self, references: list[Any]) -> list[Any]:
        """Those of some references whose answers are there; none after a second.

        Raises:
            _VanishedError: the cluster is gone.
        """
        try:
            answered, _ = self._ray.wait(references, timeout=TICK)
            if answered and len(references) > 1:  # all that are there, lest one that is only unread seems late
                answered, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        except Exception as error:
            self._check_cluster(error)
            raise
        if not answered:
            self._check_cluster()
        return answered

    def _note(self, worker: Worker, task: Task, value: Any) -> None:
        """A task was performed."""
        now = time.monotonic()
        self._durations[task.method].append(now - worker.since)
        worker.since = now
        if isinstance(value, Columns):
            self._step_seconds.append((value.timing.environment + value.timing.policy) / max(1, value.failed.size))
        if not isinstance(value, UserError):
            self._held[task.shard] = worker, task.after

    def _limit(self, method: str, repeated: int) -> float:
        """Seconds that a task may take; without an end before the first one of its kind was performed.

        Args:
            method: of `Host`.
            repeated: steps that are made before it, to restore shards.
        """
        known, step = self._durations[method], self._step_seconds
        if not known or (repeated and not step):
            return float("inf")
        restoring = repeated * statistics.median(step) if repeated else 0.0
        return max(PATIENCE, SLOWEST * (statistics.median(known) + restoring))

    # -- workers --

    def _start(self) -> None:
        """Ask for another worker, which starts as soon as the cluster has room."""
        actor: Any = self._class.remote([folder or "." for folder in sys.path], self._content)
        self._started += 1
        self.workers.append(Worker(self._started, actor, actor.hello.remote()))

    def _admit(self) -> None:
        """Take up the workers that have started; before the first tasks, wait for them.

        Raises:
            UserError: none starts, or it cannot work.
            _VanishedError: the cluster is gone.
        """
        began, first = time.monotonic(), not self._has_begun
        while True:
            for worker in [worker for worker in self.workers if not worker.is_ready]:
                self._greet(worker)
            ready = self.ready
            waited = time.monotonic() - began
            if ready == len(self.workers) or (ready and (not first or waited > TOGETHER)):
                break
            if waited > START:
                raise UserError(
                    f"no worker started within {START:.0f} s: see with 'ray status' that the cluster has free "
                    "processors, or leave --workers out"
                )
            self._answered([worker.hello for worker in self.workers if not worker.is_ready])
        self._has_begun = True
        if first and ready < self._number:
            self._warn(f"{ready} of {self._number} workers have started; the others join when the cluster has room")

    def _greet(self, worker: Worker) -> None:
        """Take up a worker if it has started."""
        if not self._ray.wait([worker.hello], timeout=0)[0]:
            return
        try:
            problem, (worker.node, worker.process), its = self._ray.get(worker.hello)
        except self._ray.exceptions.RayError as error:
            self._check_cluster(error)
            self._broken += 1
            if self._broken > LOSSES:
                self._leave_out(worker, f"workers end while they start ({_cause(error)})", "leave --workers out")
                return
            self._drop(worker)
            self._start()
            return
        if problem:
            fault = f"{worker} cannot build {self._recipe.environment.id} ({problem})"
            self._leave_out(worker, fault, "install the same packages and put the same modules on every machine")
            return
        if its["numpy"] != self._computing["numpy"] or not its["kernels"] <= self._computing["kernels"]:
            self._warn(
                f"warning: {worker} rounds otherwise than this process (NumPy {its['numpy']}, "
                f"{'/'.join(sorted(its['kernels']))}): numbers may differ in the last digit from a run without it"
            )
        worker.is_ready, self._broken = True, 0

    def _leave_out(self, worker: Worker, fault: str, advice: str) -> None:
        """Drop a worker that cannot work; before the first tasks, or if there is no other one, the run ends.

        Raises:
            UserError: the run ends.
        """
        self._drop(worker)
        if not self._has_begun or not self.workers:
            raise UserError(f"{fault}: {advice}")
        self._warn(f"warning: {fault}, so the run continues without it: {advice}")

    def _home(self, shard: int) -> Worker:
        """Who performs a shard's tasks; where that worker was lost, the one with the fewest shards."""
        if shard not in self.homes:
            if not any(worker.is_ready for worker in self.workers):
                self._admit()
            load = Counter(self.homes.values())
            self.homes[shard] = min((w for w in self.workers if w.is_ready), key=lambda worker: load[worker])
        return self.homes[shard]

    def _balance(self) -> None:
        """Hand shards from the worker with the most to the one with the fewest, until these differ by one at most."""
        ready = [worker for worker in self.workers if worker.is_ready]
        while self.homes:
            load = Counter({worker: 0 for worker in ready})
            load.update(self.homes.values())
            (most, many), (fewest, few) = load.most_common(1)[0], load.most_common()[-1]
            if many - few < 2:
                return
            shard = next(shard for shard, worker in self.homes.items() if worker is most)
            self.homes[shard] = fewest
            most.actor.perform.remote(shard, "leave", None)

    def _replace(self, worker: Worker, cause: str, begun: Begun) -> None:
        """Another worker takes the place of a lost one; its tasks are performed by those that there are.

        Raises:
            UserError: as many workers as may be were lost while they performed the same task.
            _VanishedError: the cluster is gone.
        """
        self._drop(worker)
        left = {reference: i for reference, (one, i) in begun.waiting.items() if one is worker}
        for reference in left:
            del begun.waiting[reference]
        self._check_cluster()
        performed = next(iter(left.values()))
        begun.losses[performed] += 1
        if begun.losses[performed] == LOSSES:
            shard = begun.tasks[performed].shard
            raise UserError(
                f"{LOSSES} workers were lost one after the other with shard {shard} ({cause}): fix "
                "the environment if it crashes or hangs, which --backend processes shows"
            )
        self._warn(f"warning: {worker} was lost ({cause}); another one steps its {_count(len(left), 'shard')} again")
        self._start()
        for i in left.values():
            self._give(i, begun)

    def _drop(self, worker: Worker) -> None:
        """End a worker and forget what it held."""
        with contextlib.suppress(Exception):  # it may be gone already
            self._ray.kill(worker.actor, no_restart=True)
        self.workers.remove(worker)
        self.homes = {shard: one for shard, one in self.homes.items() if one is not worker}
        self._held = {shard: held for shard, held in self._held.items() if held[0] is not worker}

    def _check_cluster(self, error: Exception | None = None) -> None:
        """Raises _VanishedError if the cluster is gone."""
        if not self._cluster.answers():
            raise _VanishedError from error

    def close(self) -> None:
        """End the workers."""
        if self._here is not None:
            self._here.close()
        for worker in list(self.workers):
            self._drop(worker)


class Crew:
    """Makes the workers of a run, all on one cluster, which starts at once in the background.

    Args:
        workers: how many, and where.
        warn: see `Team`.
    """

    def __init__(self, workers: Workers, warn: Callable[[str], None]) -> None:
        self._workers, self._warn = workers, warn
        self._cluster: Future[Cluster] = Future()
        self._closed = threading.Event()
        threading.Thread(target=self._keep, daemon=True).start()
        atexit.register(self.close)

    def _keep(self) -> None:
        """Start the cluster and stay: Linux kills its processes with the thread that started them."""
        try:
            self._cluster.set_result(Cluster(self._workers.cluster, self._workers.number))
        except BaseException as error:
            self._cluster.set_exception(error)
        self._closed.wait()

    def __call__(self, recipe: Recipe) -> Team:
        """Workers for these environments.

        Raises:
            UserError: Ray does not start, or the environment cannot be sent to workers.
        """
        return Team(recipe, self._cluster.result(), self._workers.number, self._warn)

    def close(self) -> None:
        """End the cluster, or leave it."""
        atexit.unregister(self.close)
        if self._cluster.exception() is None:
            self._cluster.result().close()
        self._closed.set()


def _pickled(recipe: Recipe) -> bytes:
    """Raises UserError if it cannot be pickled."""
    try:
        return cloudpickle.dumps(recipe)
    except Exception as error:  # pickling runs code of the user's objects
        raise UserError(
            f"{recipe.environment.id} cannot be sent to workers ({describe(error)}): keep open files, locks and "
            "connections out of the function that builds it, or leave --workers out"
        ) from error


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Shared) else argument


def _cause(error: Exception) -> str:
    """The error's name, since Ray's messages are long: 'ActorDiedError'."""
    return type(error).__name__


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
