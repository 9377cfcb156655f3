"""The workers of a run on Ray: who steps which shards, and who replaces whom."""

import atexit
import contextlib
import dataclasses
import os
import statistics
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import cloudpickle
import numpy as np
from threadpoolctl import threadpool_info

from common import progress
from common.errors import UserError
from common.rollout.policies import Policy
from common.rollout.workers.cluster import Cluster, WorkerPlacement
from common.rollout.workers.shard import Columns, Recipe, ShardRunner, Snapshot, Task
from common.user_code import describe

LOSSES = 5  # of workers while they performed the same task, after which the run ends
PATIENCE = 60.0  # seconds that a call may take at least
SLOWEST = 10.0  # times what steps take by the median, that a call may take
START = 60.0  # seconds for the first worker to start
TOGETHER = 10.0  # seconds for the others, after which the first epoch begins without them
TICK = 1.0  # seconds between looks at the clock
MakeSnapshot = Callable[[Task], Snapshot]


class WorkerProcess(ShardRunner):
    """What a worker process runs. `path`: where the training process finds modules; `recipe`: pickled."""

    def __init__(self, path: list[str], recipe: bytes) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        self._problem = ""
        try:
            super().__init__(cloudpickle.loads(recipe))
        except Exception as error:  # such as a module that this process does not find
            self._problem = describe(error)

    def hello(self) -> tuple[str, tuple[str, int], dict[str, Any]]:
        """What keeps it from working, empty if nothing does; address of its machine and process; its `computing`."""
        import ray

        return self._problem, (ray.util.get_node_ip_address(), os.getpid()), computing()

    def perform_all(self, policy: Policy | None, tasks: list[tuple[Task, Snapshot | None]]) -> list[Any]:
        """See `ShardRunner.perform`."""
        return [self.perform(task, snapshot, policy) for task, snapshot in tasks]


def computing() -> dict[str, Any]:
    """What decides how this process rounds: NumPy's version and the kernels of its BLAS."""
    kernels = {str(pool.get("architecture")) for pool in threadpool_info() if pool["user_api"] == "blas"}
    return {"numpy": np.__version__, "kernels": kernels}


@dataclasses.dataclass(eq=False)
class Worker:
    """A worker as the training process sees it."""

    number: int
    actor: Any
    hello: Any  # reference to its first answer
    is_ready: bool = False
    node: str = ""  # address of its machine
    process: int = 0

    def __str__(self) -> str:
        return f"worker {self.number}" + ("" if self.node in ("", "127.0.0.1") else f" on {self.node}")


@dataclasses.dataclass(eq=False)
class Call:
    """Tasks that a worker performs one after the other."""

    worker: Worker
    tasks: list[Task]
    steps: int  # that are made for them, and for what the worker was given before
    began: float  # by `time.monotonic`


class Team:
    """Workers that perform tasks; lost ones are replaced, and their tasks are performed again.

    Args:
        number: of workers at most; never more than shards.
        warn: called with a line about each worker that is lost.

    Raises:
        UserError: the environment cannot be sent to workers.
    """

    def __init__(self, recipe: Recipe, cluster: Cluster, number: int, warn: Callable[[str], None] = print) -> None:
        import ray

        self._ray, self._cluster, self._recipe, self._warn = ray, cluster, recipe, warn
        shards = len(recipe.build().groups)
        if number > shards:
            warn(
                f"{number} workers were asked for, and {shards} started: a run of {_count(shards, 'shard')} has no "
                "work for more"
            )
        self._number = min(number, shards)
        self._content = ray.put(_pickled(recipe))
        self._class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(WorkerProcess)
        self._computing = computing()
        self.workers: list[Worker] = []  # that have started, or were asked for
        self.homes: dict[int, Worker] = {}  # shard → who performs its tasks
        self._held: dict[int, Worker] = {}  # shard → who holds it in the state that its next task begins with
        self._step_seconds: deque[float] = deque(maxlen=256)  # of collected steps
        self._has_begun = False
        self._started = self._broken = 0  # workers; those that died before their first answer
        for _ in range(self._number):
            self._start()

    @property
    def ready(self) -> list[Worker]:
        """The workers that have started."""
        return [worker for worker in self.workers if worker.is_ready]

    # -- tasks --

    def perform(self, tasks: list[Task], snapshot: MakeSnapshot, policy: Policy | None = None) -> list[Any]:
        """What each of several tasks of different shards returned, or its UserError.

        Args:
            snapshot: how a worker that does not hold a task's shard restores it.
            policy: for those that collect.

        Raises:
            UserError: as many workers as may be were lost with the same shard, or the cluster is gone.
        """
        self._check_cluster()  # workers answer without it, but after a minute Ray ends this process
        if not self.workers:  # they were ended by `close`
            self._has_begun = False
            for _ in range(self._number):
                self._start()
        self._admit()
        with self._cluster_checked():
            shared = None if policy is None else self._ray.put(policy)
        values: dict[int, Any] = {}  # shard → what its task returned
        holders: dict[int, Worker] = {}  # shard → who performed it
        losses: Counter[int] = Counter()  # of workers, by shard
        waiting: dict[Any, Call] = {}  # by the reference to its answer
        self._give(tasks, snapshot, shared, waiting)
        while waiting:
            progress.tell("shards", len(values), len(tasks))
            lost: dict[Worker, str] = {}  # and why
            for reference in self._answered(list(waiting)):
                call = waiting[reference]
                try:
                    answers = self._ray.get(reference)
                except self._ray.exceptions.RayTaskError:  # a mistake in this code, not in the user's
                    raise
                except self._ray.exceptions.RayError as error:
                    lost[call.worker] = type(error).__name__  # since Ray's messages are long
                else:
                    del waiting[reference]
                    values |= {task.shard: value for task, value in zip(call.tasks, answers)}
                    holders |= {task.shard: call.worker for task in call.tasks}
                    self._step_seconds.extend(v.seconds_a_step for v in answers if isinstance(v, Columns))
            for call in waiting.values():
                if time.monotonic() - call.began > (limit := self._limit(call.steps)):
                    lost.setdefault(call.worker, f"it did not answer within {limit:.0f} s")
            for worker, cause in lost.items():
                calls = [reference for reference, call in waiting.items() if call.worker is worker]
                left = [task for reference in calls for task in waiting.pop(reference).tasks]
                self._replace(worker, cause, [task.shard for task in left], losses)
                self._give(left, snapshot, shared, waiting)
        if not any(isinstance(value, UserError) for value in values.values()):  # else shards are restored
            self._held |= holders
        return [values[task.shard] for task in tasks]

    def _give(self, tasks: list[Task], snapshot: MakeSnapshot, policy: Any, waiting: dict[Any, Call]) -> None:
        """Let workers perform tasks, for which `waiting` gets a call each."""
        self._assign([task.shard for task in tasks])
        for worker in {self.homes[task.shard]: None for task in tasks}:
            its = [task for task in tasks if self.homes[task.shard] is worker]
            held = [self._held.pop(task.shard, None) is worker or task.method == "reset" for task in its]
            given = [(task, None if is_held else snapshot(task)) for task, is_held in zip(its, held)]
            steps = sum(task.steps + (one.steps if one is not None else 0) for task, one in given)
            steps += sum(call.steps for call in waiting.values() if call.worker is worker)
            with self._cluster_checked():
                reference = worker.actor.perform_all.remote(policy, given)
            waiting[reference] = Call(worker, its, steps, time.monotonic())

    def _answered(self, references: list[Any]) -> list[Any]:
        """Those of some references whose answers are there; none after a second."""
        with self._cluster_checked():
            answered, _ = self._ray.wait(references, timeout=TICK)
            if answered and len(references) > 1:  # all that are there, lest one that is only unread seems late
                answered, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        if not answered:
            self._check_cluster()
        return answered

    def _limit(self, steps: int) -> float:
        """Seconds that a call of so many steps may take; without an end until steps were collected."""
        if not self._step_seconds:
            return float("inf")
        return max(PATIENCE, SLOWEST * steps * statistics.median(self._step_seconds))

    # -- workers --

    def _start(self) -> None:
        """Ask for another worker, which starts as soon as the cluster has room."""
        actor: Any = self._class.remote([folder or "." for folder in sys.path], self._content)
        self._started += 1
        self.workers.append(Worker(self._started, actor, actor.hello.remote()))

    def _admit(self) -> None:
        """Use the workers that have started; before the first tasks, wait for them."""
        began, first = time.monotonic(), not self._has_begun
        while True:
            for worker in [worker for worker in self.workers if not worker.is_ready]:
                if self._ray.wait([worker.hello], timeout=0)[0]:
                    self._greet(worker)
            waited, missing = time.monotonic() - began, [one for one in self.workers if not one.is_ready]
            if not missing or (self.ready and (not first or waited > TOGETHER)):
                break
            if waited > START:
                raise UserError(
                    f"no worker started within {START:.0f} s: see with 'ray status' that the cluster has free "
                    "processors, or leave --workers out"
                )
            self._answered([worker.hello for worker in missing])
        self._has_begun = True
        if first and missing:
            self._warn(
                f"{len(self.ready)} of {self._number} workers have started; the others join when the cluster has room"
            )

    def _greet(self, worker: Worker) -> None:
        """Use a worker that has started. If it cannot work, do without it, or end the run if it is the only one."""
        try:
            problem, (worker.node, worker.process), its = self._ray.get(worker.hello)
        except self._ray.exceptions.RayError as error:
            self._check_cluster()
            self._broken += 1
            if self._broken <= LOSSES:
                self._drop(worker)
                self._start()
                return
            fault, advice = f"workers end while they start ({type(error).__name__})", "leave --workers out"
        else:
            fault = f"{worker} cannot build {self._recipe.environment.id} ({problem})" if problem else ""
            advice = "install the same packages and put the same modules on every machine"
        if fault:
            self._drop(worker)
            if not self._has_begun or not self.workers:
                raise UserError(f"{fault}: {advice}")
            self._warn(f"warning: {fault}, so the run continues without it: {advice}")
            return
        if its["numpy"] != self._computing["numpy"] or not its["kernels"] <= self._computing["kernels"]:
            self._warn(
                f"warning: {worker} rounds otherwise than this process (NumPy {its['numpy']}, "
                f"{'/'.join(sorted(its['kernels']))}): numbers may differ in the last digit from a run without it"
            )
        worker.is_ready, self._broken = True, 0

    def _assign(self, shards: Iterable[int]) -> None:
        """Give shards without a worker to those with the fewest, and even out until these differ by one at most."""
        if not self.ready:
            self._admit()
        homeless = [shard for shard in shards if shard not in self.homes]
        while True:
            load = Counter(dict.fromkeys(self.ready, 0))
            load.update(self.homes.values())
            (most, many), (fewest, few) = load.most_common(1)[0], load.most_common()[-1]
            if homeless:
                self.homes[homeless.pop(0)] = fewest
            elif many - few < 2:
                return
            else:
                shard = next(shard for shard, worker in self.homes.items() if worker is most)
                self.homes[shard] = fewest
                most.actor.leave.remote(shard)

    def _replace(self, worker: Worker, cause: str, shards: list[int], losses: Counter[int]) -> None:
        """Start another worker in the place of one that was lost while it stepped these shards."""
        self._drop(worker)
        self._check_cluster()
        losses.update(shards)
        if losses[shards[0]] == LOSSES:
            raise UserError(
                f"{LOSSES} workers were lost one after the other with shard {shards[0]} ({cause}): fix "
                "the environment if it crashes or hangs, which --backend processes shows"
            )
        self._warn(f"warning: {worker} was lost ({cause}); another one steps its {_count(len(shards), 'shard')} again")
        self._start()

    def _drop(self, worker: Worker) -> None:
        """End a worker and forget what it held."""
        with contextlib.suppress(Exception):  # it may be gone already
            self._ray.kill(worker.actor, no_restart=True)
        self.workers.remove(worker)
        self.homes = {shard: one for shard, one in self.homes.items() if one is not worker}

    def _check_cluster(self) -> None:
        """Raises UserError if the cluster is gone."""
        if not self._cluster.answers():
            raise UserError(
                f"the Ray cluster at {self._cluster.address} is gone: continue from the last checkpoint with "
                "--resume, or start again if there is none"
            )

    @contextlib.contextmanager
    def _cluster_checked(self) -> Iterator[None]:
        """Within this context an error means that the cluster is gone, if it is."""
        try:
            yield
        except Exception:
            self._check_cluster()
            raise

    def close(self) -> None:
        """End the workers."""
        for worker in list(self.workers):
            self._drop(worker)


class WorkerPoolFactory:
    """Makes the workers of a run, all on one cluster, which starts at once in the background."""

    def __init__(self, workers: WorkerPlacement, warn: Callable[[str], None]) -> None:
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
        """Workers for these environments. Raises UserError if Ray does not start, or they cannot be sent there."""
        return Team(recipe, self._cluster.result(), self._workers.number, self._warn)

    def close(self) -> None:
        """End the cluster, or leave it."""
        atexit.unregister(self.close)
        if self._cluster.exception() is None:
            self._cluster.result().close()
        self._closed.set()


def _pickled(recipe: Recipe) -> bytes:
    try:
        return cloudpickle.dumps(recipe)
    except Exception as error:  # pickling runs code of the user's objects
        raise UserError(
            f"{recipe.environment.id} cannot be sent to workers ({describe(error)}): keep open files, locks and "
            "connections out of the function that builds it, or leave --workers out"
        ) from error


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
