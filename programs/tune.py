"""Search for better settings of a preset: python -m programs tune PRESET --trials N

Every trial trains a few seeds with settings that Optuna proposes, and scores their median. All trials are stored in
FOLDER/journal.log: the same command continues a search that was stopped. FOLDER/tuned.json is the best preset so far;
`python -m programs train FOLDER/tuned.json` trains it.
"""

import dataclasses
import shlex
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common import files
from common.config import TrainingConfig
from common.envs.environment import environment_of
from common.envs.mirror_settings import mirror_of
from common.errors import UserError
from common.figures.importances import importances
from common.figures.style import save_light_and_dark
from common.results import score_text
from common.runs import trust
from common.runs.command_line import one_line_errors, parse_settings
from common.runs.one_process import only_here
from programs.places import Submit, places, result_of
from programs.preset_files import is_preset_file, read_preset, write_preset
from programs.run_arguments import check_at_least
from programs.train import method_of
from programs.tuning.journal import Journal, optuna
from programs.tuning.search import Search
from programs.tuning.space import SPACES, Space, read_space
from programs.tuning.trial import Outcome, run_trial

CALLS = 10  # trainings of one process
JOURNAL, TUNED, TRIALS, FIGURE, HELD_OUT = "journal.log", "tuned.json", "trials.csv", "tuning.png", "held-out.json"


@dataclass(frozen=True)
class Arguments:
    """Search for better settings of a preset with Optuna (TPE sampler, median pruner)."""

    preset: str = field(metadata={"example": "pendulum-td3-corrected"})
    """Preset to start from, or a preset file such as tuned.json."""
    env: str | None = None
    """Environment to tune for, in place of the preset's. If a preset file's environment needs a module (module:Id), it
    must be typed here, because an import runs code."""
    env_kwargs: str | None = None
    """Arguments of the environment, as JSON like '{"map_name": "8x8"}', in place of the preset's. If a preset file has
    texts among them, they must be typed here."""
    wrappers: tuple[str, ...] | None = None
    """Wrappers of the environment (module:Class ...), in place of the preset's. If a preset file has some, they must
    be typed here."""
    space: Path | None = None
    """JSON file of the settings to change and the values each may take. By default the file of the preset's method in
    programs/tuning/spaces, which also shows the format."""
    trials: int = 50
    """Number of trials in all. The first five are drawn at random; fifty are enough for about six settings."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds that each trial trains with; its score is their median. More seeds make the score less noisy."""
    epochs: int | None = None
    """Epochs of each run. By default the preset's; fewer find settings that learn fast."""
    metric: str = "score"
    """Column of results.csv whose last value is a run's score, to be maximised. score: the mean unshaped reward of the
    last score_window episodes. metric: the mean unshaped reward of the last validation."""
    held_out_seeds: tuple[int, ...] = ()
    """Seeds with which the preset and the best settings are compared after the search, such as 100 101 102 103 104.
    None of them may be among --seeds. By default they are not compared."""
    seed: int = 0
    """Random seed of the search."""
    into: Path | None = None
    """Folder for the journal, the preset file, the table and the figure. By default tuning/PRESET."""
    workers: int = 0
    """How many trials run at once, each on a Ray worker; needs requirements/cluster.txt. 0 runs one at a time in a
    process of this machine."""
    cluster: str | None = None
    """Address of a running Ray cluster, like 10.0.0.1:6379. All its machines must see the folder. By default a local
    one is started and ended with the search."""

    def check(self) -> None:
        """Raises UserError for values that are out of their range."""
        for name, least in (("trials", 1), ("workers", 0), ("seed", 0)):
            check_at_least(name, getattr(self, name), least)
        check_at_least("epochs", self.epochs, 1)
        if not self.seeds:
            raise UserError("no seeds are named: type --seeds 0 1 2, say")
        if tuned_on := set(self.seeds) & set(self.held_out_seeds):
            raise UserError(f"seed {min(tuned_on)} is used to tune: choose other --held-out-seeds")
        if self.cluster is not None and not self.workers:
            raise UserError("--cluster needs workers: set --workers to 1 or more")


def preset_of(arguments: Arguments) -> TrainingConfig:
    """The settings of the preset.

    Raises:
        UserError: the preset or the metric is unknown.
    """
    if is_preset_file(arguments.preset):
        _, method, preset = read_preset(
            Path(arguments.preset), arguments.env, arguments.env_kwargs, arguments.wrappers
        )
    else:
        method = method_of(arguments.preset)
        preset = method.presets[arguments.preset]
    environment = {name: getattr(arguments, name) for name in ("env", "env_kwargs", "wrappers")}
    preset = preset.replace(**{name: value for name, value in environment.items() if value is not None})
    columns = {field.name: field.type for field in dataclasses.fields(method.trainer.result_type)}
    if columns.get(arguments.metric) not in (float, int):
        raise UserError(f"metric is {arguments.metric!r:.40}: expected a column of results.csv, such as score")
    return preset


def base_of(preset: TrainingConfig, arguments: Arguments) -> TrainingConfig:
    """The settings that trials start from: the preset's, without validations unless their metric is asked for."""
    base = preset if arguments.epochs is None else preset.replace(epochs=arguments.epochs)
    if arguments.metric == "metric":
        return base
    return base.replace(best_metric="mean_episode_reward", adopt_best=False, stop_score=None)


class Report:
    """What a search has found, on the console and in its folder."""

    def __init__(
        self, folder: Path, search: Search, preset: TrainingConfig, base: TrainingConfig, space: Space, metric: str
    ) -> None:
        self._folder, self._search, self._space, self._metric = folder, search, space, metric
        self._preset, self._base = preset, base
        self._one_at_a_time = threading.Lock()

    def __call__(self, _: Any, trial: Any) -> None:
        """Print a trial that ended, and write the files again; Optuna calls it in the trial's own thread."""
        states = optuna().trial.TrialState
        scores = ", ".join(map(score_text, trial.user_attrs["scores"]))
        ended = "pruned" if trial.state == states.PRUNED else f"failed: {trial.user_attrs.get('error')}"
        ended = score_text(trial.value) if trial.state == states.COMPLETE else ended
        settings = ", ".join(f"{name} {_short(value)}" for name, value in trial.params.items())
        with self._one_at_a_time:
            print(f"trial {len(self._search.finished()):3}  {ended}  [{scores}]  {settings}", flush=True)
            self.write()

    def best(self, base: TrainingConfig) -> TrainingConfig | None:
        """`base` with the settings of the best trial; None before one was completed."""
        trial = self._best_trial()
        return None if trial is None else self._search.config_of(optuna().trial.FixedTrial(trial.params), base)

    def _best_on_preset(self) -> TrainingConfig | None:
        """The preset with the best settings; the base of the search with them if they do not go with the preset."""
        try:
            return self.best(self._preset)
        except UserError:  # more warm-up steps than the preset has steps, say
            return self.best(self._base)

    def _completed(self) -> list[Any]:
        state = optuna().trial.TrialState.COMPLETE
        return [trial for trial in self._search.finished() if trial.state == state]

    def _best_trial(self) -> Any:
        return max(self._completed(), key=lambda trial: trial.value, default=None)

    def write(self) -> None:
        """The preset file, the table and the figure."""
        names = list(self._space)
        rows = [",".join(["trial", "state", "score", "seeds", *names])]
        for i, trial in enumerate(self._search.finished(), start=1):
            scores = " ".join(f"{score:g}" for score in trial.user_attrs.get("scores", []))
            cells = [i, trial.state.name.lower(), "" if trial.value is None else f"{trial.value:g}", scores]
            cells += [_short(trial.params.get(name, "")).replace(",", "") for name in names]
            rows.append(",".join(map(str, cells)))
        files.replace_file(self._folder / TRIALS, ("\n".join(rows) + "\n").encode())
        completed, best = self._completed(), self._best_on_preset()
        if best is not None:
            trial = self._best_trial()
            remarks = {"score": trial.value, "scores": trial.user_attrs["scores"], "metric": self._metric}
            write_preset(self._folder / TUNED, best, **remarks)
        if completed:
            shares, reached = self._shares(), [trial.value for trial in completed]
            save_light_and_dark(lambda: importances(shares, reached, self._metric), self._folder / FIGURE)

    def _shares(self) -> dict[str, float]:
        """Setting → share of the differences between trials (PED-ANOVA, Watanabe et al. 2023)."""
        values = {trial.value for trial in self._completed()}
        if len(values) < 4:  # the best tenth is compared with all
            return {}
        package = optuna()
        evaluator = package.importance.PedAnovaImportanceEvaluator()
        return dict(package.importance.get_param_importances(self._search.study, evaluator=evaluator))


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def compare(
    folder: Path, base: TrainingConfig, best: TrainingConfig, seeds: tuple[int, ...], metric: str, submit: Submit
) -> None:
    """Train the preset and the best settings with seeds that nothing was tuned on, and print and store both.

    Raises:
        UserError: a run failed.
    """
    nobody = Journal("", "")
    futures = {
        name: [submit(nobody, None, config, (seed,), metric) for seed in seeds]
        for name, config in (("preset", base), ("tuned", best))
    }
    found: dict[str, dict[str, float]] = {}
    for name, runs in futures.items():
        outcomes: list[Outcome] = [result_of(run) for run in runs]
        for seed, outcome in zip(seeds, outcomes):
            if outcome.value is None:
                raise UserError(f"{name}, seed {seed}: {outcome.error}")
        found[name] = {str(seed): float(outcome.scores[0]) for seed, outcome in zip(seeds, outcomes)}
        scores = list(found[name].values())
        print(f"{name:7} median {score_text(float(np.median(scores)))} of seeds {' '.join(map(str, seeds))}: "
              + ", ".join(score_text(score) for score in scores))  # fmt: skip
    files.write_json(folder / HELD_OUT, {"metric": metric, **found})


def search_in(
    folder: Path, name: str, space: Space, preset: TrainingConfig, base: TrainingConfig, arguments: Arguments
) -> None:
    """Search, or continue the search in a folder; then compare the best settings with the preset if that is asked for.

    Raises:
        UserError: the folder holds another search, or no trial was completed.
    """
    journal = Journal(str(folder / JOURNAL), name)
    search = Search(journal, base, space, arguments.seeds, arguments.metric, arguments.seed)
    report = Report(folder, search, preset, base, space, arguments.metric)
    if done := len(search.finished()):
        print(f"continuing after {done} trials in {folder}", flush=True)
    with places(run_trial, arguments.workers, arguments.cluster, calls=CALLS) as submit:
        search.run(arguments.trials, max(1, arguments.workers), submit, report)
        report.write()
        best = report.best(base)
        if best is None:
            raise UserError(
                f"no trial was completed, {folder / TRIALS} says how each ended: begin another search with "
                "--into, and another --metric or --space"
            )
        tuned = folder / TUNED
        again = f"python -m programs train {shlex.quote(tuned.as_posix())}{trust.flags_again(base)}"
        print(f"best settings: {tuned}; train them with {again}")
        if arguments.held_out_seeds:
            compare(folder, base, best, arguments.held_out_seeds, arguments.metric, submit)


def main() -> None:
    """Search as the command line says."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs tune")
        arguments.check()
        preset = preset_of(arguments)
        base = base_of(preset, arguments)
        environment = environment_of(base)  # a wrong one fails here, before a search is stored
        mirror_of(base, environment.observation_space, environment.action_space)
        space = read_space(arguments.space or SPACES / f"{base.METHOD}.json", base)
        name = Path(arguments.preset).stem
        folder = (arguments.into or Path("tuning") / name).absolute()
        files.make_folder(folder)
        with only_here(folder, print):
            search_in(folder, name, space, preset, base, arguments)


if __name__ == "__main__":
    main()
