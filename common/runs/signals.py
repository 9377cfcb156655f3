"""Ctrl-C, SIGTERM and SIGHUP: the first one stops a run at the end of its epoch, a second Ctrl-C at once."""

import contextlib
import os
import signal
from types import FrameType
from typing import Any

_SIGHUP = getattr(signal, "SIGHUP", None)  # Windows has none
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([] if _SIGHUP is None else [_SIGHUP]))
STOPPING = b"\nstopping at the end of this epoch, which is then saved; another Ctrl-C stops at once\n"


class StopSignals:
    """Notes the first signal that asks the process to stop; a context manager.

    The run looks at `received` after each epoch, saves a checkpoint and stops. A second Ctrl-C raises
    KeyboardInterrupt at once. SIGHUP comes from a terminal that was closed; where it is ignored, as under nohup, it
    stays ignored. Outside the main thread no handler can be installed, and `received` stays 0.

    Attributes:
        received: number of the signal; 0 before any.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}  # signal number → the handler it had

    def __enter__(self) -> "StopSignals":
        for number in _SIGNALS:
            try:
                if number != _SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
        with contextlib.suppress(OSError):  # not `print`: the signal may have come in the middle of one
            os.write(2, STOPPING)
