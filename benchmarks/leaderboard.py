"""LEADERBOARD.md and history.csv, written from what `records.py` has measured."""

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from record_tables import RECORDS, TASKS

FOLDER = Path(__file__).resolve().parent / "results" / "records"
HISTORY = FOLDER / "history.csv"


def recorded() -> list[dict[str, Any]]:
    """Every record that has seeds, the newest first."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    return sorted((one for one in records if one["seeds"]), key=lambda one: one["machine"]["date"], reverse=True)


def standing(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The newest measurement of each name of `RECORDS`."""
    found = {}
    for name, wanted in RECORDS.items():
        same = [one for one in records if (one["metric"], one["command"]) == (wanted.task.metric, wanted.command)]
        if same:
            found[name] = same[0]
    return found


def number(value: float, form: str = "g") -> str:
    """A number with a minus sign as people write it."""
    return format(value, form).replace("-", "−")


def spread(values: list[float], digits: int = 0) -> str:
    """The median and the range."""
    middle, low, high = (number(value, f",.{digits}f") for value in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def line(texts: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(texts)} |"


def table(rows: list[dict[str, str]]) -> str:
    """A table whose columns are the keys of its rows."""
    return "\n".join([line(rows[0]), f"|{'---|' * len(rows[0])}", *(line(row.values()) for row in rows)])


def cells(found: dict[str, Any]) -> dict[str, str]:
    """A record's row: the heading of each column, and what it holds."""
    task, seeds = TASKS[found["metric"]], found["seeds"]
    scores = [one["scores"][task.limits[0]] for one in seeds]
    seconds = [one["seconds"] for one in seeds]
    mirror = ", mirror symmetry" if found["knowledge"] else ""
    preset = found["command"].split(maxsplit=2 if found["command"].startswith("-m") else 1)[-1]
    return {
        "record": f"{task.name}{mirror}: `{preset}`",
        "seeds that reach": f"{sum(score >= task.solved for score in scores)} of {len(seeds)}, {number(task.solved)}",
        "score": spread(scores, 1),
        "sampled": spread([one["sampled"] for one in seeds], 1),
        "steps": spread([one["steps"] for one in seeds]),
        "seconds": spread(seconds, digits=1 if median(seconds) < 20 else 0),
        "date, commit": f"{found['machine']['date'][:10]}, {commit_of(found)}",
    }


def commit_of(found: dict[str, Any]) -> str:
    """A record's commit, and whether other files than results differed from it."""
    return found["commit"][:7] + (" and changes" if found["commit"].endswith("-dirty") else "")


def past(found: dict[str, Any]) -> dict[str, Any]:
    """A record's row of history.csv: what its table shows, and where and how it was measured."""
    task, where, seeds = TASKS[found["metric"]], found["machine"], found["seeds"]
    alone = [one["stepping_alone"] for one in seeds if one.get("stepping_alone")] or [found["stepping_alone"]]
    walks = [one["walks_at_seconds"] for one in seeds if one.get("walks_at_seconds") is not None]
    shown = {name: text for name, text in cells(found).items() if name not in ("record", "date, commit")}
    return {
        "date": where["date"][:10],
        "commit": commit_of(found),
        "metric": task.metric,
        "knowledge": found["knowledge"],
        "command": f"python {found['command']} --seed S",
        "seeds": f"{seeds[0]['seed']} to {seeds[-1]['seed']}",
        **shown,
        "score, 2,000 steps": spread([one["scores"]["2000"] for one in seeds], 1)
        if "2000" in seeds[0]["scores"]
        else "",
        "seconds to a score of 200": spread(walks) if walks else "",
        "processor": f"{where['cpu']}, {where['cores']} cores",
        "seeds at a time": found.get("at_once", 1),
        "bound to a core": found.get("core") is not None,
        "EnvPool alone, steps/s": spread(alone),
        "what makes the difference": found.get("changed", ""),  # of records until 29 November
    }


def history(records: list[dict[str, Any]]) -> str:
    """history.csv: all records, the newest first."""
    rows, text = [past(found) for found in records], io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


HEAD = """# Leaderboard

Each row is the newest measurement of a record. Numbers are medians over seeds, with the lowest and the highest in
brackets. `--seed S` repeats a seed at the commit of its row. [Scores](docs/results.md) explains the commands.
"""
RULES = """
## Rules

- Every seed counts, even if it failed. No setting was tuned on it: tuning seeds are 0 to 19, and on
  BipedalWalkerHardcore also 120, 121 and 157. If a preset was changed after its seeds had been looked at, its next
  record has other seeds. Until 25 November three presets were changed and measured again with seeds 100 to 109.
- A score is the mean of 100 fresh deterministic episodes (1,000 on Pendulum) of Gymnasium's environment with its own
  rewards and step limit. "Sampled" is the same with the policy's noise. While the walkers train, falls and actions
  cost what the preset says.
- "Until solved" ends when 100 episodes of validation reach the preset's score. Fresh episodes may still score less.
- Steps are those of training. [Scores](docs/results.md) adds those of validations, where they were recorded. On
  BipedalWalkerHardcore a step is an action, which is held for three of the environment's steps.
- Seconds run from the start of the command to its end, with compilation and validations. The last evaluation, film,
  figure and TensorBoard's logs are switched off (`--evaluation-episodes 0 --record`).
- Mirror symmetry means that the networks treat both sides of the environment alike. Such records stand apart.
- The commit contains everything that was run. A few records of 24 and 25 November were taken with changes.

`python benchmarks/records.py --name NAME` measures a record and writes this page. These files have the rest:

- [history.csv](benchmarks/results/records/history.csv): all records, with seeds, processors, and how fast EnvPool
  alone steps there. The raw results, episode by episode, are beside it.
- [ended.csv](benchmarks/results/records/ended.csv): records that were ended early or not adopted, and why.
"""


def page(records: list[dict[str, Any]]) -> str:
    """LEADERBOARD.md: the standing records, then the rules."""
    return f"{HEAD}\n{table([cells(found) for found in standing(records).values()])}\n{RULES}"
