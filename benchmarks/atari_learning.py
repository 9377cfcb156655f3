"""What Stable-Baselines3's PPO scores on Breakout, to be laid beside ours: python benchmarks/atari_learning.py

It has the network, the settings and the number of games of the preset `breakout`. Its learning rate and clip range
stay as they are, while ours fall over the whole run. A folder like one of our runs gets its results.csv, epoch by
epoch, so that `python -m programs plot` can draw both.
250,000 steps take about 45 minutes of two quiet cores.
"""

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from atari_contestants import STEPS_PER_EPOCH
from speed import ROOT, find_peer_python

from common.errors import UserError
from common.runs.command_line import one_line_errors, parse_settings


@dataclass(frozen=True)
class Arguments:
    """Train Stable-Baselines3's PPO on Breakout and write its score over steps."""

    into: Path
    """Folder that gets results.csv; it must not have one yet."""
    steps: int = 256_000
    """Steps of the agent, four frames each, in all games together; an epoch has 10,240."""
    passes: int = 8
    """Number of passes over the data of each update. The preset `breakout` has 8, and the PPO paper 3
    (arXiv:1707.06347, table 5)."""
    seed: int = 0
    """Seed of the games, the network and the sampling."""
    peer_python: Path | None = None
    """Python of an environment with requirements/benchmarks.txt; None makes .venv-benchmarks."""


def learn(arguments: Arguments) -> None:
    """Train it in a process of its own, and write a row as soon as an epoch has ended.

    Raises:
        UserError: no epoch or pass is asked for, there are results already, the peers are missing, or it failed.
    """
    if arguments.steps < STEPS_PER_EPOCH:
        raise UserError(f"steps is {arguments.steps}: expected {STEPS_PER_EPOCH} or more, the steps of an epoch")
    if arguments.passes < 1:
        raise UserError(f"passes is {arguments.passes}: expected 1 or more")
    table = arguments.into / "results.csv"
    if table.exists():
        raise UserError(f"{table} exists: choose another --into or remove it")
    python = find_peer_python(arguments.peer_python, "stable_baselines3, ale_py, cv2")
    numbers = [str(number) for number in (arguments.steps, arguments.passes, arguments.seed)]
    arguments.into.mkdir(parents=True, exist_ok=True)
    with table.open("w", newline="", encoding="utf-8") as file:
        process = subprocess.Popen(
            [python, ROOT / "benchmarks" / "atari_learner.py", *numbers], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        writer = None
        for line in process.stdout:
            row = json.loads(line)
            if writer is None:
                writer = csv.DictWriter(file, fieldnames=list(row))
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(f"{row['steps']:>9,} steps   score {row['score']:6.2f}   {row['steps_per_second']:4.0f} steps/s")
    failed = process.wait()
    if writer is None:
        table.unlink()
    if failed:
        raise UserError(f"the training of Stable-Baselines3 failed with exit code {process.returncode}: see above")


def main() -> None:
    with one_line_errors():
        learn(parse_settings(Arguments))


if __name__ == "__main__":
    main()
