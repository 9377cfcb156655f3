"""Ctrl-C, SIGTERM and SIGHUP: the first one stops a run at the end of its epoch, a second Ctrl-C at once.

It imports nothing of the project, so that a program can handle Ctrl-C before it imports the rest.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGHUP = getattr(signal, "SIGHUP", None)  # Windows has none
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([] if _SIGHUP is None else [_SIGHUP]))
STOPPING = b"\nstopping at the end of this epoch, or before if it is a long one; another Ctrl-C stops at once\n"
PATIENCE = 3.5  # seconds after a signal in which the run should have stopped
_TICK = 0.1  # seconds between two calls of `still_running` after that


def end_on_ctrl_c() -> None:
    """Let Ctrl-C end the program with one line; a package that is being imported would answer with a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if it is ignored, as in the background
        signal.signal(signal.SIGINT, _end)


def raise_on_ctrl_c() -> None:
    """Undo `end_on_ctrl_c`: from now on Ctrl-C raises KeyboardInterrupt, so that what was begun is put in order."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"\nstopped\n")
    os._exit(128 + signal.SIGINT)


class StopSignals:
    """Notes the first signal that asks the process to stop; a context manager.

    The run looks at `received` between steps and after each epoch, and stops. A second Ctrl-C raises
    KeyboardInterrupt at once. SIGHUP comes from a terminal that was closed; where it is ignored, as under nohup, it
    stays ignored. Outside the main thread no handler can be installed, and `received` stays 0.

    Attributes:
        received: number of the signal; 0 before any.
        still_running: called in another thread with the signal's number, again and again from a few seconds after the
            signal on. Python's handlers wait for a compiled update or a step that takes long; this does not.
    """

    def __init__(self) -> None:
        self.received = 0
        self.still_running: Callable[[int], None] = lambda number: None
        self._before: dict[int, Any] = {}  # signal number → the handler it had

    def __enter__(self) -> "StopSignals":
        for number in _SIGNALS:
            try:
                if number != _SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread
                return self
        reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(self._wakeup)
            self._writer.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
        with contextlib.suppress(OSError):  # not `print`: the signal may have come in the middle of one
            os.write(2, STOPPING)

    def _watch(self, reader: socket.socket) -> None:
        """Wait for the first signal, and then for the end of this context."""
        first = since = 0.0
        with reader:
            while True:
                try:
                    numbers = reader.recv(64)
                except TimeoutError:
                    numbers = None
                if numbers == b"":  # the context has ended
                    return
                if numbers and not first and (asking := [n for n in numbers if n in self._before]):
                    first, since = asking[0], time.monotonic()
                    reader.settimeout(_TICK)
                if first and time.monotonic() - since > PATIENCE:
                    self.still_running(int(first))
