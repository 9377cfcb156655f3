"""Trains what a command line names: the program of every trainer, and `python -m programs train`."""

from collections.abc import Callable, Mapping
from typing import Any

from common.config import TrainingConfig
from common.runs import session
from common.runs.command_line import names_of_flags, parse


def train_as_typed(
    trainer: Any,
    arguments: list[str],
    program: str,
    presets: Mapping[str, TrainingConfig],
    default_preset: str,
    preset_for: Callable[[str], str],
    fitted_preset: str = "",
) -> None:
    """Train a new run, or continue one; for the arguments and errors see `command_line.parse` and `session.run`.

    Args:
        trainer: a class, called with a config.
        arguments: as typed, beginning with a preset or a setting.
        fitted_preset: the preset whose settings, unless they were typed, are chosen again for a slow environment.
    """
    preset, config, options = parse(arguments, program, presets, default_preset, preset_for)
    session.run(
        lambda config: trainer(config, description=f"preset {preset}", workers=options.placement),
        preset,
        config,
        options,
        typed=names_of_flags(arguments) if preset == fitted_preset else None,
    )
