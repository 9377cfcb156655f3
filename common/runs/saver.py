"""When checkpoints are written, and the weights beside them."""

import time
from collections.abc import Callable
from pathlib import Path

from common.errors import UserError
from common.runs import checkpoint, run_folder, trust
from common.runs.options import RunOptions
from common.runs.protocols import Trainer

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
        trainer: Trainer,
        folder: Path,
        options: RunOptions,
        content: object = None,
        check_lock: Callable[[], None] = lambda: None,
    ) -> None:
        self._trainer, self._folder, self._options, self._content = trainer, folder, options, content
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
        state = checkpoint.with_settings(self._trainer.state(), self._content)
        try:
            checkpoint.save(self._folder / run_folder.CHECKPOINTS, epoch, state, self._options.keep_checkpoints)
            self._trainer.agent.save_weights(self._folder / run_folder.WEIGHTS)
        except (UserError, OSError) as error:
            fault = f"{self._folder} cannot be written ({error.strerror})" if isinstance(error, OSError) else error
            resume = trust.command("resume", self._folder, self._trainer.config)
            raise UserError(f"{fault}; see that its disk is there and has room, then continue with {resume}") from None
        self.last_epoch, self._last_end = epoch, time.perf_counter()
        self._last_seconds = self._last_end - began
        self.seconds += self._last_seconds
