"""What follows training: the adopted agent plays the evaluation's episodes, and one more is filmed."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from common.envs.worker_processes import cores
from common.rollout import evaluation
from common.rollout.playing import forewarning, takes_workers
from common.runs import film, finished
from common.runs.options import RunOptions
from common.runs.recorder import board_of
from common.runs.terminal import Terminal

if TYPE_CHECKING:
    from common.learning.trainer_base import TrainerBase


def score_and_film(
    trainer: "TrainerBase", folder: Path, options: RunOptions, screen: Terminal, check_lock: Callable[[], None]
) -> None:
    """Score and film the trained agent, unless `finished.json` says that it is done."""
    left = finished.missing(folder, trainer.config.epochs, options)
    if not left:
        return
    with board_of(folder, options, screen) as board:
        if finished.EVALUATE in left:
            summaries = _score(trainer, options.evaluation_episodes, screen)
            check_lock()
            finished.note_evaluation(folder, trainer.config.epochs, summaries)
            screen.say("unshaped reward: " + evaluation.evaluation_line(summaries))
            if board is not None:
                board.scores("final", summaries, trainer.config.epochs)
        if finished.FILM in left:
            check_lock()
            line, path = film_episode(trainer, folder, "gif" in options.record)
            finished.note_film(folder, trainer.config.epochs, path)
            screen.say(line)
            if board is not None and path is not None:
                board.film(path, trainer.config.epochs)


def evaluate(trainer: "TrainerBase", episodes: int) -> evaluation.Summaries:
    """The present agent's scores over `episodes` deterministic episodes and as many sampled ones."""
    agent = trainer.agent
    return trainer.scoring.beside_training(
        lambda: evaluation.evaluate_both(
            agent.acting_policy(), agent.action_map, trainer.played_environment, episodes,
            restarts=trainer.config.environment_restarts,
        ),
        trainer.epoch,
    )  # fmt: skip


def film_episode(trainer: "TrainerBase", folder: Path, gif: bool) -> tuple[str, Path | None]:
    """Film the first evaluated episode; see `film.film_into`."""
    agent, restarts = trainer.agent, trainer.config.environment_restarts
    return film.film_into(
        folder, agent.acting_policy(), agent.action_map, trainer.played_environment, gif, restarts=restarts
    )


def _score(trainer: "TrainerBase", episodes: int, screen: Terminal) -> evaluation.Summaries:
    expected = ""
    if trainer.results:  # of this or an earlier part of the run
        row, played = trainer.results[-1], trainer.played_environment
        workers = cores() if takes_workers(trainer.agent.acting_policy(), 2 * episodes) else 1
        seconds = row.seconds_environment + row.seconds_policy
        steps = next((row.avg_steps for row in reversed(trainer.results) if row.episodes), math.nan)
        expected = forewarning(trainer.config, played, 2 * episodes, steps, seconds, workers)
    number = f"{episodes} episode{'s' if episodes > 1 else ''}, deterministic and sampled"
    screen.say(f"evaluating {number}{f', {expected}: --evaluation-episodes sets the number' * bool(expected)} ...")
    with screen.following("evaluation"):
        return evaluate(trainer, episodes)
