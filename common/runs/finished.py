"""What is left to do once training is over, and what is done: the best agent, its score, its film.

`finished.json` in a run folder says for how many epochs they were made, so that those of a shorter run never pass for
those of the same run with more epochs.
"""

import os
from pathlib import Path

from common import files
from common.runs import run_folder
from common.runs.options import RunOptions

FILE = "finished.json"
ADOPT, EVALUATE, FILM = "best_agent", "evaluation", "film"
_RESULTS = (run_folder.BEST_AGENT, run_folder.EVALUATION, run_folder.VIDEO, "video.gif", FILE)


def stages(options: RunOptions) -> list[str]:
    """What these options ask for after training, in order."""
    return [ADOPT] + [EVALUATE] * (options.evaluation_episodes > 0) + [FILM] * options.video


def missing(folder: Path, epochs: int, options: RunOptions) -> list[str]:
    """Which of `stages` are not done for a run of so many epochs."""
    return [stage for stage in stages(options) if not is_done(folder, stage, epochs)]


def is_done(folder: Path, stage: str, epochs: int) -> bool:
    """Whether a stage was done for a run of so many epochs, and its file is still there."""
    recorded, done = _read(folder)
    if recorded != epochs or stage not in done:
        return False
    file = done[stage]
    return not file or (folder / file).is_file()


def note(folder: Path, stage: str, epochs: int, file: str = "") -> None:
    """A stage is done, and its file is on the disk; "" for an environment that cannot be filmed."""
    recorded, done = _read(folder)
    done = done if recorded == epochs else {}
    files.write_json(folder / FILE, {"epochs": epochs, "stages": done | {stage: file}})


def note_evaluation(folder: Path, epochs: int, summaries: dict[str, dict[str, object]]) -> None:
    """Write the best agent's scores, and that they are those of a run of so many epochs if its training is done."""
    files.write_json(folder / run_folder.EVALUATION, summaries)
    if is_done(folder, ADOPT, epochs):
        note(folder, EVALUATE, epochs, run_folder.EVALUATION)


def forget(folder: Path, stage: str) -> None:
    """A stage's file is about to be replaced by that of another agent than the best."""
    recorded, done = _read(folder)
    if stage in done:
        files.write_json(folder / FILE, {"epochs": recorded, "stages": {s: f for s, f in done.items() if s != stage}})


def note_film(folder: Path, epochs: int) -> None:
    """That the best agent was filmed, or cannot be, if its training is done."""
    films = [folder / name for name in (run_folder.VIDEO, "video.gif") if (folder / name).is_file()]
    newest = max(films, key=lambda film: film.stat().st_mtime, default=None)
    if is_done(folder, ADOPT, epochs):
        note(folder, FILM, epochs, newest.name if newest else "")


def set_aside(folder: Path, epochs: int, epoch: int) -> Path | None:
    """Move what a shorter run ended with into a folder of its own, before that run continues.

    May be cut off and called again.

    Args:
        epochs: of the run that continues.
        epoch: the last one that it has trained.

    Returns:
        The folder; None where there was nothing to move.

    Raises:
        UserError: a link is in the way.
    """
    files.check_plain(folder)
    recorded, _ = _read(folder)
    found = [name for name in _RESULTS if (folder / name).exists()]  # finished.json last
    if recorded == epochs or not found:
        return None
    aside = folder / (f"after-{recorded}-epochs" if recorded else f"by-epoch-{epoch}")  # older versions recorded none
    aside.mkdir(exist_ok=True)
    for name in found:
        os.replace(folder / name, aside / name)
    files.flush_folder(aside)
    files.flush_folder(folder)
    return aside


def _read(folder: Path) -> tuple[int, dict[str, str]]:
    """The number of epochs and the stages with their files; 0 and none where nothing fit to be read is there."""
    try:
        content = files.read_json(folder / FILE)
        epochs, done = content["epochs"], content["stages"]
        names = {*_RESULTS, ""}
        if isinstance(epochs, int) and all(file in names for file in done.values()):
            return epochs, dict(done)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return 0, {}
