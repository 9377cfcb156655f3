"""Shows a run in a terminal: lines, a row for each epoch, a bar with the time left."""

import contextlib
import errno
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from common import progress
from common.results import EpochResult, score_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SILENCE = 30.0  # seconds without a line, after which one says how far the work is
HEADINGS = ("epoch", "steps", "reward/ep", "unshaped", "score", "steps/ep", "episodes")
_ROW = "{:>5} {:>10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6} {:>8}  {}"
_SHOWN = (7, 6)  # widths of a method's own columns in it


class _Output:
    """A stream whose other end may close during a run; nothing is written to it from then on.

    Args:
        no_reader: called when the reader of a pipe has ended, as `head` does.
    """

    def __init__(self, stream: TextIO, no_reader: Callable[[], None]) -> None:
        self._stream, self._no_reader, self._closed = stream, no_reader, False

    def write(self, text: str) -> int:
        self._if_open(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._if_open(self._stream.flush)

    def _if_open(self, operation: Callable[[], object]) -> None:
        if self._closed:
            return
        try:
            operation()
        except BrokenPipeError:
            self._closed = True
            self._no_reader()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._closed = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class Terminal:
    """Shows a run in a terminal: a bar with the time left, and one row per epoch.

    Attributes:
        stop: number of the signal by which whoever watches asks the run to stop; 0 lets it continue.
    """

    stop = 0

    def __init__(self) -> None:
        self._console = Console(file=cast(TextIO, _Output(sys.stdout, self._no_reader)), highlight=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = 120
        self._header_due = True
        self._spoke = time.monotonic()

    def _no_reader(self) -> None:
        self.stop = getattr(signal, "SIGPIPE", signal.SIGTERM)

    def begin(self, epochs: int, done: int) -> None:
        """Start the bar: `epochs` in all, of which `done` are trained already."""
        self._progress = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[within]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
            speed_estimate_period=math.inf,  # epochs may take longer than rich's half a minute
        )
        self._task = self._progress.add_task("train", total=epochs, completed=done, within="")
        self._progress.start()

    def end(self) -> None:
        """Remove the bar; nothing is shown after it."""
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line, markup=False, soft_wrap=True)
        self._spoke = time.monotonic()

    def progress(self, text: str) -> None:
        """Show how far the epoch is: next to the bar; without a terminal in a line, every half minute."""
        self._progress.update(self._task, within=text)
        self._say_after_silence(text)

    @contextlib.contextmanager
    def following(self, what: str) -> Iterator[None]:
        """Show how far the work of this context is, where there is no bar; `what` is its name."""
        with self._console.status(f"{what} ...") as status:

            def show(text: str) -> None:
                status.update(f"{what}: {text}")
                self._say_after_silence(f"{what}: {text}")

            with progress.followed(show):
                yield

    def _say_after_silence(self, text: str) -> None:
        if not self._console.is_terminal and time.monotonic() - self._spoke > SILENCE:
            self.say(f"       {text}")

    def row(self, result: EpochResult) -> None:
        """Print the row of an epoch."""
        if self._header_due:
            self.say(_ROW.format(*HEADINGS, *result.SHOWN, "steps/s", ""))
            self._header_due = False
        self.say(_ROW.format(*_cells(result)))
        self._progress.update(self._task, advance=1, within="")

    def figure(self, figure: "Figure") -> None:
        """Called with the five panels when they are saved; a terminal does not show them."""


def _number(value: float, pattern: str, width: int = 8) -> str:
    """A number that fits its column: a huge one loses its decimals, or is written with an exponent; so is a small one.

    Args:
        pattern: of its format; empty for that of scores.
    """
    if math.isnan(value):
        return "-"
    shorter = (".0f", ".1e", ".0e") if abs(value) >= 1 else (".1e", ".0e")
    texts = [format(value, pattern) if pattern else score_text(value), *(format(value, each) for each in shorter)]
    return next((text for text in texts if len(text) <= width), texts[-1])


def _cells(row: EpochResult) -> tuple[str, ...]:
    return (
        str(row.epoch),
        f"{row.steps:,}",
        _number(row.avg_reward, "", 9),
        _number(row.avg_reward_orig, ""),
        _number(row.score, ""),
        _number(row.avg_steps, ".0f"),
        str(row.episodes),
        *(_number(getattr(row, name), pattern, width) for (name, pattern), width in zip(row.SHOWN.values(), _SHOWN)),
        f"{row.steps_per_second:,.0f}",
        "no episode finished" if row.episodes == 0 else "best" if row.is_best else "",
    )
