"""Learning curves of other libraries and of this project by one protocol:

    python benchmarks/learning_curves.py walker-ppo sb3-zoo --seeds 300 301

Every seed is trained in this process, one after the other, and is scored by one script (peers/scoring.py): 20
deterministic and 20 sampled episodes at every fiftieth of the steps (of games, every tenth), 100 of each at the end,
of the environment's own rewards. Raw results go to results/learning_curves/TASK/CONTESTANT/SEED.json. Seeds that are
there are left out, so the command can be repeated after an interruption. Peers need requirements/benchmarks.txt;
CleanRL needs a clone (`--cleanrl`) and requirements/cleanrl.txt. Runs may share the machine: their seconds are not a
measure of speed.
"""

import argparse
import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fault_table import record
from peers.scoring import Curve
from peers.tasks import TASKS

RESULTS = Path(__file__).resolve().parent / "results" / "learning_curves"
PACKAGES = (
    "gymnasium", "Box2D", "numpy", "torch", "stable-baselines3", "sb3-contrib", "sbx-rl", "jax", "tensorflow", "keras",
    "envpool", "ale-py", "opencv-python-headless", "mujoco", "flax", "optax",
)  # fmt: skip


def train(task: str, contestant: str, seed: int, steps: int | None, clone: Path | None) -> dict[str, Any]:
    """Train one seed and score it; what is stored.

    Args:
        task, contestant: names in `TASKS`.
        seed: of everything random.
        steps: fewer than the task's, for a trial.
        clone: of CleanRL.
    """
    wanted, chosen = TASKS[task], TASKS[task].contestants[contestant]
    steps = steps or wanted.steps
    commit = record.commit()  # of the code that runs, which may be changed meanwhile
    curve, began = Curve(lambda: wanted.make(chosen), steps, wanted.parts), time.perf_counter()
    if chosen.library == "cleanrl":
        from peers import cleanrl

        assert clone is not None, "--cleanrl names the clone"
        act = cleanrl.train(wanted, chosen, seed, steps, curve, clone)
    elif chosen.library == "ours":
        from peers import ours

        act = ours.train(wanted, chosen, seed, steps, curve)
    else:
        from peers import stable_baselines

        act = stable_baselines.train(wanted, chosen, seed, steps, curve)
    seconds = time.perf_counter() - began
    return {
        "task": task,
        "env": chosen.env or wanted.env,
        "contestant": contestant,
        "settings": repr(chosen),
        "seed": seed,
        "command": f"python benchmarks/learning_curves.py {task} {contestant} --seeds {seed}",
        "commit": commit,
        "peer_commit": _commit(clone) if chosen.library == "cleanrl" and clone else None,
        "versions": _versions(),
        "cpu": _processor(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds - curve.seconds, 1),
        "seconds_with_scoring": round(seconds),
        "steps": curve.steps,
        "validation_steps": curve.validation_steps,
        "deterministic": curve.deterministic,
        "sampled": curve.sampled,
        "final": curve.final(act),
    }


def _commit(folder: Path) -> str:
    return subprocess.run(
        ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def parse() -> argparse.Namespace:
    """What is typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("contestant")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, help="fewer steps, for a trial; nothing is stored")
    parser.add_argument("--cleanrl", type=Path, help="folder of a clone of CleanRL")
    return parser.parse_args()


def main() -> None:
    """Train what the command line names."""
    typed = parse()
    for seed in typed.seeds:
        path = RESULTS / typed.task / typed.contestant / f"{seed}.json"
        if path.exists():
            continue
        result = train(typed.task, typed.contestant, seed, typed.steps, typed.cleanrl)
        final = {name: sum(returns) / len(returns) for name, returns in result["final"].items()}
        print(typed.task, typed.contestant, seed, final, f"{result['seconds']} s", flush=True)
        if typed.steps is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(result) + "\n", encoding="utf-8")
            part.replace(path)


if __name__ == "__main__":
    main()
