"""A finished run, as ship sees it: its stages of training, their scores, and the commands that trained it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.files import read_json
from common.rollout import evaluation
from common.runs import checkpoint, finished, run_folder, trust
from common.state import part_of
from programs.methods import load_agent, new_agent, read_config

UNKNOWN = "unknown"  # the commit of a run trained without git, say from an unpacked ZIP


@dataclass(frozen=True)
class Training:
    """A finished run; its agent plays in `environment`."""

    folder: Path
    preset: str
    config: TrainingConfig
    environment: Environment

    def steps_of(self, epoch: int) -> int:
        """Environment steps until the end of an epoch, where the table counts actions."""
        table = run_folder.read_results(self.folder)
        return int(table["steps"][list(table["epoch"]).index(epoch)]) * self.config.action_repeat[0]

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
        UserError: it is not a finished run.
    """
    preset, config = read_config(run)
    _, _, environment = load_agent(run)
    if not finished.is_done(run, finished.ADOPT, config.epochs):
        raise UserError(f"{run} is not finished: continue it with {trust.command('resume', run, config)}")
    return Training(run, preset, config, environment)


def commit_of(run: Path) -> str:
    """The commit of the project in a run's config.json; UNKNOWN if the run was trained without git."""
    content: Any = read_json(run / run_folder.CONFIG)
    return str(content.get("versions", {}).get("commit", UNKNOWN))


def commands_of(run: Path) -> str:
    """The command that started a run, and those that resumed it with other settings; UNKNOWN if none is stored."""
    content: Any = read_json(run / run_folder.CONFIG)
    changing = [resume for resume in content.get("resumed", []) if resume["changed"]]
    return " && ".join(part.get("command", UNKNOWN) for part in (content, *changing))


def live_changes(run: Path) -> list[str]:
    """What happened in a run that no command repeats, a sentence each."""
    table = run_folder.read_results(run)
    changed = [name for name in table if name.startswith("hp_") and len(np.unique(table[name])) > 1]
    return [f"Its setting {name.removeprefix('hp_')} was changed during training." for name in changed]
