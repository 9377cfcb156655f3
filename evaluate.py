"""Score and film a saved run: python evaluate.py runs/NAME"""

import common.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common import evaluation, finished, run_folder
from common.command_line import one_line_errors, parse_settings
from common.errors import UserError
from common.load_agent import WhichWeights, load_agent
from common.recorder import evaluation_line


@dataclass(frozen=True)
class Arguments:
    """Score and film a saved run, on the unshaped environment of Gymnasium."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, like runs/NAME."""
    weights: WhichWeights = "best"
    """The agent the run ended with, by default the best epoch's, or that of the last checkpoint."""
    episodes: int = 100
    """Episodes, deterministic and sampled each; 0 for none."""
    video: bool = True
    """Film an episode."""
    gif: bool = False
    """Film it as a GIF of 30 frames a second in place of an MP4."""
    env: str | None = None
    """The run's environment, named again: only needed where a module is imported for it."""
    env_kwargs: str | None = None
    """Its arguments as JSON, named again: only needed where there are texts among them."""


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        if arguments.episodes < 0:
            raise UserError(f"episodes is {arguments.episodes}: expected 0 or more")
        agent, config, environment = load_agent(
            arguments.run, arguments.weights, env=arguments.env, env_kwargs=arguments.env_kwargs
        )
        behaviour = agent.behaviour()
        if arguments.episodes:
            print(f"evaluating {arguments.episodes} episodes, deterministic and sampled ...", flush=True)
            summaries = evaluation.evaluate_both(behaviour, agent.action_map, environment, arguments.episodes)
            if arguments.weights == "best":
                finished.note_evaluation(arguments.run, config.epochs, summaries)
            else:
                run_folder.write_json(arguments.run / run_folder.EVALUATION, summaries)
            print("unshaped reward: " + evaluation_line(summaries))
        if arguments.video:
            print(evaluation.film_into(arguments.run, behaviour, agent.action_map, environment, arguments.gif)[0])
            if arguments.weights == "best":
                finished.note_film(arguments.run, config.epochs)


if __name__ == "__main__":
    main()
