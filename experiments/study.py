"""Run a study over seeds and summarise it: python experiments/study.py walker

Every run is an ordinary one of `PPOAgentTrainer.py`, left in experiments/results/STUDY/NAME. A study
that was cut off goes on where it stopped: runs that have an evaluation.json are not repeated.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common import plots, run_folder  # noqa: E402
from common.command_line import one_line_errors  # noqa: E402
from common.errors import UserError  # noqa: E402

RESULTS = ROOT / "experiments" / "results"
# 300 of the 500 published epochs; nothing is annealed, so a run can go on from there with --resume --epochs 500.
PUBLISHED = ("bipedal-walker-2021-corrected", "--backend", "envpool", "--num-envs", "32", "--epochs", "300")


@dataclass(frozen=True)
class Arm:
    """One setting of a study, repeated over seeds."""

    arguments: tuple[str, ...]  # of PPOAgentTrainer.py
    seeds: range


STUDIES: dict[str, dict[str, Arm]] = {
    # Does the default learn to walk, on both backends?
    "walker": {
        "envpool": Arm(("bipedal-walker", "--backend", "envpool"), range(3)),
        "gymnasium": Arm(("bipedal-walker", "--backend", "gymnasium"), range(3)),
    },
    # The published question: does the entropy bonus help, and is it the entropy that helps?
    "entropy": {
        "c=0.1, density surrogate": Arm(PUBLISHED, range(3)),
        "c=0": Arm((*PUBLISHED, "--entropy-coefficient", "0"), range(3)),
        "c=0.1, Gaussian entropy": Arm((*PUBLISHED, "--entropy", "gaussian"), range(3)),
    },
}


def folder_of(study: str, arm: str, seed: int) -> Path:
    name = "".join(letter if letter.isalnum() or letter in "=.-" else "_" for letter in arm)
    return RESULTS / study / f"{name}-seed{seed}"


def run(study: str) -> None:
    """Every run of a study that is not there yet."""
    arms = STUDIES[study]
    for seed in sorted({seed for arm in arms.values() for seed in arm.seeds}):  # whole seeds first
        for name, arm in arms.items():
            folder = folder_of(study, name, seed)
            if seed not in arm.seeds or (folder / run_folder.EVALUATION).exists():
                continue
            shutil.rmtree(folder, ignore_errors=True)  # a run that was cut off
            print(f"{study}: {name}, seed {seed}", flush=True)
            subprocess.run(
                [sys.executable, "PPOAgentTrainer.py", *arm.arguments, "--seed", str(seed), "--no-video",
                 "--no-tensorboard", "--no-figure", "--runs-folder", str(folder.parent), "--name", folder.name],
                cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip


def summarise(study: str) -> None:
    """A table of evaluations and a figure of the curves with their spread, from the runs that are there."""
    lines = [
        "| setting | seed | steps | deterministic | sampled | episodes below 200 | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    for colour, (name, arm) in zip(plots.COLOURS, STUDIES[study].items()):
        scores, curves = [], []
        for seed in arm.seeds:
            folder = folder_of(study, name, seed)
            if not (folder / run_folder.EVALUATION).exists():
                continue
            evaluation = json.loads((folder / run_folder.EVALUATION).read_text())
            curve = run_folder.read_results(folder)
            curves.append(curve)
            scores.append(evaluation["deterministic"]["mean"])
            cells = [f"{s['mean']:.1f} [{s['low']:.1f}, {s['high']:.1f}]" for s in evaluation.values()]
            fell = sum(score < 200 for score in evaluation["deterministic"]["returns"])
            minutes = curve["seconds"].sum() / 60
            lines.append(
                f"| {name} | {seed} | {int(curve['steps'][-1]):,} | {' | '.join(cells)} | {fell} | {minutes:.1f} |"
            )
        if not curves:
            continue
        lines.append(f"| **{name}** | median of {len(scores)} | | **{np.median(scores):.1f}** | | | |")
        for axis, (column, label) in zip(
            axes,
            (
                ("avg_reward_orig", "Reward per episode,\nunshaped"),
                ("avg_steps", "Steps\nper episode"),
                ("mean_std", "σ"),
            ),
        ):
            table = np.array([curve[column] for curve in curves])  # [seeds, epochs]
            with np.errstate(all="ignore"):
                axis.plot(curves[0]["steps"], np.nanmedian(table, axis=0), color=colour, label=name)
                axis.fill_between(
                    curves[0]["steps"],
                    np.nanmin(table, axis=0),
                    np.nanmax(table, axis=0),
                    color=colour,
                    alpha=0.2,
                    linewidth=0,
                )
            axis.set_ylabel(label)
            axis.grid(alpha=0.25)
    axes[0].legend(frameon=False, fontsize="small", title="median and range over seeds", title_fontsize="small")
    axes[-1].set_xlabel("Environment steps")
    plots.save_figure(figure, RESULTS / study / "summary.png")
    (RESULTS / study / "summary.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main() -> None:
    with one_line_errors():
        if len(sys.argv) != 2 or sys.argv[1] not in STUDIES:
            raise UserError(f"expected one study of {', '.join(STUDIES)}: python experiments/study.py walker")
        run(sys.argv[1])
        summarise(sys.argv[1])


if __name__ == "__main__":
    main()
