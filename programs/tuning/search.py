"""The search itself: trials that each run in a process of its own, stored in a journal."""

import json
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from common.config import TrainingConfig
from common.errors import UserError
from programs.tuning.journal import Journal, open_study, optuna
from programs.tuning.space import Space
from programs.tuning.trial import config_of, run_trial
from programs.worker_pool import Submit, result_of


class Search:
    """Trials that change `base` within a space, stored in a journal; a search that was stopped continues.

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
        settings = json.loads(json.dumps(vars(base)))
        known = self.study.user_attrs.get("base", {}) | self.study.user_attrs
        for name, value in (wanted | settings).items():
            if known.get(name, value) != value:
                raise UserError(
                    f"{journal.path} holds a search with {name} {known[name]!r:.80}, and not {value!r:.80}: begin "
                    "another one with --into"
                )
        for name, value in (wanted | {"base": settings}).items():
            self.study.set_user_attr(name, value)

    def finished(self) -> list[Any]:
        """All trials that were completed or pruned, or whose training failed, in their order."""
        states = optuna().trial.TrialState
        done = self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED, states.FAIL))
        return [trial for trial in done if trial.state != states.FAIL or "error" in trial.user_attrs]

    def completed(self) -> list[Any]:
        """Those of them that have a score."""
        return [trial for trial in self.finished() if trial.state == optuna().trial.TrialState.COMPLETE]

    def best(self, base: TrainingConfig | None = None) -> TrainingConfig | None:
        """A base, by default that of the search, with the best trial's settings; None before a trial was completed."""
        if not self.completed():
            return None
        best = optuna().trial.FixedTrial(self.study.best_params)
        return config_of(best, self.space, self.base if base is None else base)

    def run(self, trials: int, workers: int, submit: Submit, on_trial: Callable[[Any], None]) -> None:
        """Run trials until there are so many in all, `workers` of them at once; `on_trial` gets each that has ended.

        A sampler of its own makes each trial depend on the trials before alone, also after a restart.
        """
        left, running = trials - len(self.finished()), set[Future[int]]()
        while left > 0 or running:
            while left > 0 and len(running) < workers:
                seed = self._seed + trials - left
                asked = self._journal, self.base, self.space, self._seeds, self.metric, seed, workers > 1
                running.add(submit(run_trial, *asked))
                left -= 1
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                on_trial(self.study.get_trials()[result_of(future)])
