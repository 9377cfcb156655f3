"""What a run does between two steps and after each epoch: show, record, save, and stop when it is asked to."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import StoppedError, UserError
from common.results import EpochResult
from common.runs import checkpoint, run_folder, trust
from common.runs.options import RunOptions
from common.runs.recorder import Recorder, Terminal
from common.runs.signals import StopSignals

if TYPE_CHECKING:
    from common.learning.trainer_base import TrainerBase  # imports TensorFlow

DEFAULT_INTERVAL = 10  # epochs between checkpoints at least
LARGEST_SHARE = 0.01  # of the time since the last checkpoint, that writing one may take
LONG_EPOCH = 3.0  # seconds; after each epoch that takes longer a checkpoint is due
LARGEST_SHARE_OF_LONG = 0.05  # of a long epoch, that writing one may take


class Saver:
    """Writes the checkpoints of a run, and its weights beside them.

    With `--checkpoint-every 0` a checkpoint is due every ten epochs, or less often if saving would take more than 1%
    of the run time. It is also due after an epoch of more than three seconds, unless saving would take more than 5% of
    these.

    Args:
        content: of config.json, which every checkpoint holds a copy of.
        check_lock: called before each save; see `one_process.only_here`.

    Attributes:
        seconds: spent on checkpoints so far.
        last_epoch: after which the last checkpoint was written; 0 before any.
    """

    def __init__(
        self,
        trainer: "TrainerBase",
        folder: Path,
        options: RunOptions,
        content: object = None,
        check_lock: Callable[[], None] = lambda: None,
    ) -> None:
        self.trainer, self.folder, self._options, self._content = trainer, folder, options, content
        self.check_lock = check_lock
        self.seconds = 0.0
        self._last_seconds = 0.0  # spent on the last checkpoint
        self.last_epoch, self._last_end = trainer.epoch, time.perf_counter()
        self._epoch_end = self._last_end  # when `due` was called last

    def due(self, epoch: int) -> bool:
        """Whether a checkpoint should be written after this epoch."""
        every = self._options.checkpoint_every
        if every:
            return epoch % every == 0
        now = time.perf_counter()
        since, lasted, self._epoch_end = now - self._last_end, now - max(self._last_end, self._epoch_end), now
        if lasted > LONG_EPOCH and self._last_seconds <= LARGEST_SHARE_OF_LONG * lasted:
            return True
        return epoch - self.last_epoch >= DEFAULT_INTERVAL and self._last_seconds <= LARGEST_SHARE * since

    def save(self, epoch: int) -> None:
        """Write a checkpoint and weights.npz.

        Raises:
            UserError: the disk is full or read-only; earlier checkpoints stay whole.
            FolderLostError: the run folder was removed, moved or replaced.
        """
        self.check_lock()
        began = time.perf_counter()
        state = checkpoint.with_settings(self.trainer.state(), self._content)
        try:
            checkpoint.save(self.folder / run_folder.CHECKPOINTS, epoch, state, self._options.keep_checkpoints)
            self.trainer.agent.save_weights(self.folder / run_folder.WEIGHTS)
        except (UserError, OSError) as error:
            fault = f"{self.folder} cannot be written ({error.strerror})" if isinstance(error, OSError) else error
            resume = trust.command("resume", self.folder, self.trainer.config)
            raise UserError(f"{fault}; see that its disk is there and has room, then continue with {resume}") from None
        self.last_epoch, self._last_end = epoch, time.perf_counter()
        self._last_seconds = self._last_end - began
        self.seconds += self._last_seconds


class EachEpoch:
    """Called with the row of each epoch; `between_steps` is called within epochs.

    A signal stops the run at the end of its epoch. An epoch that takes longer than a few seconds is given up if the
    one before it is saved.

    Args:
        callback: called with each row, once it is recorded and a checkpoint that is due is written.
    """

    def __init__(
        self,
        saver: Saver,
        recorder: Recorder,
        signals: StopSignals,
        screen: Terminal,
        callback: Callable[[EpochResult], None] | None,
    ) -> None:
        self._saver, self._recorder, self._signals, self._screen = saver, recorder, signals, screen
        self._trainer, self._folder, self._callback = saver.trainer, saver.folder, callback
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
        trainer, epoch = self._trainer, result.epoch
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
