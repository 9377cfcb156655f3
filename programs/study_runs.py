"""The runs of a study, spread over processes of this machine or workers of a cluster."""

import contextlib
import importlib
import io
import shutil
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from common import files
from common.errors import StoppedError, UserError
from common.runs import checkpoint, run_folder
from common.runs.one_process import LOCK, SOFT_LOCK, only_here
from programs.places import places, result_of

QUIET = ("--record", "--workers", "0")  # the runs share the cores
LOOK = 1.0  # seconds between looks at the tables of running runs


class StudyRun(NamedTuple):
    """One run of a study."""

    label: str  # arm and seed
    module: str  # whose `main` trains it
    arguments: tuple[str, ...]  # preset and settings, the seed among them
    folder: str

    @property
    def is_done(self) -> bool:
        """Whether it was trained and evaluated."""
        return (Path(self.folder) / run_folder.EVALUATION).exists()


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
            _remove_cut_off(folder)
        except (UserError, OSError) as error:
            return 2, f"error: {error}"
        typed = [*run.arguments, *QUIET, "--runs-folder", str(folder.parent), "--name", folder.name]
    sys.argv, said = [f"python -m {run.module}", *typed], io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            importlib.import_module(run.module).main()
        except SystemExit as stop:
            return int(stop.code or 0), said.getvalue().strip()
    return 0, ""


def _remove_cut_off(folder: Path) -> None:
    """Remove a run that was cut off before its first checkpoint.

    Raises:
        UserError: another process is training it.
        OSError: the disk fails.
    """
    if not folder.is_dir():
        return
    with only_here(folder, lambda _: None):
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in (LOCK, SOFT_LOCK):  # which Windows does not remove while it is held
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def train_all(runs: list[StudyRun], workers: int, cluster: str | None) -> None:
    """Train every run that is not done, `workers` of them at once, and show how far each is.

    Raises:
        UserError: a run failed; those that run beside it are stopped, and continue with the next start.
        StoppedError: a signal stopped a run, which saved a checkpoint.
    """
    waiting = [run for run in runs if not run.is_done]
    if not waiting:
        return
    with places(train_run, workers, cluster) as submit, _Shown() as shown:
        running: dict[Future[tuple[int, str]], StudyRun] = {}
        while waiting or running:
            while waiting and len(running) < max(1, workers):
                run = waiting.pop(0)
                running[submit(run)] = run
                shown.begin(run)
            for future in wait(running, timeout=LOOK, return_when=FIRST_COMPLETED).done:
                run = running.pop(future)
                code, said = result_of(future)
                if code > 128:
                    line = f"{run.label} was stopped, and saved a checkpoint: start the study again to continue"
                    raise StoppedError(line, code - 128)
                if code:
                    why = said.splitlines()[-1] if said else "no message"
                    raise UserError(
                        f"{run.label} ended with exit code {code} ({why}): fix that, then start the study again"
                    )
                shown.end(run)
            for run in running.values():
                shown.look(run)


class _Shown:
    """A bar for each running run on a terminal; elsewhere a line when a run begins and ends."""

    def __init__(self) -> None:
        console = Console()
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} epochs"),
            TimeElapsedColumn(), console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._bars: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}

    def __enter__(self) -> "_Shown":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, run: StudyRun) -> None:
        """Show a run that was started."""
        self._begun[run.folder] = time.monotonic()
        self._bars[run.folder] = self._progress.add_task(run.label, total=None)
        print(run.label, flush=True)

    def look(self, run: StudyRun) -> None:
        """Show how many epochs a run has trained."""
        if self._progress.disable:
            return
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, UserError):  # it is being written
            content: Any = files.read_json(Path(run.folder) / run_folder.CONFIG)
            trained = len(run_folder.read_results(Path(run.folder))["epoch"])
            self._progress.update(self._bars[run.folder], completed=trained, total=content["config"]["epochs"])

    def end(self, run: StudyRun) -> None:
        """Show that a run is done."""
        self._progress.remove_task(self._bars.pop(run.folder))
        minutes = (time.monotonic() - self._begun[run.folder]) / 60
        print(f"{run.label}: done after {minutes:.1f} minutes", flush=True)
