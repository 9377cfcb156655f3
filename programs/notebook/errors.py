"""Ends a cell of the notebook with one line instead of a traceback."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from common.errors import StoppedError, UserError
from common.runs.command_line import file_fault


@contextlib.contextmanager
def one_line(stopped: str = "stopped: run this cell again") -> Iterator[None]:
    """Let the stop button, whose line is `stopped`, and errors of the disk end a cell with one line."""
    try:
        yield
    except OSError as error:
        line = file_fault(error)
        if line is None:
            raise
        raise UserError(line) from None
    except KeyboardInterrupt:
        raise StoppedError(stopped, signal.SIGINT) from None


def trained(runs: tuple[Path | None, ...]) -> list[Path]:
    """The runs; raises UserError if one is None, which means chosen but not trained to its end."""
    if None in runs:
        raise UserError(
            "this run is not trained to its end yet: run its cell above, which continues where it was stopped"
        )
    return [run for run in runs if run is not None]
