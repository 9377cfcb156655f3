"""The five panels: reward, steps and losses over epochs, with the best epochs marked."""

import numpy as np
from matplotlib.figure import Figure

from common.figures import style
from common.figures.style import Curves

_MARK = "#2E9E2E"
_CIRCLE = "near the best in all three upper panels"
_PANELS = (
    ("avg_reward", "avg_reward_orig", "Mean reward\nper episode"),
    ("avg_steps", None, "Mean steps\nper episode"),
    ("total_reward", "total_reward_orig", "Reward per epoch"),
    ("loss_actor", None, "Actor loss"),
    ("loss_critic", None, "Critic loss"),
)
_JUDGED = ("total_reward", "avg_reward", "avg_steps")


def near_best_epochs(curves: Curves, most: int = 8) -> np.ndarray:
    """Epochs on which reward per epoch, reward and steps per episode are all near their best.

    "Near" means less than 5% of the curve's range below its maximum. If no epoch is that near in all three
    curves, the distance of the nearest epoch counts. Of neighbouring epochs the one with the highest
    reward is taken, and of those the `most` best, in order.

    Returns:
        [≤ most] indices into the curves.
    """
    missing = np.zeros(len(curves["epoch"]))  # [epochs] largest distance of the three, as a share of the range
    for name in _JUDGED:
        curve = curves[name]
        if np.all(np.isnan(curve)):
            return np.array([], dtype=int)
        best, worst = np.nanmax(curve), np.nanmin(curve)
        missing = np.maximum(missing, (best - curve) / max(best - worst, 1e-300))  # NaN stays NaN
    with np.errstate(invalid="ignore"):
        near = missing <= max(0.05, np.nanmin(missing))  # [epochs]
    stretches = np.split(np.flatnonzero(near), np.flatnonzero(np.diff(np.flatnonzero(near)) > 1) + 1)
    reward = curves["total_reward"]
    peaks = [stretch[np.argmax(reward[stretch])] for stretch in stretches if len(stretch)]
    return np.sort(sorted(peaks, key=lambda i: -reward[i])[:most]).astype(int)


def five_panels(runs: dict[str, Curves]) -> Figure:
    """Reward and steps per episode, reward per epoch, both losses; several runs overlaid.

    Solid lines are shaped rewards, thin ones the environment's own where they differ. Dashed lines and green circles
    mark the epochs of `near_best_epochs`; triangles, the epoch whose parameters scored best by `best_metric`; grey
    bands, epochs in which no episode finished. The legend says so.
    """
    figure, axes = style.stacked_panels(len(_PANELS), 2)
    for run, (name, curves) in enumerate(runs.items()):
        colour, label = style.colour_of(run), style.plain(name)
        epochs, marked = curves["epoch"], near_best_epochs(curves)
        lone = style.lone_marker(len(epochs))
        for axis, (column, original, _) in zip(axes, _PANELS):
            axis.plot(epochs, curves[column], color=colour, linewidth=1.6, label=label, **lone)
            if original is not None and style.differ(curves[column], curves[original]):
                axis.plot(epochs, curves[original], color=colour, linewidth=0.8, alpha=0.6, label=f"{label}, unshaped")
            for epoch in epochs[marked]:
                axis.axvline(epoch, color=colour, linestyle="--", linewidth=0.8, alpha=0.6, zorder=0)
            if column in _JUDGED:
                axis.plot(
                    epochs[marked], curves[column][marked], "o", color="none", markeredgecolor=_MARK,
                    markersize=9, markeredgewidth=1.8, label=_CIRCLE if run == 0 and axis is axes[0] else None,
                )  # fmt: skip
                best = np.flatnonzero(curves["is_best"] == 1)[-1:]  # NaN where an older version wrote
                axis.plot(
                    epochs[best], curves[column][best], "v", color=colour, markeredgecolor="black", markersize=8,
                    label=f"{label}: best parameters, epoch {epochs[best[0]]:.0f}" if len(best) else None,
                )  # fmt: skip
    if style.shade_empty_epochs(axes[:2], runs):
        axes[0].annotate(style.EMPTY_EPOCHS, (0.01, 0.93), xycoords="axes fraction", fontsize="x-small", va="top")
    for axis, (_, _, quantity) in zip(axes, _PANELS):
        style.style_axis(axis, quantity)
    style.label_epochs(axes[-1], min(curves["epoch"][0] for curves in runs.values()))
    style.legend_above(figure, axes[:1], columns=2)
    figure.align_ylabels(axes)
    return figure
