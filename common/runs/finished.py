"""finished.json: which steps after training are done, and for how many epochs: best agent, evaluation, film.

Because the number of epochs is recorded, the results of a shorter run are never taken for those of the run with more
epochs.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from common import files
from common.runs import run_folder
from common.runs.options import RunOptions

FILE = "finished.json"
ADOPT, EVALUATE, FILM = "best_agent", "evaluation", "film"
_RESULTS = (run_folder.BEST_AGENT, run_folder.EVALUATION, run_folder.VIDEO, "video.gif", FILE)


def missing(folder: Path, epochs: int, options: RunOptions) -> list[str]:
    """The steps after training that these options ask for and that are not done for so many epochs, in order."""
    asked = [ADOPT] + [EVALUATE] * (options.evaluation_episodes > 0) + [FILM] * options.films
    return [stage for stage in asked if not is_done(folder, stage, epochs)]


def is_done(folder: Path, stage: str, epochs: int) -> bool:
    """Whether a stage is done for a run of so many epochs, and its file, if it has one, still exists."""
    recorded, done = _read(folder)
    return recorded == epochs and stage in done and (not done[stage] or (folder / done[stage]).is_file())


def note(folder: Path, stage: str, epochs: int, file: str = "") -> None:
    """Record that a stage is done; its file is "" for an environment that cannot be filmed."""
    recorded, done = _read(folder)
    done = done if recorded == epochs else {}
    files.write_json(folder / FILE, {"epochs": epochs, "stages": done | {stage: file}})


def note_evaluation(folder: Path, epochs: int, summaries: dict[str, dict[str, object]]) -> None:
    """Write evaluation.json with the best agent's scores; if training is done, record for how many epochs."""
    files.write_json(folder / run_folder.EVALUATION, summaries)
    if is_done(folder, ADOPT, epochs):
        note(folder, EVALUATE, epochs, run_folder.EVALUATION)


def note_film(folder: Path, epochs: int, film: Path | None) -> None:
    """If training is done, record that the best agent was filmed, or with None that it cannot be."""
    if is_done(folder, ADOPT, epochs):
        note(folder, FILM, epochs, film.name if film else "")


def forget(folder: Path, stage: str) -> None:
    """Forget that a stage is done, because its file will be replaced by that of an agent other than the best."""
    recorded, done = _read(folder)
    if done.pop(stage, None) is not None:
        files.write_json(folder / FILE, {"epochs": recorded, "stages": done})


def epochs_of(folder: Path) -> int:
    """The number of epochs for which steps are recorded as done; 0 if none are."""
    return _read(folder)[0]


def set_aside(folder: Path, epoch: int) -> Path | None:
    """Move the results of a run that was trained to this epoch into a folder of their own, before it continues.

    It may be interrupted and called again, since finished.json is moved last. None if there was nothing to move.

    Raises:
        UserError: a link is in the way.
    """
    files.check_plain(folder)
    found = [name for name in _RESULTS if (folder / name).exists()]
    if not found:
        return None
    aside = folder / f"after-{epoch}-epochs"
    aside.mkdir(exist_ok=True)
    for name in found:
        os.replace(folder / name, aside / name)
    files.flush_folder(aside)
    files.flush_folder(folder)
    return aside


def _read(folder: Path) -> tuple[int, dict[str, str]]:
    """The number of epochs, and stage → file; 0 and {} if finished.json is missing or damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        content: Any = files.read_json(folder / FILE)
        epochs, done = content["epochs"], content["stages"]
        if isinstance(epochs, int) and {*done.values()} <= {*_RESULTS, ""}:
            return epochs, dict(done)
    return 0, {}
