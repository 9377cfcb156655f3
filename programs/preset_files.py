"""A preset in a file: what `tune` writes and `train FILE.json` starts from; config.json of a run is one, too."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import files
from common.config import TrainingConfig
from common.errors import UserError
from common.runs import trust
from programs.methods import METHODS, Method


def find_preset(name: str, **typed: Any) -> tuple[str, Method, TrainingConfig]:
    """The name, the method and the settings of what was typed as a preset: a name, or a file's.

    Args:
        typed: see `read_preset`.

    Raises:
        UserError: there is no such preset, or see `read_preset`.
    """
    if name.endswith(".json"):
        return read_preset(Path(name), **typed)
    for method in METHODS.values():
        if name in method.presets:
            return name, method, method.presets[name]
    near = difflib.get_close_matches(name, [one for method in METHODS.values() for one in method.presets], n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "python -m programs train --help lists all presets"
    raise UserError(f"unknown preset {name!r}: {hint}")


def read_preset(
    path: Path,
    env: str | None = None,
    env_kwargs: str | None = None,
    wrappers: Sequence[str] | None = None,
    networks: str | None = None,
) -> tuple[str, Method, TrainingConfig]:
    """Its name, its method and its settings.

    From now on this process imports no module from the file's folder, unless the user's own modules are found there.

    Args:
        env, env_kwargs, wrappers, networks: what was typed. The file's own is used only as far as
            `trust.check_trusted` allows.

    Raises:
        UserError: it is no such file, a value is wrong, or its environment must be typed again.
        OSError: it cannot be read.
    """
    try:
        content: Any = files.read_json(path)
        method, settings = METHODS[content["method"]], dict(content["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'{path} is not a preset ({type(error).__name__}: {error}): expected an object with "config", and '
            f'"method" as one of {", ".join(METHODS)}, as tune writes it'
        ) from None
    trust.refuse_runs(path.parent)
    try:
        config = method.config(**settings)
    except TypeError as error:
        raise UserError(f"{path} has a setting that is not known ({error}): remove it, or update the code") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    replaced = config if wrappers is None else config.replace(wrappers=wrappers)
    replaced = replaced if networks is None else replaced.replace(networks=networks)
    _check_trusted(path, replaced, env, env_kwargs, wrappers, networks)
    return path.stem, method, config


def _check_trusted(
    path: Path,
    config: TrainingConfig,
    env: str | None,
    env_kwargs: str | None,
    wrappers: Sequence[str] | None,
    networks: str | None,
) -> None:
    """`trust.check_trusted` for what was not typed; what was typed replaces the file's."""
    replaced = config if env is None else config.replace(env=env)
    if env_kwargs is not None:
        replaced = replaced.replace(env_kwargs={})
    if env is not None and env != config.env and trust.holds_text(replaced.env_kwargs):
        raise UserError(
            f"{path} gives texts to its environment, which may name files or modules: type --env-kwargs with what "
            f"{env} needs ('{{}}' is nothing)"
        )
    kwargs = replaced.env_kwargs if env_kwargs is not None else None
    trust.check_trusted(path, replaced, trust.Typed(env, kwargs, wrappers, networks))


def write_preset(path: Path, config: TrainingConfig, **remarks: object) -> None:
    """Write a preset with remarks beside it; the file is replaced atomically."""
    files.write_json(path, {"method": config.METHOD, "config": vars(config)} | remarks)
