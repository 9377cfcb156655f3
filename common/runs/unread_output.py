"""Ends a program quietly when the reader of its output has closed, as in `... --help | head -3`."""

import contextlib
import errno
import os
import select
import signal
import sys
from collections.abc import Iterator

UNREAD = 128 + getattr(signal, "SIGPIPE", 13)  # the exit code a shell reports for a program that SIGPIPE ended
_CLOSED = (errno.EPIPE, errno.EINVAL)  # Windows says EINVAL


@contextlib.contextmanager
def ends_when_unread() -> Iterator[None]:
    """Exit with UNREAD, and print nothing, if the reader of the output has closed; other errors pass through."""
    try:
        yield
    except OSError as error:
        if error.errno in _CLOSED and error.filename is None and (not _flushed() or _has_no_reader()):
            _discard_the_rest()
            raise SystemExit(UNREAD) from None
        raise
    except SystemExit as stop:
        if not _flushed() and not stop.code:
            raise SystemExit(UNREAD) from None
        raise
    except BaseException:
        _flushed()
        raise
    if not _flushed():
        raise SystemExit(UNREAD)


def _flushed() -> bool:
    """Whether all output was written; if not, the rest is discarded."""
    if sys.stdout is None or sys.stdout.closed:  # as under pythonw, or in a service
        return True
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _CLOSED:
            raise
        _discard_the_rest()
        return False
    return True


def _has_no_reader() -> bool:
    """Whether the other end of the output is closed; where poll(2) is missing, as on Windows, the answer is yes."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError, AttributeError):  # no file behind it
        return False
    return bool(poll.poll(0))  # no event is asked for: it reports only errors and a closed end


def _discard_the_rest() -> None:
    """Send the rest of the output nowhere; Python would try to write it at exit, and print an error."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no file behind it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
