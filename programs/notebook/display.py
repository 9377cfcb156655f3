"""What a notebook shows of a run: a line of progress and figures, updated in place; tables; errors in one line."""

import base64
import contextlib
import io
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from IPython.display import DisplayHandle
from matplotlib.figure import Figure
from PIL import Image

from common import files
from common.errors import StoppedError, UserError
from common.figures.style import COLOURS, GREY, plain, stacked_panels, style_axis, thousands
from common.results import EpochResult, score_text
from common.rollout.evaluation import mean_text
from common.runs import run_folder
from common.runs.command_line import file_fault
from common.runs.terminal import Terminal

_BAR = 24  # characters
_LINES = 12  # newest lines kept below the bar
_DPI, _DPI_FOLDED, _COLOURS = 80, 64, 32


def put(bundle: dict[str, str]) -> DisplayHandle:
    """Show a bundle, MIME type → content, below the executing cell; the handle's `update` replaces it."""
    handle = DisplayHandle()
    handle.display(bundle, raw=True)
    return handle


class Screen(Terminal):
    """Keeps the lines and the newest row of a run; from `open` on they are shown, each update in the same place.

    After the epoch `stop_after` the run is asked to stop, as by the stop button; None never.
    """

    def __init__(self, folder: Path, stop_after: int | None = None) -> None:
        self._folder = folder
        self.lines: list[str] = []  # all that were printed
        self.epochs = self.done = 0  # of the whole run, and trained so far
        self._row: EpochResult | None = None  # the newest
        self._within, self._done_before, self._stop_after = "", 0, stop_after
        self._text: DisplayHandle | None = None
        self._pictures: list[DisplayHandle] = []
        self._thread = 0  # that shows the run; a run in the background changes it in another one

    def open(self) -> None:
        """Show the run below the executing cell from now on."""
        self._text, self._pictures, self._thread = put({"text/plain": ""}), [], threading.get_ident()

    def begin(self, epochs: int, done: int) -> None:
        """Start: `epochs` in all, of which `done` are trained already."""
        self.lines.clear()  # of an earlier part of the run
        self.epochs, self.done, self._done_before, self._began = epochs, done, done, time.monotonic()
        self.refresh()

    def end(self) -> None:
        """From now on no time is left."""
        self._done_before = self.done
        self.refresh()

    def say(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)
        self.refresh()

    def row(self, result: EpochResult) -> None:
        """Keep the row of an epoch, and stop after the epoch that was named."""
        self._row, self.done, self._within = result, result.epoch, ""
        if result.epoch == self._stop_after:
            self.stop = signal.SIGINT  # as the stop button
        self.refresh()

    def progress(self, text: str) -> None:
        """Keep how far the epoch is."""
        self._within = text
        self.refresh()

    def refresh(self) -> None:
        """Show the present `text()`."""
        if self._text is not None and self._thread == threading.get_ident():
            self._text.update({"text/plain": self.text()}, raw=True)

    def figure(self, figure: Figure) -> None:
        """Show the rewards and, folded below them, the five panels; or replace those before."""
        bundles = picture(rewards([self._folder])), folded("All five panels", figure)
        for handle, bundle in zip(self._pictures, bundles):
            handle.update(bundle, raw=True)
        self._pictures = self._pictures or [put(bundle) for bundle in bundles]

    def text(self) -> str:
        """The first line, the bar, and the newest other lines."""
        left = ""
        if self.done > self._done_before:
            seconds = (time.monotonic() - self._began) / (self.done - self._done_before) * (self.epochs - self.done)
            left = f"   {int(seconds) // 60}:{int(seconds) % 60:02d} left" if seconds else ""
        full = round(_BAR * self.done / max(1, self.epochs))
        bar = f"epoch {self.done}/{self.epochs}  {'█' * full}{'░' * (_BAR - full)}"
        if self._row is not None:
            row = self._row
            reward = "no episode finished" if row.episodes == 0 else f"{score_text(row.avg_reward_orig)} per episode"
            bar += f"   {row.steps:,} steps   {reward}   {row.steps_per_second:,.0f} steps/s"
        bar += left if not self._within else f"{left}   {self._within}"
        return "\n".join([*self.lines[:1], bar, *self.lines[1:][-_LINES:]])


def picture(figure: Figure, dpi: int = _DPI) -> dict[str, str]:
    """A figure as a PNG of few colours, so that a notebook with many figures stays small; MIME type → content."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    method = Image.Quantize.MAXCOVERAGE  # keeps colours of few pixels, such as those of marks
    shown = Image.open(drawn).convert("RGB").quantize(_COLOURS, method, dither=Image.Dither.NONE)
    shown.save(small, "PNG", optimize=True)
    return {"image/png": base64.b64encode(small.getvalue()).decode(), "text/plain": "a figure"}


def show(figure: Figure) -> None:
    """Show a figure below the cell."""
    put(picture(figure))


def folded(summary: str, figure: Figure) -> dict[str, str]:
    """A figure that is shown after a click on its summary; MIME type → content."""
    source = f"data:image/png;base64,{picture(figure, _DPI_FOLDED)['image/png']}"
    html = f'<details><summary>{summary}</summary><img alt="{summary}" src="{source}"></details>'
    return {"text/html": html, "text/plain": f"{summary}: click to see them"}


def rewards(runs: Sequence[Path]) -> Figure:
    """A figure of the environment's own rewards per episode, with the score that counts as solved where there is one.

    Thin: each epoch's episodes; thick: the last 100 episodes; dots: tests without noise that were the best so far.
    """
    figure, (axis,) = stacked_panels(1, 2.6)
    for run, colour in zip(runs, COLOURS * len(runs)):
        curves = run_folder.read_results(run)
        best = (curves["is_best"] > 0) & (curves["validation_steps"] > 0)  # [epochs]
        axis.plot(curves["steps"], curves["avg_reward_orig"], color=colour, linewidth=0.7, alpha=0.5)
        axis.plot(curves["steps"], curves["score"], color=colour, linewidth=2, label=plain(run.name))
        axis.plot(curves["steps"][best], curves["metric"][best], "o", color=colour, markeredgecolor="black")
    settings: Any = files.read_json(runs[0] / run_folder.CONFIG)
    spec = gymnasium.registry.get(settings["config"]["env"])
    if spec is not None and spec.reward_threshold is not None:
        axis.axhline(spec.reward_threshold, color=GREY, linestyle="--")
        axis.annotate("solved", (0.01, spec.reward_threshold), (0, 3), ("axes fraction", "data"), "offset points")
    style_axis(axis, "Reward per episode")
    axis.set_xlabel("Environment steps")
    axis.xaxis.set_major_formatter(thousands)
    axis.legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def table(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, str]:
    """A Markdown table of evaluations, agent → kind → `Evaluation.summary`; MIME type → content."""
    lines = [
        "| agent | actions | mean [95% interval] | worst | best | steps | episodes |",
        "|---|---|---|---|---|---|---|",
    ]
    for agent, kinds in rows.items():
        for kind, s in kinds.items():
            cells = agent, kind, mean_text(s), score_text(s["min"]), score_text(s["max"]), f"{s['mean_steps']:.0f}"
            lines.append(f"| {' | '.join(cells)} | {s['episodes']} |")
    return {"text/markdown": "\n".join(lines), "text/plain": "\n".join(lines)}


@contextlib.contextmanager
def one_line(stopped: str = "stopped: run this cell again") -> Iterator[None]:
    """Let the stop button, whose line is `stopped`, and errors of the disk end a cell with one line."""
    try:
        yield
    except OSError as error:
        line = file_fault(error)
        if line is None:
            raise
        raise UserError(line) from None
    except KeyboardInterrupt:
        raise StoppedError(stopped, signal.SIGINT) from None


def trained(*runs: Path | None) -> list[Path]:
    """The runs; raises UserError if one is None, which means chosen but not trained to its end."""
    if None in runs:
        raise UserError(
            "this run is not trained to its end yet: run its cell above, which continues where it was stopped"
        )
    return [run for run in runs if run is not None]
