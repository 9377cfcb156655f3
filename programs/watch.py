"""Film one episode of a trained agent: python -m programs watch RUN"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common.errors import UserError
from common.rollout.evaluation import EVALUATION_SEED
from common.runs import film
from common.runs.command_line import one_line_errors, parse_settings
from programs.methods import WhichWeights, load_agent


@dataclass(frozen=True)
class Arguments:
    """Film one episode of a trained agent, with deterministic actions."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, like runs/NAME."""
    weights: WhichWeights = "best"
    """Which agent is filmed: best is the one the run ended with, last is that of its last checkpoint."""
    seed: int = EVALUATION_SEED
    """Seed of the episode; another seed shows another episode. The default is that of `evaluate`."""
    max_episode_steps: int | None = None
    """Step limit of the episode, in environment steps. By default the run's own limit holds."""
    gif: bool = False
    """Write a GIF of 30 frames a second instead of an MP4."""
    folder: Path = Path(".")
    """Folder to write to; the film is called video.mp4, or video.gif."""
    env: str | None = None
    """The run's environment, named again: only needed where a module is imported for it."""
    env_kwargs: str | None = None
    """Its arguments as JSON, named again: only needed where there are texts among them."""

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("max_episode_steps", 1)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise UserError(f"{name} is {number}: expected {least} or more")


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs watch")
        agent, config, environment = load_agent(
            arguments.run, arguments.weights, env=arguments.env, env_kwargs=arguments.env_kwargs
        )
        line, opening = film.film_into(
            arguments.folder, agent.acting_policy(), agent.action_map,
            environment.limited_to(arguments.max_episode_steps), arguments.gif, arguments.seed,
            restarts=config.environment_restarts,
        )  # fmt: skip
        if opening is None:
            raise UserError(line)
        print(line)


if __name__ == "__main__":
    main()
