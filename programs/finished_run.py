"""A finished run, as ship sees it: its stages of training, their scores, and the command that repeats it."""

import contextlib
import dataclasses
import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.files import read_json
from common.rollout import evaluation
from common.runs import checkpoint, finished, run_folder, trust
from common.runs.command_line import parse
from common.settings import unused
from common.state import part_of
from programs.methods import METHODS, Method, load_agent, new_agent, read_config

ENDS = {"epochs", "stop_score", "confirming_margin", "end_validations_early"}  # settings that decide when a run ends
UNKNOWN = "unknown"  # commit of a copy of the project that is no git repository, such as an unpacked ZIP


@dataclass(frozen=True)
class Training:
    """A finished run.

    Args:
        folder: of the run.
        preset: its name.
        method, config: of the run.
        environment: as its agent plays it.
    """

    folder: Path
    preset: str
    method: Method
    config: TrainingConfig
    environment: Environment

    def steps_of(self, epoch: int) -> int:
        """Environment steps until the end of an epoch, where the table counts actions."""
        table = run_folder.read_results(self.folder)
        return int(table["steps"][list(table["epoch"]).index(epoch)]) * self.config.action_repeat

    @property
    def last_epoch(self) -> int:
        """The last one that was trained: earlier than planned where `stop_score` was reached."""
        return int(run_folder.read_results(self.folder)["epoch"][-1])

    @property
    def best_epoch(self) -> int:
        """The epoch whose parameters the run ended with."""
        table = run_folder.read_results(self.folder)
        best = table["epoch"][table["is_best"] == 1] if self.config.adopt_best else []
        return int(best[-1]) if len(best) else self.last_epoch

    def new_agent(self) -> Any:
        """The agent that the run began with."""
        return new_agent(self.config, self.environment)

    def agent_at(self, epoch: int) -> Any:
        """The agent of an epoch: of 0 the one that the run began with, of others that of their checkpoint.

        Raises:
            UserError: the run keeps no checkpoint of this epoch, or it is damaged.
        """
        agent = self.new_agent()
        if epoch:
            agent.load_state(part_of(checkpoint.load(self.folder / run_folder.CHECKPOINTS, epoch), "agent"))
        return agent

    def checkpoints(self) -> Iterator[tuple[int, Any]]:
        """The agents of all checkpoints before the best epoch, by their epochs."""
        best = self.best_epoch
        for epoch in reversed(checkpoint.generations(self.folder / run_folder.CHECKPOINTS)):
            if epoch < best:
                yield epoch, self.agent_at(epoch)

    def score(self, agent: Any, episodes: int) -> evaluation.Evaluation:
        """Deterministic episodes, the first ones that `python -m programs evaluate` plays."""
        restarts = self.config.environment_restarts
        return evaluation.evaluate(
            agent.acting_policy(), agent.action_map, self.environment, episodes, True, restarts=restarts
        )


def training_of(run: Path) -> Training:
    """What is known of a finished run.

    Raises:
        UserError: it is no finished run.
    """
    preset, config = read_config(run)
    _, _, environment = load_agent(run)
    if not finished.is_done(run, finished.ADOPT, config.epochs):
        raise UserError(f"{run} is not finished: continue it with {trust.command('resume', run, config)}")
    return Training(run, preset, METHODS[config.METHOD], config, environment)


def commit_of(run: Path) -> str:
    """The commit of the project in a run's config.json; UNKNOWN if the run was trained without git."""
    content: Any = read_json(run / run_folder.CONFIG)
    return str(content.get("versions", {}).get("commit", UNKNOWN))


def command_of(training: Training, name: str, checkpoint_epoch: int | None) -> str:
    """The command that trains a run again, and one for each time that it was trained further after its end.

    Args:
        training: the run.
        name: of its folder.
        checkpoint_epoch: the epoch of a checkpoint that the command should keep.

    Raises:
        UserError: no command gives these settings.
    """
    method, (config, *later) = training.method, _extended(training)
    preset = training.preset if training.preset in method.presets else method.default_preset
    config, *later = [_with_unused_of(method.presets[preset], each) for each in (config, *later)]
    words = [preset, *flags(method.presets[preset], config)]
    _, again, _ = parse(list(words), "train", method.presets, method.default_preset, method.preset_for)
    if again != config:
        raise UserError(f"{training.folder}: no command gives its settings, train it from a preset of this version")
    name = shlex.quote(name)
    kept = "" if checkpoint_epoch is None else f" --checkpoint-every {checkpoint_epoch} --keep-checkpoints 1000"
    commands = [f"python -m programs train {shlex.join(words)} --name {name}{kept}"]
    for before, after in pairwise([config, *later]):
        commands.append(f"python -m programs resume runs/{name} {shlex.join(flags(before, after))}{kept}")
    return " && ".join(commands)


def _with_unused_of(preset: TrainingConfig, config: TrainingConfig) -> TrainingConfig:
    """A config with the preset's values of settings that have no effect in it: they are refused if they are typed."""
    for name in unused(config):
        with contextlib.suppress(UserError):
            config = config.replace(**{name: getattr(preset, name)})
    return config


class _Resume(NamedTuple):
    """Resumes after the same epoch that changed settings; of several, training went on with the last."""

    after_epoch: int
    before: dict[str, Any]  # what the changed settings were
    had_ended: bool  # the training before
    trained: bool  # whether training went on


def _resumes(training: Training) -> list[_Resume]:
    """Those of a run that changed settings, as config.json tells, in their order."""
    content: Any = read_json(training.folder / run_folder.CONFIG)
    table, config = run_folder.read_results(training.folder), training.config
    metrics = dict(zip(table["epoch"].tolist(), table["metric"].tolist()))
    found: list[_Resume] = []
    for resume in reversed(content.get("resumed", [])):
        if not resume["changed"]:
            continue
        before = {name: before for name, (before, _) in resume["changed"].items()}
        config, epoch = config.replace(**before), resume["after_epoch"]
        if found and found[0].after_epoch == epoch:
            before = found.pop(0).before | before
        solved = config.stop_score is not None and metrics.get(epoch, -math.inf) >= config.stop_score
        found.insert(0, _Resume(epoch, before, epoch >= config.epochs or solved, training.last_epoch > epoch))
    return found


def _extended(training: Training) -> list[TrainingConfig]:
    """The settings that a run was first trained with, then those with which it was trained further after its end."""
    settings = [training.config]
    for resume in reversed(_resumes(training)):
        if not resume.trained:
            settings[0] = settings[0].replace(**resume.before)
        elif resume.had_ended:
            settings.insert(0, settings[0].replace(**resume.before))
    return settings


def departures_of(training: Training) -> list[str]:
    """What happened in a run that `command_of` does not repeat, a sentence each."""
    found = [
        f"Its setting {name} was changed after epoch {resume.after_epoch}, before its training had ended."
        for resume in _resumes(training)
        for name in sorted(ENDS & resume.before.keys())
        if resume.trained and not resume.had_ended
    ]
    table = run_folder.read_results(training.folder)
    changed = [name for name in table if name.startswith("hp_") and len(np.unique(table[name])) > 1]
    return found + [f"Its setting {name.removeprefix('hp_')} was changed during training." for name in changed]


def flags(before: TrainingConfig, after: TrainingConfig) -> list[str]:
    """The settings that turn one config into another, as they are typed."""
    words: list[str] = []
    without_effect = unused(after)  # which would be refused
    for field in dataclasses.fields(after):
        value, flag = getattr(after, field.name), field.name.replace("_", "-")
        if value == getattr(before, field.name) or field.name in without_effect:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, dict):
            words += [f"--{flag}", json.dumps(value)]
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words
