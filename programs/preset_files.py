"""A preset in a file: what `tune` writes and `train FILE.json` starts from; config.json of a run is one, too."""

from pathlib import Path

from common import files
from common.config import TrainingConfig
from common.errors import UserError
from programs.methods import METHODS, Method


def is_preset_file(name: str) -> bool:
    """Whether what was typed as a preset is a file's name."""
    return name.endswith(".json")


def read_preset(path: Path) -> tuple[str, Method, TrainingConfig]:
    """Its name, its method and its settings.

    Raises:
        UserError: it is no such file, or a value is wrong.
        OSError: it cannot be read.
    """
    expected = 'expected an object with "method" and "config", as tune writes it'
    try:
        content = files.read_json(path)
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): {expected}") from None
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        raise UserError(f"{path} is not a preset: {expected}")
    method = METHODS.get(str(content.get("method")))
    if method is None:
        raise UserError(f"{path} names the method {content.get('method')!r:.40}: expected one of {', '.join(METHODS)}")
    written = {"metric", "versions"} & content.keys()  # by tune or by a run, with all settings of their version
    try:
        config = method.config.of_run(content["config"]) if written else method.config(**content["config"])
        return path.stem, method, config
    except TypeError as error:
        raise UserError(f"{path} has a setting that is not known ({error}): remove it, or update the code") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def write_preset(path: Path, config: TrainingConfig, **remarks: object) -> None:
    """Write a preset with remarks beside it; the file is replaced whole or not at all."""
    files.write_json(path, {"method": config.METHOD, "config": vars(config)} | remarks)
