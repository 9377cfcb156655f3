"""What every program here does with its arguments and with its user's mistakes."""

import contextlib
import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from common.config import PPOConfig, RunOptions
from common.errors import UserError
from common.presets import PRESETS, preset_for_env


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """A UserError becomes its one line on the error stream and exit code 2; Ctrl-C exits with 130."""
    try:
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        raise SystemExit(130) from None


@dataclass(frozen=True)
class _Arguments:
    config: Annotated[PPOConfig, tyro.conf.arg(name="")]
    options: Annotated[RunOptions, tyro.conf.arg(name="")]


def parse(arguments: list[str], program: str) -> tuple[str, PPOConfig, RunOptions]:
    """[PRESET] [--setting value ...] → the preset's name, its config with the changes, and the options.

    Without a preset, `--env ID` picks the one made for that environment, else "continuous".

    Raises:
        UserError: a name or a value is wrong.
    """
    if arguments and not arguments[0].startswith("-"):
        preset, *arguments = arguments
        if preset not in PRESETS:
            near = difflib.get_close_matches(preset, PRESETS, n=2) or list(PRESETS)
            raise UserError(f"unknown preset {preset!r}: did you mean {' or '.join(near)}?")
    else:
        env = _value_of("--env", arguments)
        preset = "bipedal-walker" if env is None else preset_for_env(env)
    parsed = tyro.cli(
        tyro.conf.OmitArgPrefixes[_Arguments],
        prog=program,
        args=arguments,
        default=_Arguments(PRESETS[preset], RunOptions()),
        description=(
            f"Usage: {program} [PRESET] [settings]. Presets: {', '.join(PRESETS)}. "
            f"Shown below are the defaults of {preset}."
        ),
    )
    return preset, parsed.config, parsed.options


def _value_of(flag: str, arguments: list[str]) -> str | None:
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(flag + "="):
            return argument.removeprefix(flag + "=")
    return None
