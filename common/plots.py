"""Every figure; `python -m common.plots runs/A runs/B --output figure.png` overlays runs."""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from common import run_folder
from common.command_line import one_line_errors, parse_settings

Curves = dict[str, np.ndarray]  # column of results.csv → [epochs]

# Okabe & Ito's palette, told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARK = "#2E9E2E"
_PANELS = (
    ("total_reward", "total_reward_orig", "Reward per epoch"),
    ("avg_reward", "avg_reward_orig", "Mean reward\nper episode"),
    ("avg_steps", None, "Mean steps\nper episode"),
    ("loss_actor", None, "Actor loss"),
    ("loss_critic", None, "Critic loss"),
)
_JUDGED = ("total_reward", "avg_reward", "avg_steps")


def near_best_epochs(curves: Curves, share: float = 0.05, most: int = 8) -> np.ndarray:
    """Epochs on which reward per epoch, reward and steps per episode are all near their best.

    Near is within `share` of the curve's range below its maximum. Of neighbouring epochs the one
    with the highest reward stands for all; the `most` best of those are returned, in order.

    Returns:
        [≤ most] indices into the curves.
    """
    near = np.ones(len(curves["epoch"]), dtype=bool)  # [epochs]
    for name in _JUDGED:
        curve = curves[name]
        if np.all(np.isnan(curve)):
            return np.array([], dtype=int)
        best, worst = np.nanmax(curve), np.nanmin(curve)
        with np.errstate(invalid="ignore"):
            near &= curve >= best - share * (best - worst)
    stretches = np.split(np.flatnonzero(near), np.flatnonzero(np.diff(np.flatnonzero(near)) > 1) + 1)
    reward = curves["total_reward"]
    peaks = [stretch[np.argmax(reward[stretch])] for stretch in stretches if len(stretch)]
    return np.sort(sorted(peaks, key=lambda i: -reward[i])[:most]).astype(int)


def five_panels(runs: dict[str, Curves]) -> Figure:
    """Reward per epoch, reward and steps per episode, both losses; several runs overlaid.

    Solid lines are shaped rewards, thin ones the environment's own. Dashed lines and green circles
    mark the epochs of `near_best_epochs`; grey bands, epochs in which no episode finished.
    """
    figure = Figure(figsize=(9, 11), layout="constrained")
    axes = figure.subplots(len(_PANELS), 1, sharex=True)
    for run, (name, curves) in enumerate(runs.items()):
        colour = COLOURS[run % len(COLOURS)]
        epochs = curves["epoch"]
        marked = near_best_epochs(curves)
        for axis, (column, original, _) in zip(axes, _PANELS):
            lone = dict(marker=".") if len(epochs) == 1 else {}
            axis.plot(epochs, curves[column], color=colour, linewidth=1.6, label=name, **lone)
            if original is not None:
                axis.plot(epochs, curves[original], color=colour, linewidth=0.8, alpha=0.6, label=f"{name}, unshaped")
            for epoch in epochs[marked]:
                axis.axvline(epoch, color=colour, linestyle="--", linewidth=0.8, alpha=0.6, zorder=0)
            if column in _JUDGED:
                axis.plot(
                    epochs[marked], curves[column][marked], "o", color="none", markeredgecolor=_MARK,
                    markersize=9, markeredgewidth=1.8,
                )  # fmt: skip
    _shade_empty_epochs(axes[1:3], runs)
    for axis, (_, _, label) in zip(axes, _PANELS):
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
        axis.yaxis.set_major_formatter(_thousands)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("Epoch")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlim(left=min(curves["epoch"][0] for curves in runs.values()))
    figure.legend(
        *axes[0].get_legend_handles_labels(), fontsize="small", ncols=2, frameon=False, loc="outside upper center"
    )
    figure.align_ylabels(axes)
    return figure


def _thousands(value: float, _: int) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _shade_empty_epochs(axes: np.ndarray, runs: dict[str, Curves]) -> None:
    """Grey where some run finished no episode, so that a gap explains itself."""
    for curves in runs.values():
        empty = curves["epoch"][curves["episodes"] == 0]
        for axis in axes:
            for epoch in empty:
                axis.axvspan(epoch - 0.5, epoch + 0.5, color="0.5", alpha=0.15, linewidth=0)
        if len(empty):
            axes[0].annotate(
                "grey: no episode finished", (0.01, 0.93), xycoords="axes fraction", fontsize="x-small", va="top"
            )


def save_figure(figure: Figure, path: Path) -> None:
    """Replaces the file at once, so that a viewer never sees half a picture; the suffix sets the format."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lstrip(".") or "png", dpi=110)
    run_folder.replace_file(path, buffer.getvalue())


@dataclass(frozen=True)
class _Arguments:
    """Overlay the five-panel figures of one or more runs."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = field(default=())
    """Run folders, like runs/NAME."""
    output: Path = Path("overlay.png")
    """Picture to write; .png, .svg or .pdf."""


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(_Arguments)
        if not arguments.runs:
            raise run_folder.UserError("no run given: python -m common.plots runs/NAME [runs/OTHER ...]")
        if arguments.output.suffix not in (".png", ".svg", ".pdf"):
            raise run_folder.UserError(f"output {arguments.output} is no picture name: end it in .png, .svg or .pdf")
        names = [run.name for run in arguments.runs]
        named = {run.name if names.count(run.name) == 1 else str(run): run for run in arguments.runs}
        figure = five_panels({name: run_folder.read_results(run) for name, run in named.items()})
        save_figure(figure, arguments.output)
        print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
