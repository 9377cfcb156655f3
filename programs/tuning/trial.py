"""One trial of a search: a configuration trained with several seeds, in a process of its own."""

import contextlib
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from common.config import TrainingConfig
from common.errors import UserError
from programs.methods import METHODS
from programs.tuning.journal import STARTUP_TRIALS, Journal, open_study, optuna
from programs.tuning.space import Space


def score_of(
    config: TrainingConfig, metric: str, on_epoch: Callable[[int, float], None] = lambda epoch, score: None
) -> float:
    """Train once; the score is the last value of a column of the results that is not NaN.

    Args:
        on_epoch: called with the number of an epoch and its value; not while that is NaN.

    Raises:
        UserError: the training failed, or the column never had a value.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # what it warns of would stand there for each seed of each trial
        trainer = METHODS[config.METHOD].trainer(config)
    trainer.warn = lambda line: None
    scores: list[float] = []

    def take(row: Any) -> None:
        score = float(getattr(row, metric))
        if not math.isnan(score):
            scores.append(score)
            on_epoch(row.epoch, score)

    with contextlib.closing(trainer):
        trainer.train(on_epoch=take)
    if not scores:
        raise UserError(f"{metric} never had a value: train for more epochs, or choose another --metric")
    return scores[-1]


def score_or_fault(config: TrainingConfig, metric: str) -> float | str:
    """`score_of`, or the line of its error, which every kind of worker hands over as it is."""
    try:
        return score_of(config, metric)
    except UserError as error:
        return str(error)


def config_of(trial: Any, space: Space, base: TrainingConfig) -> TrainingConfig:
    """A base with the settings that an Optuna trial has drawn; UserError if they do not go together."""
    return base.replace(**{name: values.suggest(trial, name) for name, values in space.items()})


def run_trial(
    journal: Journal,
    base: TrainingConfig,
    space: Space,
    seeds: tuple[int, ...],
    metric: str,
    sampler_seed: int,
    several: bool,
) -> int:
    """Run the next trial of a search, whose score is the median over seeds; all is stored in the journal.

    Args:
        several: whether trials run at the same time, which the sampler then takes account of.

    Returns:
        The trial's number.
    """
    package, study, numbers = optuna(), open_study(journal), []
    study.sampler = package.samplers.TPESampler(
        seed=sampler_seed, n_startup_trials=STARTUP_TRIALS, constant_liar=several
    )

    def objective(trial: Any) -> float:
        numbers.append(trial.number)
        scores: list[float] = []
        trial.set_user_attr("scores", scores)

        def on_epoch(epoch: int, score: float) -> None:
            trial.report(float(np.median([*scores, score])), len(scores) * config.epochs + epoch)
            if trial.should_prune():
                raise package.TrialPruned

        try:
            config = config_of(trial, space, base)
            for seed in seeds:
                scores.append(score_of(config.replace(seed=seed), metric, on_epoch))
                trial.set_user_attr("scores", scores)
        except UserError as error:
            trial.set_user_attr("error", str(error))
            raise
        return float(np.median(scores))

    study.optimize(objective, n_trials=1, catch=UserError)
    return int(numbers[0])
