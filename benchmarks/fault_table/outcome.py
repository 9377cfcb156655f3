"""What a run came to: all that must not depend on what was done to it."""

import json
from pathlib import Path

import numpy as np

from common.results import TIMING_COLUMNS
from common.runs import checkpoint, run_folder, session
from common.state import State

Outcome = dict[str, np.ndarray]


def equal(one: Outcome, other: Outcome) -> bool:
    """The same names, types, shapes and bytes."""
    return not differences(one, other)


def differences(one: Outcome, other: Outcome) -> list[str]:
    """Names of what is not the same."""
    return sorted(name for name in one.keys() | other.keys() if not _same(one.get(name), other.get(name)))


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return False
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def outcome(folder: Path) -> Outcome:
    """The table without its times, both files of weights, the newest checkpoint, settings, scores and film.

    Raises:
        UserError, OSError: something of it is missing or damaged.
    """
    result = {f"table/{name}": column for name, column in without_times(run_folder.read_results(folder)).items()}
    for name in (run_folder.BEST_AGENT, run_folder.WEIGHTS):
        with np.load(folder / name, allow_pickle=False) as file:
            result |= {f"{name}/{key}": file[key] for key in file.files}
    number, state = checkpoint.load_newest(folder / session.CHECKPOINTS, lambda _: None)
    result |= {f"checkpoint/{name}": array for name, array in lasting(state).items()}
    result["generation"] = np.int64(number)
    result["config"] = _text(json.loads((folder / run_folder.CONFIG).read_text("utf-8"))["config"])
    for name in (run_folder.EVALUATION, "hyperparameters.json"):
        if (folder / name).exists():
            result[name] = _text(json.loads((folder / name).read_text("utf-8")))
    if (folder / run_folder.VIDEO).exists():
        result["film"] = np.frombuffer((folder / run_folder.VIDEO).read_bytes(), np.uint8)
    return result


def without_times(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: column for name, column in columns.items() if name not in TIMING_COLUMNS}


def lasting(state: State) -> State:
    """A checkpoint's state without what depends on the time of day: config.json's copy has the start in it."""
    times = {checkpoint.SETTINGS, *(f"results/{name}" for name in TIMING_COLUMNS)}
    return {name: np.asarray(array) for name, array in state.items() if name not in times}


def _text(content: object) -> np.ndarray:
    return np.frombuffer(json.dumps(content, sort_keys=True).encode(), np.uint8)
