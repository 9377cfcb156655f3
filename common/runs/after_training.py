"""What follows training: the adopted agent plays the evaluation's episodes, and one of them is filmed."""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from common.envs.worker_processes import cores
from common.rollout import evaluation
from common.rollout.playing import forewarning, takes_workers
from common.runs import film, finished, run_folder
from common.runs.options import RunOptions
from common.runs.recorder import Terminal

if TYPE_CHECKING:
    from common.learning.trainer_base import TrainerBase
    from common.runs.board import Board


def score_and_film(
    trainer: "TrainerBase", folder: Path, options: RunOptions, screen: Terminal, check_lock: Callable[[], None]
) -> None:
    """Score and film the trained agent, unless `finished.json` says that it is done.

    The film is made in a process of its own while the episodes are played, where that is faster.

    Args:
        check_lock: see `one_process.only_here`.
    """
    left = finished.missing(folder, trainer.config.epochs, options)
    if not left:
        return
    episodes = options.evaluation_episodes if finished.EVALUATE in left else 0
    with _board(folder, options, screen) as board, contextlib.ExitStack() as ended:
        filmed = None
        if finished.FILM in left:
            beside = episodes if trainer.config.num_envs > 1 else 0  # perhaps only one environment may exist
            agent, restarts = trainer.agent, trainer.config.environment_restarts
            filmed = ended.enter_context(film.filming(
                folder, agent.acting_policy(), agent.action_map, trainer.played_environment, "gif" in options.record,
                restarts=restarts, beside=2 * beside,
            ))  # fmt: skip
        if finished.EVALUATE in left:
            _score(trainer, folder, episodes, screen, board, check_lock)
        if filmed is not None:
            check_lock()
            finish_film(filmed, trainer, folder, screen, board)


def evaluate(trainer: "TrainerBase", episodes: int) -> evaluation.Summaries:
    """The present agent's scores over `episodes` deterministic episodes and as many sampled ones."""
    agent = trainer.agent
    return trainer.beside_training(
        lambda: evaluation.evaluate_both(
            agent.acting_policy(), agent.action_map, trainer.played_environment, episodes,
            restarts=trainer.config.environment_restarts,
        )
    )  # fmt: skip


def _board(folder: Path, options: RunOptions, screen: Terminal) -> contextlib.AbstractContextManager["Board | None"]:
    if "tensorboard" not in options.record:
        return contextlib.nullcontext()
    from common.runs.board import Board  # imports TensorFlow

    return Board(folder / run_folder.TENSORBOARD, screen.say)


def _score(
    trainer: "TrainerBase",
    folder: Path,
    episodes: int,
    screen: Terminal,
    board: "Board | None",
    check_lock: Callable[[], None],
) -> None:
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
        summaries = evaluate(trainer, episodes)
    check_lock()
    finished.note_evaluation(folder, trainer.config.epochs, summaries)
    screen.say("unshaped reward: " + evaluation.evaluation_line(summaries))
    if board is not None:
        board.scores("final", summaries, trainer.config.epochs)


def finish_film(
    filmed: Callable[[], tuple[str, Path | None]],
    trainer: "TrainerBase",
    folder: Path,
    screen: Terminal,
    board: "Board | None",
) -> None:
    """Wait for the film, note it in finished.json, and show its first seconds in TensorBoard.

    Args:
        trainer: of the run, with the agent that is filmed.
        board: None without TensorBoard.
    """
    epochs = trainer.config.epochs
    line, path = filmed()
    finished.note_film(folder, epochs)
    screen.say(line)
    if board is not None and path is not None:
        board.film(path, epochs)
