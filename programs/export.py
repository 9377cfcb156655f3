"""Write the policy of a run as files that need nothing of this project: python -m programs export RUN

`programs.policy_files` writes the files and checks them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common import arrays_file
from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.rollout.evaluation import EVALUATION_SEED, evaluate, evaluation_line
from common.runs.command_line import one_line_errors, parse_settings
from programs import shipped
from programs.run_arguments import RunArguments, check_at_least

if TYPE_CHECKING:
    from programs.policy_files import Policy


class _Exported:
    """An exported policy that acts like an acting policy; its actions are the environment's own."""

    def __init__(self, policy: "Policy") -> None:
        self._policy = policy

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Observations [n, ...] → environment actions [n, *space.shape]; `noise` is not used."""
        return self._policy(observations)


def score(path: Path, environment: Environment, episodes: int, seed: int, restarts: int) -> str:
    """Play episodes with an exported file, and return a line such as 'deterministic 301.2 [298.0, 303.9]'.

    Args:
        path: a SavedModel's folder, a LiteRT or an ONNX file.
        environment, episodes, seed, restarts: see `common.rollout.evaluation.evaluate`.
    """
    from programs.policy_files import READ  # imports TensorFlow

    exported: Any = _Exported(READ[path.name](path))
    as_they_are: Any = lambda actions: actions  # noqa: E731
    played = evaluate(exported, as_they_are, environment, episodes, True, seed, restarts)
    return evaluation_line({"deterministic": played.summary()})


def duties(config: TrainingConfig) -> list[str]:
    """What whoever uses the files has to do as the training did it, in a line each.

    Args:
        config: the run's settings.
    """
    lines = []
    if config.history:
        ages = " and ".join(map(str, config.history))
        lines.append(f"the input is the newest observation, followed by those of {ages} actions ago")
    repeat = config.action_repeat[-1]
    if repeat > 1:
        lines.append(f"hold each action for {repeat} steps of the environment")
    return lines


@dataclass(frozen=True)
class Arguments(RunArguments):
    """Write a run's deterministic policy as a TensorFlow SavedModel and a LiteRT (TensorFlow Lite) file.

    With --onnx it is written as an ONNX file, too. The agents that come with the project are exported already; --out
    copies their files.
    """

    run: Path = field(metadata={"example": "runs/NAME"})
    """Run folder, like runs/NAME."""
    onnx: bool = False
    """Write policy.onnx, too. This needs packages of its own: pip install -r requirements/export.txt."""

    episodes: int = 0
    """How many episodes each exported policy plays to be scored; the default, 0, plays none."""
    seed: int = EVALUATION_SEED
    """Seed of the first episode; each further episode has the next one. The default is that of `evaluate`."""
    max_episode_steps: int | None = None
    """Step limit of an episode, in environment steps. By default the run's own limit."""
    out: Path | None = field(default=None, metadata={"alias": "--output"})
    """Folder for the files; the default is export in the run folder. An earlier export there is replaced."""

    def __post_init__(self) -> None:
        check_at_least("episodes", self.episodes, 0)
        check_at_least("seed", self.seed, 0)
        check_at_least("max_episode_steps", self.max_episode_steps, 1)
        for name, changed in (
            ("seed", self.seed != EVALUATION_SEED),
            ("max-episode-steps", self.max_episode_steps is not None),
        ):
            if changed and not self.episodes:
                raise UserError(f"--{name} has no effect without episodes: add --episodes 100, or leave it out")


def main() -> None:
    """Export what the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs export")
        folder = arguments.folder_of_run
        exported = folder / shipped.EXPORT  # there already if the agent was shipped
        if shipped.is_shipped(folder) and not exported.exists():
            raise UserError(f"{folder} was shipped without exports: export takes the folder of a run, like runs/NAME")
        if shipped.is_shipped(folder) and arguments.out is None:
            raise UserError(f"{exported} holds the exported policies already: copy them with --out FOLDER")
        agent, config, environment = arguments.load()
        out = arguments.out or exported
        from programs import policy_files  # imports TensorFlow

        if shipped.is_shipped(folder):
            seen = arrays_file.read(folder / shipped.RECORDED)["observations"]
            written = policy_files.copy(agent, seen, exported, out, arguments.onnx)
        else:
            written = policy_files.export(agent, out, arguments.onnx)
        for file in written:
            print(f"{file.path}: {file.size:,} bytes, largest difference {file.difference:.2g}")
            if arguments.episodes:
                limited = environment.limited_to(arguments.max_episode_steps)
                scored = score(file.path, limited, arguments.episodes, arguments.seed, config.environment_restarts)
                print(f"{file.path}: unshaped reward of {arguments.episodes} episodes: {scored}")
        for duty in duties(config):
            print(duty)


if __name__ == "__main__":
    main()
