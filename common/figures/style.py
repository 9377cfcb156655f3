"""What all figures share: colours, axes, and writing them to files."""

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from common import files

Curves = dict[str, np.ndarray]  # column of results.csv → [epochs]

# Okabe & Ito's palette, which colour-blind readers can distinguish too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")


def thousands(value: float, _: float) -> str:
    """The label of a tick: 1500 → '1.5k', 2000000 → '2M'."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def differ(shaped: np.ndarray, original: np.ndarray) -> bool:
    """Whether shaped and original rewards [epochs] differ by more than rounding."""
    return not np.allclose(shaped, original, equal_nan=True)


def stacked_panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure as wide as a page with `count` panels below each other, each `height` inches high."""
    figure = Figure(figsize=(9, 1 + height * count), layout="constrained")
    return figure, list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])


def style_axis(axis: Axes, label: str) -> None:
    """Give an axis its label, a grid and short numbers."""
    axis.set_ylabel(label)
    axis.grid(alpha=0.25)
    axis.set_axisbelow(True)
    axis.yaxis.set_major_formatter(thousands)
    axis.spines[["top", "right"]].set_visible(False)


def label_epochs(axis: Axes, first: float) -> None:
    """Label the lowest panel's axis with epochs, from `first` on."""
    axis.set_xlabel("Epoch")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlim(left=first)


EMPTY_EPOCHS = "grey: no episode finished"


def shade_empty_epochs(axes: Iterable[Axes], runs: dict[str, Curves]) -> bool:
    """Shade epochs in which some run finished no episode, to explain gaps in curves; whether there were any."""
    empty = [epoch for curves in runs.values() for epoch in curves["epoch"][curves["episodes"] == 0]]
    for axis in axes:
        for epoch in empty:
            axis.axvspan(epoch - 0.5, epoch + 0.5, color="0.5", alpha=0.15, linewidth=0)
    return bool(empty)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all; the suffix of the path sets the format, PNG if there is none."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lstrip(".") or "png", dpi=110)
    files.replace_file(path, buffer.getvalue())
