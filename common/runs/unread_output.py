"""A program whose output nobody reads any more, as in `python PPOAgentTrainer.py --help | head -3`."""

import contextlib
import errno
import os
import select
import signal
import sys
from collections.abc import Iterator

UNREAD = 128 + getattr(signal, "SIGPIPE", 13)  # what a shell reports of programs that SIGPIPE ended
_CLOSED = (errno.EPIPE, errno.EINVAL)  # Windows says EINVAL


@contextlib.contextmanager
def ends_when_unread() -> Iterator[None]:
    """Exit with UNREAD and without a word where the reader of the output has closed it; other failures are left."""
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
    """Whether all output was taken; if not, the rest is discarded."""
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
    """Whether the other end of the output is closed; without poll(2), as on Windows, it is taken for closed."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError, AttributeError):  # no file behind it
        return False
    return bool(poll.poll(0))  # asked for no event, it tells of errors and of a closed end alone


def _discard_the_rest() -> None:
    """Point the output at nothing, or Python would write what is left at its end, and complain."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no file behind it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
