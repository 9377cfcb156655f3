"""How soon a run goes on, and that it goes on as it would have: python benchmarks/resume.py

A run of the walker keeps the checkpoint of every epoch. Then its folder is cut back to what it held after a certain
epoch, resumed in a new process, and killed two epochs later: both epochs' rows and checkpoints must equal the first
run's, byte for byte. The seconds are those from the command to the start of the first epoch, TensorFlow's imports
included. Two quiet cores need about ten minutes; results go to results/resume.json and resume.md.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table import record
from fault_table.outcome import differences, lasting, without_times
from speed import RESULTS, ROOT, machine

from common import arrays_file
from common.errors import UserError
from common.runs import checkpoint, run_folder
from common.runs.command_line import one_line_errors, parse_settings

TRAIN = [sys.executable, "PPOAgentTrainer.py"]
KEEP = ["--checkpoint-every", "1", "--keep-checkpoints", "100000", "--record",
        "--evaluation-episodes", "0"]  # fmt: skip
KEPT = 3  # checkpoints that a run has by default; with all of them saving would take longer
WATCHED = 2  # epochs after each resume
PATIENCE = 600.0  # seconds


@dataclass(frozen=True)
class Arguments:
    """Measure how soon a run is resumed, at several of its epochs."""

    preset: str = "bipedal-walker"
    """The preset that is trained."""
    at: tuple[int, ...] = (1, 23, 40, 58, 71, 80, 100)
    """The epochs after which it is resumed."""
    seed: int = 0
    """Seed of the run."""
    run: Path | None = None
    """A run of this benchmark that is there already; none trains one."""


def train(arguments: Arguments, folder: Path) -> None:
    """Train the run that is never cut off."""
    command = [*TRAIN, arguments.preset, "--seed", str(arguments.seed), *KEEP]
    subprocess.run([*command, "--runs-folder", str(folder.parent), "--name", folder.name], cwd=ROOT, check=True)


def cut_back(whole: Path, epoch: int, folder: Path) -> None:
    """A run folder as it was when the checkpoint of an epoch had been written."""
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns(run_folder.BEST_AGENT, "finished.json"))
    for generation in checkpoint.generations(folder / run_folder.CHECKPOINTS):
        if not epoch - KEPT < generation <= epoch:
            shutil.rmtree(checkpoint_of(folder, generation))


def checkpoint_of(folder: Path, epoch: int) -> Path:
    return folder / run_folder.CHECKPOINTS / f"{epoch:08d}"


def resume(folder: Path, epoch: int) -> float:
    """Resume, wait for two more checkpoints, kill; seconds from the command to the start of the first epoch."""
    last = checkpoint_of(folder, epoch + WATCHED)
    began = time.time()
    with open(folder.parent / "screen.txt", "w+", encoding="utf-8") as screen:
        process = subprocess.Popen(
            [*TRAIN, "--resume", str(folder), *KEEP, "--keep-checkpoints", str(KEPT)],
            cwd=ROOT,
            stdout=screen,
            stderr=subprocess.STDOUT,
        )
        try:
            while not last.exists() and process.poll() is None and time.time() - began < PATIENCE:
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
        screen.seek(0)
        if not last.exists():
            raise UserError(f"the run did not get to epoch {epoch + WATCHED}: {screen.read()[-500:]}")
    ended = checkpoint_of(folder, epoch + 1).stat().st_mtime  # written right after the epoch, and renamed
    rows = run_folder.read_results(folder)
    return ended - began - float(rows["seconds"][rows["epoch"] == epoch + 1][0])


def compare(whole: Path, folder: Path, epoch: int) -> list[str]:
    """Names of what differs in the epochs after a resume: columns of the table, arrays of the checkpoints."""
    found = []
    rows = [without_times(run_folder.read_results(of)) for of in (whole, folder)]
    for number in range(epoch + 1, epoch + WATCHED + 1):
        one, other = ({name: values[table["epoch"] == number] for name, values in table.items()} for table in rows)
        found += differences(one, other)
        states = [lasting(arrays_file.read(checkpoint_of(of, number) / "state.npz")) for of in (whole, folder)]
        found += differences(*states)
    return sorted(set(found))


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        with tempfile.TemporaryDirectory() as work:
            whole = arguments.run or Path(work) / "whole"
            if not arguments.at or min(arguments.at) < 1:
                raise UserError(f"--at is {arguments.at}: expected epochs from 1")
            if arguments.run is None:
                train(arguments, whole)
            last = max(checkpoint.generations(whole / run_folder.CHECKPOINTS), default=0)
            if not last:
                raise UserError(f"{whole} holds no checkpoints: expected a run that this benchmark has trained")
            if max(arguments.at) > last - WATCHED:
                raise UserError(f"--at is {arguments.at}: expected epochs from 1 to {last - WATCHED}")
            found = []
            for epoch in arguments.at:
                folder = Path(work) / f"after-{epoch}"
                cut_back(whole, epoch, folder)
                seconds = resume(folder, epoch)
                found.append({"epoch": epoch, "seconds": round(seconds, 2), "differs": compare(whole, folder, epoch)})
                print(found[-1], flush=True)
                shutil.rmtree(folder)
        where = machine() | {"commit": record.commit(), "preset": arguments.preset, "seed": arguments.seed}
        write(where, found)
        if any(row["differs"] for row in found):
            raise SystemExit(1)


def write(where: dict[str, object], found: list[dict]) -> None:
    """Both files of results."""
    (RESULTS / "resume.json").write_text(json.dumps({"machine": where, "rows": found}, indent=1) + "\n", "utf-8")
    (RESULTS / "resume.md").write_text(page(where, found), "utf-8")


def page(where: dict[str, object], found: list[dict]) -> str:
    """The table, and when and on what it was measured."""
    lines = ["| resumed after epoch | seconds to the next epoch | the next two epochs |", "|---:|---:|---|"]
    for row in found:
        verdict = f"differ: {', '.join(row['differs'])}" if row["differs"] else "equal to the byte"
        lines.append(f"| {row['epoch']} | {row['seconds']:.1f} | {verdict} |")
    times = [row["seconds"] for row in found]
    foot = f"Median {median(times):.1f} s, longest {max(times):.1f} s. `{where['preset']}`, seed {where['seed']}; "
    foot += f"{where['date']}, {where['cores']} cores of {where['cpu']}, commit {where['commit']}."
    return "\n".join([*lines, "", foot]) + "\n"


if __name__ == "__main__":
    main()
