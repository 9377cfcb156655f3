"""Score and film a saved run: python evaluate.py runs/NAME"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from common.envs.environment import Environment
from common.errors import UserError
from common.files import write_json
from common.rollout import evaluation
from common.runs import film, finished, run_folder
from common.runs.command_line import one_line_errors, parse_settings
from programs.methods import WhichWeights, load_agent


@dataclass(frozen=True)
class Arguments:
    """Score and film a saved run, on the unshaped environment of Gymnasium."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, like runs/NAME."""
    weights: WhichWeights = "best"
    """Which agent is evaluated: the one the run ended with, which by default is the best epoch's, or that of the last
    checkpoint."""
    episodes: int = 100
    """How many episodes are played with deterministic actions, and as many with sampled ones; 0 plays none."""
    seed: int = evaluation.EVALUATION_SEED
    """Seed of the first episode; each further episode has the next one. The default is far from training's seeds."""
    max_episode_steps: tuple[int, ...] = ()
    """Step limits of an episode, in environment steps. With several, such as 1600 2000, the episodes are played once
    for each, and evaluation.json lists all of them under step_limits. By default the run's own limit holds."""
    environment_restarts: int | None = None
    """How often an episode is played again in which the environment fails. By default the run's own number holds."""
    device: Literal["auto", "cpu", "gpu"] | None = None
    """What TensorFlow computes on. By default the run's own choice holds; cpu serves a run from a machine with a
    graphics card that is not there."""
    video: bool = True
    """Film the first deterministic episode, at the first of the step limits."""
    gif: bool = False
    """Film it as a GIF of 30 frames a second instead of an MP4."""
    output: Path | None = None
    """JSON file for the scores; the default is evaluation.json in the run folder, which is replaced."""
    env: str | None = None
    """The run's environment, named again: only needed where a module is imported for it."""
    env_kwargs: str | None = None
    """Its arguments as JSON, named again: only needed where there are texts among them."""

    def __post_init__(self) -> None:
        for name, number, least in (
            ("episodes", self.episodes, 0),
            ("seed", self.seed, 0),
            ("environment_restarts", self.environment_restarts or 0, 0),
            *(("max_episode_steps", limit, 1) for limit in self.max_episode_steps),
        ):
            if number < least:
                raise UserError(f"{name} is {number}: expected {least} or more")


def scores(arguments: Arguments, agent: object, environments: list[Environment], restarts: int) -> dict[str, object]:
    """What evaluation.json holds, logged on the way: the scores at the first limit; with several also each one's."""
    print(f"evaluating {arguments.episodes} episodes, deterministic and sampled ...", flush=True)
    found = evaluation.evaluate_limits(
        agent.acting_policy(), agent.action_map, environments, arguments.episodes, arguments.seed, restarts
    )
    if len(found) == 1:
        print("unshaped reward: " + evaluation.evaluation_line(found[0]))
        return found[0]
    for environment, summaries in zip(environments, found):
        print(f"unshaped reward, {environment.max_episode_steps:,} steps: " + evaluation.evaluation_line(summaries))
    by_limit = {str(environment.max_episode_steps): summaries for environment, summaries in zip(environments, found)}
    return found[0] | {"step_limits": by_limit}


def write_scores(arguments: Arguments, found: dict[str, object], epochs: int) -> None:
    """Where they were asked for, or into the run folder."""
    if arguments.output is not None:
        write_json(arguments.output, found)
    elif arguments.weights == "best":
        finished.note_evaluation(arguments.run, epochs, found)
    else:
        finished.forget(arguments.run, finished.EVALUATE)
        write_json(arguments.run / run_folder.EVALUATION, found)


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs evaluate")
        agent, config, environment = load_agent(
            arguments.run,
            arguments.weights,
            env=arguments.env,
            env_kwargs=arguments.env_kwargs,
            device=arguments.device,
        )
        limits = dict.fromkeys(arguments.max_episode_steps or (None,))
        environments = [environment.limited_to(limit) for limit in limits]
        restarts = arguments.environment_restarts
        restarts = config.environment_restarts if restarts is None else restarts
        is_best = arguments.weights == "best"
        with contextlib.ExitStack() as ended:
            if arguments.video:
                finished.forget(arguments.run, finished.FILM)
                filmed = ended.enter_context(film.filming(
                    arguments.run, agent.acting_policy(), agent.action_map, environments[0], arguments.gif,
                    arguments.seed, restarts, beside=2 * len(environments) * arguments.episodes,
                ))  # fmt: skip
            if arguments.episodes:
                write_scores(arguments, scores(arguments, agent, environments, restarts), config.epochs)
            if arguments.video:
                line, _ = filmed()
                if is_best:
                    finished.note_film(arguments.run, config.epochs)
                print(line)


if __name__ == "__main__":
    main()
