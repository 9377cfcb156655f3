"""Run a study over seeds and summarise it: python -m programs study walker --into runs/again

Every run is an ordinary one of a training program, in FOLDER/STUDY/NAME. A study that was interrupted continues: runs
that have an evaluation.json are not repeated, and one that was cut off continues from its newest checkpoint. Without
--into the folder is experiments/results, which holds the recorded runs: only what is missing there is run.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from matplotlib.figure import Figure

from common import files
from common.errors import UserError
from common.figures.curves import LABELS
from common.figures.study_figure import Arm, Level, compare, tasks
from common.figures.style import save_light_and_dark, true_minus
from common.results import score_text
from common.rollout.evaluation import mean_text
from common.runs import run_folder
from common.runs.command_line import one_line_errors, parse_settings
from programs.run_arguments import check_at_least
from programs.study_runs import StudyRun, train_all

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments" / "results"
# 300 of the 500 published epochs; nothing is annealed, so a run can be continued with resume RUN --epochs 500.
PUBLISHED = ("bipedal-walker-2021-corrected", "--backend", "envpool", "--num-envs", "32", "--epochs", "300")


SMALL_AS_RECORDED = ("--evaluation-episodes", "20", "--initial-gains", "1.4142135623730951", "0.01", "--adopt-best")
PPO, OFF_POLICY, SAC = "PPOAgentTrainer", "companions.OffPolicyAgentTrainer", "companions.SACAgentTrainer"
LENGTH, Q, SPREAD = ((name, LABELS[name]) for name in ("avg_steps", "mean_value", "mean_std"))
REWARD = ("avg_reward_orig", "Reward per episode\nin training")
LAST_EPOCHS = 20  # whose rewards the third table means


@dataclass(frozen=True)
class Milestone:
    """When a column first gets as high as a value, counted in another one."""

    column: str
    value: float
    counted_in: str
    name: str = ""  # what the figure calls it

    def reached(self, *curves: dict[str, np.ndarray]) -> str:
        """When the value is first reached: the median over runs, or "never".

        Args:
            curves: the tables of the runs, column → [epochs].
        """
        found = [curve[self.counted_in][curve[self.column] >= self.value] for curve in curves]
        median = np.median([rows[0] if len(rows) else np.inf for rows in found])
        return f"{median:,.0f}" if np.isfinite(median) else "never"

    def row(self, curve: dict[str, np.ndarray]) -> int | None:
        """The row of a run's table in which the value is first reached; None if it never is."""
        rows = np.flatnonzero(curve[self.column] >= self.value)
        return int(rows[0]) if len(rows) else None

    def __str__(self) -> str:
        return f"{self.counted_in} at {self.column} {self.value:g}"


class Summary(NamedTuple):
    """What the seeds of one setting scored; a study's finding names these."""

    median: float  # of the deterministic scores, like the next two
    lowest: float
    highest: float
    sampled: float  # the median with sampled actions
    sampled_lowest: float
    sampled_highest: float
    reached: str  # the milestone
    reached_by: int  # so many seeds
    seeds: int

    @classmethod
    def of(cls, arm: Arm, milestone: Milestone | None) -> "Summary":
        """Summarise a setting's seeds."""
        three = [(float(np.median(scores)), min(scores), max(scores)) for scores in (arm.deterministic, arm.sampled)]
        reached = milestone.reached(*arm.curves) if milestone is not None else ""
        return cls(*three[0], *three[1], reached, sum(row is not None for row in arm.reached), len(arm.curves))


@dataclass(frozen=True)
class Study:
    """Settings that are compared, each repeated over seeds."""

    module: str  # whose `main` trains a run
    seeds: range
    arms: dict[str, tuple[str, ...]]  # name → arguments of the program
    panels: tuple[tuple[str, str], ...]  # of the figure: column of results.csv, label; none: a panel for each task
    low: float  # episodes that score less are counted
    milestone: Milestone | None = None
    finding: str = "{0.median:.1f}"  # the figure's title, with the arms' summaries by their numbers
    levels: tuple[Level, ...] = ()  # scores to compare with
    lowest: float | None = None  # where the axis of the first panel begins
    lowest_score: float | None = None  # where the axis of the scores begins


TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # older versions of Gymnasium
THOUSAND = ("--evaluation-episodes", "1000")  # Pendulum's start states alone spread a score by 86 to 107
LAST = ("--best-metric", "mean_episode_reward", "--no-adopt-best", *THOUSAND)
DDPG = ("pendulum-ddpg-corrected", *LAST)
LOWEST_OF_TASKS = {TAXI: 5.0}  # where a task's axis begins: Taxi begins at -770, and its seeds end within 0.5 of 8
SOLVED = Level(300, "solved")
PENDULUM_ZOO = Level(-151.9, "rl-zoo3, TD3, 20k steps")  # benchmarks/results/rl_zoo3.md, as the others of rl-zoo3
STUDIES: dict[str, Study] = {
    # Does the default learn to walk, on both backends?
    "walker": Study(
        PPO,
        range(3),
        {
            "envpool": ("bipedal-walker", "--backend", "envpool"),
            "gymnasium": ("bipedal-walker", "--backend", "gymnasium"),
        },
        (REWARD, LENGTH),
        low=200,
        finding="PPO walks after 1.7 million steps: median score {0.median:.1f} with EnvPool's environments, "
        "{1.median:.1f} with Gymnasium's",
        levels=(SOLVED, Level(213.3, "rl-zoo3, PPO, 5M steps")),
    ),
    # The published question: does the entropy bonus help, and is it the entropy that helps?
    "entropy": Study(
        PPO,
        range(10),
        {
            "c=0.1, density surrogate": PUBLISHED,
            "c=0": (*PUBLISHED, "--entropy-coefficient", "0"),
            "c=0.1, Gaussian entropy": (*PUBLISHED, "--quirks"),
        },
        (REWARD, SPREAD),
        low=200,
        finding="The median score is {0.median:.1f} with the published entropy term (density surrogate), "
        "{1.median:.1f} without\na bonus (c=0), and {2.median:.1f} with the Gaussian's entropy; with sampled actions "
        "{0.sampled:.1f}, {1.sampled:.1f} and {2.sampled:.1f}",
        levels=(SOLVED,),
    ),
    # Which of TD3's three changes of DDPG matters on Pendulum? Traps corrected, parameters of the last epoch.
    "pendulum-ablation": Study(
        OFF_POLICY,
        range(5),
        {
            "DDPG": DDPG,
            "DDPG + twin critics": (*DDPG, "--twin-critics"),
            "DDPG + target smoothing": (*DDPG, "--target-smoothing", "0.2"),
            "DDPG + policy delay": (*DDPG, "--policy-delay", "2"),
            "TD3": ("pendulum-td3-corrected", *LAST),
        },
        (REWARD, Q),
        low=-500,
        finding="On Pendulum none of TD3's changes clearly helps: median {0.median:.1f} for DDPG, {1.median:.1f} with "
        "twin critics,\n{2.median:.1f} with target smoothing, {3.median:.1f} with policy delay, {4.median:.1f} with "
        "all three (TD3)",
        levels=(PENDULUM_ZOO,),
        lowest=-600,
    ),
    # The published numbers, quirks and all; the same, corrected; and the fast ones.
    "pendulum": Study(
        OFF_POLICY,
        range(5),
        {
            f"pendulum-{name}": (f"pendulum-{name}", *THOUSAND)
            for name in ("ddpg", "td3", "ddpg-corrected", "td3-corrected", "td3-fast")
        },
        (REWARD,),
        low=-500,
        finding="The worst seeds of DDPG and TD3 score {2.lowest:.1f} and {3.lowest:.1f} corrected, {0.lowest:.1f} "
        "and {1.lowest:.1f} as published;\nthe fast settings reach {4.median:.1f} (median) in a fifth of the steps",
        levels=(PENDULUM_ZOO,),
        lowest=-600,
        lowest_score=-320,
    ),
    # The next steps of the ladder: entropy, a second critic, quantiles.
    "pendulum-sac": Study(
        SAC,
        range(5),
        {
            "SAC, one critic": ("pendulum-sac", "--critics", "1", *THOUSAND),
            "SAC": ("pendulum-sac", *THOUSAND),
            "TQC": ("pendulum-sac", "--quantiles", "25", *THOUSAND),
        },
        (REWARD,),
        low=-500,
        finding="On Pendulum SAC with one critic, SAC and TQC score alike: medians {0.median:.1f}, {1.median:.1f} and "
        "{2.median:.1f}",
        levels=(PENDULUM_ZOO,),
        lowest=-600,
    ),
    # How soon does the small published system hold the pole for good, and what if its target learns, too? The recorded
    # runs are older than PyTorch's initial weights.
    "cartpole-minimal": Study(
        PPO,
        range(10),
        {
            name: ("cartpole-minimal", *SMALL_AS_RECORDED, *flags)
            for name, flags in (
                ("stopped gradient", ()),
                (
                    "no stopped gradient",
                    (
                        "--value-target",
                        "one_step_gradient",
                    ),
                ),
            )
        },
        (("score", "Mean of the last\n20 episodes"),),
        low=500,
        milestone=Milestone("score", 500, "total_episodes", "a seed's first 20 episodes in a row of 500 steps"),
        finding="With the target's gradient stopped {0.reached_by} of {0.seeds} seeds hold the pole 20 times in a row "
        "in training,\nwithout stopping it {1.reached_by} of {1.seeds}",
        levels=(Level(500, "step limit"),),
    ),
    # Both objectives as published and tuned, the published clip corrected, and with the whole batch as one minibatch:
    # how soon is there an episode of 1,024 steps, and is it held?
    "cartpole": Study(
        PPO,
        range(5),
        {
            f"{objective}, {name}": (preset, "--objective", objective)
            for name, preset in (("published", "cartpole"), ("tuned", "cartpole-fast"))
            for objective in ("clip", "kl_penalty")
        }
        | {"clip, corrected": ("cartpole-corrected",), "clip, whole batch": ("cartpole", "--minibatch-size", "2048")},
        (REWARD,),
        low=1024,
        milestone=Milestone("max_steps", 1024, "steps", "a seed's first episode of 1,024 steps"),
        finding="First episode of 1,024 steps after {0.reached} steps with the published clip, {1.reached} with its "
        "KL penalty,\n{2.reached} and {3.reached} when tuned, {4.reached} corrected, {5.reached} with the whole batch "
        "as one minibatch (medians)",
        levels=(Level(1024, "step limit"),),
    ),
    # What `--env ID` alone makes of small problems; no setting was chosen by these seeds.
    "defaults": Study(
        PPO,
        range(100, 105),
        {
            name: ("--env", name)
            for name in (
                "Acrobot-v1",
                "CartPole-v1",
                "LunarLander-v3",
                "MountainCar-v0",
                "MountainCarContinuous-v0",
                "Pendulum-v1",
                TAXI,
            )
        },
        (),
        low=-199,
        finding="One set of default settings on {tasks} small problems: {reached} of {scored} seeds reach the score "
        "that counts as solved",
    ),
    "lunar-lander-td3": Study(
        OFF_POLICY,
        range(3),
        {"TD3": ("lunar-lander-td3",)},
        (REWARD, LENGTH),
        low=200,
        finding="TD3 lands with every seed: scores of {0.lowest:.1f} to {0.highest:.1f} after 300,000 steps",
        levels=(Level(200, "solved"), Level(207.5, "rl-zoo3, TD3, v2")),
    ),
    "lunar-lander-tqc": Study(
        SAC,
        range(100, 103),
        {"TQC": ("lunar-lander-tqc",)},
        (REWARD, LENGTH),
        low=200,
        finding="TQC lands with every seed: the best parameters of 300,000 steps score {0.lowest:.1f} to "
        "{0.highest:.1f}",
        levels=(Level(200, "solved"), Level(278.0, "rl-zoo3, TQC, v2")),
    ),
    "bipedal-walker-td3": Study(
        OFF_POLICY,
        range(1),
        {"TD3": ("bipedal-walker-td3",)},
        (REWARD, LENGTH),
        low=200,
        finding="TD3 walks after 600,000 steps: score {0.median:.1f}, with sampled actions {0.sampled:.1f}",
        levels=(SOLVED, Level(306.0, "rl-zoo3, TD3, 1M steps")),
    ),
}


@dataclass(frozen=True)
class Arguments:
    """Train every setting of a study over several seeds, and summarise the runs in tables and a figure."""

    study: Literal[*STUDIES] = field(metadata={"example": "walker"})  # type: ignore[valid-type]
    """Which study; STUDIES in programs/study.py says what each compares."""
    into: Path | None = None
    """Folder for the runs, the tables and the figure; runs that are there already are not repeated. By default
    experiments/results, which holds the recorded runs."""
    workers: int = 0
    """How many runs are trained at once, each on a Ray worker; needs requirements/cluster.txt. 0 trains one at a time
    in a process of this machine."""
    cluster: str | None = None
    """Address of a running Ray cluster, like 10.0.0.1:6379. All its machines must see the folder. By default a local
    one is started and ended with the study."""


def folder_of(study: str, arm: str, seed: int, results: Path = RESULTS) -> Path:
    """The folder of one run of a study."""
    name = "".join(letter if letter.isalnum() or letter in "=.-" else "_" for letter in arm)
    return results / study / f"{name}-seed{seed}"


def runs_of(name: str, results: Path) -> list[StudyRun]:
    """Every run of a study, whole seeds first."""
    study = STUDIES[name]
    return [
        StudyRun(
            f"{name}: {arm}, seed {seed}",
            study.module,
            (*arguments, "--seed", str(seed)),
            str(folder_of(name, arm, seed, results)),
        )
        for seed in study.seeds
        for arm, arguments in study.arms.items()
    ]


def summarise(name: str, results: Path) -> None:
    """Tables of evaluations and a figure of the curves with every seed, from the runs that are there."""
    study, arms = STUDIES[name], {}
    medians = ["| setting | seeds | median | lowest | highest |", "|---|---|---|---|---|"]
    lines = [
        f"| setting | seed | steps | deterministic | sampled | episodes below {study.low:g} | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    trained = [
        f"| setting | seed | deterministic | sampled | training, last {LAST_EPOCHS} epochs |",
        "|---|---|---|---|---|",
    ]
    if study.milestone is not None:
        for table in (medians, lines):
            table[:] = [f"{table[0]} {study.milestone} |", f"{table[1]}---|"]
    for arm in study.arms:
        folders = {seed: folder_of(name, arm, seed, results) for seed in study.seeds}
        there = {seed: folder for seed, folder in folders.items() if (folder / run_folder.EVALUATION).exists()}
        evaluations: list[Any] = [files.read_json(folder / run_folder.EVALUATION) for folder in there.values()]
        if not there:
            continue
        curves = [run_folder.read_results(folder) for folder in there.values()]
        scores, sampled = ([one[kind]["mean"] for one in evaluations] for kind in ("deterministic", "sampled"))
        reached = [] if study.milestone is None else [study.milestone.row(curve) for curve in curves]
        arms[arm] = Arm(curves, scores, sampled, len(evaluations[0]["deterministic"]["returns"]), reached)
        lines += [_line(arm, *row, study) for row in zip(there, evaluations, curves)]
        trained += [_trained_line(arm, *row) for row in zip(there, scores, sampled, curves)]
        shown = " | ".join(map(score_text, (float(np.median(scores)), min(scores), max(scores))))
        median = f"| {arm} | {len(scores)} | {shown} |"
        medians.append(median if study.milestone is None else f"{median} {study.milestone.reached(*curves)} |")
    save_light_and_dark(lambda: figure_of(study, arms), results / name / "summary.png")
    text = true_minus("\n".join([*medians, "", *lines, "", *trained]))
    files.replace_file(results / name / "summary.md", f"{text}\n".encode())
    print(text)


def figure_of(study: Study, arms: dict[str, Arm]) -> Figure:
    """The figure of a study's runs; its title says the finding once every setting has a run."""
    if not study.panels:
        return _figure_of_tasks(study.finding, arms)
    title = ""
    if len(arms) == len(study.arms):
        title = study.finding.format(*(Summary.of(arm, study.milestone) for arm in arms.values()))
    milestone = study.milestone.name if study.milestone is not None else ""
    return compare(title, arms, study.panels, study.levels, study.lowest, study.lowest_score, milestone)


def _figure_of_tasks(finding: str, arms: dict[str, Arm]) -> Figure:
    """Small multiples of a study whose settings are tasks."""
    thresholds = {task: gymnasium.spec(task).reward_threshold for task in arms}
    solved = {task: level for task, level in thresholds.items() if level is not None}
    reached = [score >= level for task, level in solved.items() for score in arms[task].deterministic]
    title = finding.format(tasks=len(arms), reached=sum(reached), scored=len(reached))
    return tasks(title, arms, solved, lowest=LOWEST_OF_TASKS)


def _line(arm: str, seed: int, evaluation: dict, curve: dict[str, np.ndarray], study: Study) -> str:
    """A run's row of the table."""
    played = evaluation["deterministic"], evaluation["sampled"]  # there may be those of other step limits, too
    cells = map(mean_text, played)
    poor = sum(score < study.low for score in evaluation["deterministic"]["returns"])
    minutes = curve["seconds"].sum() / 60
    line = f"| {arm} | {seed} | {int(curve['steps'][-1]):,} | {' | '.join(cells)} | {poor} | {minutes:.1f} |"
    return line if study.milestone is None else f"{line} {study.milestone.reached(curve)} |"


def _trained_line(arm: str, seed: int, score: float, sampled: float, curve: dict[str, np.ndarray]) -> str:
    """A run's row of the table that sets its scores beside the rewards of training."""
    rewards = curve["avg_reward_orig"][-LAST_EPOCHS:]  # NaN where no episode finished
    return f"| {arm} | {seed} | {' | '.join(map(score_text, (score, sampled, float(np.nanmean(rewards)))))} |"


def main() -> None:
    """Run and summarise the study that the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs study")
        check_at_least("workers", arguments.workers, 0)
        if arguments.cluster is not None and not arguments.workers:
            raise UserError("--cluster needs workers: set --workers to 1 or more")
        results = (arguments.into or RESULTS).absolute()
        train_all(runs_of(arguments.study, results), arguments.workers, arguments.cluster)
        summarise(arguments.study, results)


if __name__ == "__main__":
    main()
