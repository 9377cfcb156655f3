"""The settings that a search may change, and the values that each may take, read from a JSON file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import files
from common.config import TrainingConfig
from common.errors import UserError
from common.runs import run_folder

SPACES = Path(__file__).parent / "spaces"
EXAMPLE = '{"learning_rate": {"from": 1e-5, "to": 1e-2, "log": true}, "hidden_sizes": {"choices": [[64, 64], [256]]}}'
KEYS = {"from", "to", "log", "choices", "why"}


@dataclass(frozen=True)
class Values:
    """The values that one setting may take: a range of numbers, or a list of choices."""

    low: float | int = 0
    high: float | int = 0
    log: bool = False
    choices: tuple[str, ...] = ()  # as JSON, since Optuna stores plain texts and numbers

    def suggest(self, trial: Any, name: str) -> object:
        """The value that an Optuna trial takes."""
        if self.choices:
            return json.loads(trial.suggest_categorical(name, self.choices))
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


Space = dict[str, Values]


def default_space(base: TrainingConfig) -> Path:
    """The file of the method that some settings are of."""
    return SPACES / f"{'crossq' if getattr(base, 'crossq', False) else base.METHOD}.json"


def read_space(path: Path, base: TrainingConfig) -> Space:
    """The space in a file, checked against the settings that it is to change.

    Raises:
        UserError: the file cannot be read, names a setting that is not there, or allows a wrong value.
    """
    try:
        content = files.read_json(path)
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): expected a file like {EXAMPLE}") from None
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} names no settings: expected a file like {EXAMPLE}")
    return {name: _checked(path, name, entry, base) for name, entry in content.items()}


def _checked(path: Path, name: str, entry: Any, base: TrainingConfig) -> Values:
    where = f"{path}: {name!r:.60}"
    if name not in vars(base):
        raise UserError(f"{where} is not a setting of {base.METHOD}: --help-all of train lists them all")
    if name in ("seed", *run_folder.TYPED):
        raise UserError(f"{where} is not tuned: each trial has its own seed; environment and networks are typed")
    values = _values(entry) if isinstance(entry, dict) and entry.keys() <= KEYS else None
    if values is None:
        raise UserError(
            f'{where} is {entry!r:.80}: expected {{"from": 1, "to": 9}} with the lower one first, above 0 with '
            '"log": true, or two or more {"choices": [1, 9]}'
        )
    for value in map(json.loads, values.choices) if values.choices else (values.low, values.high):
        try:
            base.replace(**{name: value})
        except UserError as error:
            raise UserError(f"{where} may become {value!r:.60}, which is refused ({error})") from None
    return values


def _values(entry: dict[str, Any]) -> Values | None:
    """The range or the choices that an entry describes; None if it does not."""
    low: Any = entry.get("from")
    high: Any = entry.get("to")
    choices, log = entry.get("choices"), entry.get("log", False)
    if isinstance(choices, list) and len(choices) > 1:
        return Values(choices=tuple(json.dumps(choice) for choice in choices))
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in (low, high)):
        return None
    return Values(low, high, bool(log)) if low < high and (low > 0 or not log) else None
