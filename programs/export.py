"""The policy of a run as files that need nothing of this project: python -m programs export runs/NAME

What is written, and how it is checked, is in `programs.policy_files`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from common.envs.environment import Environment
from common.errors import UserError
from common.rollout.evaluation import EVALUATION_SEED, evaluate, evaluation_line
from common.runs.command_line import one_line_errors, parse_settings
from programs.methods import WhichWeights, load_agent

if TYPE_CHECKING:
    from programs.policy_files import Policy


class _Exported:
    """A file's policy in an agent's place; its actions are the environment's already."""

    def __init__(self, policy: "Policy") -> None:
        self._policy = policy

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Environment actions [n, *space.shape] for observations [n, S]; there is no noise."""
        return self._policy(observations)


def score(path: Path, environment: Environment, episodes: int, seed: int, restarts: int) -> str:
    """'deterministic 301.2 [298.0, 303.9]' of an exported file; see `common.rollout.evaluation.evaluate`."""
    from programs.policy_files import read_litert, read_saved_model  # and with them TensorFlow

    policy = read_saved_model(path) if path.is_dir() else read_litert(path)
    as_they_are = lambda actions: actions  # noqa: E731
    played = evaluate(_Exported(policy), as_they_are, environment, episodes, True, seed, restarts)
    return evaluation_line({"deterministic": played.summary()})


@dataclass(frozen=True)
class _Arguments:
    """Write a run's deterministic policy as a TensorFlow SavedModel and a LiteRT (TensorFlow Lite) file."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, like runs/NAME."""
    weights: WhichWeights = "best"
    """The agent the run ended with, by default the best epoch's, or that of the last checkpoint."""
    device: Literal["auto", "cpu", "gpu"] | None = None
    """What TensorFlow computes on. By default the run's own choice holds; cpu serves a run from a machine with a
    graphics card that is not there."""
    episodes: int = 0
    """How many episodes each exported policy plays to be scored; the default, 0, plays none."""
    seed: int = EVALUATION_SEED
    """Seed of the first episode; each further episode has the next one. The default is that of evaluate.py."""
    max_episode_steps: int | None = None
    """Step limit of an episode, in environment steps. By default the run's own limit holds."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["--output"])] = None
    """Folder to write to; None takes RUN/export."""
    env: str | None = None
    """The run's environment, named again: only needed where a module is imported for it."""
    env_kwargs: str | None = None
    """Its arguments as JSON, named again: only needed where there are texts among them."""

    def __post_init__(self) -> None:
        for name, least in (("episodes", 0), ("seed", 0), ("max_episode_steps", 1)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise UserError(f"{name} is {number}: expected {least} or more")


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(_Arguments, prog="python -m programs export")
        agent, config, environment = load_agent(
            arguments.run,
            arguments.weights,
            env=arguments.env,
            env_kwargs=arguments.env_kwargs,
            device=arguments.device,
        )
        if agent.sees_images:
            raise UserError(f"{config.env} shows images: export takes policies whose observations are numbers")
        from programs.policy_files import export  # and with it TensorFlow

        for file in export(agent, arguments.out or arguments.run / "export"):
            print(f"{file.path}: {file.size:,} bytes, largest difference {file.difference:.2g}")
            if arguments.episodes:
                limited = environment.limited_to(arguments.max_episode_steps)
                scored = score(file.path, limited, arguments.episodes, arguments.seed, config.environment_restarts)
                print(f"{file.path}: unshaped reward of {arguments.episodes} episodes: {scored}")


if __name__ == "__main__":
    main()
