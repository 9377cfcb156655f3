"""Figures of runs: python -m programs plot runs/A runs/B --output figure.png

The five panels are here; the other kinds are in `common.figures.curves` and `common.figures.policy_view`.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from matplotlib.figure import Figure

from common.errors import UserError
from common.figures.curves import LABELS, Band, diagnostics, over_seeds, reward_and_steps, time_per_stage
from common.figures.five_panels import five_panels
from common.figures.style import (
    Curves,
    save_figure,
)
from common.runs import run_folder
from common.runs.command_line import one_line_errors, parse_settings

Kind = Literal["five", "reward", "diagnostics", "time", "seeds", "policy"]


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
        raise UserError("no run given: python -m programs plot runs/NAME [runs/OTHER ...]")
    if kind in ("reward", "time", "policy") and len(runs) > 1:
        raise UserError(f"{len(runs)} runs given: --kind {kind} draws one, --kind five overlays several")
    if kind == "policy":
        return _policy(runs[0], env, env_kwargs)
    if kind == "seeds" and not columns:
        raise UserError("no columns given: --kind seeds draws a panel for each of --columns avg_reward_orig ...")
    curves = {name: run_folder.read_results(run) for name, run in _named(runs).items()}
    if kind == "reward":
        return reward_and_steps(*next(iter(curves.items())))
    if kind == "time":
        return time_per_stage(*next(iter(curves.items())))
    if kind == "diagnostics":
        return diagnostics(curves)
    if kind == "seeds":
        panels = tuple((column, LABELS.get(column, column)) for column in columns)
        return over_seeds(_arms(curves), panels, band)
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
    from common.figures import policy_view  # TensorFlow, which the other kinds do without
    from programs import methods

    agent, config, _ = methods.load_agent(run, "best", env=env, env_kwargs=env_kwargs)
    return policy_view.policy_view(agent, policy_view.grid_for(config.env, agent))


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
        arguments = parse_settings(_Arguments, prog="python -m programs plot")
        if arguments.output.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"output {arguments.output} is no picture name: end it in .png, .svg or .pdf")
        environment = arguments.env, arguments.env_kwargs
        figure = draw(arguments.kind, list(arguments.runs), arguments.columns, arguments.band, *environment)
        save_figure(figure, arguments.output)
        print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
