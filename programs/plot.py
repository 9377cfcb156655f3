"""Draw figures of runs: python -m programs plot RUN [RUN ...] --output PICTURE

The figures themselves are in `common.figures`.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

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
    """Draw a figure.

    Args:
        kind: see `Arguments`.
        runs: their folders.
        columns: of results.csv, for kind seeds.
        band: of kind seeds.
        env, env_kwargs: what was typed as the run's environment, for kind policy; see `run_folder.read_config`.

    Raises:
        UserError: no run or too many for this kind, or a run has not got what the figure shows.
    """
    if not runs:
        raise UserError("no run is named: type python -m programs plot runs/NAME [runs/OTHER ...]")
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
    """Folder name → run; where two names are the same, path → run."""
    names = [run.name for run in runs]
    return {run.name if names.count(run.name) == 1 else str(run): run for run in runs}


def _arms(curves: dict[str, Curves]) -> dict[str, list[Curves]]:
    """Curves grouped by the run's name without its seed."""
    arms: dict[str, list[Curves]] = {}
    for name, run in curves.items():
        arms.setdefault(re.sub(r"-?seed\d+", "", name) or name, []).append(run)
    return arms


def _policy(run: Path, env: str | None, env_kwargs: str | None) -> Figure:
    from common.figures import policy_view  # imports TensorFlow, which the other kinds do not need
    from programs import methods

    agent: Any
    agent, config, _ = methods.load_agent(run, "best", env=env, env_kwargs=env_kwargs)
    return policy_view.policy_view(agent, policy_view.grid_for(config.env, agent))


@dataclass(frozen=True)
class Arguments:
    """Draw one run, or several overlaid."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = field(default=())
    """Run folders, like runs/NAME."""
    output: Annotated[Path, tyro.conf.arg(aliases=["--out"])] = Path("overlay.png")
    """Picture file to write; its ending chooses PNG, SVG or PDF."""
    kind: Kind = "five"
    """five: reward, steps and losses in five panels. reward: reward and steps of one run. diagnostics: KL, clipping,
    entropy, σ and explained variance. time: seconds per epoch by stage, of one run. seeds: median and band over runs
    whose names differ only in the seed. policy: action and value of one run over its observations, for Pendulum and
    environments that observe one or two numbers."""
    columns: tuple[str, ...] = ("avg_reward_orig", "avg_steps")
    """Columns of results.csv to draw with --kind seeds, one panel each."""
    band: Band = "range"
    """With --kind seeds: range shades from the lowest to the highest run, interquartile the middle half."""
    env: str | None = None
    """With --kind policy, the run's environment, typed again; only needed where a module of your own is
    imported for it."""
    env_kwargs: str | None = None
    """The environment's arguments as JSON, typed again; only needed where some of them are strings."""


def main() -> None:
    """Draw what the command line asks for."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs plot")
        if arguments.output.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"output {arguments.output} is no picture name: end it in .png, .svg or .pdf")
        environment = arguments.env, arguments.env_kwargs
        figure = draw(arguments.kind, list(arguments.runs), arguments.columns, arguments.band, *environment)
        save_figure(figure, arguments.output)
        print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
