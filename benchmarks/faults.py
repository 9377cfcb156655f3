"""What can happen to a run, done to it many times: python benchmarks/faults.py

A row counts how often something was done to a program or to its files and how often the run survived it. After a kill,
a power cut or a full disk, survived means that the run, resumed until it is done, equals the run that nothing happened
to: table, weights, checkpoint, settings, scores and film to the byte; and that every resumed session went on from the
newest intact checkpoint and left newer ones. Damaged and hostile files must lead to the newest intact checkpoint or to
a refusal in one line, with nothing executed, and nothing written or followed outside; wrong settings to one line.

A negative control is a row done to a program that was broken on purpose, in its own process alone. It has to lose:
a control that scores full fails the benchmark. `benchmarks/fault_table` has the rows, a file for each kind. Results go
to benchmarks/results/faults.json and faults.md row by row; two cores need about 35 minutes for all of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table import record as records
from fault_table.rows import ROWS
from fault_table.tally import Tally
from speed import RESULTS, machine

from common.errors import UserError
from common.runs.command_line import one_line_errors, parse_settings

ONE_ROW = Path(__file__).resolve().parent / "fault_table" / "one.py"


@dataclass(frozen=True)
class Arguments:
    """Do to runs and their folders what can happen to them, and count what survives."""

    kills: int = 24
    """Kills of each program."""
    worker_kills: int = 6
    """Environment workers killed."""
    signals: int = 9
    """Runs that are asked to stop by SIGHUP, SIGTERM and Ctrl-C."""
    cells: int = 6
    """Kernels killed and notebook cells stopped."""
    power_cuts: int = 6
    """Resumed after a power cut; besides, what is left after every file operation is looked at."""
    disks: int = 8
    """Disks that fill up."""
    corruptions: int = 1000
    """Damaged checkpoints."""
    hostile: int = 1000
    """Hostile run folders, and as many hostile files of each kind."""
    links: int = 105
    """Links planted in run folders."""
    settings: int = 10_000
    """Malformed settings."""
    only: str = ""
    """Only rows and controls whose name contains this."""
    go_on: bool = False
    """Only those that the results do not have yet, of this commit, survived, and with as many tries."""
    controls: bool = True
    """Do the negative controls, too."""
    results: Path = RESULTS
    """Folder of faults.json and faults.md."""
    table: bool = False
    """Print the table of the results for docs/faults.md, and do nothing."""


@dataclass(frozen=True)
class Job:
    """A row, or a control of it."""

    name: str
    row: str
    tries: int
    broken: str = ""


def jobs(arguments: Arguments) -> list[Job]:
    """All rows and their controls, in the table's order."""
    wanted = [Job(name, name, getattr(arguments, row.setting) if row.setting else 1) for name, row in ROWS.items()]
    wanted += [
        Job(records.control_name(name, broken), name, tries, broken)
        for name, row in ROWS.items()
        for broken, tries in row.controls.items()
    ]
    return wanted


def do(job: Job) -> Tally:
    """In a process of its own; one that fails has survived nothing."""
    with tempfile.TemporaryDirectory(prefix="faults-") as work:
        command = [sys.executable, str(ONE_ROW), job.row, str(job.tries), work, job.broken]
        quietly = {"stderr": subprocess.DEVNULL} if job.broken else {}
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **quietly)
        try:
            return Tally(**json.loads((Path(work) / "tally.json").read_text("utf-8")))
        except (OSError, ValueError):
            if job.broken:  # so broken that nothing can be counted, which must not pass for a loss
                return Tally(job.tries, job.tries, notes=["the control could not be carried out"])
            return Tally(job.tries, 0, notes=["the row could not be carried out"])


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        arguments.results.mkdir(parents=True, exist_ok=True)
        record = records.Record(arguments.results, records.commit(), machine())
        if arguments.table:
            if not record.rows:
                raise UserError(f"{arguments.results} has no faults.json: run this without --table first")
            print(records.table(record.rows))
            return
        everything = jobs(arguments)
        record.keep_only([job.name for job in everything])
        chosen = [
            job for job in everything
            if arguments.only in job.name
            and (arguments.controls or not job.broken)
            and not (arguments.go_on and record.done(job.name, job.tries))
        ]  # fmt: skip
        if not chosen and not arguments.go_on:
            raise UserError(f"no row has {arguments.only!r} in its name; there are: {'; '.join(ROWS)}")

        def take(job: Job) -> bool:
            began = time.monotonic()
            tally = do(job)
            record.take(job.name, tally)
            outcome = tally.skipped or f"{tally.survived} of {tally.tries} survived"
            bad = records.failed(job.name, record.rows[job.name])
            print(f"{job.name}: {outcome}, {time.monotonic() - began:.0f} s{', FAILED' if bad else ''}", flush=True)
            return bad

        with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as two_at_once:
            bad = list(two_at_once.map(take, chosen))
        print(f"\n{records.page(record.rows)}")
        if any(bad):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
