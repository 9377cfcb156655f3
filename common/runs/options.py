"""Where a run writes its files and what it writes."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError


@dataclass(frozen=True)
class RunOptions:
    """Where a run leaves its traces and how it is looked at; nothing here changes what is learned."""

    name: str | None = None
    """Folder under --runs-folder; None takes PRESET-seedN, or the next free name after it."""
    runs_folder: str = "runs"
    """Where run folders live."""
    resume: Path | None = None
    """Continue the run of this folder. Of its settings, --epochs, --environment-restarts, --environment-time-limit,
    --on-not-finite and --device may be changed."""
    checkpoint_every: int = 0
    """Epochs between checkpoints; 0 for ten, or more where that would cost over a percent of the time.
    One is also written on Ctrl-C, on SIGTERM and at the end."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints are kept."""
    evaluation_episodes: int = 100
    """Episodes of the evaluation at the end, deterministic and sampled each; 0 for none."""
    evaluate_every: int = 0
    """Epochs between evaluations while training goes on; 0 for none."""
    video: bool = True
    """Film an evaluated episode at the end."""
    gif: bool = False
    """Film it as a GIF of 30 frames a second in place of an MP4."""
    tensorboard: bool = True
    """Write TensorBoard logs."""
    figure: bool = True
    """Redraw the five-panel figure while training goes on."""

    def __post_init__(self) -> None:
        for name, least in (
            ("evaluation_episodes", 0),
            ("evaluate_every", 0),
            ("checkpoint_every", 0),
            ("keep_checkpoints", 1),
        ):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}: expected {least} or more")
        if self.evaluate_every and not self.evaluation_episodes:
            raise UserError("evaluate_every needs episodes: set --evaluation-episodes to 1 or more")
        if self.resume is not None and self.name is not None:
            raise UserError("--name and --resume exclude each other: a resumed run keeps its folder")
        if self.name is not None and not is_folder_name(self.name, windows=os.name == "nt"):
            raise UserError(f"name {self.name!r} is no folder name: use letters, digits, '-', '_' and '.'")


def is_folder_name(name: str, windows: bool) -> bool:
    """Whether a folder can have this name and be found by it again."""
    if not name or name in (".", "..") or set(name) & set("/\\\0"):
        return False
    if not windows:
        return True
    # A colon would begin a stream of a file, dots and spaces at the end are dropped, CON, NUL and others are devices.
    return (
        not set(name) & set('<>:"|?*')
        and min(name) >= " "
        and name[-1] not in ". "
        and not _WINDOWS_DEVICE.fullmatch(name.split(".")[0].rstrip())
    )


_WINDOWS_DEVICE = re.compile(r"(?i)con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]")
