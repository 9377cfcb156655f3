"""Hears everything that Python does in this process, and tells what a hostile run folder must not bring about."""

import contextlib
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from unittest import mock

PATIENCE = 60.0  # seconds for one program on one folder
LARGEST_GROWTH = 2**20  # kilobytes of memory that it may take more than before
ADDRESS_SPACE = 8 * 2**30  # bytes more than now: what unpacks to terabytes ends in a MemoryError, not in the machine's
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {  # event → which of its arguments are paths
    "os.rename": (0, 1), "os.remove": (0,), "os.mkdir": (0,), "os.rmdir": (0,), "os.truncate": (0,),
    "os.chmod": (0,), "os.symlink": (1,), "os.link": (0, 1), "shutil.rmtree": (0,),
}  # fmt: skip
_DANGEROUS = ("builtins", "io", "_io", "os", "posix", "nt", "subprocess", "sys", "runpy", "importlib")


class TooLong(BaseException):
    """A program did not end in time."""


class Guard:
    """While it is armed it notes every change and every look outside of the places that are allowed.

    Args:
        outside: what a hostile folder's links point to; may be neither changed nor read.
        allowed: folders that may be written to.
        temporary: one more, but for the folder that `outside` is in.
    """

    def __init__(self, outside: Path, allowed: list[Path], temporary: Path | None = None) -> None:
        self._outside = os.path.realpath(outside)
        self._work = os.path.dirname(self._outside) + os.sep
        self._allowed = (*(os.path.realpath(path) + os.sep for path in allowed), "/dev/", "/proc/self/")
        self._temporary = () if temporary is None else (os.path.realpath(temporary) + os.sep,)
        self._armed = False
        self.violations: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple) -> None:
        if not self._armed:
            return
        self._armed = False  # what is asked here is no program's doing
        try:
            self._judge(event, arguments)
        finally:
            self._armed = True

    def _judge(self, event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = isinstance(arguments[2], int) and arguments[2] & _WRITES
            if writes:
                self._changes(event, path)
            elif (path + os.sep).startswith(self._outside + os.sep):
                self.violations.append(f"read {path}")
        elif event in _CHANGES:
            for i in _CHANGES[event]:
                if isinstance(arguments[i], str | bytes) and os.path.isabs(os.fsdecode(arguments[i])):
                    path = os.fsdecode(arguments[i])
                    self._changes(event, os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
        elif event == "pickle.find_class" and arguments[0] in _DANGEROUS:
            self.violations.append(f"unpickled {arguments[0]}.{arguments[1]}")
        elif event in ("os.system", "os.exec", "socket.connect", "webbrowser.open"):
            self.violations.append(f"{event} {arguments[0]}")

    def _changes(self, event: str, path: str) -> None:
        path += os.sep
        if not (path.startswith(self._allowed) or (path.startswith(self._temporary) and self._work not in path)):
            self.violations.append(f"{event} {path[:-1]}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Armed, with a limit in time and memory; what was wrong is in the list afterwards."""
        self.violations = []
        before, memory, began = content(Path(self._outside)), peak_memory(), time.monotonic()
        self._armed = True
        try:
            yield self.violations
        finally:
            self._armed = False
            if content(Path(self._outside)) != before:
                self.violations.append("something outside was changed")
            if peak_memory() - memory > LARGEST_GROWTH:
                self.violations.append(f"memory grew by {(peak_memory() - memory) // 1024:,} MB")
            if time.monotonic() - began > PATIENCE:
                self.violations.append("it took too long")


def content(folder: Path) -> dict[str, tuple]:
    """Every file of a folder with its bytes, and what else there is."""
    found: dict[str, tuple] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        plain = path.is_file() and not path.is_symlink()
        found[str(path)] = (status.st_mode, status.st_size, path.read_bytes() if plain else b"")
    return found


def peak_memory() -> int:
    """Kilobytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def limit_memory() -> None:
    """Of this process, from now on."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TooLong in the middle of what takes longer."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(main: Callable[[], None], *arguments: object) -> tuple[str, str]:
    """A program's `main` in this process; returns what was wrong with its end ("" for nothing), and its error stream.

    It may end well, or with exit code 2 and one line.
    """
    errors, output = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["program", *map(str, arguments)])
    try:
        with argv, contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output), time_limit(PATIENCE):
            main()
    except SystemExit as stop:
        lines = errors.getvalue().strip().splitlines()
        if stop.code in (0, None) or (stop.code == 2 and len(lines) == 1 and lines[0].startswith("error: ")):
            return "", errors.getvalue()
        return f"exit code {stop.code}, {len(lines)} lines: {' / '.join(lines)[-200:]}", errors.getvalue()
    except TooLong:
        return f"no end within {PATIENCE:g} s", errors.getvalue()
    except BaseException as error:
        return f"a traceback of {type(error).__name__}: {str(error)[:200]}", errors.getvalue()
    return "", errors.getvalue()
