"""Runs a function over items in worker processes that hold no TensorFlow and end with their parent.

Workers are forked from a server, or spawned, because a fork of this process would copy TensorFlow's threads and a
run's locked files. Unlike `concurrent.futures`, workers do not import the program that started them a second time. So
that program needs no `if __name__ == "__main__"`, works in a notebook, and does not load TensorFlow again.
"""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.resource_tracker
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
from common.user_code import RaisedElsewhere, WrongReturnError

Item = TypeVar("Item")
Result = TypeVar("Result")
START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PRELOADED = ["numpy", "gymnasium", "common.envs.process_group"]
FILES = 16  # that may be opened while a process starts
_HIDING = threading.Lock()
_PATIENCE = 5.0  # seconds to wait for a worker that was killed
_PR_SET_PDEATHSIG = 1
_TICK = 0.5  # seconds between two calls of `tell`
_SLICE = 0.1  # seconds of a wait; one that lasts longer was suspended


class CannotStartError(Exception):
    """Workers cannot be started on this machine, or cannot load the function."""


class NoAnswerError(WrongReturnError):
    """A worker's process died, or did not answer in time."""


class ResponseTimeLimit:
    """Seconds of waiting for other processes, without those in which this process is suspended, as by Ctrl-Z.

    The processes that it waits for are suspended with it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds

    def answers(self, connection: Connection) -> bool:
        """Wait until there is something to read; False if the time is up before. Raises OSError for a closed pipe."""
        while not connection.poll(wanted := min(max(0.0, self._left), _SLICE)):
            self._left -= wanted
            if self._left <= 0:
                return False
        return True


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_workers(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    deaths_allowed: int = 0,
    tell: Callable[[list[int]], None] = lambda done: None,
) -> list[Result]:
    """`[function(item) for item in items]`, computed in worker processes.

    Args:
        function: sent to the workers by cloudpickle; it must not need TensorFlow's state.
        deaths_allowed: how many workers may die in all; the item of a dead worker is given to a new one.
        tell: called while waiting with the indices of the items that are done.

    Raises:
        CannotStartError: a worker could not be started, or could not load the function.
        UserError: the function raised it, or more workers died than allowed.
        OSError: the function raised it.
        RuntimeError: the function raised another exception; the message holds the worker's traceback.
    """
    try:
        content = cloudpickle.dumps(function)
    except Exception as error:  # pickling runs code of the objects that the function refers to
        raise CannotStartError(f"{type(error).__name__}: {error}") from error
    with contextlib.ExitStack() as ended:
        team = [Worker(content) for _ in range(min(workers, len(items)))]
        for worker in team:
            ended.callback(worker.end)
        for worker in team:
            worker.start()
        return _distribute(team, items, deaths_allowed, tell)


@contextlib.contextmanager
def in_background(function: Callable[[], Result], time_limit: float | None = None) -> Iterator[Callable[[], Result]]:
    """Computes `function()` in a worker process while the caller continues; for the function see `run_in_workers`.

    Yields:
        A function that waits for the result and returns it. It raises CannotStartError if the worker could not be
        started or could not load the function, UserError if the worker died or did not start and compute the result
        within `time_limit` seconds, and what the function raised.
    """
    with contextlib.ExitStack() as ended:
        problem = ""
        try:
            worker = Worker(cloudpickle.dumps(lambda _: function()))
            ended.callback(worker.end)
            worker.start()
            worker.give(None)
        except Exception as error:  # pickling runs code of the objects that the function refers to
            problem = f"{type(error).__name__}: {error}"

        def result() -> Result:
            if problem:
                raise CannotStartError(problem)
            try:
                return worker.result(None if time_limit is None else ResponseTimeLimit(time_limit))
            except NoAnswerError as error:
                raise UserError(str(error)) from None

        yield result


def _distribute(
    team: list["Worker"], items: Sequence[Item], deaths_allowed: int, tell: Callable[[list[int]], None]
) -> list[Result]:
    """Give each worker one item at a time, until all are done. The results, in the order of the items."""
    results: dict[int, Any] = {}
    todo = list(range(len(items)))[::-1]
    doing = {worker: todo.pop() for worker in team}  # the index of the item that each computes
    for worker, number in doing.items():
        worker.give(items[number])
    while doing:
        tell(list(results))
        for connection in wait([worker.connection for worker in doing], _TICK):
            worker = next(worker for worker in doing if worker.connection is connection)
            try:
                is_done, value = worker.receive()
            except NoAnswerError:
                deaths_allowed -= 1
                if deaths_allowed < 0:
                    raise UserError(
                        f"a process that stepped environments ended with exit code {worker.exit_code()}: "
                        "fix the environment, which crashes the process it runs in"
                    ) from None
                worker.end()
                worker.start()
                worker.give(items[doing[worker]])
                continue
            if is_done:
                results[doing.pop(worker)] = value
                if todo:
                    doing[worker] = todo.pop()
                    worker.give(items[doing[worker]])
    return [results[i] for i in range(len(items))]


class Worker:
    """A process and the pipe to it; it computes a function, which `content` is by cloudpickle."""

    process: multiprocessing.process.BaseProcess
    connection: Connection

    def __init__(self, content: bytes) -> None:
        self._content = content

    def start(self) -> None:
        """Start a process and send it the function. Raises CannotStartError if the system refuses."""
        context = multiprocessing.get_context(START_METHOD)
        if START_METHOD == "forkserver":
            multiprocessing.set_forkserver_preload(PRELOADED)
        try:
            with contextlib.ExitStack() as opened:  # later the fork server would print a traceback
                for _ in range(FILES):
                    opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            self.connection, theirs = context.Pipe()
            with contextlib.closing(theirs), without_program(), signals_held_back():
                self.process = context.Process(target=_work, args=(theirs,), name="worker")  # type: ignore[attr-defined]
                self.process.start()
            self.connection.send(dict(os.environ))  # a fork server has those of its own start
            self.connection.send_bytes(self._content)
        except (OSError, ValueError, AssertionError) as error:  # the last in a worker of multiprocessing.Pool
            raise CannotStartError(f"{type(error).__name__}: {error}") from error
        self._is_ready = False

    def give(self, item: Any) -> None:
        """Let it compute the function of an item."""
        with contextlib.suppress(OSError):  # the process died; `receive` raises for it
            self.connection.send(item)

    def receive(self) -> tuple[bool, Any]:
        """Wait for the next message: whether the item is done, and what the function returned for it.

        Raises:
            CannotStartError: the process could not load the function.
            NoAnswerError: it died.
            Exception: what the function raised.
        """
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            if not self._is_ready:
                raise CannotStartError(f"a worker process ended with code {self.exit_code()}") from None
            raise NoAnswerError(f"its process died (exit code {self.exit_code()})") from None
        self._is_ready = True
        if kind == "cannot":
            raise CannotStartError(value)
        if kind == "raised":
            raise value
        return kind == "done", value

    def result(self, limit: ResponseTimeLimit | None = None) -> Any:
        """What the function returned for the item that was given last; raises what `receive` does."""
        while True:
            with contextlib.suppress(OSError):  # the process died; `receive` raises for it
                if limit is not None and not limit.answers(self.connection):
                    raise NoAnswerError(
                        f"its process did not answer within {limit.seconds:g} s, see --environment-time-limit"
                    )
            is_done, value = self.receive()
            if is_done:
                return value

    def exit_code(self) -> int | None:
        """The exit code of a process that died; None if it still runs after a few seconds."""
        self.process.join(_PATIENCE)
        return self.process.exitcode

    def end(self) -> None:
        """Kill the process, whatever it is doing; without one nothing happens."""
        if hasattr(self, "connection"):
            self.connection.close()
        if hasattr(self, "process") and self.process.pid is not None:
            self.process.kill()
            self.process.join(_PATIENCE)


@contextlib.contextmanager
def without_program() -> Iterator[None]:
    """Hide the running program from `multiprocessing`, which would import it again in every process it spawns.

    One thread after another: of two at once, the second would find the stand-in of the first and leave it there.
    """
    with _HIDING:
        program = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = program


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Processes started within this context leave Ctrl-C, SIGTERM and a closed terminal to their parent."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where a worker ignores Ctrl-C as soon as it starts
        yield
        return
    multiprocessing.resource_tracker.ensure_running()  # if it started below, it would unblock signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in the worker --


def _work(connection: Connection) -> None:
    """Load the function, then compute one item after another, until the parent is gone."""
    depend_on_parent()
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        variables = connection.recv()
        os.environ.clear()
        os.environ.update(variables)
        try:
            function = pickle.loads(connection.recv_bytes())
        except EOFError:
            raise
        except Exception as error:  # such as a module that this process does not find
            connection.send(("cannot", f"{type(error).__name__}: {error}"))
            return
        connection.send(("ready", None))
        while True:
            connection.send(_outcome(function, connection.recv()))


def _outcome(function: Callable[[Item], Result], item: Item) -> tuple[str, Any]:
    try:
        return "done", function(item)
    except (UserError, OSError, RaisedElsewhere) as error:
        return "raised", error
    except Exception:
        return "raised", RuntimeError("in a worker process:\n" + traceback.format_exc())


def depend_on_parent() -> None:
    """From now on this process ends when its parent does, and no signal to the whole process group ends it before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # SIG_IGN and a mask would pass to programs that it starts
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # works while other code blocks threads
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker process has a parent"
    threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])  # the pipe would tell only between two items
    os._exit(1)
