"""Records, measured and listed: python benchmarks/records.py NAME, then LEADERBOARD.md is written anew.

Each seed of a record is trained by one command, whose wall-clock time counts from its start to its end, compilation
included, and then plays fresh episodes of Gymnasium's own environment, deterministically and with its own rewards.
Every seed counts, and the seeds are not those that settings were tuned on. Before the first seed EnvPool is stepped
alone, so that another machine's time can be judged. Raw results go to results/records/DATE-NAME.json.

`--go-on` keeps the seeds that are there; without a NAME only LEADERBOARD.md is written.
"""

import csv
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table import record
from speed import RESULTS, ROOT, busy_cores, machine

from common.envs.environment import find_environment
from common.envs.vector_env import make_vector_env
from common.errors import UserError
from common.files import write_json
from common.runs import run_folder
from common.runs.command_line import one_line_errors, parse_settings

FOLDER = RESULTS / "records"
PAGE = ROOT / "LEADERBOARD.md"
QUIETLY = "--evaluation-episodes 0 --no-video --no-figure --no-tensorboard"
LIMITS = ("1600", "2000")  # steps of an episode: the environment's own, and that of the 2021 study
WALKED = 200.0  # mean reward from which a person would call it walking


@dataclass(frozen=True)
class Record:
    """What is trained, and what its row says."""

    command: str  # to which seed and folder are added
    metric: str  # the heading of its table
    knowledge: str  # of the environment, that the settings use; empty for none
    changed: str  # what makes the difference


WALKER = "BipedalWalker-v3: steps and seconds until solved (mean of 100 episodes ≥ 300)"
RECORDS = {
    "fast-walker": Record(
        "PPOAgentTrainer.py bipedal-walker-fast",
        WALKER,
        "the legs' mirror",
        "symmetric networks, small updates, learning rates steered by the KL divergence, averaged weights, falls that "
        "cost more with a better score, early validation",
    ),
}


@dataclass(frozen=True)
class Arguments:
    """Measure a record over seeds, and write LEADERBOARD.md from all that were measured."""

    name: str = ""
    """The record. Empty measures nothing and writes the page."""
    seeds: tuple[int, ...] = tuple(range(100, 110))
    """Seeds that nothing was tuned on."""
    go_on: bool = False
    """Keep the seeds of today's file and measure the others."""


def stepping_alone(steps: int = 60_000) -> float:
    """Environment steps a second of 64 EnvPool walkers with random actions drawn ahead."""
    environment = find_environment("BipedalWalker-v3")
    envs = make_vector_env(environment, 64, "envpool", 1)
    envs.reset(0)
    actions = np.random.default_rng(0).uniform(-1, 1, (64, 4)).astype(np.float32)
    began = time.perf_counter()
    for _ in range(steps // 64):
        envs.groups[0].send(actions)
        envs.groups[0].recv()
    seconds = time.perf_counter() - began
    envs.close()
    return steps / seconds


def measure(command: str, seed: int, runs: Path) -> dict[str, Any]:
    """Train one seed and score it; what is found.

    Raises:
        UserError: training or scoring failed.
    """
    name = f"seed{seed}"
    busy = busy_cores()
    began = time.perf_counter()
    _run(f"{command} --seed {seed} {QUIETLY} --name {name} --runs-folder {runs}")
    seconds = time.perf_counter() - began
    limits = " ".join(LIMITS)
    _run(f"-m programs evaluate {runs / name} --episodes 100 --no-video --max-episode-steps {limits}")
    with open(runs / name / run_folder.RESULTS, newline="", encoding="utf-8") as table:
        rows = [{key: float(value or "nan") for key, value in row.items()} for row in csv.DictReader(table)]
    before = seconds - sum(row["seconds"] for row in rows)  # imports, compilation and the end
    walks = next((i for i, row in enumerate(rows) if row["metric"] >= WALKED), None)
    scores = json.loads((runs / name / run_folder.EVALUATION).read_text(encoding="utf-8"))
    return {
        "seed": seed,
        "steps": int(rows[-1]["steps"]),
        "seconds": round(seconds, 1),
        "walks_at_steps": None if walks is None else int(rows[walks]["steps"]),
        "walks_at_seconds": None if walks is None else round(before + sum(r["seconds"] for r in rows[: walks + 1]), 1),
        "busy_cores_before": busy,
        "scores": {limit: round(scores["step_limits"][limit]["deterministic"]["mean"], 1) for limit in LIMITS},
        "sampled": round(scores["step_limits"][LIMITS[0]]["sampled"]["mean"], 1),
        "returns": scores["step_limits"][LIMITS[0]]["deterministic"]["returns"],
    }


def _run(command: str) -> None:
    ended = subprocess.run(
        [sys.executable, *command.split()], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if ended.returncode:
        raise UserError(f"{command} ended with exit code {ended.returncode}: {ended.stderr.strip()[-500:]}")


def spread(values: list[float], digits: int = 0) -> str:
    """The median and the range."""
    low, middle, high = min(values), median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def row(found: dict[str, Any]) -> str:
    """A record's row of the page."""
    seeds = found["seeds"]
    scores = [[one["scores"][limit] for one in seeds] for limit in LIMITS]
    solved = sum(one["scores"][LIMITS[0]] >= 300 for one in seeds)
    walked = [one["walks_at_seconds"] for one in seeds if one["walks_at_seconds"] is not None]
    where = found["machine"]
    cells = (
        where["date"][:10], found["commit"][:7], f"`python {found['command']} --seed S`",
        f"{seeds[0]['seed']} to {seeds[-1]['seed']}, {solved} of {len(seeds)}",
        spread([one["steps"] for one in seeds]), spread([one["seconds"] for one in seeds]),
        spread(walked) if walked else "–", spread(scores[0], 1), spread(scores[1], 1),
        f"{where['cpu']}, {where['cores']} cores; {found['stepping_alone']:,.0f} steps/s", found["changed"],
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD = (
    "date", "commit", "command", "seeds, solved in fresh episodes", "steps", "seconds", "seconds to a walk (≥ 200)",
    "score, 1,600 steps", "score, 2,000 steps", "machine; EnvPool alone", "what makes the difference",
)  # fmt: skip
INTRODUCTION = """# Leaderboard

Each metric has its own table, and each record its own row. Records that use knowledge of the environment have separate
tables.

- Numbers are medians over seeds, with their ranges in brackets. Every seed counts, even if it failed.
- The seeds are not those that settings were tuned on, which are 0 to 9.
- A score is the mean of 100 deterministic episodes of Gymnasium's environment with its own rewards. They are played
  after training.
- "Solved in fresh episodes" counts the seeds whose score is at least 300.
- Seconds are wall-clock time from the start of the command to the end of training. They include compilation and all
  validations. They do not include the installation, the evaluation at the end, the film, the figure and TensorBoard's
  logs.

`benchmarks/records.py` measures a record and writes this page. The raw results are in `benchmarks/results/records`.
"""


def page(records: list[dict[str, Any]]) -> str:
    """LEADERBOARD.md: a table for each metric and kind of knowledge, the newest record first."""
    tables: dict[str, list[str]] = {}
    for found in sorted(records, key=lambda one: one["machine"]["date"], reverse=True):
        kind = f"with {found['knowledge']}" if found["knowledge"] else "without knowledge of the environment"
        tables.setdefault(f"{found['metric']}, {kind}", []).append(row(found))
    head = f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}"
    return "\n".join(
        [INTRODUCTION, *(f"## {name}\n\n{head}\n" + "\n".join(rows) + "\n" for name, rows in tables.items())]
    )


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        FOLDER.mkdir(exist_ok=True)
        if arguments.name:
            if arguments.name not in RECORDS:
                raise UserError(f"there is no record {arguments.name!r}: expected one of {', '.join(RECORDS)}")
            take(arguments)
        records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
        PAGE.write_text(page(records), "utf-8")
        print(f"wrote {PAGE.name}")


def take(arguments: Arguments) -> None:
    """Measure a record, seed after seed; its file is written after each."""
    wanted, where = RECORDS[arguments.name], machine()
    path = FOLDER / f"{str(where['date'])[:10]}-{arguments.name}.json"
    found: dict[str, Any] = {
        "metric": wanted.metric, "command": wanted.command, "knowledge": wanted.knowledge, "changed": wanted.changed,
        "commit": record.commit(), "machine": where, "stepping_alone": stepping_alone(), "seeds": [],
    }  # fmt: skip
    if arguments.go_on and path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
    runs = ROOT / "runs" / f"record-{path.stem}"
    for seed in arguments.seeds:
        if seed in [one["seed"] for one in found["seeds"]]:
            continue
        one = measure(wanted.command, seed, runs)
        found["seeds"] = sorted([*found["seeds"], one], key=lambda row: row["seed"])
        write_json(path, found)
        print({key: value for key, value in one.items() if key != "returns"}, flush=True)


if __name__ == "__main__":
    main()
