"""A pool for trainings: processes of this machine, or workers of a Ray cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from multiprocessing.connection import wait
from typing import Any

from common.errors import UserError
from common.rollout.workers.cluster import Cluster
from common.settings import Needs

WORKERS = Needs("workers", bool, "--workers 2")  # what a cluster is used with
RETRIES = 5  # of a call whose worker of a cluster is lost
Submit = Callable[..., "Future[Any]"]


@contextlib.contextmanager
def worker_pool(workers: int, cluster: str | None, calls: int = 1) -> Iterator[Submit]:
    """A function that starts a function with its arguments in another process, and returns a future.

    Args:
        workers: how many calls run at once, at least one.
        cluster: address of a running Ray cluster; None runs them in processes of this machine.
        calls: that a process makes before another takes its place, since TensorFlow keeps the memory of its graphs.

    Raises:
        UserError: Ray is wanted and not installed, or the cluster cannot be reached.
    """
    if cluster is None:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max(1, workers), context, _stop_with_parent, max_tasks_per_child=calls) as pool:
            try:
                yield pool.submit
            except BaseException:
                pool.shutdown(cancel_futures=True)  # what waits does not begin
                raise
        return
    with contextlib.closing(Cluster(cluster, workers)):
        import ray

        remote = ray.remote(num_cpus=1, max_retries=RETRIES, max_calls=calls)
        yield lambda function, *arguments: remote(function).remote(*arguments).future()


def _stop_with_parent() -> None:
    """From now on what this process trains is stopped, with a checkpoint, once the process that wants it is gone.

    Trials of `tune` and trainings on Windows end without a checkpoint.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker process has a parent"

    def follow() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def result_of(future: "Future[Any]") -> Any:
    """What a call returned; UserError if its process was lost, on a cluster more often than RETRIES."""
    try:
        return future.result()
    except Exception as error:
        if not (isinstance(error, BrokenExecutor) or type(error).__module__.startswith("ray.")):
            raise
        raise UserError(
            f"a process that trained was lost ({type(error).__name__}; it may have run out of memory): "
            "continue with the same command, perhaps with fewer --workers"
        ) from error
