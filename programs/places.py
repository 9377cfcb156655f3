"""Where a program's trainings run: in processes of this machine, or on workers of a Ray cluster."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any

from common.errors import UserError
from common.rollout.workers.cluster import Cluster

ATTEMPTS = 6  # of a call whose worker is lost
Submit = Callable[..., "Future[Any]"]


@contextlib.contextmanager
def places(function: Callable[..., Any], workers: int, cluster: str | None, calls: int = 1) -> Iterator[Submit]:
    """A function that starts `function` with its arguments elsewhere, and returns a future.

    Args:
        workers: how many calls run at once; 0 runs one at a time, in a process of this machine, without Ray.
        cluster: address of a running Ray cluster; None starts one on this machine.
        calls: that a process makes before another takes its place, since TensorFlow keeps the memory of its graphs.

    Raises:
        UserError: Ray is wanted and not installed, or the cluster cannot be reached.
    """
    if workers == 0:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=calls) as pool:
            yield lambda *arguments: pool.submit(function, *arguments)
        return
    connection = Cluster(cluster, workers)
    try:
        import ray

        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1, max_calls=calls)(function)
        yield lambda *arguments: remote.remote(*arguments).future()
    finally:
        connection.close()


def result_of(future: "Future[Any]") -> Any:
    """What a call returned.

    Raises:
        UserError: the process that made it was lost, on Ray ATTEMPTS times.
    """
    try:
        return future.result()
    except Exception as error:
        if not (isinstance(error, BrokenExecutor) or type(error).__module__.startswith("ray.")):
            raise
        raise UserError(
            f"a process that trained was lost ({type(error).__name__}; it may have run out of memory): "
            "continue with the same command, perhaps with fewer --workers"
        ) from error
