"""What a run does between two steps and after each epoch: show, record, save, and stop when it is asked to."""

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from common import files
from common.errors import StoppedError
from common.results import EpochResult, is_true, to_columns
from common.runs import checkpoint, run_folder, trust
from common.runs.options import RunOptions
from common.runs.signals import StopSignals
from common.runs.terminal import Terminal
from common.user_code import explain

if TYPE_CHECKING:
    from common.learning.trainer_base import TrainerBase  # imports TensorFlow
    from common.runs.board import Board

DEFAULT_INTERVAL = 10  # epochs between checkpoints at least
LARGEST_SHARE = 0.01  # of the time since the last checkpoint, that writing one may take
LONG_EPOCH = 3.0  # seconds; after each epoch that takes longer a checkpoint is due
LARGEST_SHARE_OF_LONG = 0.05  # of a long epoch, that writing one may take
FIGURE_SHARE = 50  # drawing takes at most one part in so many of the run time


def board_of(folder: Path, options: RunOptions, screen: Terminal) -> contextlib.AbstractContextManager["Board | None"]:
    """A run's TensorBoard log; None if it is not to be recorded."""
    if "tensorboard" not in options.record:
        return contextlib.nullcontext()
    from common.runs.board import Board  # imports TensorFlow

    return Board(folder / run_folder.TENSORBOARD, screen.say)


class Recorder:
    """Called with the row of each epoch; a context manager, in which signals stop the run.

    A row goes to the screen, results.csv, TensorBoard and the figure. A signal stops the run at the end of its epoch.
    An epoch that takes longer than a few seconds is given up once it has taken longer than the epochs before it that
    are not saved and are given up too.

    Args:
        trainer: with the epochs that a resumed run already has.
        content: of config.json, which every checkpoint holds a copy of.
        check_lock: called before something is written; see `one_process.only_here`.
        callback: called with each row, once it is recorded and a checkpoint that is due is written.
    """

    def __init__(
        self,
        trainer: "TrainerBase",
        folder: Path,
        options: RunOptions,
        screen: Terminal | None = None,
        content: object = None,
        check_lock: Callable[[], None] = lambda: None,
        callback: Callable[[EpochResult], object] | None = None,
    ) -> None:
        self._trainer, self._folder, self._options, self._content = trainer, folder, options, content
        self._screen, self._check_lock, self._callback = screen or Terminal(), check_lock, callback
        self._resume = trust.command("resume", folder, trainer.config)
        self._figure_due = 0.0
        self.saving_seconds = self._last_saving = 0.0  # of all checkpoints, of the last one
        self._saved_epoch, self._saved_at = trainer.epoch, time.perf_counter()
        self._asked_at = self._saved_at  # when `is_due` was called last
        self._epoch_began, self._epoch_seconds = self._saved_at, 0.0  # of this epoch, of the last one

    def __enter__(self) -> "Recorder":
        trainer = self._trainer
        with contextlib.ExitStack() as parts:
            self._table = parts.enter_context(
                run_folder.ResultsFile(self._folder, trainer.results, trainer.result_type)
            )
            self._board = parts.enter_context(board_of(self._folder, self._options, self._screen))
            if self._board is not None:
                self._board.settings(self._folder.name, trainer.config)
            self._screen.begin(trainer.config.epochs, len(trainer.results))
            parts.callback(self._screen.end)
            self._signals = parts.enter_context(StopSignals())
            self._signals.still_running = self._end_process
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._parts.close()

    def __call__(self, result: EpochResult) -> bool:
        """Record an epoch, and write a checkpoint if one is due.

        Returns:
            Whether the callback ends the training; a checkpoint is written then, too.

        Raises:
            UserError: the disk is full or fails; earlier checkpoints stay whole.
            FolderLostError: the run folder was removed, moved or replaced.
            StoppedError: a signal has asked the run to stop, and a checkpoint is written.
        """
        self._check_lock()
        with run_folder.lost_disk_error(self._folder / run_folder.RESULTS, self._resume):
            self._table.write(result)
        if self._board is not None:
            self._board.row(result)
        self._screen.row(result)
        if time.monotonic() >= self._figure_due and len(self._trainer.results) > 1:
            self.draw()
        is_last = result.epoch == self._trainer.config.epochs or self._trainer.solved
        if self.is_due(result.epoch) or is_last or self._stop:
            self.save(result.epoch)
        ends = self._callback is not None and is_true(self._callback(result))
        if (ends or self._stop) and self._saved_epoch != result.epoch:
            self.save(result.epoch)
        if self._stop:
            self.draw(last=True)
            raise StoppedError(self._line(), self._stop)
        now = time.perf_counter()
        self._epoch_seconds, self._epoch_began = now - self._epoch_began, now
        return ends

    def draw(self, last: bool = False) -> None:
        """Redraw the five-panel figure, if it is to be recorded; drawing takes at most 2% of the run time.

        The last one is also written to TensorBoard, whose log would grow with every figure.
        """
        rows, path = self._trainer.results, self._folder / run_folder.FIGURE
        if "figure" not in self._options.record or not rows:
            return
        began = time.monotonic()
        try:
            from common.figures.five_panels import five_panels  # imports matplotlib
            from common.figures.style import drawn

            figure = five_panels({self._folder.name: to_columns(rows, self._trainer.result_type)})
            content = drawn(figure)
            if not self._folder.is_dir():
                return  # it was removed meanwhile, which the next save reports
            files.replace_file(path, content)
        except Exception as error:  # whatever it is, the run is worth more than its figure
            self._screen.say(f"warning: {path} cannot be drawn ({explain(error)})")
            self._figure_due = math.inf
            return
        self._screen.figure(figure)
        if last and self._board is not None:
            self._board.figure(path, rows[-1].epoch)
        ended = time.monotonic()
        self._figure_due = ended + max(10.0, FIGURE_SHARE * (ended - began))

    # -- checkpoints --

    def is_due(self, epoch: int) -> bool:
        """Whether a checkpoint should be written after this epoch."""
        if every := self._options.checkpoint_every:
            return epoch % every == 0
        now = time.perf_counter()
        since, lasted, self._asked_at = now - self._saved_at, now - max(self._saved_at, self._asked_at), now
        if lasted > LONG_EPOCH and self._last_saving <= LARGEST_SHARE_OF_LONG * lasted:
            return True
        return epoch - self._saved_epoch >= DEFAULT_INTERVAL and self._last_saving <= LARGEST_SHARE * since

    def save(self, epoch: int) -> None:
        """Write a checkpoint and weights.npz; for errors see `__call__`."""
        self._check_lock()
        began = time.perf_counter()
        state = checkpoint.with_settings(self._trainer.state(), self._content)
        with run_folder.lost_disk_error(self._folder, self._resume):
            checkpoint.save(self._folder / run_folder.CHECKPOINTS, epoch, state, self._options.keep_checkpoints)
            self._trainer.agent.save_weights(self._folder / run_folder.WEIGHTS)
        self._saved_epoch, self._saved_at = epoch, time.perf_counter()
        self._last_saving = self._saved_at - began
        self.saving_seconds += self._last_saving

    # -- between two steps --

    @property
    def _stop(self) -> int:
        """Number of the signal that asks the run to stop; 0 before any."""
        return self._signals.received or self._screen.stop

    @property
    def _epoch(self) -> int:
        """The last finished epoch."""
        return self._trainer.results[-1].epoch if self._trainer.results else 0

    def show(self, progress: str) -> None:
        """Show how far the epoch is; see `progress.followed`."""
        self._screen.progress(f"epoch {self._epoch + 1}: {progress}")

    def between_steps(self) -> None:
        """Raises StoppedError if a signal has asked the run to stop, and the epoch is given up."""
        if self._stop and self._gives_up():
            raise StoppedError(self._line(), self._stop)

    def _gives_up(self) -> bool:
        """Whether the epoch that has begun is long, and longer so far than those before it that are not saved."""
        seconds = time.perf_counter() - self._epoch_began
        unsaved = self._epoch_began - self._saved_at if self._saved_epoch != self._epoch else 0.0
        return max(seconds, self._epoch_seconds) > LONG_EPOCH and seconds >= unsaved

    def _end_process(self, number: int) -> None:
        """End the process, whatever it is doing, if the epoch is given up; its workers end with it."""
        if self._gives_up():
            self._screen.end()
            with contextlib.suppress(OSError):
                os.write(2, f"{self._line()}\n".encode())
            os._exit(128 + number)

    def _line(self) -> str:
        if not self._saved_epoch:
            return f"stopped before the first epoch was saved, so nothing is kept; start again with {self._resume}"
        epochs = self._trainer.config.epochs
        return f"stopped after epoch {self._saved_epoch} of {epochs}; continue with {self._resume}"
