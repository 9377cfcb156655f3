"""Writes docs/learning-curves.md and its figures from the raw results of `learning_curves.py`.

Run `python benchmarks/learning_curves_page.py`; tests compare the page with the raw results. It also writes the tables
on the pages of memories and of invalid actions, with those of `curve_speed.py`.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import bootstrap, trim_mean

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from peers.tasks import TASKS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results" / "learning_curves"
PAGE, FIGURES = ROOT / "docs" / "learning-curves.md", ROOT / "docs" / "learning-curves"
SPEED = ROOT / "benchmarks" / "results" / "curve_speed.md"
COMPARED = {  # page → its tasks, and how the rows of `curve_speed.py` begin that it shows, if any
    ROOT / "docs" / "memory.md": (("cartpole-hidden", "pendulum-hidden", "lander-hidden"), "RecurrentPPO"),
    ROOT / "docs" / "action-masks.md": (("queens-masked", "taxi-masked"), "MaskablePPO"),
    ROOT / "docs" / "mujoco.md": (tuple(name for name in TASKS if name.startswith("mujoco-")), None),
}
BLOCK = re.compile(r"(?<=<!-- compared -->\n).*?(?=<!-- end -->)", re.DOTALL)
RACE = ROOT / "benchmarks" / "results" / "first_command_speed.json"
RACERS = (  # contestants of walker-ppo, how they are called in the race, and in the figure
    ("sb3-zoo", "SB3", "Stable-Baselines3's PPO with the settings of rl-zoo3"),
    ("ours-first", "ours", "python PPOAgentTrainer.py"),
)
KINDS = ("deterministic", "sampled")  # actions
LONG = re.compile(r"(?<=^\w{10})\w+")  # what is not shown of a commit, which may end in "-dirty"
Runs = dict[str, list[dict[str, Any]]]  # contestant → its seeds
HEAD = """# Learning curves compared with other libraries

Other libraries and this project train the same tasks with the same number of steps. Our PPO takes up to two
trajectories more, at most 11% of the other library's steps, and learns nothing from the last. One script plays and
scores all of them, Breakout in the wrappers of each library. It uses the environment's own rewards. Every fiftieth of
the steps (of Breakout, every tenth) it plays 20 deterministic and 20 sampled episodes, and 100 of each at the end.

Contestants whose names end in `zoo` have the settings that rl-zoo3 publishes, at its commit 22e3ff2. `defaults` are
those of the library. `ours-zoo` is this project with rl-zoo3's settings, and `ours` is its own preset. Names with
`mirror` use the mirror symmetry of the task. `ours-first` is the first command, which shapes rewards and ends when the
walker is solved. `ours-ppo` is the preset `mujoco`. [A memory](memory.md) explains the tasks in `hidden`. In the tasks
`queens-masked` and `taxi-masked` all contestants have the same settings. The file `benchmarks/peers/tasks.py` lists
all settings. On the walker rl-zoo3's TQC explores with gSDE, which ours lacks. On the lander it trains 500,000
steps. Here it trains 300,000, over which its learning rate falls to 0.

`ours`, `ours-mirror` and `ours-first` are scored as their presets end: with the weights that their
own validations or training scores found best, and some with averaged ones. All others are scored with their last
weights. Same settings are not the same method: where actor and critic are two networks, ours clips the gradients of
each alone, and off-policy it has an ε of 1e-7 in Adam. SBX's TD3 moves its target networks after every update of the
critics, ours and Stable-Baselines3's after every second. The TD3 of both libraries plays without noise whenever it is
scored, so its two columns are equal.

The tables show interquartile means over seeds, with 95% bootstrap intervals over seeds in brackets. A row with one
seed has no interval. Steps are plain means, in thousands. Some methods play episodes to validate the agent while they
train, and the column *validation* counts the steps of these. The last column estimates how likely a run of the row
scores higher than a run of the first row, without noise in the actions (of Breakout, with it). Runs shared the
machine, so their seconds are not compared here; [Speed](speed.md) does so.

Others have made such runs public: the [Open RL Benchmark](https://arxiv.org/abs/2402.03046) collects ten of each
method and task of Stable-Baselines3 with rl-zoo3's settings, from December 2022 on. [Its
list](https://github.com/openrlbenchmark/openrlbenchmark/issues/7) has BipedalWalker-v3, BipedalWalkerHardcore-v3,
Pendulum-v1 and CartPole-v1, the lander in version 2, and MuJoCo's tasks in version 3. They were made with older
versions of library and environments, so none of them is in the tables here.
"""


def iqm(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """Interquartile mean: the lowest and the highest quarter are left out (Agarwal et al. 2021)."""
    return trim_mean(scores, 0.25, axis=axis)


def interval(scores: Sequence[np.ndarray], statistic: Callable[..., Any]) -> tuple[float, float] | None:
    """95% percentile bootstrap interval; None with one seed, or where all seeds are equal."""
    if min(map(len, scores)) < 2 or all(np.ptp(one) == 0 for one in scores):
        return None
    found = bootstrap(
        tuple(scores), statistic, n_resamples=2000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(found.low), float(found.high)


def improvement(ours: np.ndarray, theirs: np.ndarray, axis: int = -1) -> np.ndarray:
    """Share of all pairs of runs in which `ours` scores higher; a draw counts half."""
    first, second = np.moveaxis(ours, axis, -1)[..., :, None], np.moveaxis(theirs, axis, -1)[..., None, :]
    return ((first > second) + 0.5 * (first == second)).mean(axis=(-1, -2))


def with_interval(value: float, bounds: tuple[float, float] | None, form: str) -> str:
    """A number for a table, such as 270.1 [266.0, 272.9]."""
    return f"{value:{form}}" + (f" [{bounds[0]:{form}}, {bounds[1]:{form}}]" if bounds else "")


def found() -> dict[str, Runs]:
    """The raw results of each task, contestants in the order of `TASKS`."""
    tasks: dict[str, Runs] = {}
    for task, known in TASKS.items():
        for contestant in known.contestants:
            if seeds := sorted((RESULTS / task / contestant).glob("*.json")):
                runs = [json.loads(path.read_text(encoding="utf-8")) for path in seeds]
                tasks.setdefault(task, {})[contestant] = runs
    return tasks


def final(runs: list[dict[str, Any]], kind: str) -> np.ndarray:
    """The score [seeds] after training, of `deterministic` or `sampled` actions."""
    return np.array([np.mean(run["final"][kind]) for run in runs])


def page(tasks: dict[str, Runs]) -> str:
    """The page."""
    lines = [HEAD]
    for task, contestants in tasks.items():
        lines += [
            f"## {heading(task)}\n",
            *([f"{TASKS[task].note}\n"] if TASKS[task].note else []),
            f"![Scores while training, {task}](learning-curves/{task}.png)\n",
            table(task, contestants),
            sources(task, contestants),
        ]
    missing = {task: [name for name in TASKS[task].contestants if name not in tasks.get(task, {})] for task in TASKS}
    lines += ["## Not run yet\n", *(f"- {task}: {', '.join(names)}" for task, names in missing.items() if names), ""]
    return "\n".join(lines)


def sources(task: str, contestants: Runs) -> str:
    """Where a task's raw results are, and when, on what and with which code they were made."""
    runs = [run for of_one in contestants.values() for run in of_one]
    days, processors = sorted({run["date"][:10] for run in runs}), sorted({run["cpu"] for run in runs})
    commits = sorted({LONG.sub("", run["commit"]) for run in runs})
    return (
        f"Raw files with commands and versions are in `benchmarks/results/learning_curves/{task}`: "
        f"{', '.join(days)}, {' and '.join(processors)}, commits {', '.join(commits)}.\n"
    )


def heading(task: str) -> str:
    """A task's name, environment and steps."""
    return f"{task}: {TASKS[task].env.rpartition(':')[2]}, {TASKS[task].steps:,} steps"


def table(task: str, contestants: Runs) -> str:
    """The scores of a task after training."""
    kind = KINDS.index(TASKS[task].kind)
    reference = final(next(iter(contestants.values())), KINDS[kind])
    lines = [
        "| contestant | seeds | deterministic | sampled | steps | validation | higher than the first row |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for number, (name, runs) in enumerate(contestants.items()):
        scores = played, sampled = [final(runs, kind) for kind in KINDS]
        validated = np.mean([run.get("validation_steps", 0) for run in runs]) / 1000
        trained = np.mean([run["steps"][-1] for run in runs]) / 1000
        better = "–"
        if number and min(len(played), len(reference)) > 1:  # one run each tells nothing
            pair = (scores[kind], reference)
            better = with_interval(float(improvement(*pair)), interval(pair, improvement), ".2f")
        lines.append(
            f"| {name} | {len(runs)} | {with_interval(float(iqm(played)), interval([played], iqm), '.1f')} | "
            f"{with_interval(float(iqm(sampled)), interval([sampled], iqm), '.1f')} | {trained:,.0f} | "
            f"{validated:,.0f} | {better} |"
        )
    return "\n".join([*lines, ""])


def compared(tasks: dict[str, Runs], names: Sequence[str], peer: str | None) -> str:
    """What a page says of some tasks: scores, and how fast ours is beside a peer."""
    parts = [f"{heading(task)}:\n\n{table(task, tasks[task])}" for task in names if task in tasks]
    if peer and SPEED.exists():
        measured, *_, machine = SPEED.read_text(encoding="utf-8").strip().split("\n\n")
        head, rule, *rows = measured.splitlines()
        parts.append(
            "\n".join(["Steps per second:\n", head, rule, *(row for row in rows if peer in row), "", machine, ""])
        )
    return "\n" + "\n".join(parts or ["No run has been recorded yet.\n"]) + "\n"


def figure(task: str, contestants: Runs) -> Any:
    """Interquartile mean and interval of the score, over the steps."""
    from common.figures.style import colour_of, stacked_panels, style_axis, thousands

    kind, (drawn, [axis]) = TASKS[task].kind, stacked_panels(1, 3.5)
    for number, (name, runs) in enumerate(contestants.items()):
        length = min(TASKS[task].parts, *(len(run["steps"]) for run in runs))  # ours has one more at its end
        steps = np.mean([run["steps"][:length] for run in runs], axis=0)  # [K]
        scores = np.array([[np.mean(part) for part in run[kind][:length]] for run in runs])  # [seeds, K]
        axis.plot(steps, iqm(scores, axis=0), color=colour_of(number), label=f"{name} ({len(runs)})")
        bounds = [interval([column], iqm) or (column[0], column[0]) for column in scores.T]
        axis.fill_between(steps, *np.array(bounds).T, color=colour_of(number), alpha=0.2, linewidth=0)
    style_axis(axis, f"{kind} score")
    axis.xaxis.set_major_formatter(thousands)
    axis.set_xlabel("environment steps, without those of validations")
    axis.legend(fontsize="small")
    return drawn


def pace(race: list[dict[str, Any]], racer: str) -> tuple[float, float]:
    """Seconds until the first step, and steps a second from then on: medians; of two ways to run it the faster."""
    ways: dict[str, list[dict[str, Any]]] = {}
    for run in race:
        if run["contestant"].startswith(racer):
            ways.setdefault(run["contestant"], []).append(run)
    speeds = {way: float(np.median([run["steps_per_second"] for run in runs])) for way, runs in ways.items()}
    fastest = max(speeds, key=speeds.__getitem__)
    speed, runs = speeds[fastest], ways[fastest]
    return float(np.median([run["instants"][0] for run in runs])) - runs[0]["steps_per_epoch"] / speed, speed


def first_command(contestants: Runs, race: list[dict[str, Any]]) -> Any:
    """Both scores of every seed over seconds, which are steps at the speed of `race` (curve_speed.py)."""
    from common.figures.style import GREY, colour_of, legend_above, stacked_panels, style_axis

    drawn, axes = stacked_panels(2, 2.5)
    for axis, kind, name_of_score in zip(axes, KINDS, ("score without noise", "score with noise")):
        axis.axhline(300, color=GREY, linestyle=":", label="solved")
        for number, (name, racer, label) in enumerate(RACERS):
            start, speed = pace(race, racer)
            for run in contestants[name]:
                seconds = start + np.array(run["steps"]) / speed
                scores = [*map(np.mean, run[kind][:-1]), np.mean(run["final"][kind])]
                shown = f"{label} ({len(contestants[name])})"
                axis.plot(seconds, scores, color=colour_of(number), linewidth=1, label=shown)
        style_axis(axis, name_of_score)
    axes[1].set_xscale("log")
    axes[1].set_xticks([20, 50, 100, 200, 500, 1000, 2000], minor=False)
    axes[1].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[1].set_xlabel("seconds on two idle cores, with start, without the last validation")
    legend_above(drawn, axes)
    return drawn


def main() -> None:
    """Write the pages and the figures."""
    from common.figures.style import save_figure

    tasks = found()
    PAGE.write_text(page(tasks), encoding="utf-8")
    for path, shown in COMPARED.items():
        path.write_text(BLOCK.sub(compared(tasks, *shown), path.read_text(encoding="utf-8")), encoding="utf-8")
    for task, contestants in tasks.items():
        save_figure(figure(task, contestants), FIGURES / f"{task}.png")
    race = json.loads(RACE.read_text(encoding="utf-8"))["runs"]
    save_figure(first_command(tasks["walker-ppo"], race), FIGURES / "first-command.png")


if __name__ == "__main__":
    main()
