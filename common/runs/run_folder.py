"""The run folder: its name, its config.json, its results.csv."""

import contextlib
import dataclasses
import errno
import importlib.metadata
import io
import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from common import files
from common.config import TrainingConfig
from common.envs.environment import Environment
from common.envs.stored_spaces import to_json
from common.errors import UserError
from common.files import replace_file, write_json
from common.results import EpochResult, columns_of
from common.runs import checkpoint, trust
from common.runs.options import RunOptions

CONFIG, RESULTS, FIGURE = "config.json", "results.csv", "figure.png"
WEIGHTS, BEST_AGENT = "weights.npz", "best_agent.npz"
EVALUATION, VIDEO, TENSORBOARD = "evaluation.json", "video.mp4", "tensorboard"
CHECKPOINTS = "checkpoints"
LARGEST_TABLE = 256 * 2**20  # bytes of results.csv
KEPT_OPTIONS = ("checkpoint_every", "keep_checkpoints", "evaluation_episodes", "record")  # by a run that is resumed
LONGEST_NAME = 200  # characters of a preset's

TYPED = trust.Typed._fields  # what must be typed again where it runs code of the user's
ROOT = Path(__file__).resolve().parents[2]

Kinds = Mapping[str, type[TrainingConfig]]  # "method" in config.json → its settings
_PACKAGES = ("tensorflow", "keras", "tensorflow-probability", "gymnasium", "box2d", "envpool", "numpy")


def create(runs_folder: str, name: str | None, default_name: str) -> Path:
    """Make a new, empty run folder; without a name `default_name`, or the first free of `default_name`-2, -3, …

    Raises:
        UserError: the name is taken, or the folder cannot be made.
    """
    base = Path(runs_folder)
    names = [name] if name is not None else [default_name, *(f"{default_name}-{i}" for i in range(2, 10_000))]
    check_name(str(base / names[0]))
    try:
        files.make_folder(base)
        for folder in (base / each for each in names):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(parents=True)  # another run that failed may have removed the base
                files.flush_folder(base)
                return folder
    except OSError as error:
        raise UserError(
            f"cannot make a run folder in {base} ({error.strerror}): choose another "
            + ("--name, a shorter one" if error.errno == errno.ENAMETOOLONG else "--runs-folder")
        ) from None
    if name is not None:
        raise UserError(f"{base / name} already holds a run: choose another --name or remove that folder")
    raise UserError(f"{base} holds too many runs named {default_name}: choose a --name")


def check_creatable(runs_folder: str, name: str | None, default_name: str) -> None:
    """Raise the UserError that `create` would raise now; no folder stays."""
    base, made = Path(runs_folder), []
    missing = [path for path in (base, *base.parents) if not path.exists()]
    try:
        made = [create(runs_folder, name, default_name)]
    finally:
        for folder in (*made, *missing):
            with contextlib.suppress(OSError):  # it could not be made, or another run has begun in it
                folder.rmdir()


def write_config(
    folder: Path,
    config: TrainingConfig,
    preset: str,
    resumed_after: int | None = None,
    options: RunOptions | None = None,
    environment: Environment | None = None,
) -> dict[str, object]:
    """Write config.json: settings, options that a resumed run keeps, command, versions of packages, project's commit.

    A resumed run keeps its first command, start and versions, and adds those of the resume and the changed settings.

    Args:
        resumed_after: the epoch after which the run is resumed; None for a new run.
        environment: of the run, whose spaces are stored too, so that its agent can act without it.

    Returns what was written, of which checkpoints hold a copy.
    """
    settings = json.loads(json.dumps(dataclasses.asdict(config)))  # with lists in place of tuples
    started = datetime.now(UTC).isoformat(timespec="seconds")
    now: dict[str, object] = {"command": typed_command(), "versions": _versions(), "started": started}
    content: dict[str, object] = {"preset": preset, "method": config.METHOD, "config": settings} | now
    content["options"] = {name: getattr(options or RunOptions(), name) for name in KEPT_OPTIONS}
    if environment is not None:
        native = environment.native_observation_space
        content["spaces"] = {"observation": to_json(native), "action": to_json(environment.action_space)}
    if resumed_after is not None:
        before, _, _ = read_content(folder, {config.METHOD: type(config)})
        changed = {
            name: [before["config"][name], value]
            for name, value in settings.items()
            if name in before["config"] and before["config"][name] != value
        }
        earlier = before["resumed"] if isinstance(before.get("resumed"), list) else []
        resumed = [*earlier, {"after_epoch": resumed_after, **now, "changed": changed}]
        content |= {name: before[name] for name in now if name in before} | {"resumed": resumed}
    write_json(folder / CONFIG, content)
    return content


def typed_command() -> str:
    """The command that started this process, as it is typed in the project's folder."""
    program, *words = sys.argv
    path = Path(program)
    if path.is_absolute() and path.is_relative_to(ROOT):  # Python was given -m
        program = f"python -m {'.'.join(path.relative_to(ROOT).with_suffix('').parts)}"
    elif not program.startswith("python "):
        program = shlex.join(["python", program])
    return " ".join([program, *map(shlex.quote, words)])


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions | {"commit": source_commit() or "unknown"}


def source_commit() -> str | None:
    """The project's commit, ending in "+" where files differ from it; None where it is no git repository."""
    asked = ["rev-parse", "--show-toplevel", "--short=10", "HEAD"], ["status", "--porcelain", "-uno"]
    try:
        head, changes = (
            subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.splitlines()
            for words in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    if len(head) != 2 or Path(head[0]).resolve() != ROOT:  # a copy within somebody's repository
        return None
    return head[1] + ("+" if changes else "")


def read_config(folder: Path, kinds: Kinds, **typed: Any) -> tuple[str, TrainingConfig]:
    """The preset's name and the config of a run; from its newest checkpoint where config.json is lost or damaged.

    From now on this process imports no module from that folder, nor from the one it lies in.

    Args:
        kinds: method → class of its settings.
        typed: what the user typed, as `trust.Typed` takes it. An environment, wrappers and networks that import other
            modules than this project's and Gymnasium's, and strings among `env_kwargs`, are used only if typed.

    Raises:
        UserError: there is no run, its config.json is not one of ours, or its environment must be typed again.
    """
    trust.refuse(folder)
    trust.refuse_runs(folder.resolve().parent)
    content, config, _ = read_content(folder, kinds)
    trust.check_trusted(folder, config, trust.Typed(**typed))
    preset = str(content["preset"])
    return preset if preset.isprintable() and len(preset) <= LONGEST_NAME else "unnamed", config


_FAULTS = (UserError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def read_content(folder: Path, kinds: Kinds) -> tuple[dict[str, Any], TrainingConfig, str]:
    """The content of config.json, or of its copy in the newest whole checkpoint; the settings in it; what is damaged.

    Raises:
        UserError: neither can be read.
    """
    check_name(str(folder))
    files.check_plain(folder)
    path = folder / CONFIG
    try:
        content: Any = files.read_json(path)
        return content, _config_of(content, kinds), ""
    except (FileNotFoundError, NotADirectoryError):
        damage, fault = "it is missing", f"{folder} holds no run: expected a folder with a {CONFIG}, like runs/NAME"
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): try again") from None
    except _FAULTS as error:
        damage = f"{type(error).__name__}: {str(error)[:200]}"
        wrong = f"cannot be read as a run's settings ({damage}): use an undamaged copy"
        fault = f"{path}: {error}" if isinstance(error, UserError) else f"{path} {wrong}"
    with contextlib.suppress(*_FAULTS):
        if checkpoint.generations(folder / CHECKPOINTS):
            content = checkpoint.settings_of(checkpoint.load_newest(folder / CHECKPOINTS, lambda _: None)[1])
            return content, _config_of(content, kinds), damage
    raise UserError(fault)


def read_options(folder: Path, kinds: Kinds) -> RunOptions:
    """The options that a run was trained with last, of KEPT_OPTIONS; the defaults where they are not stored.

    Raises:
        UserError: see `read_config`; or an option has a wrong value.
    """
    stored = read_content(folder, kinds)[0].get("options")
    stored = stored if isinstance(stored, dict) else {}
    try:
        return RunOptions(**{name: stored[name] for name in KEPT_OPTIONS if name in stored})
    except UserError as error:
        raise UserError(f"{folder / CONFIG}: {error}") from None


def _config_of(content: Any, kinds: Kinds) -> TrainingConfig:
    """Raises one of _FAULTS if this is not the content of a config.json."""
    str(content["preset"])
    method = content["method"]
    if method not in kinds:
        raise UserError(f"it is a run of another method ({method!r:.40}): resume it with python -m programs resume")
    settings = dict(content["config"])
    if settings.pop("history", ()):  # a setting of before 1.1
        raise UserError("it was trained with history, which is no longer a setting: use the version that trained it")
    return kinds[method](**settings)


def check_same_settings(folder: Path, config: TrainingConfig, saved: Any) -> None:
    """Raises UserError if a run's settings are not those in its checkpoint, as `checkpoint.settings_of` found them."""
    try:
        before, written = _config_of(saved, {config.METHOD: type(config)}), saved["config"]
    except _FAULTS:
        return
    for name in config.differences(before):
        if name in written:
            raise UserError(
                f"{folder / CONFIG} says {name} {getattr(config, name)}, the run's checkpoint "
                f"{getattr(before, name)}: put that back, or remove {CONFIG}, which is then written again from the "
                "checkpoint"
            )


def check_name(path: str) -> None:
    """Raises UserError for a path that cannot be printed or written into a figure or table."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode(errors="backslashreplace").decode()
        raise UserError(f"{shown} is not valid UTF-8: rename the folder") from None
    if any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in path):
        raise UserError(f"{path!r} holds characters that cannot be printed: rename the folder")


@contextlib.contextmanager
def lost_disk_error(path: object, resume_command: str) -> Iterator[None]:
    """While a path in the folder is written, a disk that is lost or full is a UserError that says how to continue."""
    try:
        yield
    except (UserError, OSError) as error:
        fault = f"{path} cannot be written ({error.strerror})" if isinstance(error, OSError) else error
        raise UserError(
            f"{fault}; see that its disk is there and has room, then continue with {resume_command}"
        ) from None


class ResultsFile:
    """`results.csv`: one row per epoch, written after each epoch; a context manager, which closes the file.

    It is rewritten with the rows that a resumed run already has, so that none is lost or doubled.
    """

    def __init__(self, folder: Path, rows: list[EpochResult], kind: type[EpochResult]) -> None:
        self._path = folder / RESULTS
        replace_file(self._path, (",".join(columns_of(kind)) + "\n" + "".join(map(_row, rows))).encode())
        self._file = open(self._path, "ab")  # noqa: SIM115  closed by __exit__()

    def __enter__(self) -> "ResultsFile":
        return self

    def write(self, result: EpochResult) -> None:
        """Append a row."""
        self._file.write(_row(result).encode())
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # rows that are missing come back from the checkpoint
            self._file.close()
        with contextlib.suppress(OSError):
            files.flush_file(self._path)


def _row(result: EpochResult) -> str:
    """A line of numbers, each in the shortest form that reads back as the same number."""
    values = (getattr(result, name) for name in columns_of(type(result)))
    return ",".join(str(int(value)) if isinstance(value, int) else repr(float(value)) for value in values) + "\n"


def read_results(folder: Path) -> dict[str, np.ndarray]:
    """The columns of results.csv, each [epochs] float64.

    Raises:
        UserError: there is no such file, it is not one of ours, or it has no rows yet.
    """
    path = folder / RESULTS
    check_name(str(folder))
    files.check_plain(folder)
    try:
        first, _, rest = files.read_bytes(path, LARGEST_TABLE).decode().partition("\n")
        header = first.strip("\r").split(",")
        if not {"epoch", "steps", "total_reward", "avg_reward", "avg_steps"} <= set(header):
            raise ValueError("its columns are not those of a run")
        if not rest.strip():
            raise UserError(f"{path} has no epochs yet: wait for its first epoch")
        table = np.loadtxt(io.StringIO(rest), delimiter=",", comments=None, ndmin=2)  # [epochs, columns]
        if table.shape[1] != len(header):
            raise ValueError(f"its rows have {table.shape[1]} columns of {len(header)}")
        if not (np.abs(table[:, header.index("epoch")]) < 2**53).all():
            raise ValueError("its epochs are not numbered")
    except OSError:
        raise UserError(f"{folder} holds no run: expected a folder with a {RESULTS}, like runs/NAME") from None
    except ValueError as error:
        shown = str(error).splitlines()[0].partition(";")[0][:200]
        raise UserError(f"{path} cannot be read as results ({shown}): use an undamaged copy") from None
    unknown = dict.fromkeys(columns_of(EpochResult), np.full(len(table), np.nan))  # to the version that wrote it
    return unknown | {name: table[:, i] for i, name in enumerate(header)}
