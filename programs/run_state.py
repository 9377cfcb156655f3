"""What the dashboard shows of a run, read from its folder; and a change of a setting, written there."""

import contextlib
import datetime
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.config import TrainingConfig
from common.errors import UserError
from common.runs import finished, run_folder
from ppo.config import PPOConfig
from ppo.live_settings import FILE, LiveHyperparameters, written_at
from programs.methods import KINDS


class RunState(NamedTuple):
    """A run as its folder describes it."""

    status: str  # how far it is, and what is wrong
    is_over: bool  # it is trained to its end
    table: dict[str, np.ndarray]  # column of results.csv → [epochs]; empty before the first epoch
    live: LiveHyperparameters | None  # with the file's values; None for a method without such settings
    changes: list[tuple[float, str]]  # the newest first; see `changes`


def read_settings(folder: Path) -> TrainingConfig:
    """The settings of a run; no module of its environment is imported. Raises UserError if there is no run."""
    return run_folder.read_content(folder, KINDS)[1]


def read_state(folder: Path) -> RunState:
    """Read a run's folder; nothing is written. Raises UserError if it holds no run."""
    config = read_settings(folder)
    is_over = finished.is_done(folder, finished.ADOPT, config.epochs)
    table: dict[str, np.ndarray] = {}
    try:
        table = run_folder.read_results(folder)
        at = datetime.datetime.fromtimestamp((folder / run_folder.RESULTS).lstat().st_mtime)
        done = f"{table['epoch'][-1]:.0f} of {config.epochs} epochs, {table['steps'][-1]:,.0f} steps"
        status = f"{'Finished' if is_over else 'Not finished'}: {done}. Newest epoch at {at:%H:%M:%S on %Y-%m-%d}."
    except UserError as error:
        status = str(error)
    if not isinstance(config, PPOConfig):
        return RunState(status, is_over, table, None, [])
    live = _in_force(config, table)
    if written_at(folder / FILE):  # else watching would write it
        live.watch(folder)
        status = f"{status} {live.poll().refused}"
    return RunState(status, is_over, table, live, changes(LiveHyperparameters(config), live, table))


def _in_force(config: PPOConfig, table: dict[str, np.ndarray]) -> LiveHyperparameters:
    """What the newest epoch was trained with, which stays in force if the file is refused or was removed."""
    live = LiveHyperparameters(config)
    for name, value in live.values.items():
        newest = table.get(f"hp_{name}", [value])[-1]
        live.values[name] = type(value)(newest) if math.isfinite(newest) else value  # an older version noted none
    return live


def changes(
    start: LiveHyperparameters, live: LiveHyperparameters, table: dict[str, np.ndarray]
) -> list[tuple[float, str]]:
    """The first epoch whose update used a changed value (infinity before it is used) and a line, of each change."""
    found = []
    for name, before in start.values.items():
        used = table.get(f"hp_{name}", np.empty(0))  # [epochs]
        for epoch, after in zip((*table.get("epoch", used)[: len(used)], math.inf), (*used, live[name])):
            if after != before:
                when = "the next update" if epoch == math.inf else f"epoch {epoch:.0f}"
                found.append((float(epoch), f"From {when} on: {name} {before:g} → {after:g}"))
            before = after
    return sorted(found, reverse=True)


def change(folder: Path, name: str, value: float) -> None:
    """Write a value into a PPO run's hyperparameters.json; UserError if it is not allowed or the file is wrong."""
    table: dict[str, np.ndarray] = {}
    with contextlib.suppress(UserError):  # no epoch is finished
        table = run_folder.read_results(folder)
    live = _in_force(read_settings(folder), table)  # type: ignore[arg-type]
    live.watch(folder)
    live[name] = value
    if refused := live.poll().refused:
        raise UserError(refused)
