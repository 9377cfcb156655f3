"""The figure of a study: the score of every seed, and how it was reached."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.figures.curves import last_known
from common.figures.style import GREY, Curves, colour_of, entitle, plain, style_axis, thousands, true_minus
from common.results import score_text

DOTS = "dots: a seed's mean score, filled with deterministic actions, hollow with sampled ones"
LINES, LINE = "lines: training, thin a seed, thick their median", "line: training"


class ArmScores(NamedTuple):
    """One setting of a study; each list has one entry for each seed."""

    curves: list[Curves]
    deterministic: list[float]  # mean scores of the finished agents
    sampled: list[float]
    episodes: int = 0  # whose mean a score is; 0: unknown
    reached: Sequence[int | None] = ()  # the row of the curves in which a seed reaches the study's milestone


class ReferenceScore(NamedTuple):
    """A score to compare with, such as the one that counts as solved."""

    value: float
    name: str


def compare(
    title: str,
    arms: dict[str, ArmScores],
    panels: Sequence[tuple[str, str]],
    levels: Sequence[ReferenceScore] = (),
    lowest: float | None = None,
    lowest_score: float | None = None,
    milestone: str = "",
) -> Figure:
    """Settings of one task: a row of dots for each, and below them their curves over environment steps.

    Args:
        title: the finding.
        panels: column of results.csv, label; the levels are drawn in the first.
        lowest: where the first panel's axis begins; None shows everything.
        lowest_score: where the scores' axis begins; those below it are written there as numbers.
        milestone: what a triangle in the first panel marks, if the settings have any.
    """
    rows = 0.6 + 0.34 * len(arms)
    figure = Figure(figsize=(9, 1.4 + rows + 1.9 * len(panels)), layout="constrained")
    dots, *below = figure.subplots(1 + len(panels), 1, height_ratios=[rows, *[1.9] * len(panels)])
    _draw_dots(dots, arms, levels, lowest_score)
    for axis, (column, label) in zip(below, panels):
        axis.sharex(below[0])
        for i, arm in enumerate(arms.values()):
            _draw_seeds(axis, arm.curves, column, colour_of(i))
        style_axis(axis, label)
    for i, arm in enumerate(arms.values()):
        _mark_milestones(below[0], arm, panels[0][0], colour_of(i))
    _draw_levels(below[0], levels)
    if lowest is not None:
        below[0].set_ylim(bottom=lowest)
    below[-1].set_xlabel("Environment steps")
    below[-1].xaxis.set_major_formatter(thousands)
    for axis in below[:-1]:
        axis.tick_params(labelbottom=False)
    several = any(len(arm.curves) > 1 for arm in arms.values())
    note = f"{DOTS}; {LINES if several else LINE}"
    if milestone and any(arm.reached for arm in arms.values()):
        note += f"\ntriangles: {milestone}"
    entitle(figure, title, note)
    figure.align_ylabels(below)
    return figure


def tasks(
    title: str, arms: dict[str, ArmScores], solved: dict[str, float], lowest: Mapping[str, float] | None = None
) -> Figure:
    """Small multiples: a panel for each task, with the reward while training and, at the right edge, its scores.

    Args:
        title: the finding.
        solved: task → the score that counts as solved, where there is one.
        lowest: task → where its axis begins; the others show everything.
    """
    columns = 4
    rows = math.ceil(len(arms) / columns)
    figure = Figure(figsize=(9, 1 + 2.1 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (name, arm) in zip(axes, arms.items()):
        _draw_seeds(axis, arm.curves, "avg_reward_orig", colour_of(0))
        end = max(curve["steps"][-1] for curve in arm.curves)
        axis.plot([1.06 * end] * len(arm.deterministic), arm.deterministic, **_dot(colour_of(1)))
        if name in solved:
            axis.axhline(solved[name], color=GREY, linestyle=":", linewidth=1)
        axis.set_title(f"{plain(name)}\n{_solved(arm.deterministic, solved.get(name))}", fontsize="small")
        style_axis(axis, "")
        if lowest and name in lowest:
            shown = (np.nanmax(curve["avg_reward_orig"]) for curve in arm.curves)
            highest = max(solved.get(name, -np.inf), *arm.deterministic, *shown)
            axis.set_ylim(lowest[name], highest + 0.05 * (highest - lowest[name]))
        axis.xaxis.set_major_formatter(thousands)
        axis.tick_params(labelsize="x-small")
        axis.locator_params(axis="x", nbins=4)
    for axis in axes[len(arms) :]:
        axis.set_axis_off()
    for axis in axes[max(0, len(arms) - columns) : len(arms)]:
        axis.set_xlabel("Environment steps", fontsize="x-small")
    for axis in axes[::columns]:
        axis.set_ylabel("Reward per episode", fontsize="x-small")
    entitle(figure, title, f"{LINES}; dots: the seeds' scores, deterministic; dotted: solved, by Gymnasium's registry")
    return figure


def _solved(scores: list[float], level: float | None) -> str:
    """The median score of a task, and how many seeds reach what counts as solved."""
    score = f"median {np.median(scores):.4g}"
    reached = "no solved score" if level is None else f"{sum(np.array(scores) >= level)} of {len(scores)} ≥ {level:g}"
    return true_minus(f"{score}, {reached}")


def _draw_dots(axis: Axes, arms: dict[str, ArmScores], levels: Sequence[ReferenceScore], lowest: float | None) -> None:
    """A row for each setting; the names are in the curves' colours, in place of a legend."""
    for i, arm in enumerate(arms.values()):
        axis.plot(arm.sampled, i + 0.2 + _apart(len(arm.sampled)), **_dot(colour_of(i), filled=False))
        axis.plot(arm.deterministic, i - 0.2 + _apart(len(arm.deterministic)), **_dot(colour_of(i)))
    for level in levels:
        axis.axvline(level.value, color=GREY, linestyle=":", linewidth=1)
        place = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
        _note(axis, level.name, (level.value, 1), (0, 2), GREY, **place)
    seeds = (len(arm.deterministic) for arm in arms.values())
    names = [f"{name} ({count} seed{'s' if count > 1 else ''})" for name, count in zip(arms, seeds)]
    axis.set_yticks(range(len(arms)), names)
    for i, label in enumerate(axis.get_yticklabels()):
        label.set_color(colour_of(i))
    axis.set_ylim(len(arms) - 0.5, -0.5)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="x", alpha=0.25)
    counts = {arm.episodes for arm in arms.values()}
    count = f"{counts.pop():,}" if len(counts) == 1 and 0 not in counts else "the evaluation's"
    axis.set_xlabel(f"Score: mean of {count} episodes")
    if lowest is not None:
        highest = max(score for arm in arms.values() for score in (*arm.deterministic, *arm.sampled))
        highest = max([highest, *(level.value for level in levels)])
        axis.set_xlim(lowest, highest + 0.05 * (highest - lowest))
    left, _ = axis.get_xlim()
    for i, arm in enumerate(arms.values()):
        for scores, row in ((arm.sampled, i + 0.2), (arm.deterministic, i - 0.2)):
            outside = ", ".join(score_text(score) for score in sorted(scores) if score < left)
            if outside:
                _note(axis, true_minus(f"← {outside}"), (left, row), (6, 0), colour_of(i), va="center_baseline")


def _note(
    axis: Axes, text: str, at: tuple[float, float], points: tuple[float, float], colour: str, **place: Any
) -> None:
    """A small text, so many points to the right of a place and above it."""
    axis.annotate(text, at, points, textcoords="offset points", fontsize="x-small", color=colour, **place)


def _apart(count: int) -> np.ndarray:
    """Small distances [count] from a row, so that dots of equal scores are seen side by side."""
    return (np.arange(count) - (count - 1) / 2) * 0.2 / max(1, count - 1)


def _draw_levels(axis: Axes, levels: Sequence[ReferenceScore]) -> None:
    """Scores to compare with, named right of the axis."""
    highest = max((level.value for level in levels), default=0.0)
    for level in levels:
        axis.axhline(level.value, color=GREY, linestyle=":", linewidth=1)
        beside = "center" if len(levels) == 1 else "bottom" if level.value == highest else "top"
        place = {"xycoords": ("axes fraction", "data"), "ha": "left", "va": beside}
        _note(axis, level.name.replace(", ", ",\n"), (1, level.value), (3, 0), GREY, **place)


def _mark_milestones(axis: Axes, arm: ArmScores, column: str, colour: str) -> None:
    """A triangle on the curve of every seed that reaches the study's milestone."""
    for curve, row in zip(arm.curves, arm.reached):
        if row is not None:
            axis.plot(
                curve["steps"][row], curve[column][row], marker="v", linestyle="none", markersize=6, color=colour,
                markeredgecolor=axis.get_facecolor(), markeredgewidth=0.6, zorder=3,
            )  # fmt: skip


def _dot(colour: str, filled: bool = True) -> dict[str, Any]:
    return {
        "marker": "o", "linestyle": "none", "markersize": 6, "markeredgecolor": colour, "alpha": 0.85,
        "markerfacecolor": colour if filled else "none",
    }  # fmt: skip


def _draw_seeds(axis: Axes, curves: list[Curves], column: str, colour: str) -> None:
    """Every seed as a thin line, and their median as far as all have come."""
    several = len(curves) > 1
    for curve in curves:
        width = 0.6 if several else 1.6
        axis.plot(curve["steps"], curve[column], color=colour, linewidth=width, alpha=0.4 if several else 1)
    epochs = min(len(curve["steps"]) for curve in curves)
    if several and all(np.array_equal(curve["steps"][:epochs], curves[0]["steps"][:epochs]) for curve in curves):
        table = last_known(np.array([curve[column][:epochs] for curve in curves]))  # [seeds, epochs]
        known = ~np.isnan(table).all(axis=0)  # [epochs] in which an episode ended
        axis.plot(
            curves[0]["steps"][:epochs][known], np.nanmedian(table[:, known], axis=0), color=colour, linewidth=1.8
        )
