"""What all figures share: colours, axes, and writing them to files."""

import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from common import files

Curves = dict[str, np.ndarray]  # column of results.csv → [epochs]

# Okabe & Ito's palette, which colour-blind readers can distinguish too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
_COLOURS_ON_DARK = ("#56A8E8", "#FF8B45", "#2FC79B", "#E6A3CB", "#F2B632", "#9BD3F5", "#C9D1D9")  # the same, lighter
GREY = "0.5"  # of thresholds and notes: to be seen on white and on black

_DARK: dict[str, Any] = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor", "savefig.facecolor"), "#0d1117"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#e6edf3"),
}


def thousands(value: float, _: float) -> str:
    """The label of a tick: 1500 → '1.5k', 2000000 → '2M', -10 → '−10'."""
    if abs(value) >= 1e6:
        return true_minus(f"{value / 1e6:g}M")
    return true_minus(f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}")


def plain(name: str) -> str:
    """A name as a label: `$` begins no formula, and a `_` at the start does not hide it from the legend."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def true_minus(text: str) -> str:
    """A text whose negative numbers have a minus sign in place of a hyphen."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


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


def legend_above(figure: Figure, axes: Iterable[Axes], title: str | None = None, columns: int = 3) -> None:
    """Give the panels a legend above them, which names each label once."""
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(
        list(handles.values()), list(handles), title=title, title_fontsize="small", fontsize="small", ncols=columns,
        frameon=False, loc="outside upper center",
    )  # fmt: skip


def lone_marker(epochs: int) -> dict[str, Any]:
    """What a curve of so many epochs is drawn with besides its line, which one epoch alone would not show."""
    return {"marker": "."} if epochs == 1 else {}


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


def colour_of(number: int) -> str:
    """The colour of a curve, to be seen on the page's background; after the last the first follows again."""
    on_dark = rcParams["figure.facecolor"] == _DARK["figure.facecolor"]
    return (_COLOURS_ON_DARK if on_dark else COLOURS)[number % len(COLOURS)]


def entitle(figure: Figure, finding: str, note: str) -> None:
    """Write what the figure shows above it, and how to read it below."""
    figure.suptitle(true_minus(finding), fontsize="medium", fontweight="bold", x=0.01, ha="left")
    figure.supxlabel(note, fontsize="x-small", color=GREY)


def save_light_and_dark(draw: Callable[[], Figure], path: Path) -> None:
    """Write a figure to `path`, and next to it NAME-dark for readers with a dark page; each is drawn anew."""
    modes: dict[str, Any] = {path.name: {}, f"{path.stem}-dark{path.suffix}": _DARK}
    for name, colours in modes.items():
        with rc_context(colours):
            save_figure(draw(), path.with_name(name))


def drawn(figure: Figure, suffix: str = ".png") -> bytes:
    """The content of a figure's file, in the format of the suffix; PNG if there is none."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix.lstrip(".") or "png", dpi=110)
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically; the suffix of the path sets the format."""
    files.replace_file(path, drawn(figure, path.suffix))
