"""Film one episode of a trained agent: python -m programs watch RUN"""

from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.rollout.evaluation import EVALUATION_SEED
from common.runs import film
from common.runs.command_line import one_line_errors
from programs.run_arguments import RunArguments, check_at_least, parse_named


@dataclass(frozen=True)
class Arguments(RunArguments):
    """Film one episode of a trained agent, with deterministic actions."""

    seed: int = EVALUATION_SEED
    """Seed of the episode, 0 or more; another seed shows another episode. The default films the first episode that
    `evaluate` plays."""
    max_episode_steps: int | None = None
    """Step limit of the episode, in environment steps. By default the run's own limit."""
    gif: bool = False
    """Write a GIF of 30 frames a second instead of an MP4."""
    folder: Path = Path(".")
    """Folder for the film, video.mp4 or video.gif; a film of that name there is replaced."""

    def __post_init__(self) -> None:
        check_at_least("seed", self.seed, 0)
        check_at_least("max_episode_steps", self.max_episode_steps, 1)


def main() -> None:
    """Film what the command line names."""
    with one_line_errors():
        arguments = parse_named(Arguments, "python -m programs watch", "run", "runs/NAME")
        if not arguments.folder.is_dir():
            raise UserError(f"{arguments.folder} is no folder: make it first, or choose another --folder")
        agent, config, environment = arguments.load()
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
