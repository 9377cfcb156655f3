"""Whether the code still computes what another commit computed: python benchmarks/same_numbers.py --against COMMIT

Eight short runs are trained twice, by this work tree and by a checkout of the commit: PPO on Gymnasium, on EnvPool,
with discrete actions, with one network for actor and critic, and on images; DDPG; TD3; and a PPO run that is extended
by resuming it. Tables, weights, checkpoints, settings, scores and films must be equal to the byte. Times are left out,
and settings that only one of the two has: their defaults must mean what was done before.
Nothing is written; a difference is exit code 1. Two cores need about five minutes.
"""

import csv
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table.outcome import Outcome, differences
from speed import ROOT

from common.errors import UserError
from common.results import TIMING_COLUMNS
from common.runs import checkpoint
from common.runs.command_line import one_line_errors, parse_settings

SMALL = "--seed 3 --hidden-sizes 16 --evaluation-episodes 4 --checkpoint-every 2"
PPO = f"PPOAgentTrainer.py {{}} {SMALL} --epochs 4 --num-envs 2 --steps-per-epoch 256 --max-episode-steps 60"
OFF_POLICY = f"-m companions.OffPolicyAgentTrainer {{}} {SMALL} --epochs 4 --batch-size 16 --warmup-steps 300"
LATER = " --checkpoint-every 2 --evaluation-episodes 4"
RUNS = {
    "PPO on Gymnasium": PPO.format("bipedal-walker --backend gymnasium --minibatch-size 64"),
    "PPO on EnvPool": PPO.format("bipedal-walker --backend envpool --minibatch-size 64"),
    "PPO, discrete": PPO.format("cartpole --objective clip+kl --minibatch-size 64"),
    "PPO, shared torso": PPO.format("cartpole --shared-torso --minibatch-size 64"),
    "PPO on images": f"PPOAgentTrainer.py breakout {SMALL} --epochs 2 --num-envs 2 --steps-per-epoch 80 "
    "--minibatch-size 4 --max-episode-steps 60",
    "DDPG": OFF_POLICY.format("ddpg --env Pendulum-v1 --exploration ornstein_uhlenbeck --steps-per-epoch 256"),
    "TD3": OFF_POLICY.format("td3 --env Pendulum-v1 --steps-per-epoch 256"),
    "PPO, resumed": PPO.format("pendulum --backend gymnasium --minibatch-size 64"),
}
EXTENDED = {"PPO, resumed": 7}  # epochs that a run is then extended to
PATIENCE = 600  # seconds


@dataclass(frozen=True)
class Arguments:
    """Train eight short runs with this code and with another commit's, and compare them to the byte."""

    against: str = "HEAD"
    """The commit, branch or tag to compare with. HEAD compares what is not committed yet."""
    keep: Path | None = None
    """A folder for the other commit's runs. Runs that are there already are not trained again."""
    only: str = ""
    """Only runs whose name contains this."""


def checkout(commit: str, folder: Path) -> Path:
    """The files of a commit, in a new folder.

    Raises:
        UserError: there is no such commit.
    """
    packed = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True)
    if packed.returncode:
        raise UserError(f"{commit} is no commit of this repository: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def train(name: str, code: Path, work: Path) -> Path:
    """Train one of RUNS with the code of a folder.

    Raises:
        UserError: it failed.
    """
    folder = work / _folder_name(name)
    _run([*RUNS[name].split(), "--runs-folder", str(work), "--name", folder.name], code, name)
    if name in EXTENDED:
        program = RUNS[name].split()[0]
        _run([program, "--resume", str(folder), "--epochs", str(EXTENDED[name]), *LATER.split()], code, name)
    return folder


def _folder_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def _run(arguments: Sequence[str], code: Path, name: str) -> None:
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=code, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    if ended.returncode:
        raise UserError(f"{name} ended with exit code {ended.returncode} in {code}: {ended.stderr.strip()[-500:]}")


def content(folder: Path) -> Outcome:
    """All that a run folder holds but times, read without the code that wrote it."""
    found: Outcome = {}
    for path in sorted(folder.rglob("*")):
        if path.parent.name == "tensorboard":  # the table again, with times
            continue
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                found |= {f"{name}/{key}": arrays[key] for key in arrays.files if not _is_a_time(key)}
        elif path.suffix == ".csv":
            with open(path, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    cells = {column: cell for column, cell in row.items() if column not in TIMING_COLUMNS}
                    found[f"{name}/{row['epoch']}"] = _text(cells)
        elif path.name == "config.json":
            settings = json.loads(path.read_text(encoding="utf-8"))["config"]
            found |= {f"{name}/{key}": _text(value) for key, value in settings.items()}
        elif path.is_file() and path.name not in ("manifest.json", "lock"):  # a checksum of times, and an empty file
            found[name] = np.frombuffer(path.read_bytes(), np.uint8)
    return found


def _is_a_time(key: str) -> bool:
    return key == checkpoint.SETTINGS or key.removeprefix("results/") in TIMING_COLUMNS  # settings: of the start


def _text(value: object) -> np.ndarray:
    return np.frombuffer(json.dumps(value, sort_keys=True).encode(), np.uint8)


def compare(name: str, other_code: Path, work: Path, kept: Path) -> list[str]:
    """Names of what differs in one of RUNS; `kept`: where the other code's run is, or will be."""
    whole = kept / f"{_folder_name(name)}.whole"
    if not whole.exists():
        shutil.rmtree(kept / _folder_name(name), ignore_errors=True)
        train(name, other_code, kept)
        whole.touch()
    here, there = content(train(name, ROOT, work / "here")), content(kept / _folder_name(name))
    lone = {key for key in here.keys() ^ there.keys() if key.startswith("config.json/")}  # settings of one alone
    return differences(*({key: array for key, array in one.items() if key not in lone} for one in (here, there)))


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        names = [name for name in RUNS if arguments.only in name]
        if not names:
            raise UserError(f"no run has {arguments.only!r} in its name; there are: {'; '.join(RUNS)}")
        with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(2) as two_at_once:
            work = Path(temporary)
            code = checkout(arguments.against, work / "other")
            kept = work / "there" if arguments.keep is None else arguments.keep.resolve()
            kept.mkdir(parents=True, exist_ok=True)
            found = list(two_at_once.map(lambda name: compare(name, code, work, kept), names))
        for name, differs in zip(names, found):
            print(f"{name}: {'differ: ' + ', '.join(differs[:8]) if differs else 'equal to the byte'}")
        if any(found):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
