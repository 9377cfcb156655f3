"""What every program here does with its arguments and with its user's mistakes."""

import contextlib
import difflib
import errno
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, NoReturn, TypeVar, get_origin

import tyro

from common.config import TrainingConfig, json_object
from common.errors import StoppedError, UserError
from common.runs import run_folder
from common.runs.options import RunOptions
from common.runs.unread_output import ends_when_unread

T = TypeVar("T")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FILE_FAULTS = {
    "make room first": _FULL,
    "choose a folder that you may read and write": (errno.EROFS, errno.EACCES, errno.EPERM),
    "see that its disk is connected": (errno.EIO, errno.ENOTCONN, errno.ESTALE),
    "choose another name": (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
}


def file_fault(error: OSError) -> str | None:
    """What a fault of the disk or of a path is told as; None for others."""
    advice = next((advice for advice, faults in _FILE_FAULTS.items() if error.errno in faults), None)
    where = error.filename2 or error.filename
    if advice is None or (where is None and error.errno not in _FULL):
        return None
    return f"{error.strerror}{f', {where}' if where else ''}: {advice}"


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """A UserError becomes its one line on the error stream and exit code 2; a signal exits with 128 + its number.

    From now on both streams write characters that they have not got as their numbers.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):  # a stand-in of a notebook or a test
            stream.reconfigure(errors="backslashreplace")
    try:
        with ends_when_unread():
            yield
    except UserError as error:
        _end(f"error: {one_line(str(error))}", 2)
    except StoppedError as stopped:
        _end(str(stopped), stopped.exit_code)
    except MemoryError as error:
        _end(f"error: there is not enough memory ({one_line(str(error)) or 'none left'}): use smaller settings", 2)
    except OSError as error:
        line = file_fault(error)
        if line is None:
            raise
        _end(f"error: {one_line(line)}", 2)
    except KeyboardInterrupt:
        _end("\nstopped", 130)


def one_line(text: str) -> str:
    """What stands in a file or a name, in one line in which nothing moves the cursor."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _end(line: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # a terminal that was closed
        print(line, file=sys.stderr)
    raise SystemExit(code) from None


@dataclass(frozen=True)
class _Arguments(Generic[T]):
    config: Annotated[T, tyro.conf.arg(name="")]
    options: Annotated[RunOptions, tyro.conf.arg(name="")]


def parse(
    arguments: list[str], program: str, presets: Mapping[str, T], default_preset: str, preset_for: Callable[[str], str]
) -> tuple[str, T, RunOptions]:
    """[PRESET] [--setting value ...] → the preset's name, its config with the changes, and the options.

    Without a preset, `--env ID` starts from `preset_for(ID)`; `--resume RUN` takes the run's own, of which only
    `config.MAY_CHANGE` may be changed.

    Args:
        presets: those the program knows, all configs of one method.
        default_preset: where neither a preset nor an environment is named.

    Raises:
        UserError: a name or a value is wrong.
    """
    method = type(presets[default_preset])
    resumed = value_of("--resume", arguments)
    if resumed is not None:
        env, env_kwargs = (value_of(flag, arguments) for flag in ("--env", "--env-kwargs"))
        preset, default = run_folder.read_config(Path(resumed), {method.METHOD: method}, env, env_kwargs)
    elif arguments and not arguments[0].startswith("-"):
        preset, *arguments = arguments
        if preset not in presets:
            near = difflib.get_close_matches(preset, presets, n=2) or list(presets)
            raise UserError(f"unknown preset {preset!r}: did you mean {' or '.join(near)}?")
    else:
        env = value_of("--env", arguments)
        preset = default_preset if env is None else preset_for(env)
    if resumed is None:
        default = presets[preset]
    parsed = parse_settings(
        tyro.conf.OmitArgPrefixes[_Arguments[method]],
        prog=program,
        args=arguments,
        default=_Arguments(default, RunOptions()),
        description=(
            f"Usage: {program} [PRESET] [settings]. Presets: {', '.join(presets)}. "
            f"Shown below are the defaults of {preset}."
        ),
    )
    if resumed is not None:
        check_same_run(default, parsed.config, Path(resumed))
    return preset, parsed.config, parsed.options


_SETTINGS = tyro.constructors.ConstructorRegistry()


@_SETTINGS.primitive_rule
def _json(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """A dictionary is typed as one JSON object."""
    if get_origin(info.type) is not dict:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="JSON",
        instance_from_str=lambda texts: json_object("the value", texts[0]),
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [json.dumps(value)],
    )


def parse_settings(kind: type[T], **options: Any) -> T:
    """`tyro.cli` with its boxed error messages brought down to one line.

    Raises:
        UserError: an unknown setting, or a value of the wrong type.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), _SETTINGS:
            return tyro.cli(kind, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_essence(complaint.getvalue())) from None


def _essence(box: str) -> str:
    """What a boxed message says: its first paragraph, and the nearest setting if it names one."""
    lines = [line.strip(" │|╭╮╰╯") for line in box.splitlines()]
    rules = [i for i, line in enumerate(lines) if line and set(line) <= {"─", "-"}]
    start = 2 if 1 in rules else 1  # below the title, and below its rule where the box is drawn without frames
    end = next((rule for rule in rules if rule > start), len(lines))
    message = " ".join(filter(None, lines[start:end]))
    nearest = [line.split()[0] for line in lines[end:] if re.match(r"--\w", line)]
    hint = f"; did you mean {nearest[0]}?" if nearest and "nrecognized" in message else "; --help shows every setting"
    return (message.rstrip(".") or "the settings could not be read") + hint


def value_of(flag: str, arguments: list[str]) -> str | None:
    """What was typed for a flag, as `--flag value` or `--flag=value`; None where it was not."""
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(flag + "="):
            return argument.removeprefix(flag + "=")
    return None


def check_same_run(saved: TrainingConfig, asked: TrainingConfig, folder: Path) -> None:
    """Raises UserError if a setting was changed that a resumed run keeps."""
    for name in asked.differences(saved):
        raise UserError(
            f"{name} {getattr(asked, name)} would make {folder} another run, it has {getattr(saved, name)}: "
            "resume without it, or start a new run"
        )
