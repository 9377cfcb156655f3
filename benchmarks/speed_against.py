"""Whether the code is as fast as another commit's: python benchmarks/speed_against.py --against COMMIT

Three presets are trained by this work tree and by a checkout of the commit, by turns; who begins changes from round to
round, since whichever comes second may be slower. Compared are the seconds of an epoch, as results.csv has them; the
first epochs, in which functions are compiled, are left out. Raw seconds go to results/speed_against.json.
Three rounds take about eight minutes of two quiet cores.
"""

import csv
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table import record
from same_numbers import checkout
from speed import RESULTS, ROOT, machine

from common.errors import UserError
from common.files import write_json
from common.runs.command_line import one_line_errors, parse_settings

QUICK = "--evaluation-episodes 0"  # which other commits have, too
RUNS = {
    "PPO, 64 on EnvPool": f"PPOAgentTrainer.py bipedal-walker --backend envpool --epochs 12 {QUICK}",
    "PPO, 16 on Gymnasium": "PPOAgentTrainer.py bipedal-walker --backend gymnasium --epochs 6 --num-envs 16 " + QUICK,
    "TD3": f"-m companions.OffPolicyAgentTrainer pendulum-td3-fast {QUICK}",
}
COMPILED = 2  # epochs that are left out
PATIENCE = 600  # seconds


@dataclass(frozen=True)
class Arguments:
    """Train three presets with this code and with another commit's, by turns, and compare the seconds of an epoch."""

    against: str = "HEAD"
    """The commit, branch or tag to compare with."""
    rounds: int = 3
    """How often each of both trains each preset."""
    only: str = ""
    """Only presets whose name contains this."""


def seconds_of_epochs(arguments: str, code: Path) -> list[float]:
    """Train with the code of a folder; the seconds of each epoch but the first.

    Raises:
        UserError: it failed.
    """
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, *arguments.split(), "--runs-folder", runs, "--name", "run"]
        ended = subprocess.run(
            command, cwd=code, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
        if ended.returncode:
            raise UserError(f"{arguments} failed in {code}: {ended.stderr.strip()[-500:]}")
        with open(Path(runs) / "run" / "results.csv", newline="", encoding="utf-8") as table:
            rows = list(csv.DictReader(table))[COMPILED:]
        return [float(row["seconds"]) - float(row["seconds_validation"]) for row in rows]


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        measured: dict[str, list[dict[str, object]]] = {}
        with tempfile.TemporaryDirectory() as temporary:
            codes = {"before": checkout(arguments.against, Path(temporary) / "before"), "now": ROOT}
            for i in range(arguments.rounds):
                for name in (name for name in RUNS if arguments.only in name):
                    order = ("before", "now") if i % 2 == 0 else ("now", "before")
                    seconds = {which: seconds_of_epochs(RUNS[name], codes[which]) for which in order}
                    ratio = median(seconds["before"]) / median(seconds["now"])
                    measured.setdefault(name, []).append({"first": order[0], "ratio": round(ratio, 3), **seconds})
                    print(f"round {i + 1}, {order[0]} first: {name} {ratio:.3f}", flush=True)
        for name, rounds in measured.items():
            ratios = sorted(float(str(one["ratio"])) for one in rounds)
            print(f"{name}: {median(ratios):.3f} in the median of {len(ratios)} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
        path = RESULTS / "speed_against.json"
        commits = {"before": arguments.against, "now": record.commit()}
        write_json(path, {"machine": machine(), "commits": commits, "rounds": measured})
        print(f"wrote {path.relative_to(ROOT)}; above 1: this code is faster")


if __name__ == "__main__":
    main()
