"""Reads every program's arguments, and turns a user's mistakes into one-line errors."""

import argparse
import contextlib
import difflib
import errno
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from common.config import MAY_CHANGE, TrainingConfig
from common.errors import StoppedError, UserError
from common.files import FULL
from common.runs import run_folder
from common.runs.arguments import read, short_help
from common.runs.options import RunOptions
from common.runs.signals import raise_on_ctrl_c
from common.settings import Described, check_used, described

T = TypeVar("T")
C = TypeVar("C", bound=TrainingConfig)
HELP_ALL = "--help-all"
UNREAD = 128 + getattr(signal, "SIGPIPE", 13)  # the exit code a shell reports for a program that SIGPIPE ended
_CLOSED = (errno.EPIPE, errno.EINVAL)  # what a pipe without a reader says; EINVAL on Windows
_FILE_FAULTS = {
    "make room first": FULL,
    "choose a folder that you may read and write": (errno.EROFS, errno.EACCES, errno.EPERM),
    "see that its disk is connected": (errno.EIO, errno.ENOTCONN, errno.ESTALE),
    "choose another name": (errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
    "check the name": (errno.ENOENT, errno.ENOTDIR),
}


def file_fault(error: OSError) -> str | None:
    """The line for a fault of the disk or of a path, with what to do; None for other errors."""
    advice = next((advice for advice, faults in _FILE_FAULTS.items() if error.errno in faults), None)
    where = error.filename2 or error.filename
    if advice is None or (where is None and error.errno not in FULL):
        return None
    return f"{error.strerror}{f', {where}' if where else ''}: {advice}"


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns errors of the block into one line on stderr and an exit code.

    A `UserError`, a fault of a file and a lack of memory exit with 2, a signal with 128 + its number. From now on,
    stdout and stderr escape characters that their encoding lacks.

    Raises:
        SystemExit: in place of these errors; all others pass.
    """
    raise_on_ctrl_c()
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
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


@contextlib.contextmanager
def ends_when_unread() -> Iterator[None]:
    """Exit quietly with UNREAD if the reader of the output has closed, as in `... --help | head -3`."""
    try:
        yield
    except SystemExit as stop:
        if _is_read() or stop.code:
            raise
    except OSError as error:
        if error.errno not in _CLOSED or error.filename is not None or _is_read("\n"):  # of another pipe
            raise
    except BaseException:
        _is_read()
        raise
    else:
        if _is_read():
            return
    raise SystemExit(UNREAD)


def _is_read(end: str = "") -> bool:
    """Whether all output could be written; if not, the rest is discarded, which Python would try to write at exit."""
    try:
        print(end=end, flush=True)
    except ValueError:  # it was closed, as in a service
        return True
    except OSError as error:
        if error.errno not in _CLOSED:
            raise
        with contextlib.suppress(OSError, AttributeError):  # a stand-in without a file behind it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def one_line(text: str) -> str:
    """A text from a file or a name, with control characters and line breaks escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _end(line: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # the terminal was closed
        print(line, file=sys.stderr)
    raise SystemExit(code) from None


def parse(
    arguments: list[str], program: str, presets: Mapping[str, C], default_preset: str, preset_for: Callable[[str], str]
) -> tuple[str, C, RunOptions]:
    """[PRESET] [--setting value ...] → the preset's name, its config with the typed changes, and the options.

    Without a preset, `--env ID` starts from `preset_for(ID)`. `--resume RUN` starts from that run's own settings, of
    which only `config.MAY_CHANGE` may be changed, and from the options that it was trained with last.

    Args:
        presets: name → config; all of one method.
        default_preset: where neither a preset nor an environment is typed.

    Raises:
        UserError: a name or a value is wrong, or a resumed run would become a different one.
        SystemExit: `--help`, the main settings, or `--help-all` was printed.
    """
    method = type(presets[default_preset])
    resumed = value_of("--resume", arguments)
    if resumed is not None:
        kinds = {method.METHOD: method}
        preset, of_run = run_folder.read_config(Path(resumed), kinds, **typed_environment(arguments))
        default, of_options = cast(C, of_run), run_folder.read_options(Path(resumed), kinds)
    elif arguments and not arguments[0].startswith("-"):
        preset, *arguments = arguments
        if preset not in presets:
            near = difflib.get_close_matches(preset, presets, n=2)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise UserError(
                f"unknown preset {preset!r}: {hint}{program} --help lists this method's presets, and "
                "python -m programs train --help those of every method"
            )
    else:
        env = value_of("--env", arguments)
        preset = default_preset if env is None else preset_for(env)
    about = f"The defaults shown are the settings of {resumed}."
    if resumed is None:
        default, of_options = presets[preset], RunOptions()
        about = (
            f"To start from a preset's settings, type its name first: {program} PRESET [settings]. "
            f"Presets: {', '.join(presets)}. "
            f"The settings that matter most come first. The defaults shown are those of {preset}."
        )
    if {"-h", "--help"} & set(arguments):
        print(_short_help(program, default, presets if resumed is None else (), resumed or preset), end="")
        raise SystemExit(0)
    words = ["--help" if argument == HELP_ALL else argument for argument in arguments]
    config, options = _read_grouped(default, of_options, words, program, about)
    if resumed is not None:
        check_same_run(default, config, Path(resumed))
    for settings in (config, options):
        check_used(settings, names_of_flags(arguments), is_fixed=resumed is not None)
    return preset, config, options


def names_of_flags(arguments: list[str]) -> list[str]:
    """The settings whose flags are among what was typed: `--no-video` and `--video` are both of `video`."""
    flags = [argument.split("=")[0][2:].replace("-", "_") for argument in arguments if argument.startswith("--")]
    return [name for flag in flags for name in (flag, flag.removeprefix("no_"))]


def _all_settings(config: TrainingConfig) -> list[Described]:
    kind: Any = type(config)
    return [*described(kind).values(), *described(RunOptions).values()]


def _short_help(program: str, config: TrainingConfig, presets: Collection[str], chosen: str) -> str:
    """What `--help` prints; of a resumed run, without presets, the settings that may be changed are the main ones."""
    settings = _all_settings(config)
    if not presets:
        settings = [setting._replace(main=setting.name in MAY_CHANGE) for setting in settings]
    return short_help(program, presets, chosen, settings, vars(config))


def _read_grouped(
    config: C, options: RunOptions, words: list[str], program: str, description: str
) -> tuple[C, RunOptions]:
    """A config and options with the typed changes; `--help-all` shows them in groups, the main settings first."""
    defaults = vars(config) | vars(options)
    arguments = [
        setting._replace(default=defaults[setting.name], group="main" if setting.main else setting.group)
        for setting in sorted(_all_settings(config), key=lambda setting: not setting.main)
    ]
    typed = read(arguments, words, program, description, HELP_ALL)
    flags = names_of_flags(words)  # a value that is typed is checked, even if it is the preset's
    changes = {name: value for name, value in typed.items() if value != defaults[name] or name in flags}
    return (
        config.replace(**{name: value for name, value in changes.items() if hasattr(config, name)}),
        options.replace(**{name: value for name, value in changes.items() if hasattr(options, name)}),
    )


def parse_settings(kind: type[T], prog: str = "") -> T:
    """A dataclass of arguments as they were typed.

    Raises:
        UserError: an argument is unknown or missing, or a value has the wrong type.
        SystemExit: `--help` was printed.
    """
    arguments = [*described(cast(Any, kind)).values()]
    return kind(**read(arguments, sys.argv[1:], prog or f"python {sys.argv[0]}", kind.__doc__ or ""))


def value_of(flag: str, arguments: list[str], nargs: str = "?") -> Any:
    """The value typed for a flag, as `--flag value` or `--flag=value`; None if the flag was not typed."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag, "--" + flag[2:].replace("-", "_"), dest="value", nargs=nargs)
    return parser.parse_known_args(arguments)[0].value


def typed_environment(arguments: list[str]) -> dict[str, Any]:
    """What was typed of the environment and the networks, as arguments of `run_folder.read_config`."""
    flags = {name: "--" + name.replace("_", "-") for name in run_folder.TYPED}
    return {name: value_of(flag, arguments, "*" if name == "wrappers" else "?") for name, flag in flags.items()}


def check_same_run(saved: TrainingConfig, asked: TrainingConfig, folder: Path) -> None:
    """Raises UserError if a resumed run would become another one: a setting outside `config.MAY_CHANGE` differs."""
    for name in asked.differences(saved):
        raise UserError(
            f"{name} {getattr(asked, name)} would make {folder} a different run, it has {getattr(saved, name)}: "
            "resume without it, or start a new run"
        )
