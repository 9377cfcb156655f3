"""The folder a run leaves behind: its name, its config.json, its results.csv."""

import csv
import dataclasses
import importlib.metadata
import json
import platform
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from common.config import PPOConfig, TrainingConfig
from common.errors import UserError
from common.files import replace_file, write_json
from common.off_policy_config import OffPolicyConfig
from common.results import EpochResult, columns_of

CONFIG, RESULTS, FIGURE = "config.json", "results.csv", "figure.png"
WEIGHTS, BEST_AGENT = "weights.npz", "best_agent.npz"
EVALUATION, VIDEO, TENSORBOARD = "evaluation.json", "video.mp4", "tensorboard"

METHODS: dict[str, type[TrainingConfig]] = {"ppo": PPOConfig, "off-policy": OffPolicyConfig}
_PACKAGES = ("tensorflow", "keras", "tensorflow-probability", "gymnasium", "box2d", "envpool", "numpy")


def create(runs_folder: str, name: str | None, default_name: str) -> Path:
    """A new, empty run folder.

    Args:
        name: of the folder; None takes `default_name`, or the first free of `default_name`-2, -3, …

    Raises:
        UserError: the name is taken, or the folder cannot be made.
    """
    base = Path(runs_folder)
    if name is not None and (base / name).exists():
        raise UserError(f"{base / name} already holds a run: choose another --name or remove that folder")
    try:
        base.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 10_000):
            folder = base / (name or (default_name if attempt == 1 else f"{default_name}-{attempt}"))
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                if name is not None:
                    raise
    except OSError as error:
        raise UserError(
            f"cannot make a run folder in {base} ({error.strerror}): choose another --runs-folder"
        ) from None
    raise UserError(f"{base} holds too many runs named {default_name}: choose a --name")


def write_config(folder: Path, config: TrainingConfig, preset: str) -> None:
    """Enough to repeat the run: every setting, the seed among them, and the versions it ran on."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    write_json(
        folder / CONFIG,
        {
            "preset": preset,
            "method": next(name for name, kind in METHODS.items() if type(config) is kind),
            "config": dataclasses.asdict(config),
            "versions": versions,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )


# What older versions did, which had no such settings; the defaults of now would make another run of theirs.
_BEFORE = {"ppo": {"reward_std_of": "rewards", "noise_color": 0.0}}


def read_config(folder: Path) -> tuple[str, TrainingConfig]:
    """The preset's name and the config of a run.

    Raises:
        UserError: there is no run, or its config.json is not one of ours.
    """
    try:
        content = json.loads((folder / CONFIG).read_text())
        method = content.get("method", "ppo")
        return str(content["preset"]), METHODS[method](**_BEFORE.get(method, {}) | content["config"])
    except UserError as error:
        raise UserError(f"{folder / CONFIG}: {error}") from None
    except FileNotFoundError:
        raise UserError(f"{folder} holds no run: expected a folder with a {CONFIG}, like runs/NAME") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / CONFIG} cannot be read as a run's settings: {error}") from None


class ResultsFile:
    """`results.csv`: a row an epoch, on disk as soon as the epoch is over.

    Args:
        rows: of the epochs a resumed run already has; whatever the file held beyond them is dropped,
            so that no row is lost or doubled.
        kind: of the rows.
    """

    def __init__(self, folder: Path, rows: list[EpochResult], kind: type[EpochResult]) -> None:
        path = folder / RESULTS
        replace_file(path, (_line(columns_of(kind)) + "".join(map(_row, rows))).encode())
        self._file = open(path, "a", newline="")  # noqa: SIM115  closed by close()

    def write(self, result: EpochResult) -> None:
        self._file.write(_row(result))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _line(cells: list[str]) -> str:
    return ",".join(cells) + "\n"


def _row(result: EpochResult) -> str:
    return _line([_cell(getattr(result, name)) for name in columns_of(type(result))])


def _cell(value: float | int | bool) -> str:
    """Numbers in the shortest form that reads back as the same number."""
    return str(int(value)) if isinstance(value, bool | int) else repr(float(value))


def read_results(folder: Path) -> dict[str, np.ndarray]:
    """The columns of results.csv, each [epochs] float64.

    Raises:
        UserError: there is no such file, it is not one of ours, or it has no rows yet.
    """
    path = folder / RESULTS
    try:
        with open(path, newline="") as file:
            header, *rows = list(csv.reader(file))
        table = np.array([[float(cell) for cell in row] for row in rows])  # [epochs, columns]
        if not len(rows):
            raise UserError(f"{path} has no epochs yet: let the run go on for a while")
        if not {"epoch", "steps", "total_reward", "avg_reward", "avg_steps"} <= set(header):
            raise ValueError("its columns are not those of a run")
        unknown = dict.fromkeys(columns_of(EpochResult), np.full(len(rows), np.nan))  # to the version that wrote it
        return unknown | {name: table[:, i] for i, name in enumerate(header)}
    except OSError:
        raise UserError(f"{folder} holds no run: expected a folder with a {RESULTS}, like runs/NAME") from None
    except (ValueError, IndexError) as error:
        raise UserError(f"{path} cannot be read as results ({error}): use an undamaged copy") from None
