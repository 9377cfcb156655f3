"""What a run does between two steps and after each epoch: show, record, save, and stop when it is asked to."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from common.errors import StoppedError
from common.results import EpochResult
from common.runs import trust
from common.runs.options import RunOptions
from common.runs.protocols import Trainer
from common.runs.recorder import Recorder, Terminal
from common.runs.saver import LONG_EPOCH, Saver
from common.runs.signals import StopSignals


class EachEpoch:
    """Called with the row of each epoch; `between_steps` is called within epochs.

    A signal stops the run at the end of its epoch. An epoch that takes longer than a few seconds is given up if the
    one before it is saved.

    Args:
        callback: called with each row, once it is recorded and a checkpoint that is due is written.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: Path,
        options: RunOptions,
        screen: Terminal,
        callback: Callable[[EpochResult], None] | None,
        recorder: Recorder,
        signals: StopSignals,
        saver: Saver,
    ) -> None:
        self._trainer, self._folder, self._options, self._screen = trainer, folder, options, screen
        self._callback, self._recorder, self._signals, self._saver = callback, recorder, signals, saver
        signals.still_running = self._end_process
        self._began, self._last_seconds = time.monotonic(), 0.0

    @property
    def _stop(self) -> int:
        """Number of the signal that asks the run to stop; 0 before any."""
        return self._signals.received or self._screen.stop

    @property
    def _epoch(self) -> int:
        """The last finished epoch."""
        return self._trainer.results[-1].epoch if self._trainer.results else 0

    def __call__(self, result: EpochResult) -> None:
        """Record an epoch, write a checkpoint if one is due.

        Raises:
            StoppedError: a signal has asked the run to stop, and a checkpoint is written.
        """
        trainer, options, epoch = self._trainer, self._options, result.epoch
        self._saver.check_lock()
        self._recorder(result)
        last = epoch == trainer.config.epochs or trainer.solved
        saved = bool(self._saver.due(epoch) or last or self._stop)
        if saved:
            self._saver.save(epoch)
        if self._callback is not None:
            self._callback(result)
        stopped = self._stop
        if stopped and not saved:
            self._saver.save(epoch)
        if stopped:
            if options.figure:
                self._recorder.draw(last=True)
            raise StoppedError(self._line(), stopped)
        self._last_seconds, self._began = time.monotonic() - self._began, time.monotonic()

    def show(self, progress: str) -> None:
        """Show how far the epoch is; see `progress.followed`."""
        self._screen.progress(f"epoch {self._epoch + 1}: {progress}")

    def between_steps(self) -> None:
        """Raises StoppedError if a signal has asked the run to stop, and the epoch is given up."""
        if self._stop and self._gives_up():
            raise StoppedError(self._line(), self._stop)

    def _gives_up(self) -> bool:
        """Whether the epoch that has begun is long, and the last finished one is saved."""
        seconds = max(time.monotonic() - self._began, self._last_seconds)
        return seconds > LONG_EPOCH and self._saver.last_epoch == self._epoch

    def _end_process(self, number: int) -> None:
        """End the process, whatever it is doing, if the epoch is given up; its workers end with it."""
        if self._gives_up():
            self._screen.end()
            with contextlib.suppress(OSError):
                os.write(2, f"{self._line()}\n".encode())
            os._exit(128 + number)

    def _line(self) -> str:
        resume, epoch = trust.command("resume", self._folder, self._trainer.config), self._epoch
        if not epoch:
            return f"stopped before the first epoch was finished, so nothing is saved; start again with {resume}"
        return f"stopped after epoch {epoch} of {self._trainer.config.epochs}; continue with {resume}"
