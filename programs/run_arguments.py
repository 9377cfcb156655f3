"""What programs that load a run have in common: the arguments that name a run or an agent, and its weights."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.runs import run_folder
from common.settings import Settings
from programs import shipped
from programs.methods import WhichWeights, load_agent


@dataclass(frozen=True)
class RetypedCode(Settings):
    """What must be typed again of a run's environment and networks, so that nobody else's code runs."""

    env: str | None = None
    """The run's environment, typed again. Only needed if a module of your own registers it (MODULE:ID), or together
    with --env-kwargs."""
    env_kwargs: str | None = None
    """The environment's arguments as JSON, typed again together with --env; only needed if some of them are
    strings."""
    wrappers: tuple[str, ...] | None = None
    """The environment's wrappers (MODULE:CLASS ...), typed again; only needed if a module of your own has one of them,
    or if their arguments hold strings."""
    networks: str | None = None
    """The function that makes the networks (MODULE:FUNCTION), typed again; only needed if the run has one."""

    @property
    def typed(self) -> dict[str, Any]:
        """The arguments of `run_folder.read_config`."""
        return {name: getattr(self, name) for name in run_folder.TYPED}


@dataclass(frozen=True)
class RunArguments(RetypedCode):
    """A run, and which of its agents; or an agent that comes with the project."""

    run: Path = field(kw_only=True, metadata={"example": "runs/NAME"})
    """Run folder, like runs/NAME; or the name of an agent that comes with the project, like walker."""
    weights: WhichWeights = "best"
    """Which of a run's agents: best is the one the run ended with, by default that of its best epoch; last is that of
    the last checkpoint, also while the run still trains."""
    device: Literal["auto", "cpu", "gpu"] | None = None
    """What TensorFlow computes on. By default the run's own setting; cpu loads a run that was trained on a graphics
    card, on a machine without one."""

    def load(self, stage: str = "trained") -> tuple[Any, TrainingConfig, Environment]:
        """The agent of a run, or of a stage of an agent that comes with the project; its settings; its environment.

        Raises:
            UserError: `weights` or `device` were set, which only runs have, or `stage`, which runs have not.
        """
        folder = self.folder_of_run
        if not shipped.is_shipped(folder):
            if stage != "trained":
                raise UserError(f"{folder} is a run: --stage is for agents that come with the project, such as walker")
            return load_agent(folder, self.weights, **self.typed, device=self.device)
        for name, is_set in (("weights", self.weights != "best"), ("device", self.device is not None)):
            if is_set:
                raise UserError(f"{folder.name} comes with the project: leave out --{name}, which is for runs")
        return shipped.load(folder, stage, **self.typed)

    @property
    def folder_of_run(self) -> Path:
        """The folder that `run` means; see `programs.shipped.folder_of`."""
        return shipped.folder_of(self.run)
