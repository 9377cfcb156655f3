"""Writes the tables of scores that pages show from raw files: python benchmarks/scores.py

A page names a table in a comment, and what stands between this and the next `<!-- end -->` is written here:

    <!-- scores all -->              every score; `scores four` is README's
    <!-- study entropy seeds 3-9 --> medians of a study's settings, over all of its seeds or some; `japanese entropy …`
                                 is the same in Japanese
    <!-- looks NAME, NAME -->        the same of runs in first-looks, which no study compares
    <!-- ranks entropy seeds 3-9 --> exact tests of whether its settings differ
"""

import csv
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard import line, recorded, standing
from learning_curves_page import interval, with_interval
from record_tables import TASKS
from scipy.stats import mannwhitneyu

ROOT = Path(__file__).resolve().parent.parent

STUDIES = ROOT / "experiments" / "results"
PAGES = (ROOT / "README.md", ROOT / "README.ja.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"(<!-- ((?:scores|study|japanese|looks|ranks)[^\n]*?) -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
JAPANESE = {
    "setting": "設定",
    "median steps": "ステップ（中央値）",
    "seeds": "シード数",
    "median [95% interval]": "中央値 [95% 信頼区間]",
    "lowest": "最低",
    "highest": "最高",
    "sampled, median": "サンプリング時の中央値",
    "c=0.1, density surrogate": "c=0.1、もとの項（−p·log p）",
    "c=0": "c=0（項無し）",
    "c=0.1, Gaussian entropy": "c=0.1、正規分布のエントロピー",
}
TUNED = {*range(20), 120, 121, 157}  # seeds that settings were tuned on; those above 19 only on rough ground
TUNED_ON_GAMES = {100, 101, 300}  # by which the size of Breakout's images and its convolutions were chosen
ALWAYS = {"Pendulum-v1": 200}  # steps of each episode, with which validations can be counted


@dataclass(frozen=True)
class Runs:
    """What the raw files say of a method's runs, seed by seed."""

    seeds: list[int]
    scores: list[float]  # deterministic
    sampled: list[float]
    steps: list[int]  # of the environment, in training
    validation: list[int] | None  # steps of the episodes that the training played for itself
    seconds: list[float] | None
    alone: bool = False  # whether nothing else ran on any core
    marks: str = ""
    training: list[float] = field(default_factory=list)  # reward of an episode in training, over the last 20 epochs
    tables: list[dict[str, np.ndarray]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)


def of_record(name: str) -> Runs:
    """The standing record of a name of `record_tables.RECORDS`."""
    found = standing(recorded())[name]
    seeds = found["seeds"]
    task = TASKS[found["metric"]]
    validation = [one["validation_steps"] for one in seeds] if "validation_steps" in seeds[0] else None
    return Runs(
        [one["seed"] for one in seeds],
        [next(iter(one["scores"].values())) for one in seeds],
        [one["sampled"] for one in seeds],
        [one["steps"] * task.held for one in seeds],
        validation,
        [one["seconds"] for one in seeds],
        found.get("at_once", 1) == 1 and found.get("core") is None,
        ("M" if found["knowledge"] else "") + "R" * task.name.startswith("BipedalWalker"),
    )


def marks_of(config: dict[str, Any], seeds: Iterable[int]) -> str:
    """M, R and T, from the settings that a run has stored; they have the names of their time."""
    costs = [
        float(str(np.ravel(cost)[0]).partition("@")[0])  # "0.056@0": from a score of 0 on
        for cost in (config.get("fall_costs", config.get("fall_cost", 1)), config.get("action_cost", 0))
    ]
    mirrored = bool(config.get("symmetry") or config.get("mirror") or config.get("mirror_observation"))
    shaped = config.get("reward_design", "unchanged") != "unchanged" or costs != [1.0, 0.0]
    tuned = TUNED | (TUNED_ON_GAMES if config.get("env", "").startswith("ALE/") else set())
    return "M" * mirrored + "R" * shaped + "T" * (not tuned.isdisjoint(seeds))


def of_folders(folders: list[Path]) -> Runs:
    """Runs of a study, each in its folder."""
    runs = []
    for folder in folders:
        about, scored = (json.loads((folder / name).read_text("utf-8")) for name in ("config.json", "evaluation.json"))
        with open(folder / "results.csv", newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        table = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
        runs.append((about["config"], scored, table, about["started"]))
    configs, scored, tables, started = (list(part) for part in zip(*runs))
    validation = None
    if configs[0]["best_metric"] != "validation":
        validation = [0] * len(runs)
    elif configs[0]["env"] in ALWAYS:
        length = configs[0]["validation_episodes"] * ALWAYS[configs[0]["env"]]
        validation = [int(np.isfinite(table["metric"]).sum()) * length for table in tables]
    seeds = [config["seed"] for config in configs]
    return Runs(
        seeds,
        [one["deterministic"]["mean"] for one in scored],
        [one["sampled"]["mean"] for one in scored],
        [int(table["steps"][-1]) for table in tables],
        validation,
        [float(table["seconds"].sum()) for table in tables],
        marks=marks_of(configs[0], seeds),
        training=[float(np.nanmean(table["avg_reward_orig"][-20:])) for table in tables],
        tables=tables,
        started=started,
    )


def of_study(study: str, arm: str) -> Runs:
    """All seeds of a setting; `programs/study.py` names the folders."""
    name = "".join(letter if letter.isalnum() or letter in "=.-" else "_" for letter in arm)
    folders = (STUDIES / study).glob(f"{name}-seed*")
    return of_folders(sorted(folders, key=lambda folder: int(folder.name.rpartition("-seed")[2])))


def of_agent(name: str) -> Runs:
    """One run, whose agent comes with the project."""
    card, config, scored = (
        json.loads((ROOT / "agents" / name / file).read_text("utf-8"))
        for file in ("agent.json", "config.json", "evaluation.json")
    )
    validation = None if config["config"]["best_metric"] == "validation" else [0]
    means = ([scored[kind]["mean"]] for kind in ("deterministic", "sampled"))
    return Runs(
        [card["seed"]], *means, [card["run_steps"]], validation, None, marks=marks_of(config["config"], [card["seed"]])
    )


# A trial of which only the log is left: experiments/log/2026-11.md, "Rough ground with TQC at twice the pace".
TRIAL = Runs([0], [231.7], [206.6], [2_000_000], None, [114 * 60.0], marks="RT")


@dataclass(frozen=True)
class Row:
    """A row of the table of scores."""

    problem: str
    method: str  # as rl-zoo3 calls it
    what: str
    runs: Callable[[], Runs]
    first: bool = False  # whether it is in README, too


def rows() -> list[Row]:
    """The rows, a problem after the other."""
    walker, rough, lander = "BipedalWalker-v3", "BipedalWalkerHardcore-v3", "LunarLanderContinuous-v3"
    pendulum, pole = "Pendulum-v1", "CartPole-v1"

    def record(problem: str, method: str, what: str, name: str, first: bool = False) -> Row:
        return Row(problem, method, what, lambda: of_record(name), first)

    def study(problem: str, method: str, what: str, name: str, arm: str, first: bool = False) -> Row:
        return Row(problem, method, what, lambda: of_study(name, arm), first)

    def agent(problem: str, method: str, name: str, what: str) -> Row:
        return Row(problem, method, what, lambda: of_agent(name))

    return [
        record(walker, "ppo", "`bipedal-walker-fast`, the first command", "fast-walker", True),
        record(walker, "ppo", "`bipedal-walker-fast-symmetric`", "fast-walker-symmetric"),
        record(walker, "ppo", "`bipedal-walker-fast-continued`", "continued-walker"),
        record(walker, "ppo", "`bipedal-walker-long`", "best-ppo", True),
        study(walker, "ppo", "`bipedal-walker`, EnvPool", "walker", "envpool"),
        study(walker, "ppo", "`bipedal-walker`, Gymnasium", "walker", "gymnasium"),
        study(walker, "td3", "`bipedal-walker-td3`", "bipedal-walker-td3", "TD3"),
        record(walker, "tqc", "`bipedal-walker-tqc`", "best-walker"),
        record(rough, "td3", "`bipedal-walker-hardcore-td3`, bfloat16", "rough-ground", True),
        record(rough, "td3", "`bipedal-walker-hardcore-td3`", "rough-ground-float32"),
        agent(rough, "ppo", "hardcore", "agent `hardcore`"),
        Row(rough, "tqc", "an early run", lambda: TRIAL),
        agent(lander, "ppo", "lander", "agent `lander`"),
        Row(
            lander, "ppo", "`lunar-lander-continuous`, an early run",
            lambda: of_folders([STUDIES / "first-looks" / "lunar-lander-continuous-seed0"]),
        ),
        study(lander, "td3", "`lunar-lander-td3`", "lunar-lander-td3", "TD3"),
        study(lander, "tqc", "`lunar-lander-tqc`", "lunar-lander-tqc", "TQC"),
        record(pendulum, "td3", "`pendulum-td3-seconds`", "pendulum-seconds"),
        record(pendulum, "td3", "the same, `--no-symmetry`", "pendulum-seconds-plain"),
        study(pendulum, "td3", "`pendulum-td3-fast`", "pendulum", "pendulum-td3-fast"),
        study(pendulum, "sac", "`pendulum-sac`", "pendulum-sac", "SAC"),
        record(pole, "ppo", "`cartpole-fewest-steps`", "cartpole-steps"),
        record(pole, "ppo", "the same, `--no-symmetry`", "cartpole-steps-plain"),
        study("ALE/Breakout-v5", "ppo", "`breakout-fast`", "breakout-fast", "PPO", True),
    ]  # fmt: skip


COLUMNS = [
    "problem", "method", "score [95% interval]", "sampled", "steps", "with validations", "seconds", "seeds", "marks",
    "rl-zoo3, steps",
]  # fmt: skip


def median_cell(values: list[float]) -> str:
    """The median with its 95% bootstrap interval over seeds."""
    bounds = interval([np.array(values)], np.median)
    return number_text(with_interval(float(np.median(values)), bounds, ".1f"))


def number_text(text: str) -> str:
    """A text with minus signs in place of hyphens before numbers."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def one_decimal(value: float) -> str:
    """A score as these tables show it."""
    return number_text(f"{value:.1f}")


def spread(values: list[float], form: str = ".1f") -> str:
    """The median and, in brackets, the lowest and the highest of several values."""
    ends = f" ({min(values):{form}} to {max(values):{form}})" if min(values) != max(values) else ""
    return number_text(f"{np.median(values):{form}}{ends}")


def cells(row: Row) -> list[str]:
    """A row of the table of scores."""
    runs = row.runs()
    total = "not recorded"
    if runs.validation is not None:
        total = spread([one + more for one, more in zip(runs.steps, runs.validation)], ",.0f")
    seconds = "not recorded"
    if runs.seconds is not None:
        middle = float(np.median(runs.seconds))
        seconds = f"{middle:,.{1 if middle < 20 else 0}f}" + "*" * (not runs.alone)
    return [
        row.problem, f"{row.method.upper()}: {row.what}", median_cell(runs.scores), spread(runs.sampled),
        spread(runs.steps, ",.0f"), total, seconds, str(len(runs.seeds)), runs.marks or "–", theirs(row),
    ]  # fmt: skip


def theirs(row: Row) -> str:
    """rl-zoo3's published score and steps; its lander and its Breakout have other ids."""
    env = {"LunarLanderContinuous-v3": "LunarLanderContinuous-v2", "ALE/Breakout-v5": "BreakoutNoFrameskip-v4"}
    text = (ROOT / "benchmarks" / "results" / "rl_zoo3.md").read_text("utf-8")
    for method, name, mean, _, steps, _ in (
        [cell.strip() for cell in shown.strip("|").split("|")] for shown in text.split("\n\n")[0].splitlines()[2:]
    ):
        if (method, name) == (row.method, env.get(row.problem, row.problem)):
            return number_text(f"{float(mean):.1f}, {steps}")
    raise LookupError(f"rl_zoo3.md has no {row.method} of {row.problem}")


def markdown(head: list[str], body: Iterable[list[str]]) -> str:
    """A table; columns of numbers stand on the right."""
    body = list(body)
    aligned = (
        "---:" if any(cell[:1].isdigit() or cell[:1] == "−" for cell in column) else "---" for column in zip(*body)
    )
    return "\n".join([line(head), f"|{'|'.join(aligned)}|", *map(line, body)])


def scores(which: str) -> str:
    """The table of all scores, or README's four rows of it, without the columns that few readers look for."""
    shown = [COLUMNS, *(cells(row) for row in rows() if which == "all" or row.first)]
    if which == "four":
        shown = [[*row[:3], *(cell.partition(" (")[0] for cell in row[3:5]), *row[6:9]] for row in shown]
    return markdown(shown[0], shown[1:])


def chosen(words: str) -> tuple[dict[str, Runs], dict[str, Any] | None]:
    """The runs of a study's settings and its milestone, of "STUDY" or "STUDY seeds 3-9"."""
    name, _, seeds = words.partition(" seeds ")
    about = tomllib.loads((ROOT / "experiments" / "studies.toml").read_text("utf-8"))[name]
    first, last = map(int, seeds.split("-")) if seeds else (0, 10**6)
    settings = {}
    for arm in about["arms"]:
        runs = of_study(name, arm)
        kept = [i for i, seed in enumerate(runs.seeds) if first <= seed <= last]
        lists = {part: value for part, value in vars(runs).items() if isinstance(value, list)}
        settings[arm] = replace(runs, **{part: [value[i] for i in kept] for part, value in lists.items()})
    return settings, about.get("milestone")


def study(words: str) -> str:
    """The medians of a study's settings, with when it ran."""
    return medians(*chosen(words))


def japanese(words: str) -> str:
    """The same in Japanese."""
    table, began = study(words).split("\n\n")
    for cell, translated in JAPANESE.items():
        table = table.replace(f"| {cell} |", f"| {translated} |")
    return f"{table}\n\n（{began.split()[-1].strip('.')} に実行）"


def looks(words: str) -> str:
    """The same of runs that no study compares."""
    return medians({name: of_study("first-looks", name) for name in words.split(", ")})


def medians(settings: dict[str, Runs], milestone: dict[str, Any] | None = None) -> str:
    """A table of scores, a setting a row, with when its runs began."""
    head = ["setting", "median steps", "seeds", "median [95% interval]", "lowest", "highest", "sampled, median"]
    body = []
    for arm, runs in settings.items():
        few = map(one_decimal, (min(runs.scores), max(runs.scores), float(np.median(runs.sampled))))
        last = [reached(runs, milestone)] if milestone else []
        steps = f"{np.median(runs.steps):,.0f}"
        body.append([arm, steps, str(len(runs.seeds)), median_cell(runs.scores), *few, *last])
    if milestone:
        head.append(f"{milestone['counted_in']} at {milestone['column']} {milestone['value']}".replace("_", " "))
    days = sorted({start[:10] for runs in settings.values() for start in runs.started})
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    return f"{markdown(head, body)}\n\nThese runs began {when}."


def reached(runs: Runs, milestone: dict[str, Any]) -> str:
    """When a column first gets as high as a value: the median over seeds, or "never"."""
    firsts = []
    for table in runs.tables:
        there = np.flatnonzero(table[milestone["column"]] >= milestone["value"])
        firsts.append(table[milestone["counted_in"]][there[0]] if len(there) else np.inf)
    middle = np.median(firsts)
    return f"{middle:,.0f}" if np.isfinite(middle) else "never"


def ranks(words: str) -> str:
    """Exact two-sided rank-sum tests between the settings of a study, by three measures."""
    settings, _ = chosen(words)
    measures = {"deterministic": "scores", "sampled": "sampled", "training, last 20 epochs": "training"}
    body = []
    for one, other in itertools.combinations(settings, 2):
        pairs = [[getattr(settings[arm], part) for arm in (one, other)] for part in measures.values()]
        found = [mannwhitneyu(*pair, method="exact").pvalue for pair in pairs]
        body.append(
            [f"{one} and {other}", *(f"{p:.2f}" if p >= 0.05 else f"{p:.4f}, 1 in {1 / p:,.0f}" for p in found)]
        )
    return markdown(["p", *measures], body)


def written(page: str) -> str:
    """The text of a page with its tables as they must be today."""
    makers = {"scores": scores, "study": study, "japanese": japanese, "looks": looks, "ranks": ranks}

    def made(match: re.Match[str]) -> str:
        kind, _, words = match[2].partition(" ")
        return f"{match[1]}\n{makers[kind](words)}\n\n{match[3]}"

    return BLOCK.sub(made, page)


if __name__ == "__main__":
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if BLOCK.search(text):
            path.write_text(written(text), encoding="utf-8")
