"""The figure that `python -m programs plot` writes. Apart from it, since matplotlib takes a while to import."""

import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.errors import UserError
from common.figures.curves import LABELS, diagnostics, over_seeds, reward_and_steps, time_per_stage
from common.figures.five_panels import five_panels
from common.figures.kinds import Band, Kind
from common.figures.style import Curves
from common.runs import run_folder


def draw(
    kind: Kind,
    runs: list[Path],
    columns: tuple[str, ...],
    band: Band,
    title: str = "",
    **typed: Any,
) -> Figure:
    """Draw a figure.

    Args:
        kind: see `python -m programs plot --help`.
        typed: what was typed as the run's environment, for kind policy; see `run_folder.read_config`.

    Raises:
        UserError: no run or too many for this kind, or a run has not got what the figure shows.
    """
    if not runs:
        raise UserError("no run is named: type python -m programs plot runs/NAME [runs/OTHER ...]")
    if kind in ("reward", "time", "policy") and len(runs) > 1:
        raise UserError(f"{len(runs)} runs given: --kind {kind} draws one, --kind five overlays several")
    if kind == "policy":
        return _policy(runs[0], **typed)
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
        return over_seeds(_arms(curves), panels, band, title)
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


def _policy(run: Path, **typed: Any) -> Figure:
    from common.figures import policy_view  # imports TensorFlow, which the other kinds do not need
    from programs import methods

    agent: Any
    agent, config, _ = methods.load_agent(run, "best", **typed)
    return policy_view.policy_view(agent, policy_view.grid_for(config.env, agent))
