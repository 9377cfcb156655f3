"""What evaluate, watch and export have in common: the arguments that name a run or an agent, and choose weights."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from programs import shipped
from programs.methods import WhichWeights, load_agent


@dataclass(frozen=True)
class RunArguments:
    """A run, and which of its agents; or an agent that comes with the project."""

    run: Path = field(metadata={"example": "runs/NAME"})
    """Run folder, like runs/NAME; or the name of an agent that comes with the project, like walker."""
    weights: WhichWeights = "best"
    """Which of a run's agents: best is the one the run ended with, by default that of its best epoch; last is that of
    the last checkpoint, also while the run still trains."""
    device: Literal["auto", "cpu", "gpu"] | None = None
    """What TensorFlow computes on. By default the run's own setting; cpu loads a run that was trained on a graphics
    card, on a machine without one."""
    env: str | None = None
    """The run's environment, typed again. Only needed if a module of your own registers it (MODULE:ID), or together
    with --env-kwargs."""
    env_kwargs: str | None = None
    """The environment's arguments as JSON, typed again together with --env; only needed if some of them are
    strings."""
    wrappers: tuple[str, ...] | None = None
    """The environment's wrappers (MODULE:CLASS ...), typed again; only needed if it has some."""

    def load(self) -> tuple[Any, TrainingConfig, Environment]:
        """The agent, the run's settings and its environment; see `programs.methods.load_agent`."""
        folder = self.folder_of_run
        if shipped.is_shipped(folder):
            return self.load_shipped(folder, "trained")
        return load_agent(folder, self.weights, **self._typed, device=self.device)

    def load_shipped(self, folder: Path, stage: str) -> tuple[Any, TrainingConfig, Environment]:
        """The same for an agent that comes with the project; see `programs.shipped.load`.

        Raises:
            UserError: `weights` or `device` were set, which only runs have.
        """
        for name, is_set in (("weights", self.weights != "best"), ("device", self.device is not None)):
            if is_set:
                raise UserError(f"{folder.name} comes with the project: leave out --{name}, which is for runs")
        return shipped.load(folder, stage, **self._typed)

    @property
    def _typed(self) -> dict[str, Any]:
        return {"env": self.env, "env_kwargs": self.env_kwargs, "wrappers": self.wrappers}

    @property
    def folder_of_run(self) -> Path:
        """The folder that `run` means; see `programs.shipped.folder_of`."""
        return shipped.folder_of(self.run)


def check_at_least(name: str, number: int | None, least: int) -> None:
    """Raises UserError for a setting below its smallest value; None passes."""
    if number is not None and number < least:
        raise UserError(f"{name} is {number}: expected {least} or more")
