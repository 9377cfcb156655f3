"""Show one episode of a trained agent: python -m programs watch NAME

In a window where there is a screen, otherwise as a film in the current folder.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.rollout.evaluation import EVALUATION_SEED
from common.runs import film, window
from common.runs.command_line import one_line_errors, parse_settings
from common.settings import Needs, setting
from programs import shipped
from programs.run_arguments import RunArguments

NO_WINDOW = Needs("window", lambda window: not window, "--no-window")


@dataclass(frozen=True)
class Arguments(RunArguments):
    """Show one episode of a trained agent, with deterministic actions, in a window or as a film."""

    stage: shipped.Stage = "trained"
    """Which policy of an agent that comes with the project: before training, half-way, or trained."""
    window: bool = False
    """Show the episode in a window. Without --window and --film, a window is used if there is a screen."""
    film: bool = setting(False, needs=NO_WINDOW)
    """Write a film although there is a screen. --gif and --folder do so, too."""
    seed: int = setting(EVALUATION_SEED, at_least=0)
    """Seed of the episode, 0 or more; another seed shows another episode. The default shows the first episode that
    `evaluate` plays."""
    max_episode_steps: int | None = setting(None, at_least=1)
    """Step limit of the episode, in environment steps. By default the run's own limit."""
    gif: bool = setting(False, needs=NO_WINDOW)
    """Write a GIF of 30 frames a second instead of an MP4."""
    folder: Path | None = setting(None, needs=NO_WINDOW)  # noqa: RUF009  it is immutable
    """Folder for the film, by default the current one. The film of an agent that comes with the project has the
    agent's name; the film of a run is named video. A film of that name there is replaced."""


def main() -> None:
    """Show what the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs watch")
        folder = arguments.folder or Path(".")
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder: make it first, or choose another --folder")
        agent, config, environment = arguments.load(arguments.stage)
        environment = environment.limited_to(arguments.max_episode_steps)
        acting = agent.acting_policy(), agent.action_map, environment
        wants_film = arguments.film or arguments.gif or arguments.folder is not None
        if arguments.window or (window.has_screen() and not wants_film):
            print(film.draw_apart(functools.partial(window.show, *acting, arguments.seed), acting[0], environment))
            return
        name = arguments.folder_of_run.name if shipped.is_shipped(arguments.folder_of_run) else "video"
        line, path = film.film_into(folder, *acting, arguments.gif, arguments.seed, config.environment_restarts, name)
        if path is None:
            raise UserError(line)
        print(line)


if __name__ == "__main__":
    main()
