"""The search itself: Optuna's own loop over trials, each of which trains somewhere else, stored in a journal."""

import json
from collections.abc import Callable
from typing import Any

from common.config import TrainingConfig
from common.errors import UserError
from programs.tuning.journal import STARTUP_TRIALS, Journal, open_study, optuna
from programs.tuning.space import Space
from programs.tuning.trial import Outcome, run_trial
from programs.worker_pool import Submit, result_of


class _FailedError(Exception):
    """The training of a trial failed; the search goes on."""


class Search:
    """Trials of settings in a space, stored in a journal; a search that was stopped continues.

    Args:
        base: what the settings of a trial are changed in.
        metric: column of the results that is the score.

    Raises:
        UserError: the journal holds another search.
    """

    def __init__(
        self, journal: Journal, base: TrainingConfig, space: Space, seeds: tuple[int, ...], metric: str, seed: int
    ) -> None:
        self.base, self.space, self.metric = base, space, metric
        self._journal, self._seeds, self._seed = journal, seeds, seed
        self.study = open_study(journal)
        for trial in self.study.get_trials(deepcopy=False, states=(optuna().trial.TrialState.RUNNING,)):
            self.study.tell(trial.number, state=optuna().trial.TrialState.FAIL)  # of a search that was killed
        wanted = {"seeds": list(seeds), "metric": metric, "epochs": base.epochs, "space": repr(space)}
        self._check_same(wanted, self.study.user_attrs)
        settings = json.loads(json.dumps(vars(base)))
        self._check_same(settings, self.study.user_attrs.get("base", {}))
        for name, value in (wanted | {"base": settings}).items():
            self.study.set_user_attr(name, value)

    def _check_same(self, wanted: dict[str, Any], known: dict[str, Any]) -> None:
        for name in sorted(wanted.keys() & known.keys()):
            if known[name] != wanted[name]:
                raise UserError(
                    f"{self._journal.path} holds a search with {name} {known[name]!r:.80}, and not "
                    f"{wanted[name]!r:.80}: begin another one with --into"
                )

    def finished(self) -> list[Any]:
        """All trials that were completed or pruned, or whose training failed, in their order."""
        states = optuna().trial.TrialState
        done = self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED, states.FAIL))
        return [trial for trial in done if trial.state != states.FAIL or "error" in trial.user_attrs]

    def completed(self) -> list[Any]:
        """Those of them that have a score."""
        return [trial for trial in self.finished() if trial.state == optuna().trial.TrialState.COMPLETE]

    def config_of(self, trial: Any, base: TrainingConfig | None = None) -> TrainingConfig:
        """A base with a trial's settings; None takes the base of the search.

        Raises:
            UserError: they do not go together.
        """
        changes = {name: values.suggest(trial, name) for name, values in self.space.items()}
        base = self.base if base is None else base
        return base.replace(**{k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()})

    def best(self, base: TrainingConfig | None = None) -> TrainingConfig | None:
        """`config_of` the best trial; None before one was completed."""
        if not self.completed():
            return None
        return self.config_of(optuna().trial.FixedTrial(self.study.best_params), base)

    def run(self, trials: int, workers: int, submit: Submit, callback: Callable[[Any, Any], None]) -> None:
        """Run trials until there are so many in all, `workers` of them at once.

        A sampler of its own makes each trial depend on the trials before alone, also after a restart.

        Args:
            callback: called with the study and each trial that has ended.
        """

        def objective(trial: Any) -> float:
            return self._objective(trial, submit)

        def next_sampler(*_: object) -> None:
            self.study.sampler = optuna().samplers.TPESampler(
                seed=self._seed + len(self.finished()),
                n_startup_trials=STARTUP_TRIALS,
                constant_liar=workers > 1,  # it takes account of trials that run at the same time
            )

        next_sampler()
        left = trials - len(self.finished())
        if left > 0:
            self.study.optimize(
                objective, left, n_jobs=workers, catch=_FailedError, callbacks=[callback, next_sampler]
            )

    def _objective(self, trial: Any, submit: Submit) -> float:
        try:
            config = self.config_of(trial)
        except UserError as error:
            outcome = Outcome(None, (), str(error))
        else:
            trial_id = trial._trial_id  # noqa: SLF001  Optuna has no public way to hand a trial to another process
            outcome = result_of(submit(run_trial, self._journal, trial_id, config, self._seeds, self.metric))
        trial.set_user_attr("scores", list(outcome.scores))
        if outcome.error:
            trial.set_user_attr("error", outcome.error)
            raise _FailedError
        if outcome.value is None:
            raise optuna().TrialPruned
        return outcome.value
