"""A preset in a file: what `tune` writes and `train FILE.json` starts from; config.json of a run is one, too."""

import difflib
from pathlib import Path
from typing import Any

from common import files
from common.config import TrainingConfig
from common.errors import UserError
from common.runs import trust
from programs.methods import METHODS, Method


def find_preset(name: str, **typed: Any) -> tuple[str, Method, TrainingConfig]:
    """The name, the method and the settings of what was typed as a preset: a name, or a file's (see `read_preset`).

    Raises:
        UserError: there is no such preset.
    """
    if name.endswith(".json"):
        return read_preset(Path(name), **typed)
    for method in METHODS.values():
        if name in method.presets:
            return name, method, method.presets[name]
    near = difflib.get_close_matches(name, [one for method in METHODS.values() for one in method.presets], n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "python -m programs train --help lists all presets"
    raise UserError(f"unknown preset {name!r}: {hint}")


def read_preset(path: Path, **typed: Any) -> tuple[str, Method, TrainingConfig]:
    """Its name, its method and its settings.

    From now on this process imports no module from the file's folder, unless the user's own modules are found there.

    Args:
        typed: `env`, `env_kwargs`, `wrappers` and `networks` as they were typed, or None. The file's own are used only
            as far as `trust.check_trusted` allows.

    Raises:
        UserError: it cannot be read, a value is wrong, or its environment must be typed again.
    """
    try:
        content: Any = files.read_json(path)
        method, settings = METHODS[content["method"]], dict(content["config"])
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): expected a preset's file, as tune writes it"
        ) from None
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
    if typed.get("env_kwargs") is not None:
        typed["env_kwargs"] = {}  # what was typed is trusted, whatever it is
    replaced = with_typed(config, typed)
    if replaced.env != config.env and typed.get("env_kwargs") is None and trust.holds_text(config.env_kwargs):
        raise UserError(
            f"{path} gives texts to its environment, which may name files or modules: type --env-kwargs with what "
            f"{replaced.env} needs ('{{}}' is nothing)"
        )
    trust.check_trusted(path, replaced, trust.Typed(**typed))
    return path.stem, method, config


def with_typed(config: TrainingConfig, typed: dict[str, Any]) -> TrainingConfig:
    """Settings with those that were typed, and are not None, in place of their own."""
    settings = trust.Typed(**typed).settings()
    return config.replace(**{name: value for name, value in settings.items() if value is not None})


def write_preset(path: Path, config: TrainingConfig, **remarks: object) -> None:
    """Write a preset with remarks beside it; the file is replaced atomically."""
    files.write_json(path, {"method": config.METHOD, "config": vars(config)} | remarks)
