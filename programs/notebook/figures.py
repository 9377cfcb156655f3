"""Figures of the notebook's two lessons: advantages over an episode, and the clipped surrogate over the ratio."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from common.figures.style import COLOURS, stacked_panels, style_axis

PALE, FLAT = 0.35, 1e-6  # opacity of the project's line; slope below which a gradient counts as zero


def horizons(own: Sequence[float], asked: Sequence[float]) -> str:
    """A line that says how many steps of rewards an advantage sums up, with the run's own γ and λ and the reader's."""
    before, after = (_horizon(*numbers) for numbers in (own, asked))
    if before == after:
        return f"an advantage sums up about {before} of what follows: 1 / (1 − γλ)"
    return f"an advantage sums up about {after} of what follows, with the run's own γ and λ {before}: 1 / (1 − γλ)"


def _horizon(gamma: float, gae_lambda: float) -> str:
    left = 1.0 - gamma * gae_lambda
    return "all" if left < 1e-9 else f"{1.0 / left:.1f} steps"


def advantages_figure(
    episode: Any, before: np.ndarray, after: np.ndarray, own: Sequence[float], asked: Sequence[float]
) -> Figure:
    """Rewards, values and advantages of one episode below each other.

    Args:
        before: [T], the project's advantages with the run's own numbers.
        after: [T], the reader's with the reader's numbers.
    """
    figure, axes = stacked_panels(4, 1.35)
    steps = np.arange(1, len(before) + 1)  # [T]
    axes[0].plot(steps, episode.rewards, color=COLOURS[2], linewidth=0.9)
    axes[1].plot(steps, episode.values[:-1], color=COLOURS[2], linewidth=1.2)
    labels = [f"{who}: γ = {gamma:g}, λ = {lam:g}" for who, (gamma, lam) in (("project's", own), ("yours", asked))]
    for axis in axes[2:]:
        axis.plot(steps, before, color=COLOURS[1], alpha=PALE, linewidth=3.5, label=labels[0])
        axis.plot(steps, after, color=COLOURS[0], linewidth=1.0, label=labels[1])
        axis.axhline(0.0, color="0.4", linewidth=0.6)
    least, most = np.quantile(np.concatenate([before, after]), (0.08, 0.98))
    axes[3].set_ylim(least - 0.3 * (most - least) - 1e-3, most + 0.3 * (most - least) + 1e-3)
    for axis, label in zip(axes, ("reward in\ntraining", "value V(s)", "advantage Â", "advantage Â,\nenlarged")):
        style_axis(axis, label)
    axes[2].legend(loc="lower left", fontsize="small", ncols=2)
    axes[3].set_xlabel("step of the episode")
    axes[3].set_xlim(1, len(before))
    end = "terminated" if episode.terminated[-1] else "ran out of time"
    figure.suptitle(f"one episode with sampled actions; it {end} after {len(before):,} steps", fontsize="medium")
    figure.align_ylabels()
    return figure


def surrogate_figure(
    ratios: np.ndarray, curves: Mapping[float, tuple[np.ndarray, np.ndarray]], own: float, asked: float
) -> Figure:
    """The objective of one sample over the probability ratio, for a positive and a negative advantage.

    Args:
        ratios: [K].
        curves: advantage → the project's objective and the reader's, [K] each.
    """
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, (advantage, (project, reader)) in zip(axes, curves.items()):
        for first, last in flat_parts(ratios, reader):
            axis.axvspan(first, last, color="0.5", alpha=0.18, linewidth=0)
        axis.plot(ratios, project, color=COLOURS[1], alpha=PALE, linewidth=5, label=f"project's: ε = {own:g}")
        axis.plot(ratios, reader, color=COLOURS[0], linewidth=1.5, label=f"yours: ε = {asked:g}")
        for at in (1.0 - asked, 1.0, 1.0 + asked):
            axis.axvline(at, color="0.4", linestyle="-" if at == 1.0 else ":", linewidth=0.8)
        style_axis(axis, "objective of one sample")
        axis.set_title(f"Â {'>' if advantage > 0 else '<'} 0", fontsize="medium")
        axis.set_xlabel("probability ratio ρ = π(a|s) / π_old(a|s)")
        axis.set_xlim(0, ratios[-1])
        axis.legend(loc="lower right" if advantage > 0 else "lower left", fontsize="small")
    figure.suptitle("grey: the gradient of your function is zero", fontsize="medium")
    return figure


def flat_parts(ratios: np.ndarray, curve: np.ndarray) -> list[tuple[float, float]]:
    """The intervals in which a curve [K] over ratios [K] neither rises nor falls."""
    flat = np.abs(np.diff(curve) / np.diff(ratios)) < FLAT  # [K-1]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flat, [False]]).astype(int)))  # starts and ends by turns
    return [(float(ratios[a]), float(ratios[b])) for a, b in zip(edges[::2], edges[1::2])]
