"""Figures of runs: python -m common.plots runs/A runs/B --output figure.png

The five panels are here; the other kinds are in `common.curve_figures` and `common.policy_figure`.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from matplotlib.figure import Figure

from common import curve_figures, run_folder
from common.command_line import one_line_errors, parse_settings
from common.curve_figures import LABELS, Band
from common.errors import UserError
from common.figure_style import (
    COLOURS,
    EMPTY_EPOCHS,
    Curves,
    differ,
    dress,
    epochs_below,
    save_figure,
    shade_empty_epochs,
    stacked_panels,
)

Kind = Literal["five", "reward", "diagnostics", "time", "seeds", "policy"]
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

    Near is within `share` of the curve's range below its maximum; if no epoch is that near on all three, it is as far
    as the nearest one is. Of neighbouring epochs the one with the highest reward stands for all; the `most` best of
    those are returned, in order.

    Returns:
        [≤ most] indices into the curves.
    """
    missing = np.zeros(len(curves["epoch"]))  # [epochs] share of a curve's range, of the curve that misses most
    for name in _JUDGED:
        curve = curves[name]
        if np.all(np.isnan(curve)):
            return np.array([], dtype=int)
        best, worst = np.nanmax(curve), np.nanmin(curve)
        missing = np.maximum(missing, (best - curve) / max(best - worst, 1e-300))  # NaN stays NaN
    with np.errstate(invalid="ignore"):
        near = missing <= max(share, np.nanmin(missing))  # [epochs]
    stretches = np.split(np.flatnonzero(near), np.flatnonzero(np.diff(np.flatnonzero(near)) > 1) + 1)
    reward = curves["total_reward"]
    peaks = [stretch[np.argmax(reward[stretch])] for stretch in stretches if len(stretch)]
    return np.sort(sorted(peaks, key=lambda i: -reward[i])[:most]).astype(int)


def five_panels(runs: dict[str, Curves]) -> Figure:
    """Reward per epoch, reward and steps per episode, both losses; several runs overlaid.

    Solid lines are shaped rewards, thin ones the environment's own where they differ. Dashed lines and green circles
    mark the epochs of `near_best_epochs`; grey bands, epochs in which no episode finished.
    """
    figure, axes = stacked_panels(len(_PANELS), 2)
    for run, (name, curves) in enumerate(runs.items()):
        colour = COLOURS[run % len(COLOURS)]
        epochs = curves["epoch"]
        marked = near_best_epochs(curves)
        for axis, (column, original, _) in zip(axes, _PANELS):
            lone = dict(marker=".") if len(epochs) == 1 else {}
            axis.plot(epochs, curves[column], color=colour, linewidth=1.6, label=name, **lone)
            if original is not None and differ(curves[column], curves[original]):
                axis.plot(epochs, curves[original], color=colour, linewidth=0.8, alpha=0.6, label=f"{name}, unshaped")
            for epoch in epochs[marked]:
                axis.axvline(epoch, color=colour, linestyle="--", linewidth=0.8, alpha=0.6, zorder=0)
            if column in _JUDGED:
                axis.plot(
                    epochs[marked], curves[column][marked], "o", color="none", markeredgecolor=_MARK,
                    markersize=9, markeredgewidth=1.8,
                )  # fmt: skip
    if shade_empty_epochs(axes[1:3], runs):
        axes[1].annotate(EMPTY_EPOCHS, (0.01, 0.93), xycoords="axes fraction", fontsize="x-small", va="top")
    for axis, (_, _, label) in zip(axes, _PANELS):
        dress(axis, label)
    epochs_below(axes[-1], min(curves["epoch"][0] for curves in runs.values()))
    figure.legend(
        *axes[0].get_legend_handles_labels(), fontsize="small", ncols=2, frameon=False, loc="outside upper center"
    )
    figure.align_ylabels(axes)
    return figure


def draw(
    kind: Kind,
    runs: list[Path],
    columns: tuple[str, ...],
    band: Band,
    env: str | None = None,
    env_kwargs: str | None = None,
) -> Figure:
    """A figure of one kind of some runs.

    Args:
        env, env_kwargs: what was typed as the run's environment, for kind policy; see `run_folder.read_config`.

    Raises:
        UserError: no run, too many for this kind, or what it draws is not there.
    """
    if not runs:
        raise UserError("no run given: python -m common.plots runs/NAME [runs/OTHER ...]")
    if kind in ("reward", "time", "policy") and len(runs) > 1:
        raise UserError(f"{len(runs)} runs given: --kind {kind} draws one, --kind five overlays several")
    if kind == "policy":
        return _policy(runs[0], env, env_kwargs)
    if kind == "seeds" and not columns:
        raise UserError("no columns given: --kind seeds draws a panel for each of --columns avg_reward_orig ...")
    curves = {name: run_folder.read_results(run) for name, run in _named(runs).items()}
    if kind == "reward":
        return curve_figures.reward_and_steps(*next(iter(curves.items())))
    if kind == "time":
        return curve_figures.time_per_stage(*next(iter(curves.items())))
    if kind == "diagnostics":
        return curve_figures.diagnostics(curves)
    if kind == "seeds":
        panels = tuple((column, LABELS.get(column, column)) for column in columns)
        return curve_figures.over_seeds(_arms(curves), panels, band)
    return five_panels(curves)


def _named(runs: list[Path]) -> dict[str, Path]:
    """By their folders' names, or where two are the same, by their paths."""
    names = [run.name for run in runs]
    return {run.name if names.count(run.name) == 1 else str(run): run for run in runs}


def _arms(curves: dict[str, Curves]) -> dict[str, list[Curves]]:
    """Runs whose names differ in the seed alone belong together."""
    arms: dict[str, list[Curves]] = {}
    for name, run in curves.items():
        arms.setdefault(re.sub(r"-?seed\d+", "", name) or name, []).append(run)
    return arms


def _policy(run: Path, env: str | None, env_kwargs: str | None) -> Figure:
    from common import load_agent, policy_figure  # TensorFlow, which the other kinds do without

    agent, config, _ = load_agent.load_agent(run, "best", env=env, env_kwargs=env_kwargs)
    return policy_figure.policy_view(agent, policy_figure.grid_for(config.env, agent))


@dataclass(frozen=True)
class _Arguments:
    """Draw one run or several, by default as overlaid five-panel figures."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = field(default=())
    """Run folders, like runs/NAME."""
    output: Annotated[Path, tyro.conf.arg(aliases=["--out"])] = Path("overlay.png")
    """Picture to write; .png, .svg or .pdf."""
    kind: Kind = "five"
    """Five panels; reward and steps of one run; diagnostics of learning; time by stage of one run; median and band
    over seeds, runs named alike but for the seed taken together; the policy of a run on Pendulum or with
    observations of one or two numbers."""
    columns: tuple[str, ...] = ("avg_reward_orig", "avg_steps")
    """Of results.csv, for --kind seeds."""
    band: Band = "range"
    """For --kind seeds: from lowest to highest, or the middle half."""
    env: str | None = None
    """For --kind policy, the run's environment, named again: only needed where a module is imported for it."""
    env_kwargs: str | None = None
    """Its arguments as JSON, named again: only needed where there are texts among them."""


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(_Arguments, prog="python -m common.plots")
        if arguments.output.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"output {arguments.output} is no picture name: end it in .png, .svg or .pdf")
        environment = arguments.env, arguments.env_kwargs
        figure = draw(arguments.kind, list(arguments.runs), arguments.columns, arguments.band, *environment)
        save_figure(figure, arguments.output)
        print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
