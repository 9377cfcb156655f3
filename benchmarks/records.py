"""Records, measured and listed: python benchmarks/records.py --name NAME, then LEADERBOARD.md is written again.

Each seed of a record is trained by one command, whose wall-clock time counts from its start to its end, compilation
included, and then plays fresh episodes of Gymnasium's own environment, deterministically and with its own rewards.
Every seed counts, and the seeds are not those that settings were tuned on. EnvPool is stepped alone at the beginning,
and before each seed that has all cores, so that another machine's time can be judged. Raw results go to
results/records/DATE-NAME.json, from which LEADERBOARD.md and history.csv are written.

`--go-on` keeps the seeds that are there, and resumes one that was cut off; without a NAME only LEADERBOARD.md is
written.
"""

import csv
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table import record
from leaderboard import FOLDER, HISTORY, history, page, recorded
from record_tables import RECORDS, Record, Task
from speed import ROOT, busy_cores, machine

from common.envs.environment import find_environment
from common.envs.vector_env import make_vector_env
from common.errors import UserError
from common.files import write_json
from common.runs import checkpoint, run_folder
from common.runs.command_line import one_line_errors, parse_settings

PAGE = ROOT / "LEADERBOARD.md"
QUIETLY = "--evaluation-episodes 0 --record"


@dataclass(frozen=True)
class Arguments:
    """Measure a record over seeds, and write LEADERBOARD.md from all that were measured."""

    name: str = ""
    """The record. Empty measures nothing and writes the page."""
    seeds: tuple[int, ...] = ()
    """Seeds that nothing was tuned on. Empty takes 100 and those after it, as many as the record's table asks for."""
    go_on: bool = False
    """Keep the seeds of the newest file of this record, and measure the others. A seed whose training was cut off is
    resumed. It has to be the same commit."""
    at_once: int = 1
    """Number of seeds that are measured at the same time, each on one core of its own, or on all cores together if
    there are fewer cores than seeds. 1 leaves all cores to a seed. Above 1 only on Linux."""
    core: int | None = None
    """Number of the only core that is used, one seed after another, while other programs run on the other cores. The
    row says so. Only on Linux, and with at_once 1."""


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


def measure(wanted: Record, seed: int, runs: Path, core: int | None = None, go_on: bool = False) -> dict[str, Any]:
    """Train one seed and score it; what is found.

    Args:
        wanted: what is trained.
        seed: of the run.
        runs: folder for the run.
        core: the only one that the run may use, beside other seeds; None is all of them.
        go_on: whether a run that is there is resumed; if not, it is an error, since it may be of another commit.

    Raises:
        UserError: training or scoring failed.
    """
    name, task = f"seed{seed}", wanted.task
    busy = busy_cores() if core is None else None
    if not go_on and (runs / name).exists():
        raise UserError(f"{runs / name} is there from an earlier record: use --go-on, or remove it")
    before = seconds_of(runs / name)
    began = time.perf_counter()
    if before is None:
        _run(f"{wanted.command} --seed {seed} {QUIETLY} --name {name} --runs-folder {runs}", core)
    else:
        _run(f"-m programs resume {runs / name} {QUIETLY}", core)
    seconds = time.perf_counter() - began + (before or 0.0)
    limits = " ".join(task.limits)
    scoring = f"-m programs evaluate {runs / name} --episodes {task.episodes} --no-video --max-episode-steps {limits}"
    _run(scoring, core)
    rows = rows_of(runs / name)
    evaluated = json.loads((runs / name / run_folder.EVALUATION).read_text(encoding="utf-8"))
    at_limits = evaluated.get("step_limits", {task.limits[0]: evaluated})  # not there with one limit
    own = at_limits[task.limits[0]]
    return {
        "seed": seed,
        "steps": int(rows[-1]["steps"]),
        "validation_steps": sum(int(row["validation_steps"]) for row in rows),
        "seconds": round(seconds, 1),
        **milestone(task, rows, seconds),
        "busy_cores_before": busy,
        "scores": {limit: at_limits[limit]["deterministic"]["mean"] for limit in task.limits},
        "sampled": own["sampled"]["mean"],
        "returns": own["deterministic"]["returns"],
    }


def rows_of(run: Path) -> list[dict[str, float]]:
    """The rows of a run's results.csv."""
    with open(run / run_folder.RESULTS, newline="", encoding="utf-8") as table:
        return [{key: float(value or "nan") for key, value in row.items()} for row in csv.DictReader(table)]


def seconds_of(run: Path) -> float | None:
    """Seconds of the epochs of a run that was cut off and can be resumed; None if there is none."""
    if not checkpoint.generations(run / run_folder.CHECKPOINTS):
        return None
    return sum(row["seconds"] for row in rows_of(run))


def milestone(task: Task, rows: list[dict[str, float]], seconds: float) -> dict[str, int | float | None]:
    """Steps and seconds until an epoch's score reached the task's milestone; nothing if it has none.

    Args:
        rows: of results.csv.
        seconds: of the whole command.
    """
    if task.walks is None:
        return {}
    reached = next((i for i, row in enumerate(rows) if row["metric"] >= task.walks), None)
    if reached is None:
        return {"walks_at_steps": None, "walks_at_seconds": None}
    before = seconds - sum(row["seconds"] for row in rows)  # imports, compilation and the end
    passed = before + sum(row["seconds"] for row in rows[: reached + 1])
    return {"walks_at_steps": int(rows[reached]["steps"]), "walks_at_seconds": round(passed, 1)}


def _run(command: str, core: int | None) -> None:
    bound = [] if core is None else ["taskset", "-c", str(core)]
    ended = subprocess.run(
        [*bound, sys.executable, *command.split()], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if ended.returncode:
        raise UserError(f"{command} ended with exit code {ended.returncode}: {ended.stderr.strip()[-500:]}")


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        FOLDER.mkdir(exist_ok=True)
        if arguments.name:
            if arguments.name not in RECORDS:
                raise UserError(f"there is no record {arguments.name!r}: expected one of {', '.join(RECORDS)}")
            take(arguments)
        PAGE.write_text(page(recorded()), "utf-8")
        HISTORY.write_text(history(recorded()), "utf-8")
        print(f"wrote {PAGE.name} and {HISTORY.name}")


def path_of(stem: str, newest: bool) -> Path:
    """Where a record goes: DATE-STEM.json of today, then DATE-STEM-2.json; or the `newest` that is there to go on."""
    there = [path for path in FOLDER.glob("*.json") if re.fullmatch(rf"[\d-]{{10}}-{stem}(-\d+)?", path.stem)]
    if newest and there:
        return max(there, key=lambda path: json.loads(path.read_text(encoding="utf-8"))["machine"]["date"])
    first = f"{str(machine()['date'])[:10]}-{stem}"
    names = (first, *(f"{first}-{number}" for number in range(2, 100)))
    return FOLDER / f"{next(name for name in names if FOLDER / f'{name}.json' not in there)}.json"


def take(arguments: Arguments) -> None:
    """Measure a record, seed after seed; its file is written after each.

    Raises:
        UserError: files differ from the commit, a seed failed, what is to go on has another commit, `at_once` or
            `core`, or `core` does not exist or was given for more than one seed at a time.
    """
    wanted, commit = RECORDS[arguments.name], record.commit()
    if arguments.core is not None and arguments.at_once > 1:
        raise UserError(f"--core {arguments.core} measures one seed after another: use it with --at-once 1")
    if arguments.core is not None and arguments.core not in range(cores := os.cpu_count() or 1):
        raise UserError(f"there is no core {arguments.core}: expected a number from 0 to {cores - 1}")
    if commit.endswith("-dirty"):
        raise UserError(
            f"files differ from commit {commit[:7]}: expected none besides results, so that the record can be "
            "repeated; commit them first"
        )
    path = path_of(arguments.name, arguments.go_on)
    found: dict[str, Any] = {
        "metric": wanted.task.metric, "command": wanted.command, "knowledge": wanted.knowledge,
        "commit": commit, "machine": machine(), "stepping_alone": stepping_alone(), "seeds": [],
        "at_once": arguments.at_once, "core": arguments.core,
    }  # fmt: skip
    if arguments.go_on and path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        before = found.get("at_once", 1)
        if before != arguments.at_once:
            raise UserError(f"the seeds of {path.name} were measured {before} at once: use --at-once {before}")
        if found.get("core") != arguments.core:
            raise UserError(
                f"the seeds of {path.name} were measured with core {found.get('core')}: use the same --core"
            )
        if found["commit"] != commit:
            raise UserError(f"the seeds of {path.name} were measured at commit {found['commit']}: check it out first")
    runs = ROOT / "runs" / f"record-{path.stem}"
    going_on = arguments.go_on and path.exists()
    write_json(path, found)  # so that the first seed, too, can be resumed
    seeds = arguments.seeds or range(100, 100 + wanted.task.seeds)
    missing = [seed for seed in seeds if seed not in [one["seed"] for one in found["seeds"]]]
    for first in range(0, len(missing), arguments.at_once):
        together = missing[first : first + arguments.at_once]
        alone = {}
        if arguments.at_once == 1 and arguments.core is None:
            alone = {"stepping_alone": round(stepping_alone())}
        own_core = 1 < arguments.at_once <= (os.cpu_count() or 1)
        cores = range(len(together)) if own_core else [arguments.core] * len(together)
        with ThreadPoolExecutor(len(together)) as pool:
            measured = list(pool.map(lambda seed, core: measure(wanted, seed, runs, core, going_on), together, cores))
        found["seeds"] = sorted([*found["seeds"], *(one | alone for one in measured)], key=lambda row: row["seed"])
        write_json(path, found)
        for one in measured:
            print({key: value for key, value in one.items() if key != "returns"}, flush=True)


if __name__ == "__main__":
    main()
