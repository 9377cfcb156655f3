"""LEADERBOARD.md, written from what `records.py` has measured."""

from collections.abc import Iterable
from statistics import median
from typing import Any

from record_tables import TASKS


def number(value: float, pattern: str = "g") -> str:
    """A number with a minus sign as people write it."""
    return format(value, pattern).replace("-", "−")


def spread(values: list[float], digits: int = 0) -> str:
    """The median and the range."""
    middle, low, high = (number(value, f",.{digits}f") for value in (median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"


def commit_of(found: dict[str, Any]) -> str:
    """A record's commit, and whether other files than results differed from it."""
    return found["commit"][:7] + (" and changes" if found["commit"].endswith("-dirty") else "")


def cells(found: dict[str, Any]) -> dict[str, str]:
    """A record's row of the page: the heading of each column, and what it holds."""
    task, seeds, where = TASKS[found["metric"]], found["seeds"], found["machine"]
    solved = sum(one["scores"][task.limits[0]] >= task.solved for one in seeds)
    seconds = [one["seconds"] for one in seeds]
    which = f"{seeds[0]['seed']} to {seeds[-1]['seed']}, {solved} of {len(seeds)}"
    columns = {
        "date": where["date"][:10],
        "commit": commit_of(found),
        f"seeds, fresh mean ≥ {number(task.solved)}": which,
        "steps": spread([one["steps"] for one in seeds]),
        "seconds": spread(seconds, digits=1 if median(seconds) < 20 else 0),
    }
    if task.milestone is not None:
        called, score = task.milestone
        reached = [one["walks_at_seconds"] for one in seeds if one["walks_at_seconds"] is not None]
        columns[f"seconds to {called} (≥ {number(score)})"] = spread(reached) if reached else "–"
    for limit in task.limits:
        scores = [one["scores"][limit] for one in seeds if limit in one["scores"]]  # older records have one limit
        columns[f"score, {int(limit):,} steps"] = spread(scores, 1) if scores else "–"
    if task.sampled:
        columns["score of sampled actions"] = spread([one["sampled"] for one in seeds], 1)
    alone = [one["stepping_alone"] for one in seeds if one.get("stepping_alone")]  # older records have none
    return columns | {"EnvPool alone, steps/s": spread(alone) if alone else f"{found['stepping_alone']:,.0f}"}


def description(found: dict[str, Any]) -> str:
    """What stands below the table about a record: command, machine, and what makes the difference."""
    where = found["machine"]
    changed = found["changed"][0].upper() + found["changed"][1:]
    at_once = found.get("at_once", 1)
    shared = "each on one core" if at_once <= where["cores"] else "which share the cores"
    together = f"; {at_once} seeds at a time, {shared}" if at_once > 1 else ""
    if found.get("core") is not None:
        together = "; each seed on one core, beside other programs"
    return (
        f"- **{where['date'][:10]}, commit {commit_of(found)}**: `python {found['command']} --seed S` on "
        f"{where['cpu']}, {where['cores']} cores{together}. {changed}."
    )


def line(texts: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(texts)} |"


INTRODUCTION = """# Leaderboard

Each metric has its own table, and each record its own row. Records that use the mirror symmetry of an environment have
separate tables. In each table the newest record stands first. It need not be the best.

- Numbers are medians over seeds, with their ranges in brackets. Every seed counts, even if it failed.
- The seeds are not those that settings were tuned on, which are 0 to 19, and on BipedalWalkerHardcore also 120, 121
  and 157. If a preset was changed after its seeds had been looked at, its next record has seeds that nobody had
  looked at. That is so since the second record of 25 November; before, three presets were changed and measured with
  seeds 100 to 109.
- Records that were ended before their last seed, or of settings that were not adopted, are not listed here.
  [The log](experiments/log/README.md) tells of them.
- A command repeats its record at the commit of its row. The presets have changed since.
- A commit "and changes" had files that were not committed when the record was taken. Since 26 November this is not
  possible any more.
- While the walker trains, a fall costs what the preset says, and not the environment's 100. Actions may cost more,
  too.
- With mirror symmetry, the networks treat both sides of the environment alike. The walker's mirror exchanges its
  legs. In the presets `bipedal-walker-fast-symmetric` (called `bipedal-walker-fast` until 25 November) and
  `bipedal-walker-long` it is not the exact one: offsets of 0.2 rad make one leg seem ahead of the other, so that the
  legs need not move alike.
- A score is the mean of 100 deterministic episodes (of 1,000 on Pendulum) of Gymnasium's environment with its own
  rewards. They are played after training, and are called fresh because training did not use them. The column "seeds,
  fresh mean" counts the seeds whose score reaches the number in that column's heading. Gymnasium counts the walkers
  as solved at 300, and CartPole-v1 at 475. The other numbers are this project's own.
- "Until solved" means until training stops by itself, because 100 episodes of validation had the score of the
  preset. A seed that never stopped would have the number of steps of the whole training. In the fresh episodes a
  seed may still have less than the score. On Pendulum training always takes 3,600 steps.
- Steps are those of training. Episodes of validations are not counted. On BipedalWalkerHardcore the rows from 27
  November on count actions, each of which is held for three of the environment's steps: 1,152,000 actions are 3.5
  million steps.
- Seconds are wall-clock time from the start of the command to its end. They include compilation and all validations.
  They do not include the installation. The evaluation at the end, the film, the figure and TensorBoard's logs were
  switched off (`--evaluation-episodes 0 --record`).
- "Seconds to a walk" are the seconds until a validation during training first averages at least 200.
- Processors of several kinds have the same name. Rows from 29 November on say which instructions multiply the most
  numbers at once. In the earlier rows an AMD EPYC of 26 November has AVX2, the other ones have AVX-512 BF16, and each
  Intel Xeon has AMX. The rows with `--precision bfloat16` need BF16 or AMX to be as fast.
- "EnvPool alone" is how fast the machine steps 64 walkers with EnvPool and without learning. With it, times of other
  machines can be compared. A range means that it was measured before each seed, and one number that it was
  measured once, before the first.

`benchmarks/records.py` measures a record and writes this page. The raw results are in `benchmarks/results/records`.
"""


def page(records: list[dict[str, Any]]) -> str:
    """LEADERBOARD.md: a table for each metric and kind of knowledge, the newest record first."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for found in sorted(records, key=lambda one: one["machine"]["date"], reverse=True):
        kind = "with mirror symmetry" if found["knowledge"] else "without mirror symmetry"
        tables.setdefault(f"{found['metric']}, {kind}", []).append(found)
    parts = [INTRODUCTION]
    for name in sorted(tables):
        rows = [cells(found) for found in tables[name]]
        head = f"{line(rows[0])}\n|{'---|' * len(rows[0])}"
        below = "".join(f"{description(found)}\n" for found in tables[name])
        parts.append(f"## {name}\n\n{head}\n" + "".join(f"{line(row.values())}\n" for row in rows) + f"\n{below}")
    return "\n".join(parts)
