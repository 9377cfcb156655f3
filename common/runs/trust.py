"""What must be typed before settings from a file may run somebody else's code, and the commands that contain it."""

import contextlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from common.config import TrainingConfig
from common.errors import UserError


def check_trusted(
    where: Path,
    config: TrainingConfig,
    env: str | None,
    env_kwargs: str | Mapping[str, object] | None,
    wrappers: Sequence[str] | None = None,
    networks: str | None = None,
) -> None:
    """Check that the user typed everything that could run somebody else's code.

    Args:
        where: the run's folder, or the file that the settings come from.
        env: the environment as the user typed it.
        env_kwargs: its arguments as the user typed them, as JSON or parsed.
        wrappers: the names of its wrappers as the user typed them.
        networks: the function that makes its networks as the user typed it.

    Raises:
        UserError: something has to be typed again.
    """
    texts = holds_text(config.env_kwargs)
    typed = (
        (env == config.env or not (texts or ":" in config.env))
        and (_parsed(env_kwargs) == config.env_kwargs or not texts)
        and (tuple(wrappers or ()) == config.wrappers or not config.wrappers)
        and (networks == config.networks or ":" not in (config.networks or ""))
    )
    if not typed:
        whose = "the networks" if ":" in (config.networks or "") else "the environment"
        raise UserError(
            f"{whose} of {where} may import modules or read files: if you trust it, type it yourself "
            f"with{flags_again(config)}"
        )


def check_no_other_environment(
    where: Path,
    config: TrainingConfig,
    env: str | None,
    env_kwargs: str | Mapping[str, object] | None,
    wrappers: Sequence[str] | None = None,
    networks: str | None = None,
) -> None:
    """Check that what the user typed is the environment of the run, which is the one that is played.

    Args:
        where: the run's folder.
        env: the environment as the user typed it; None if it was not typed.
        env_kwargs: its arguments as the user typed them, as JSON or parsed; None if they were not typed.
        wrappers: the names of its wrappers; None if they were not typed.
        networks: the function that makes its networks; None if it was not typed.

    Raises:
        UserError: it is another one.
    """
    if env is not None and env not in _names_of(config.env) and config.env not in _names_of(env):
        raise UserError(f"{where} was trained on {config.env}, and plays on it alone: leave out --env {env}")
    again = {
        "env_kwargs": _parsed(env_kwargs),
        "wrappers": None if wrappers is None else tuple(wrappers),
        "networks": networks,
    }
    for name, typed in again.items():
        if typed is not None and typed != getattr(config, name):
            own = json.dumps(getattr(config, name))
            flag = "--" + name.replace("_", "-")
            whose = where if name == "networks" else f"the environment of {where}"
            raise UserError(f"{whose} has the {name} {own}: leave {flag} out, or type these")


def _names_of(env: str) -> set[str]:
    """An environment's id, with and without its namespace and its version: ALE/Pong-v5, Pong-v5, ALE/Pong, Pong."""
    names = {env, env.rpartition("/")[2]}
    return names | {re.sub(r"-v\d+$", "", name) for name in names}


def _parsed(env_kwargs: object) -> object:
    """Arguments of an environment that were typed as JSON; anything else as it is."""
    if isinstance(env_kwargs, str):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(env_kwargs)
    return env_kwargs


def flags_again(config: TrainingConfig) -> str:
    """The flags that `check_trusted` asks for, each after a space; empty for most environments."""
    texts = holds_text(config.env_kwargs)
    flags = ["--env", config.env] if texts or ":" in config.env else []
    flags += ["--env-kwargs", json.dumps(config.env_kwargs)] if texts else []
    flags += ["--wrappers", *config.wrappers] if config.wrappers else []
    flags += ["--networks", config.networks] if config.networks and ":" in config.networks else []
    return f" {shlex.join(flags)}" if flags else ""


def command(program: str, folder: PurePath, config: TrainingConfig) -> str:
    """The command that does something to a run, such as `resume`, as it has to be typed."""
    return f"python -m programs {program} {shlex.quote(folder.as_posix())}{flags_again(config)}"


def holds_text(value: object) -> bool:
    """Whether there is a text somewhere in a value, which may name a file or a module."""
    if isinstance(value, Mapping):
        return any(map(holds_text, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_text, value))
    return isinstance(value, str)
