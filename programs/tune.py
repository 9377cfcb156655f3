"""Search for better settings of a preset: python -m programs tune PRESET --trials N

Every trial trains a few seeds with settings that Optuna proposes, and scores their median. All trials are stored in
FOLDER/journal.log: the same command continues a search that was stopped. FOLDER/tuned.json is the best preset so far;
`python -m programs train FOLDER/tuned.json` trains it.
"""

import dataclasses
import shlex
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
from common.results import score_text, with_info
from common.runs import run_folder, trust
from common.runs.command_line import one_line_errors, parse_settings
from common.runs.one_process import only_here
from common.settings import Settings, setting
from programs.preset_files import find_preset, with_typed, write_preset
from programs.tuning.journal import Journal, optuna
from programs.tuning.search import Search
from programs.tuning.space import default_space, read_space
from programs.tuning.trial import score_or_fault
from programs.worker_pool import WORKERS, Submit, result_of, worker_pool

CALLS = 10  # trainings of one process
JOURNAL, TUNED, TRIALS, FIGURE, HELD_OUT = "journal.log", "tuned.json", "trials.csv", "tuning.png", "held-out.json"


@dataclass(frozen=True)
class Arguments(Settings):
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
    networks: str | None = None
    """Function that makes the networks (module:function), in place of the preset's. If a preset file has one, it must
    be typed here."""
    space: Path | None = None
    """JSON file of the settings to change and the values each may take. By default the file of the preset's method in
    programs/tuning/spaces, which also shows the format."""
    trials: int = setting(50, at_least=1)
    """Number of trials in all. The first five are drawn at random; fifty are enough for about six settings."""
    seeds: tuple[int, ...] = setting((0, 1, 2), at_least=0, at_most=2**31 - 1)
    """Seeds that each trial trains with; its score is their median. More seeds make the score less noisy."""
    epochs: int | None = setting(None, at_least=1)
    """Epochs of each run. By default the preset's; fewer find settings that learn fast."""
    metric: str = "score"
    """Column of results.csv whose last value is a run's score, to be maximised. score: the mean unshaped reward of the
    last score_window episodes. metric: the last value of the preset's best_metric."""
    held_out_seeds: tuple[int, ...] = setting((), at_least=0, at_most=2**31 - 1)
    """Seeds with which the preset and the best settings are compared after the search, such as 100 101 102 103 104.
    None of them may be among --seeds. By default they are not compared."""
    seed: int = setting(0, at_least=0)
    """Random seed of the search."""
    into: Path | None = None
    """Folder for the journal, the preset file, the table and the figure. By default tuning/PRESET."""
    workers: int = setting(0, at_least=0)
    """How many trials run at once, each in a process of its own. 0 runs one at a time."""
    cluster: str | None = setting(None, needs=WORKERS)
    """Address of a running Ray cluster, like 10.0.0.1:6379, on which the workers run. All its machines must see the
    folder. By default they run on this machine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seeds:
            raise UserError("no seeds are named: type --seeds 0 1 2, say")
        if tuned_on := set(self.seeds) & set(self.held_out_seeds):
            raise UserError(f"seed {min(tuned_on)} is used to tune: choose other --held-out-seeds")


def preset_of(arguments: Arguments) -> TrainingConfig:
    """The settings of the preset. Raises UserError if it or the metric is unknown."""
    typed = {name: getattr(arguments, name) for name in run_folder.TYPED}
    _, method, preset = find_preset(arguments.preset, **typed)
    preset = with_typed(preset, typed)
    results = with_info(method.trainer.result_type, preset.log_info)
    columns = {field.name: field.type for field in dataclasses.fields(results)}
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
    """What a search has found, on the console and in its folder; the preset file has a preset's other settings."""

    def __init__(self, folder: Path, search: Search, preset: TrainingConfig) -> None:
        self._folder, self._search, self._preset = folder, search, preset

    def __call__(self, trial: Any) -> None:
        """Print a trial that ended, and write the files again."""
        states = optuna().trial.TrialState
        scores = ", ".join(map(score_text, trial.user_attrs["scores"]))
        ended = "pruned" if trial.state == states.PRUNED else f"failed: {trial.user_attrs.get('error')}"
        ended = score_text(trial.value) if trial.state == states.COMPLETE else ended
        settings = ", ".join(f"{name} {_short(value)}" for name, value in trial.params.items())
        print(f"trial {trial.number + 1:3}  {ended}  [{scores}]  {settings}", flush=True)
        self.write()

    def write(self) -> None:
        """The preset file, the table and the figure."""
        search = self._search
        rows = [["trial", "state", "score", "seeds", *search.space]]
        for trial in search.finished():
            scores = " ".join(f"{score:g}" for score in trial.user_attrs.get("scores", []))
            score = "" if trial.value is None else f"{trial.value:g}"
            drawn = (_short(trial.params.get(name, "")).replace(",", "") for name in search.space)
            rows.append([str(trial.number + 1), trial.state.name.lower(), score, scores, *drawn])
        files.replace_file(self._folder / TRIALS, "".join(f"{','.join(row)}\n" for row in rows).encode())
        reached = [trial.value for trial in search.completed()]
        if not reached:
            return
        best = search.study.best_trial
        remarks = {"score": best.value, "scores": best.user_attrs["scores"], "metric": search.metric}
        try:
            settings: Any = search.best(self._preset)
        except UserError:  # they do not go with the preset: more warm-up steps than it has steps, say
            settings = search.best()
        write_preset(self._folder / TUNED, settings, **remarks)
        shares: dict[str, float] = {}  # of the differences between trials: PED-ANOVA (Watanabe et al. 2023)
        if len(set(reached)) >= 4:  # the best tenth is compared with all
            importance = optuna().importance
            evaluator = importance.PedAnovaImportanceEvaluator()
            shares = importance.get_param_importances(search.study, evaluator=evaluator)
        save_light_and_dark(lambda: importances(shares, reached, search.metric), self._folder / FIGURE)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def compare(
    folder: Path, base: TrainingConfig, best: TrainingConfig, seeds: tuple[int, ...], metric: str, submit: Submit
) -> None:
    """Train preset and best settings with seeds that nothing was tuned on; print and store both scores."""
    futures = {
        name: [submit(score_or_fault, config.replace(seed=seed), metric) for seed in seeds]
        for name, config in (("preset", base), ("tuned", best))
    }
    found: dict[str, dict[str, float]] = {}
    for name, runs in futures.items():
        scores: list[Any] = [result_of(run) for run in runs]
        for seed, score in zip(seeds, scores):
            if isinstance(score, str):
                raise UserError(f"{name}, seed {seed}: {score}")
        found[name] = dict(zip(map(str, seeds), scores))
        listed = ", ".join(map(score_text, scores))
        print(f"{name:7} median {score_text(float(np.median(scores)))} of seeds {' '.join(found[name])}: {listed}")
    files.write_json(folder / HELD_OUT, {"metric": metric, **found})


def search_in(folder: Path, search: Search, preset: TrainingConfig, arguments: Arguments) -> None:
    """Search, or continue the search in a folder; then compare the best settings with the preset if that is asked."""
    report = Report(folder, search, preset)
    if done := len(search.finished()):
        print(f"continuing after {done} trials in {folder}", flush=True)
    with worker_pool(arguments.workers, arguments.cluster, calls=CALLS) as submit:
        search.run(arguments.trials, max(1, arguments.workers), submit, report)
        report.write()
        best = search.best()
        if best is None:
            raise UserError(
                f"no trial was completed, {folder / TRIALS} says how each ended: begin another search with "
                "--into, and another --metric or --space"
            )
        tuned = folder / TUNED
        again = f"python -m programs train {shlex.quote(tuned.as_posix())}{trust.flags_again(search.base)}"
        print(f"best settings: {tuned}; train them with {again}")
        if arguments.held_out_seeds:
            compare(folder, search.base, best, arguments.held_out_seeds, arguments.metric, submit)


def main() -> None:
    """Search as the command line says."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs tune")
        preset = preset_of(arguments)
        base = base_of(preset, arguments)
        environment = environment_of(base)  # a wrong one fails here, before a search is stored
        mirror_of(base, environment.observation_space, environment.action_space)
        space = read_space(arguments.space or default_space(base), base)
        name = Path(arguments.preset).stem
        folder = (arguments.into or Path("tuning") / name).absolute()
        files.make_folder(folder)
        with only_here(folder, print):
            journal = Journal(str(folder / JOURNAL), name)
            search = Search(journal, base, space, arguments.seeds, arguments.metric, arguments.seed)
            search_in(folder, search, preset, arguments)


if __name__ == "__main__":
    main()
