"""The runs of a study, in processes of this machine or on workers of a cluster."""

import contextlib
import io
import shutil
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import NamedTuple

from common import progress
from common.errors import StoppedError, UserError
from common.runs import checkpoint, finished, run_folder
from common.runs.one_process import only_here
from common.runs.terminal import Terminal
from programs import train
from programs.worker_pool import result_of, worker_pool

QUIET = ("--record", "--workers", "0")  # the runs share the cores
LOOK = 1.0  # seconds between looks at the tables of running runs


class StudyRun(NamedTuple):
    """One run of a study."""

    label: str  # arm and seed
    arguments: tuple[str, ...]  # preset and settings, the seed among them
    folder: str

    @property
    def is_done(self) -> bool:
        """Whether it was trained and evaluated; of recorded runs, which keep no checkpoints, the scores say so."""
        folder = Path(self.folder)
        if (folder / run_folder.CHECKPOINTS).exists():
            return finished.is_done(folder, finished.EVALUATE, finished.epochs_of(folder))
        return (folder / run_folder.EVALUATION).exists()

    def epochs(self) -> int:
        """How many it has trained."""
        with contextlib.suppress(OSError, ValueError, UserError):  # the table is not there yet, or is being written
            return len(run_folder.read_results(Path(self.folder))["epoch"])
        return 0


def train_run(run: StudyRun) -> tuple[int, str]:
    """Train a run in this process, from its newest checkpoint if there is one.

    Returns:
        The exit code, and what was written to the error stream.
    """
    folder = Path(run.folder)
    if run.is_done:
        return 0, ""
    if checkpoint.generations(folder / run_folder.CHECKPOINTS):
        typed = ["--resume", run.folder, *run.arguments[not run.arguments[0].startswith("-") :], *QUIET]
    else:
        try:
            if folder.is_dir():  # it was cut off before its first checkpoint
                with only_here(folder, lambda _: None):
                    pass  # no other process is training it
                shutil.rmtree(folder)
        except (UserError, OSError) as error:
            return 2, f"error: {error}"
        typed = [*run.arguments, *QUIET, "--runs-folder", str(folder.parent), "--name", folder.name]
    sys.argv, said = [train.PROGRAM, *typed], io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            train.main()
        except SystemExit as stop:
            return int(stop.code or 0), said.getvalue().strip()
    return 0, ""


def train_all(runs: list[StudyRun], workers: int, cluster: str | None) -> None:
    """Train every run that is not done, `workers` of them at once, and show how far they are.

    Raises:
        UserError: a run failed; those that run beside it are trained to their end first.
        StoppedError: a signal stopped a run, which saved a checkpoint.
    """
    waiting = [run for run in runs if not run.is_done]
    if not waiting:
        return
    with worker_pool(workers, cluster) as submit, Terminal().following("study"):
        running: dict[Future[tuple[int, str]], StudyRun] = {}
        began: dict[StudyRun, float] = {}
        while waiting or running:
            while waiting and len(running) < max(1, workers):
                run = waiting.pop(0)
                print(run.label, flush=True)
                running[submit(train_run, run)], began[run] = run, time.monotonic()
            for future in wait(running, timeout=LOOK, return_when=FIRST_COMPLETED).done:
                run = running.pop(future)
                try:
                    _check_ended(run, *result_of(future))
                except UserError as error:
                    if running:
                        print(f"{error}; this study ends when the runs beside it have ended", flush=True)
                        wait(running)
                    raise
                print(f"{run.label}: done after {(time.monotonic() - began[run]) / 60:.1f} minutes", flush=True)
            epochs = ", ".join(f"{run.label}: {run.epochs()}" for run in running.values())
            progress.tell(f"runs; epochs so far: {epochs}", len(began) - len(running), len(began) + len(waiting))


def _check_ended(run: StudyRun, code: int, said: str) -> None:
    """Raises what `train_all` raises for a run that ended with this exit code, after these lines of errors."""
    if code > 128:
        line = f"{run.label} was stopped, and saved a checkpoint: start the study again to continue"
        raise StoppedError(line, code - 128)
    if code:
        why = said.splitlines()[-1] if said else "no message"
        raise UserError(f"{run.label} ended with exit code {code} ({why}): fix that, then start the study again")
