"""Score and film the agent of a run: python -m programs evaluate RUN"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.envs.environment import Environment
from common.errors import UserError
from common.files import check_replaceable, write_json
from common.rollout import evaluation
from common.runs import film, finished, run_folder
from common.runs.command_line import one_line_errors, parse_settings
from common.runs.terminal import Terminal
from common.settings import Needs, setting
from programs import shipped
from programs.run_arguments import RunArguments


@dataclass(frozen=True)
class Arguments(RunArguments):
    """Score and film a trained agent, in the environment with its own rewards.

    For an agent that comes with the project, the scores are only printed, or written to --output; there is no film.
    """

    episodes: int = setting(100, at_least=0)
    """How many episodes are played with deterministic actions, and as many again with sampled ones; 0 only films a
    run."""
    seed: int = setting(evaluation.EVALUATION_SEED, at_least=0)
    """Seed of the first episode; each further episode has the next one. The default is far from training's seeds."""
    max_episode_steps: tuple[int, ...] = setting((), at_least=1)
    """Step limits of an episode, in environment steps. With several, such as 1600 2000, the episodes are played again
    for each limit, and evaluation.json lists the scores of all limits under step_limits. By default the run's own
    limit."""
    environment_restarts: int | None = setting(None, at_least=0)
    """How often an episode is played again if the environment fails. By default the run's own number."""
    video: bool = True
    """Film the first deterministic episode, at the first of the step limits."""
    gif: bool = setting(False, needs=Needs("video", bool, "--video"))
    """Write a GIF of 30 frames a second instead of an MP4."""
    output: Path | None = setting(None, needs=Needs("episodes", bool, "--episodes 100"))  # noqa: RUF009  it is immutable
    """JSON file for the scores. By default evaluation.json in the run folder, which is replaced."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.episodes and not self.films:
            raise UserError("0 episodes leave nothing to do but a film: give --episodes 1 or more")
        if self.output is not None:
            check_replaceable(self.output)
            if self.output.is_dir():
                raise UserError(f"--output {self.output} is a folder: expected the name of a JSON file")
        if self.gif and not self.films:
            raise UserError("--gif has no effect for an agent that comes with its film: leave it out")

    @property
    def films(self) -> bool:
        """Whether an episode is filmed; agents that come with the project have their films beside them."""
        return self.video and not shipped.is_shipped(self.folder_of_run)


def scores(arguments: Arguments, agent: Any, environments: list[Environment], restarts: int) -> dict[str, Any]:
    """Play the episodes in an environment, given once for each step limit, and print their scores.

    Returns:
        The content of evaluation.json: the scores at the first step limit, and with several limits those of each.
    """
    plural = "s" if arguments.episodes > 1 else ""
    print(f"evaluating {arguments.episodes} episode{plural}, deterministic and sampled ...", flush=True)
    with Terminal().following("evaluation"):
        found = evaluation.evaluate_limits(
            agent.acting_policy(), agent.action_map, environments, arguments.episodes, arguments.seed, restarts
        )
    if len(found) == 1:
        print("unshaped reward: " + evaluation.evaluation_line(found[0]))
        return found[0]
    by_limit = {environment.max_episode_steps: summaries for environment, summaries in zip(environments, found)}
    for limit, summaries in by_limit.items():
        print(f"unshaped reward, {limit:,} steps: " + evaluation.evaluation_line(summaries))
    return found[0] | {"step_limits": by_limit}


def write_scores(arguments: Arguments, found: dict[str, Any], epochs: int) -> None:
    """Write the scores to `--output`, or else to evaluation.json in the folder of a run of so many epochs."""
    if arguments.output is not None:
        write_json(arguments.output, found)
    elif shipped.is_shipped(arguments.folder_of_run):
        return  # its scores stand beside it
    elif arguments.weights == "best":
        finished.note_evaluation(arguments.run, epochs, found)
    else:
        finished.forget(arguments.run, finished.EVALUATE)
        write_json(arguments.run / run_folder.EVALUATION, found)


def main() -> None:
    """Score and film what the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs evaluate")
        agent, config, environment = arguments.load()
        limits = dict.fromkeys(arguments.max_episode_steps or (None,))
        environments = [environment.limited_to(limit) for limit in limits]
        restarts = arguments.environment_restarts
        restarts = config.environment_restarts if restarts is None else restarts
        if arguments.films:
            finished.forget(arguments.run, finished.FILM)
        if arguments.episodes:
            write_scores(arguments, scores(arguments, agent, environments, restarts), config.epochs)
        if arguments.films:
            acting = agent.acting_policy(), agent.action_map, environments[0]
            line, path = film.film_into(arguments.run, *acting, arguments.gif, arguments.seed, restarts)
            if arguments.weights == "best":
                finished.note_film(arguments.run, config.epochs, path)
            print(line)


if __name__ == "__main__":
    main()
