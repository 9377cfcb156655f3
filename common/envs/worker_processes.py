"""Runs a function over items in worker processes that hold no TensorFlow and end with their parent.

They are spawned, not forked: TensorFlow's threads and a run's locked files would come along with a fork. Unlike
`concurrent.futures` they do not import the program that started them a second time, so that it needs no
`if __name__ == "__main__"`, works in a notebook, and does not load TensorFlow again.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import cloudpickle

from common.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
_PATIENCE = 5.0  # seconds in which a worker that was asked to end has to


class CannotStartError(Exception):
    """Workers do not start here, or cannot take the function over."""


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_workers(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int, deaths_allowed: int = 0
) -> list[Result]:
    """`[function(item) for item in items]`, computed in worker processes.

    Args:
        function: taken over by cloudpickle; it must not need TensorFlow's state.
        workers: how many processes.
        deaths_allowed: how many workers may die of an item each time; the item then goes to a new one.

    Raises:
        CannotStartError: no worker could be started, or none could take the function over.
        UserError: as the function raised it, or too many workers died.
    """
    try:
        content = cloudpickle.dumps(function)
    except Exception as error:  # whatever the function refers to decides what it raises
        raise CannotStartError(f"{type(error).__name__}: {error}") from error
    with contextlib.ExitStack() as ended:
        team = [_Worker(content) for _ in range(min(workers, len(items)))]
        for worker in team:
            ended.callback(worker.end)
        for worker in team:
            worker.start()
        return _distribute(team, items, deaths_allowed)


@contextlib.contextmanager
def in_background(function: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Computes `function()` in a worker process while other things are done.

    Args:
        function: see `run_in_workers`.

    Yields:
        What waits for the result and returns it. It raises CannotStartError if no worker could be started or take the
        function over, UserError if it died of the function, and what the function raised.
    """
    with contextlib.ExitStack() as ended:
        try:
            worker = _Worker(cloudpickle.dumps(lambda _: function()))
            ended.callback(worker.end)
            worker.start()
            worker.give(0, [None])
        except Exception as error:  # whatever the function refers to decides what cloudpickle raises
            problem = f"{type(error).__name__}: {error}"
            worker = None

        def result() -> Result:
            if worker is None:
                raise CannotStartError(problem)
            return _received(worker)

        yield result


def _received(worker: "_Worker") -> Any:
    """The result of a worker's only item."""
    try:
        kind, value = worker.receive()
    except (EOFError, OSError):
        raise CannotStartError(f"a worker process ended with code {worker.exit_code()}") from None
    if kind == "cannot":
        raise CannotStartError(value)
    try:
        kind, value = worker.receive()
    except (EOFError, OSError):
        raise UserError(f"its process ended with exit code {worker.exit_code()}") from None
    if kind == "raised":
        raise value
    return value


def _distribute(team: list["_Worker"], items: Sequence[Item], deaths_allowed: int) -> list[Result]:
    """Gives each worker an item at a time, until all are done."""
    results: list[Any] = [None] * len(items)
    todo = list(range(len(items)))[::-1]
    left = len(items)
    while left:
        for connection in wait([worker.connection for worker in team if worker.is_busy]):
            worker = next(worker for worker in team if worker.connection is connection)
            try:
                kind, value = worker.receive()
            except (EOFError, OSError):
                if worker.item is None:
                    raise CannotStartError(f"a worker process ended with code {worker.exit_code()}") from None
                deaths_allowed -= 1
                if deaths_allowed < 0:
                    raise UserError(
                        f"a process that stepped environments ended with exit code {worker.exit_code()}: "
                        "fix the environment, which crashes the process it runs in"
                    ) from None
                todo.append(worker.item)
                worker.end()
                worker.start()
                continue
            if kind == "cannot":
                raise CannotStartError(value)
            if kind == "raised":
                raise value
            if kind == "done":
                results[worker.item] = value
                left -= 1
            worker.give(todo.pop() if todo else None, items)
    return results


class _Worker:
    """A process and the pipe to it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._process: multiprocessing.process.BaseProcess | None = None
        self.connection: Connection | None = None
        self.item: int | None = None  # what it computes at present
        self.is_busy = False

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), name="worker")
        try:
            with without_program(), interrupts_held_back():
                self._process.start()
            self.connection.send_bytes(self._content)
        except (OSError, ValueError) as error:
            raise CannotStartError(f"{type(error).__name__}: {error}") from error
        finally:
            theirs.close()
        self.item, self.is_busy = None, True

    def give(self, item: int | None, items: Sequence[Item]) -> None:
        """The next item, or none: then it has nothing more to do."""
        self.item, self.is_busy = item, item is not None
        if item is not None:
            with contextlib.suppress(OSError):  # of a dead process; `receive` finds out
                self.connection.send(items[item])

    def receive(self) -> tuple[str, Any]:
        return self.connection.recv()

    def exit_code(self) -> int | None:
        self._process.join(_PATIENCE)
        return self._process.exitcode

    def end(self) -> None:
        """At once, whatever it does."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self._process is not None and self._process.pid is not None:
            self._process.kill()
            self._process.join(_PATIENCE)
        self._process = None


@contextlib.contextmanager
def without_program() -> Iterator[None]:
    """Hides the running program from `multiprocessing`, which would import it again in every process it spawns."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Processes started meanwhile never hear a Ctrl-C or a closed terminal, which are their parent's to answer."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows; there `_work` ignores it as soon as it begins
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in the worker --


def _work(connection: Connection) -> None:
    """Takes the function over, then one item after another, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        try:
            function = pickle.loads(connection.recv_bytes())
        except EOFError:
            raise
        except Exception as error:  # a module that is not there for this process, for one
            connection.send(("cannot", f"{type(error).__name__}: {error}"))
            return
        connection.send(("ready", None))
        while True:
            connection.send(_outcome(function, connection.recv()))


def _outcome(function: Callable[[Item], Result], item: Item) -> tuple[str, Any]:
    try:
        return "done", function(item)
    except (UserError, OSError) as error:
        return "raised", error
    except Exception:
        return "raised", RuntimeError("in a worker process:\n" + traceback.format_exc())


def _end_with_parent() -> None:
    """Not left to the pipe alone, which nobody looks at in the middle of an item."""
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
