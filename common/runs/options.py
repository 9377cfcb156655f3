"""The options of a run that do not change what is learned: its folder and what is written into it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common.errors import UserError
from common.rollout.workers.cluster import WorkerPlacement
from common.settings import Settings, setting


@dataclass(frozen=True)
class WorkerOptions(Settings):
    """Who steps the environments."""

    GROUP = "worker"

    workers: int = setting(0, at_least=0)
    """Number of worker processes that step the environments; Ray starts them, and replaces one that is lost. The
    results are the same for any number with the same shards. 0: this process steps the environments."""
    cluster: str | None = None
    """Address of a running Ray cluster, like 10.0.0.1:6379. None starts one on this machine. Only used with
    workers."""


@dataclass(frozen=True)
class RunOptions(WorkerOptions):
    """The run folder, what is written into it, and who steps; nothing here changes what is learned.

    Raises:
        UserError: a value has the wrong type, is out of its range, or does not go with another setting.
    """

    GROUP = "recording"

    name: str | None = None
    """Name of the run folder. None uses PRESET-seedN, or PRESET-seedN-2 and so on if that is taken."""
    runs_folder: str = "runs"
    """Folder that contains the run folders."""
    resume: Path | None = None
    """Run folder of a run to continue from its newest checkpoint. Only --epochs, --stop-score, --confirming-margin,
    --environment-restarts, --environment-time-limit, --on-not-finite, --device, --workers and --cluster can be
    changed, besides the recording options other than --name and --runs-folder. --checkpoint-every,
    --keep-checkpoints, --evaluation-episodes and --record are as the run had them last, unless they are typed."""
    checkpoint_every: int = setting(0, at_least=0)
    """Epochs between checkpoints. Lower it to lose less if the machine fails. 0: every ten epochs, or less often if
    saving would take more than 1% of the run time, and after each epoch of more than three seconds, if saving takes
    less than 5% of it. A checkpoint is also written on Ctrl-C, on SIGTERM and at the end."""
    keep_checkpoints: int = setting(3, at_least=1)
    """Number of newest checkpoints that are kept; older ones are deleted."""
    evaluation_episodes: int = setting(100, at_least=0)
    """Number of episodes in each evaluation, played once with deterministic and once with sampled actions. 0: no
    evaluation."""
    record: tuple[Literal["figure", "tensorboard", "video", "gif"], ...] = ("figure", "tensorboard", "video")
    """What is written besides table, weights and checkpoints. figure: the five panels, figure.png, which is updated
    during training. tensorboard: logs for TensorBoard. video: a film of a deterministic episode at the end, an MP4.
    gif: the same as a GIF of 30 frames per second. Without a value, none of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cluster is not None and not self.workers:
            raise UserError("--cluster needs workers: say how many with --workers N")
        if self.resume is not None and (self.name is not None or self.runs_folder != "runs"):
            raise UserError("--name and --runs-folder have no effect with --resume, which keeps the run's folder")
        if self.name is not None and not is_folder_name(self.name):
            raise UserError(f"name {self.name!r} is not a folder name: use letters, digits, '-', '_' and '.'")

    @property
    def films(self) -> bool:
        """Whether an episode is filmed at the end."""
        return "video" in self.record or "gif" in self.record

    @property
    def placement(self) -> WorkerPlacement:
        """Who steps the environments."""
        return WorkerPlacement(self.workers, self.cluster)


def is_folder_name(name: str) -> bool:
    """Whether a folder can have this name on every system and be found under it again.

    On Windows a colon starts a file's stream, dots and spaces at the end are dropped, and CON, NUL and others are
    devices.
    """
    return (
        bool(name)
        and not set(name) & set('/\\\0<>:"|?*')
        and min(name) >= " "
        and name[-1] not in ". "
        and not _WINDOWS_DEVICE.fullmatch(name.split(".")[0].rstrip())
    )


_WINDOWS_DEVICE = re.compile(r"(?i)con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]")
