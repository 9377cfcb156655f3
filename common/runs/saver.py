"""When checkpoints are written, and the weights beside them."""

import time
from pathlib import Path

from common.errors import UserError
from common.runs import checkpoint, run_folder, trust
from common.runs.options import RunOptions
from common.runs.protocols import Trainer

DEFAULT_INTERVAL = 10  # epochs between checkpoints at least
LARGEST_SHARE = 0.01  # of the time since the last checkpoint, that writing one may take


class Saver:
    """Writes the checkpoints of a run, and its weights beside them.

    With `--checkpoint-every 0` a checkpoint is due every ten epochs, or less often if saving would take more than 1%
    of the run time.

    Args:
        trainer: whose state is saved.
        folder: of the run.
        options: `checkpoint_every` and `keep_checkpoints` are read.
        content: of config.json, which every checkpoint holds a copy of.

    Attributes:
        seconds: spent on checkpoints so far.
    """

    def __init__(self, trainer: Trainer, folder: Path, options: RunOptions, content: object = None) -> None:
        self._trainer, self._folder, self._options, self._content = trainer, folder, options, content
        self.seconds = 0.0
        self._last_seconds = 0.0  # spent on the last checkpoint
        self._last_epoch, self._last_end = trainer.epoch, time.perf_counter()

    def due(self, epoch: int) -> bool:
        """Whether a checkpoint should be written after this epoch."""
        every = self._options.checkpoint_every
        if every:
            return epoch % every == 0
        since = time.perf_counter() - self._last_end
        return epoch - self._last_epoch >= DEFAULT_INTERVAL and self._last_seconds <= LARGEST_SHARE * since

    def save(self, epoch: int) -> None:
        """Write a checkpoint and weights.npz.

        Raises:
            UserError: the disk is full or read-only; earlier checkpoints stay whole.
        """
        began = time.perf_counter()
        state = checkpoint.with_settings(self._trainer.state(), self._content)
        try:
            checkpoint.save(self._folder / run_folder.CHECKPOINTS, epoch, state, self._options.keep_checkpoints)
            self._trainer.agent.save_weights(self._folder / run_folder.WEIGHTS)
        except (UserError, OSError) as error:
            fault = f"{self._folder} cannot be written ({error.strerror})" if isinstance(error, OSError) else error
            resume = trust.command("resume", self._folder, self._trainer.config)
            raise UserError(f"{fault}; see that its disk is there and has room, then continue with {resume}") from None
        self._last_epoch, self._last_end = epoch, time.perf_counter()
        self._last_seconds = self._last_end - began
        self.seconds += self._last_seconds
