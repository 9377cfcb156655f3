"""Figures of results.csv other than the five panels: reward, seeds, diagnostics, time."""

import warnings

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.errors import UserError
from common.figures import style
from common.figures.kinds import Band
from common.figures.style import Curves

BANDS: dict[Band, tuple[float, float]] = {"range": (0, 100), "interquartile": (25, 75)}  # percentiles over seeds

LABELS = {
    "total_reward": "Reward\nper epoch",
    "total_reward_orig": "Reward per epoch,\nunshaped",
    "avg_reward": "Reward\nper episode",
    "avg_reward_orig": "Reward per episode,\nunshaped",
    "avg_steps": "Steps\nper episode",
    "max_steps": "Steps of the\nlongest episode",
    "loss_actor": "Actor loss",
    "loss_critic": "Critic loss",
    "approximate_kl": "KL (nats)",
    "clip_fraction": "Clipped\n(share of samples)",
    "entropy": "Entropy (nats)",
    "mean_std": "σ (1 = half the\naction range)",
    "explained_variance": "Explained\nvariance (share)",
    "temperature": "Temperature α\n(units of reward)",
    "mean_value": "Q (discounted\nreward)",
    "mean_target": "Target of Q\n(discounted reward)",
    "exploration_std": "Noise σ (1 = half\nthe action range)",
    "steps_per_second": "Steps per second",
}
_DIAGNOSTICS = (
    "approximate_kl", "clip_fraction", "entropy", "temperature", "mean_std", "explained_variance", "mean_value",
    "mean_target",
)  # fmt: skip
_STAGES, _VALIDATION = ("seconds_environment", "seconds_policy", "seconds_update"), "seconds_validation"


def reward_and_steps(name: str, curves: Curves) -> Figure:
    """Reward per epoch with the environment's own, and steps per episode with the longest, of one run."""
    figure, (reward, steps) = style.stacked_panels(2, 2.6)
    epochs = curves["epoch"]
    shaped = style.lone_marker(len(epochs)) | {"color": style.COLOURS[0], "linewidth": 1.6}
    other = style.lone_marker(len(epochs)) | {"color": style.COLOURS[1], "linewidth": 0.9}
    reward.plot(epochs, curves["total_reward"], label="trained on", **shaped)
    if style.differ(curves["total_reward"], curves["total_reward_orig"]):
        reward.plot(epochs, curves["total_reward_orig"], label="unshaped", **other)
        reward.legend(frameon=False, fontsize="small")
    steps.plot(epochs, curves["avg_steps"], label="mean", **shaped)
    if _has_numbers(curves, "max_steps"):
        steps.plot(epochs, curves["max_steps"], label="longest episode", **other)
        steps.legend(frameon=False, fontsize="small")
    empty = style.shade_empty_epochs([steps], {name: curves})
    style.style_axis(reward, "Reward per epoch\n(sum over all steps)")
    style.style_axis(steps, "Steps per episode\n(of those that finished)")
    style.label_epochs(steps, epochs[0])
    figure.suptitle(style.plain(name) + (f" ({style.EMPTY_EPOCHS})" if empty else ""), fontsize="medium")
    figure.align_ylabels()
    return figure


def over_seeds(
    arms: dict[str, list[Curves]], panels: tuple[tuple[str, str], ...], band: Band = "range", title: str = ""
) -> Figure:
    """Median over seeds with a band, a panel for each column.

    Args:
        arms: setting → the curves of its seeds.
        panels: column of results.csv, label.
        title: what the figure shows; without one there is a legend in its place.

    Raises:
        UserError: seeds of one setting have epochs of different lengths, or a run lacks a column.
    """
    figure, axes = style.stacked_panels(len(panels), 2)
    for i, (arm, curves) in enumerate(arms.items()):
        for axis, (column, _) in zip(axes, panels):
            _draw_seeds(axis, arm, curves, column, style.colour_of(i), band)
    for axis, (_, label) in zip(axes, panels):
        style.style_axis(axis, label)
    words = {"range": "lowest to highest seed", "interquartile": "middle half of the seeds"}[band]
    several = any(len(curves) > 1 for curves in arms.values())
    note = f"line: median over seeds; band: {words}" if several else ""
    if title:
        style.entitle(figure, title, note)
        if len(arms) > 1:
            axes[0].legend(fontsize="small", frameon=False)
    else:
        style.legend_above(figure, axes[:1], note or None)
    axes[-1].set_xlabel("Environment steps")
    axes[-1].xaxis.set_major_formatter(style.thousands)
    figure.align_ylabels()
    return figure


def _draw_seeds(axis: Axes, arm: str, curves: list[Curves], column: str, colour: str, band: Band) -> None:
    """Draw the median and band of a column, up to the last epoch that all seeds have."""
    epochs = min(len(curve["steps"]) for curve in curves)
    steps = curves[0]["steps"][:epochs]  # [epochs]
    if any(not np.array_equal(curve["steps"][:epochs], steps) for curve in curves):
        raise UserError(f"the runs of {arm} have epochs of different lengths: draw them with --kind five")
    if any(column not in curve for curve in curves):
        raise UserError(f"a run of {arm} has no column {column}: expected one of {', '.join(curves[0])}")
    table = last_known(np.array([curve[column][:epochs] for curve in curves]))  # [seeds, epochs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # epochs before the first episode of any run are gaps
        low, middle, high = np.nanpercentile(table, (BANDS[band][0], 50, BANDS[band][1]), axis=0)  # each [epochs]
    seeds = "1 seed" if len(curves) == 1 else f"{len(curves)} seeds"
    axis.plot(steps, middle, color=colour, label=f"{style.plain(arm)} ({seeds})", **style.lone_marker(epochs))
    axis.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def last_known(table: np.ndarray) -> np.ndarray:
    """[seeds, epochs] with each NaN, an epoch in which no episode ended, replaced by the seed's number before it."""
    epochs = np.where(np.isnan(table), 0, np.arange(table.shape[1]))  # [seeds, epochs]
    return np.take_along_axis(table, np.maximum.accumulate(epochs, axis=1), axis=1)  # [seeds, epochs]


def diagnostics(runs: dict[str, Curves]) -> Figure:
    """How learning goes: a panel for each of `_DIAGNOSTICS` that some run has numbers for.

    Raises:
        UserError: none of them is there.
    """
    columns = [name for name in _DIAGNOSTICS if any(_has_numbers(curves, name) for curves in runs.values())]
    if not columns:
        raise UserError(f"{', '.join(runs)} has none of the columns {', '.join(_DIAGNOSTICS)}: draw --kind five")
    figure, axes = style.stacked_panels(len(columns), 1.7)
    for axis, column in zip(axes, columns):
        for i, (name, curves) in enumerate(runs.items()):
            if _has_numbers(curves, column):
                look = style.lone_marker(len(curves["epoch"])) | {"color": style.colour_of(i), "linewidth": 1.4}
                axis.plot(curves["epoch"], curves[column], label=style.plain(name), **look)
        style.style_axis(axis, LABELS[column])
    style.label_epochs(axes[-1], min(curves["epoch"][0] for curves in runs.values()))
    style.legend_above(figure, axes)
    figure.align_ylabels()
    return figure


def _has_numbers(curves: Curves, column: str) -> bool:
    return column in curves and not np.all(np.isnan(curves[column]))


def time_per_stage(name: str, curves: Curves) -> Figure:
    """Seconds of every epoch by stage, stacked, with each stage's share of the whole run.

    Validation has its own panel, because only some epochs have it and it would dwarf the other stages.
    """
    epochs = curves["epoch"]
    edges = np.append(epochs - 0.5, epochs[-1] + 0.5)  # [epochs + 1]
    seconds = {stage: np.nan_to_num(curves[stage]) for stage in (*_STAGES, _VALIDATION)}  # each [epochs]
    whole = max(sum(spent.sum() for spent in seconds.values()), 1e-12)
    validated = seconds[_VALIDATION].any()
    figure, axes = style.stacked_panels(2 if validated else 1, 2.4)
    below = np.zeros(len(epochs))
    for colour, (stage, spent) in zip(style.COLOURS, seconds.items()):
        axis, floor = (axes[-1], np.zeros(len(epochs))) if stage == _VALIDATION else (axes[0], below)
        if spent.any():
            label = f"{stage.removeprefix('seconds_')} ({spent.sum() / whole:.0%})"
            axis.stairs(floor + spent, edges, baseline=floor, fill=True, color=colour, label=label)
        below = floor + spent
    style.style_axis(axes[0], "Seconds of training\nper epoch")
    if validated:
        style.style_axis(axes[-1], "Seconds of validation\nper epoch")
    for axis in axes:
        axis.set_ylim(bottom=0)
    style.label_epochs(axes[-1], edges[0])
    axes[-1].set_xlim(right=edges[-1])
    style.legend_above(figure, axes, f"{style.plain(name)}: {whole / 60:.1f} minutes", columns=4)
    figure.align_ylabels()
    return figure
