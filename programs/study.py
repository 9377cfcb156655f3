"""Run a study over seeds and summarise it: python -m programs study walker --into runs/again

Every run is an ordinary one, in FOLDER/STUDY/NAME. A study that was interrupted continues: runs that are
trained and evaluated are not repeated, and one that was cut off continues from its newest checkpoint. Without --into
the folder is experiments/results, which holds the recorded runs: only what is missing there is run.
"""

import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import gymnasium
import numpy as np
from matplotlib.figure import Figure

from common import files
from common.errors import UserError
from common.figures.curves import LABELS
from common.figures.study_figure import ArmScores, ReferenceScore, compare, tasks
from common.figures.style import save_light_and_dark, true_minus
from common.results import score_text
from common.rollout.evaluation import mean_text
from common.runs import run_folder
from common.runs.command_line import one_line_errors, parse_settings
from common.settings import Settings, setting
from programs.study_runs import StudyRun, train_all
from programs.worker_pool import WORKERS

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
RESULTS = EXPERIMENTS / "results"
LAST_EPOCHS = 20  # whose rewards the third table means
PANELS = LABELS | {"avg_reward_orig": "Reward per episode\nin training", "score": "Score: mean of\nthe last episodes"}
LOWEST_OF_TASKS = {"Taxi-v4": 5.0}  # where a task's axis begins: Taxi begins at -770, its seeds end within 0.5 of 8


@dataclass(frozen=True)
class Milestone:
    """When a column first gets as high as a value, counted in another one."""

    column: str
    value: float
    counted_in: str
    name: str = ""  # what the figure calls it

    def row(self, curve: dict[str, np.ndarray]) -> int | None:
        """The row of a run's table in which the value is first reached; None if it never is."""
        rows = np.flatnonzero(curve[self.column] >= self.value)
        return int(rows[0]) if len(rows) else None

    def reached(self, curves: Iterable[dict[str, np.ndarray]]) -> str:
        """When the value is first reached: the median over the tables of runs, or "never"."""
        rows = [(curve, self.row(curve)) for curve in curves]
        median = np.median([np.inf if row is None else curve[self.counted_in][row] for curve, row in rows])
        return f"{median:,.0f}" if np.isfinite(median) else "never"

    def __str__(self) -> str:
        return f"{self.counted_in} at {self.column} {self.value:g}"


@dataclass(frozen=True)
class Study:
    """Settings that are compared, each repeated over seeds; experiments/studies.toml explains the fields."""

    seeds: int
    arms: dict[str, str]
    panels: list[str]
    low: float
    finding: str = ""
    first_seed: int = 0
    milestone: Milestone | None = None
    levels: tuple[ReferenceScore, ...] = ()
    lowest: float | None = None
    lowest_score: float | None = None

    def runs(self, name: str, results: Path) -> list[StudyRun]:
        """Every run of the study, whole seeds first."""
        return [
            StudyRun(
                f"{name}: {arm}, seed {seed}",
                (*shlex.split(arguments), "--seed", str(seed)),
                str(folder_of(name, arm, seed, results)),
            )
            for seed in self.all_seeds
            for arm, arguments in self.arms.items()
        ]

    @property
    def all_seeds(self) -> range:
        """The seeds, in their order."""
        return range(self.first_seed, self.first_seed + self.seeds)


def read_studies(path: Path) -> dict[str, Study]:
    """The studies that a file describes.

    Raises:
        UserError: the file is no TOML, or a study lacks a field or has an unknown one.
    """
    name = ""
    try:
        studies = {}
        for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
            milestone = Milestone(**table.pop("milestone")) if "milestone" in table else None
            levels = tuple(ReferenceScore(**level) for level in table.pop("levels", ()))
            studies[name] = Study(milestone=milestone, levels=levels, **table)
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise UserError(f"{path.name}{name and f', [{name}]'}: {str(error).partition('() ')[2] or error}") from None
    return studies


STUDIES = read_studies(EXPERIMENTS / "studies.toml")


@dataclass(frozen=True)
class Arguments(Settings):
    """Train every setting of a study over several seeds, and summarise the runs in tables and a figure."""

    study: Literal[*STUDIES] = field(metadata={"example": "walker"})  # type: ignore[valid-type]
    """Which study; experiments/studies.toml says what each compares."""
    into: Path | None = None
    """Folder for the runs, the tables and the figure; runs that are there already are not repeated. By default
    experiments/results, which holds the recorded runs."""
    workers: int = setting(0, at_least=0)
    """How many runs are trained at once, each in a process of its own. 0 trains one at a time."""
    cluster: str | None = setting(None, needs=WORKERS)
    """Address of a running Ray cluster, like 10.0.0.1:6379, on which the workers run; needs requirements/cluster.txt.
    All its machines must see the folder. By default they run on this machine."""


def folder_of(study: str, arm: str, seed: int, results: Path = RESULTS) -> Path:
    """The folder of one run of a study."""
    name = "".join(letter if letter.isalnum() or letter in "=.-" else "_" for letter in arm)
    return results / study / f"{name}-seed{seed}"


def summarise(name: str, results: Path) -> None:
    """Tables of evaluations and a figure of the curves with every seed, from the runs that are there."""
    study = STUDIES[name]
    milestone = [] if study.milestone is None else [study.milestone]
    medians: list[list[Any]] = [["setting", "seeds", "median", "lowest", "highest", *milestone]]
    poor = f"episodes below {study.low:g}"
    runs: list[list[Any]] = [["setting", "seed", "steps", "deterministic", "sampled", poor, "minutes", *milestone]]
    trained: list[list[Any]] = [
        ["setting", "seed", "deterministic", "sampled", f"training, last {LAST_EPOCHS} epochs"]
    ]
    arms = {}
    for arm in study.arms:
        folders = {seed: folder_of(name, arm, seed, results) for seed in study.all_seeds}
        there = {seed: folder for seed, folder in folders.items() if (folder / run_folder.EVALUATION).exists()}
        if not there:
            continue
        evaluations: list[Any] = [files.read_json(folder / run_folder.EVALUATION) for folder in there.values()]
        curves = [run_folder.read_results(folder) for folder in there.values()]
        scores, sampled = ([one[kind]["mean"] for one in evaluations] for kind in ("deterministic", "sampled"))
        reached = [one.row(curve) for one in milestone for curve in curves]
        arms[arm] = ArmScores(curves, scores, sampled, len(evaluations[0]["deterministic"]["returns"]), reached)
        three = map(score_text, (float(np.median(scores)), min(scores), max(scores)))
        medians.append([arm, len(scores), *three, *(one.reached(curves) for one in milestone)])
        for seed, evaluation, curve in zip(there, evaluations, curves):
            played = evaluation["deterministic"], evaluation["sampled"]  # there may be those of other step limits, too
            few = sum(score < study.low for score in played[0]["returns"])
            steps, minutes = f"{int(curve['steps'][-1]):,}", f"{curve['seconds'].sum() / 60:.1f}"
            runs.append(
                [arm, seed, steps, *map(mean_text, played), few, minutes, *(one.reached([curve]) for one in milestone)]
            )
            rewards = float(np.nanmean(curve["avg_reward_orig"][-LAST_EPOCHS:]))  # NaN where no episode finished
            trained.append([arm, seed, *map(score_text, (*(one["mean"] for one in played), rewards))])
    text = true_minus("\n\n".join(map(_markdown, (medians, runs, trained))))
    files.replace_file(results / name / "summary.md", f"{text}\n".encode())
    print(text)
    save_light_and_dark(lambda: figure_of(study, arms), results / name / "summary.png")


def _markdown(rows: list[list[Any]]) -> str:
    """A table, the first row its header."""
    header, *body = (f"| {' | '.join(map(str, row))} |" for row in rows)
    return "\n".join([header, "|" + "---|" * len(rows[0]), *body])


def figure_of(study: Study, arms: dict[str, ArmScores]) -> Figure:
    """The figure of a study's runs; its title says the finding once every setting has a run."""
    if not study.panels:
        return _figure_of_tasks(study.finding, arms)
    title = ""
    if len(arms) == len(study.arms):
        title = study.finding.format(*(summary_of(arm, study.milestone) for arm in arms.values()))
    for curve in (curve for arm in arms.values() for curve in arm.curves):
        if missing := sorted(set(study.panels) - set(curve)):
            raise UserError(f"studies.toml, panels: results.csv has no {missing[0]}, but {', '.join(curve)}")
    panels = [(column, PANELS.get(column, column)) for column in study.panels]
    milestone = study.milestone.name if study.milestone is not None else ""
    return compare(title, arms, panels, study.levels, study.lowest, study.lowest_score, milestone)


def summary_of(arm: ArmScores, milestone: Milestone | None) -> SimpleNamespace:
    """What a study's finding may name of a setting: its scores, and the seeds that reach the milestone."""
    return SimpleNamespace(
        median=float(np.median(arm.deterministic)),
        lowest=min(arm.deterministic),
        highest=max(arm.deterministic),
        sampled=float(np.median(arm.sampled)),
        reached="" if milestone is None else milestone.reached(arm.curves),
        reached_by=sum(row is not None for row in arm.reached),
        seeds=len(arm.curves),
    )


def _figure_of_tasks(finding: str, arms: dict[str, ArmScores]) -> Figure:
    """Small multiples of a study whose settings are tasks."""
    thresholds = {task: gymnasium.spec(task).reward_threshold for task in arms}
    solved = {task: level for task, level in thresholds.items() if level is not None}
    reached = [score >= level for task, level in solved.items() for score in arms[task].deterministic]
    title = finding.format(tasks=len(arms), reached=sum(reached), scored=len(reached))
    return tasks(title, arms, solved, lowest=LOWEST_OF_TASKS)


def main() -> None:
    """Run and summarise the study that the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs study")
        results = (arguments.into or RESULTS).absolute()
        if arguments.cluster is None and results.is_relative_to(Path.cwd()):
            results = results.relative_to(Path.cwd())  # so that a run's recorded command works in any clone
        study = STUDIES[arguments.study]
        train_all(study.runs(arguments.study, results), arguments.workers, arguments.cluster)
        summarise(arguments.study, results)


if __name__ == "__main__":
    main()
