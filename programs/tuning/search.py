"""The search itself: which trials there are, who runs them, and what they found."""

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from common.config import TrainingConfig
from common.errors import UserError
from programs.places import Submit, result_of
from programs.tuning.journal import Journal, open_study, optuna
from programs.tuning.space import Space
from programs.tuning.trial import Outcome


class Search:
    """Trials of settings in a space, stored in a journal; a search that was stopped continues.

    Args:
        journal: where it is stored.
        base: the settings that trials change.
        space: the values that they may take.
        seeds: of the runs of each trial.
        metric: column of the results that is the score.
        seed: of the sampler.

    Raises:
        UserError: the journal holds another search.
    """

    def __init__(
        self, journal: Journal, base: TrainingConfig, space: Space, seeds: tuple[int, ...], metric: str, seed: int
    ) -> None:
        self._journal, self._base, self._space, self._seeds = journal, base, space, seeds
        self._metric, self._seed = metric, seed
        self.study = open_study(journal)
        self._check_same({"seeds": list(seeds), "metric": metric, "epochs": base.epochs, "space": repr(space)})
        self._check_same_base()
        self._fail_abandoned()

    def _check_same(self, wanted: dict[str, object]) -> None:
        known = self.study.user_attrs
        for name, value in wanted.items():
            if name in known and known[name] != value:
                raise UserError(
                    f"{self._journal.path} holds a search with {name} {known[name]!r:.80}: use these, "
                    "or begin another one with --into"
                )
            self.study.set_user_attr(name, value)

    def _check_same_base(self) -> None:
        """Raise UserError if trials of the journal's search changed other settings."""
        wanted = json.loads(json.dumps(vars(self._base)))
        known = self.study.user_attrs.get("base", {})
        for name in sorted(known.keys() & wanted.keys()):
            if known[name] != wanted[name]:
                raise UserError(
                    f"{self._journal.path} holds a search of a preset whose {name} is {known[name]!r:.80}, and not "
                    f"{wanted[name]!r:.80}: begin another one with --into"
                )
        if not known:
            self.study.set_user_attr("base", wanted)

    def _fail_abandoned(self) -> None:
        """End trials of processes of this machine that are gone; their settings are drawn again."""
        states = optuna().trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            host, pid = trial.user_attrs.get("process", ["", 0])
            if host == socket.gethostname() and (pid == os.getpid() or not _runs(pid)):
                self.study.tell(trial.number, state=states.FAIL)

    def finished(self) -> list[Any]:
        """All trials that were completed or pruned, or whose training failed, in their order."""
        states = optuna().trial.TrialState
        done = self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED, states.FAIL))
        return [trial for trial in done if trial.state != states.FAIL or "error" in trial.user_attrs]

    def config_of(self, trial: Any, base: TrainingConfig | None = None) -> TrainingConfig:
        """A base with a trial's settings; None takes the base of the search.

        Raises:
            UserError: they do not go together.
        """
        changes = {name: values.suggest(trial, name) for name, values in self._space.items()}
        base = self._base if base is None else base
        return base.replace(**{k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()})

    def run(self, trials: int, places: int, submit: Submit) -> Iterator[tuple[Any, Outcome]]:
        """Run trials until there are so many in all, `places` of them at once.

        Args:
            submit: starts `run_trial` with its arguments somewhere.

        Yields:
            Every trial that ended, as Optuna stored it, and its outcome.
        """
        running: dict[Future[Outcome], Any] = {}
        while True:
            while len(running) < places and len(self.finished()) + len(running) < trials:
                trial = self._ask(len(self.finished()) + len(running), places > 1)
                try:
                    config = self.config_of(trial)
                except UserError as error:
                    yield self._tell(trial, Outcome(None, (), str(error)))
                    continue
                trial_id = trial._trial_id  # noqa: SLF001  Optuna has no public way to hand a trial to another process
                arguments = (self._journal, trial_id, config, self._seeds, self._metric)
                running[submit(*arguments)] = trial
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield self._tell(running.pop(future), result_of(future))

    def _ask(self, number: int, parallel: bool) -> Any:
        """The next trial. A sampler of its own makes it depend on the trials before alone, also after a restart."""
        study = open_study(self._journal, self._seed + number, parallel)
        trial = study.ask()
        trial.set_user_attr("process", [socket.gethostname(), os.getpid()])
        return trial

    def _tell(self, trial: Any, outcome: Outcome) -> tuple[Any, Outcome]:
        states = optuna().trial.TrialState
        trial.set_user_attr("scores", list(outcome.scores))
        if outcome.error:
            trial.set_user_attr("error", outcome.error)
            self.study.tell(trial.number, state=states.FAIL)
        elif outcome.value is None:
            self.study.tell(trial.number, state=states.PRUNED)
        else:
            self.study.tell(trial.number, outcome.value)
        return self.study.get_trials(deepcopy=False)[trial.number], outcome


def _runs(pid: int) -> bool:
    import psutil  # of requirements/cluster.txt, as Optuna

    return bool(psutil.pid_exists(pid))
