"""One trial of a search: a configuration trained with several seeds, in a process of its own."""

import contextlib
import io
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from common.config import TrainingConfig
from common.errors import UserError
from programs.methods import METHODS
from programs.tuning.journal import Journal, open_study, optuna

Report = Callable[[int, float], bool]  # step, value → whether to stop


class Outcome(NamedTuple):
    """The result of a trial."""

    value: float | None  # the median over seeds; None if it was pruned or failed
    scores: tuple[float, ...]  # of the seeds that were trained to the end
    error: str = ""  # one line; empty unless training failed


class _PrunedError(Exception):
    """The trial is not worth finishing."""


def score_of(config: TrainingConfig, metric: str, on_epoch: Callable[[int, float], None]) -> float:
    """Train once.

    Args:
        metric: column of the results; its last value that is not NaN is the score.
        on_epoch: called with the number of an epoch and the score so far; not while that is NaN.

    Returns:
        The score, NaN if the column never had a value.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # what it warns of would stand there for each seed of each trial
        trainer = METHODS[config.METHOD].trainer(config)
    trainer.warn = lambda line: None
    score = math.nan

    def take(row: Any) -> None:
        nonlocal score
        value = float(getattr(row, metric))
        if not math.isnan(value):
            score = value
            on_epoch(row.epoch, score)

    try:
        trainer.train(on_epoch=take)
    finally:
        trainer.close()
    return score


def run_seeds(
    config: TrainingConfig, seeds: tuple[int, ...], metric: str, report: Report = lambda step, value: False
) -> Outcome:
    """Train with one seed after the other.

    Args:
        report: called with a step that grows over epochs and seeds, and the median of the scores so far.
    """
    scores: list[float] = []

    def on_epoch(epoch: int, score: float) -> None:
        if report(len(scores) * config.epochs + epoch, float(np.median([*scores, score]))):
            raise _PrunedError

    try:
        for seed in seeds:
            scores.append(score_of(config.replace(seed=seed), metric, on_epoch))
    except _PrunedError:
        return Outcome(None, tuple(scores))
    except UserError as error:
        return Outcome(None, tuple(scores), str(error))
    value = float(np.median(scores))
    if math.isnan(value):
        why = f"{metric} never had a value: train for more epochs, or choose another --metric"
        return Outcome(None, tuple(scores), why)
    return Outcome(value, tuple(scores))


def run_trial(journal: Journal, trial_id: int, config: TrainingConfig, seeds: tuple[int, ...], metric: str) -> Outcome:
    """`run_seeds`, reporting to an Optuna trial, which may be pruned."""
    trial = optuna().trial.Trial(open_study(journal), trial_id)

    def report(step: int, value: float) -> bool:
        trial.report(value, step)
        return trial.should_prune()

    return run_seeds(config, seeds, metric, report)
