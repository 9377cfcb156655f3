"""Draw figures of runs: python -m programs plot RUN [RUN ...] --output PICTURE

The figures themselves are in `common.figures`.
"""

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.figures.kinds import Band, Kind
from common.runs import run_folder
from common.runs.command_line import one_line_errors, parse_settings
from common.settings import Needs, setting
from programs.run_arguments import RetypedCode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from common.figures.style import Curves

SEEDS = Needs("kind", lambda kind: kind == "seeds", "--kind seeds")
POLICY = Needs("kind", lambda kind: kind == "policy", "--kind policy")


@dataclass(frozen=True)
class Arguments(RetypedCode):
    """Draw one run, or several overlaid."""

    runs: tuple[Path, ...] = field(default=(), metadata={"example": "[runs/NAME ...]"})
    """Run folders, like runs/NAME."""
    output: Path = field(default=Path("overlay.png"), metadata={"alias": "--out"})
    """Picture file to write; its ending chooses PNG, SVG or PDF."""
    kind: Kind = "five"
    """five: reward, steps and losses in five panels. reward: reward and steps of one run. diagnostics: of PPO the KL
    divergence, clipping, entropy, σ and explained variance; of the other methods Q and its target, and of SAC and TQC
    the entropy and its weight. time: seconds per epoch by stage, of one run. seeds: median and band over runs
    whose names differ only in the seed. policy: action and value of one run over its observations, for Pendulum and
    for environments whose observation has one or two numbers."""
    columns: tuple[str, ...] = setting(("avg_reward_orig", "avg_steps"), needs=SEEDS)
    """With --kind seeds: columns of results.csv to draw, one panel each."""
    band: Band = setting("range", needs=SEEDS)  # noqa: RUF009  it is immutable
    """With --kind seeds: range shades the area from the lowest to the highest run, interquartile the middle half of
    the runs."""
    title: str = setting("", needs=SEEDS)
    """With --kind seeds: what the figure shows, written above it. With a title, a second file NAME-dark is drawn for
    dark pages."""
    env: str | None = setting(None, needs=POLICY)
    env_kwargs: str | None = setting(None, needs=POLICY)
    wrappers: tuple[str, ...] | None = setting(None, needs=POLICY)
    networks: str | None = setting(None, needs=POLICY)


def draw(
    kind: Kind, runs: list[Path], columns: tuple[str, ...] = (), band: Band = "range", title: str = "", **typed: Any
) -> "Figure":
    """Draw a figure; for its kind see `python -m programs plot --help`.

    Args:
        typed: what was typed as the run's environment, for kind policy; see `run_folder.read_config`.

    Raises:
        UserError: no run or too many for this kind, or a run has not got what the figure shows.
    """
    from common.figures import curves, five_panels  # matplotlib takes a while to import

    if not runs:
        raise UserError("no run is named: type python -m programs plot runs/NAME [runs/OTHER ...]")
    if kind in ("reward", "time", "policy") and len(runs) > 1:
        raise UserError(f"{len(runs)} runs given: --kind {kind} draws one, --kind five overlays several")
    if kind == "policy":
        from common.figures import policy_view  # imports TensorFlow, which the other kinds do not need
        from programs import methods

        agent: Any
        agent, config, _ = methods.load_agent(runs[0], **typed)
        return policy_view.policy_view(agent, policy_view.grid_for(config.env, agent))
    if kind == "seeds" and not columns:
        raise UserError("no columns given: --kind seeds draws a panel for each of --columns avg_reward_orig ...")
    names = [run.name for run in runs]
    tables = {  # by name; by path where two names are the same
        run.name if names.count(run.name) == 1 else str(run): run_folder.read_results(run) for run in runs
    }
    if kind == "reward":
        return curves.reward_and_steps(*next(iter(tables.items())))
    if kind == "time":
        return curves.time_per_stage(*next(iter(tables.items())))
    if kind == "diagnostics":
        return curves.diagnostics(tables)
    if kind == "seeds":
        arms: dict[str, list[Curves]] = {}  # by name without the seed
        for name, table in tables.items():
            arms.setdefault(re.sub(r"-?seed\d+", "", name) or name, []).append(table)
        panels = tuple((column, curves.LABELS.get(column, column)) for column in columns)
        return curves.over_seeds(arms, panels, band, title)
    return five_panels.five_panels(tables)


def main() -> None:
    """Draw what the command line asks for."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs plot")
        if arguments.output.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"output {arguments.output} is not a picture's name: end it in .png, .svg or .pdf")
        from common.figures.style import save_figure, save_light_and_dark

        asked = arguments.kind, [*arguments.runs], arguments.columns, arguments.band, arguments.title
        drawn = functools.partial(draw, *asked, **arguments.typed)
        if arguments.title:
            save_light_and_dark(drawn, arguments.output)
        else:
            save_figure(drawn(), arguments.output)
        print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
