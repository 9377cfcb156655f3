"""Training beside stepping alone, by turns in one process: python benchmarks/beside_stepping.py

`speed.py` compares programs that run one after the other. Where the machine's speed changes within minutes, its ratios
change with it. Here 64 EnvPool environments are stepped alone for an epoch's steps, then an epoch is trained, and so
on, so that what is compared lies a second apart. Still, processes have differed by 19 points
(the log, 28 November), so several are measured, one after the other. Takes about six minutes.
"""

import itertools
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contestants import Job, alone, our_config, our_trainer, random_actions, step_alone, versions
from speed import busy_cores, describe, machine, write

from common.errors import UserError
from common.runs.command_line import one_line_errors, parse_settings

AIMS = {1: 0.93, 10: 0.80}  # passes → share of the speed of stepping alone
WARM_UP = 2  # epochs before the clock counts, in which everything is compiled
NOTES = (
    "A round is an epoch of training between two stretches of stepping alone, all of as many steps. Its ratio is the "
    "epoch's steps a second divided by the mean of both stretches'. A process has the median of its rounds, and the "
    "table the median of the processes. Required is what this repository sets itself. Networks, settings and "
    "environments are those of `speed.py`. Stepping alone takes random actions drawn ahead."
)


@dataclass(frozen=True)
class Arguments:
    """Measure which share of the speed of stepping alone training has, by turns in one process."""

    rounds: int = 24
    """Epochs that are timed in a process."""
    processes: int = 5
    """Processes for each number of passes, one after the other."""
    quick: bool = False
    """Two rounds of tiny epochs, to see that it works; nothing is written."""


def seconds(call: Callable[[], Any]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measured(passes: int, rounds: int, quick: bool) -> dict[str, Any]:
    """Seconds of a process's epochs and of its stretches of stepping alone, of which there is one more."""
    job = Job("ours", "envpool", 64, passes, WARM_UP, rounds)
    job = job.tiny() if quick else job
    others = busy_cores()
    trainer = our_trainer(our_config().replace(best_metric="total_reward"), job, seed=0)  # nothing is validated
    envs, actions = alone(job, seed=0), random_actions(job, seed=0)
    trainer.train(WARM_UP)
    step_alone(envs, actions)
    stepping, training = [seconds(lambda: step_alone(envs, actions))], []
    for _ in range(rounds):
        training.append(seconds(lambda: trainer.train(1)))
        stepping.append(seconds(lambda: step_alone(envs, actions)))
    envs.close()
    trainer.close()
    return {
        "passes": passes,
        "steps": job.steps_per_epoch,
        "busy_cores_before": others,
        "stepping_seconds": [round(value, 4) for value in stepping],
        "training_seconds": [round(value, 4) for value in training],
        "versions": versions(),
    }


def ratios(run: dict[str, Any]) -> list[float]:
    """Of every round, training's steps a second over those of stepping alone before and after it."""
    speeds = [1 / value for value in run["stepping_seconds"]]
    means = [(before + after) / 2 for before, after in itertools.pairwise(speeds)]
    return [1 / value / mean for value, mean in zip(run["training_seconds"], means)]


def table(runs: list[dict[str, Any]]) -> str:
    """For each number of passes, medians over its processes and the range of their ratios, as Markdown."""
    rows = [
        "| passes | ours, steps/s | stepping alone, steps/s | ratio | range of processes | required | met |",
        "| ---: | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    for passes, aim in AIMS.items():
        own = [run for run in runs if run["passes"] == passes]
        found = [median(ratios(run)) for run in own]
        training, stepping = (
            median(median(run["steps"] / value for value in run[f"{kind}_seconds"]) for run in own)
            for kind in ("training", "stepping")
        )
        met = "yes" if median(found) >= aim else "NO"
        each = f"{min(found):.2f} to {max(found):.2f}"
        cells = f"{training:,.0f} | {stepping:,.0f} | {median(found):.3f} | {each} | {aim:.2f} | {met}"
        rows.append(f"| {passes} | {cells} |")
    return "\n".join(rows)


def in_a_process(*arguments: Any) -> dict[str, Any]:
    """What `measured` returns in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, arguments)


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        for name, least in (("rounds", 2), ("processes", 1)):
            if getattr(arguments, name) < least:
                raise UserError(f"{name} is {getattr(arguments, name)}: expected {least} or more")
        rounds, processes = (2, 1) if arguments.quick else (arguments.rounds, arguments.processes)
        where, runs = machine(), []
        for _, passes in itertools.product(range(processes), AIMS):
            runs.append(in_a_process(passes, rounds, arguments.quick))
            print(f"{passes:2} passes: {median(ratios(runs[-1])):.2f} of the speed of stepping alone", flush=True)
        if arguments.quick:
            print("too short to mean anything; nothing written")
            return
        write("beside_stepping", where, runs, f"{table(runs)}\n\n{NOTES}\n\n{describe(where, runs)}")


if __name__ == "__main__":
    main()
