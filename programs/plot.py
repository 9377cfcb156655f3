"""Draw figures of runs: python -m programs plot RUN [RUN ...] --output PICTURE

The figures themselves are in `common.figures`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UserError
from common.figures.kinds import Band, Kind
from common.runs.command_line import one_line_errors, parse_settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Arguments:
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
    columns: tuple[str, ...] = ("avg_reward_orig", "avg_steps")
    """With --kind seeds: columns of results.csv to draw, one panel each."""
    band: Band = "range"
    """With --kind seeds: range shades the area from the lowest to the highest run, interquartile the middle half of
    the runs."""
    title: str = ""
    """With --kind seeds: what the figure shows, written above it. With a title, a second file NAME-dark is drawn for
    dark pages."""
    env: str | None = None
    """With --kind policy, the run's environment, typed again. Only needed if a module of your own registers it
    (MODULE:ID), or together with --env-kwargs."""
    env_kwargs: str | None = None
    """The environment's arguments as JSON, typed again together with --env; only needed if some of them are
    strings."""
    wrappers: tuple[str, ...] | None = None
    """The environment's wrappers (MODULE:CLASS ...), typed again; only needed if it has some."""


TYPED = ("env", "env_kwargs", "wrappers")
_ONLY_WITH = dict.fromkeys(("columns", "band", "title"), "seeds") | dict.fromkeys(TYPED, "policy")


def check_used(arguments: Arguments) -> None:
    """Raises UserError for an argument that the kind of figure does not use."""
    for name, kind in _ONLY_WITH.items():
        if arguments.kind != kind and getattr(arguments, name) != getattr(Arguments(), name):
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} has no effect with kind {arguments.kind}: add --kind {kind}, or leave it out")


def main() -> None:
    """Draw what the command line asks for."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs plot")
        if arguments.output.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"output {arguments.output} is not a picture's name: end it in .png, .svg or .pdf")
        check_used(arguments)
        typed = {name: getattr(arguments, name) for name in TYPED}
        from common.figures.style import save_figure, save_light_and_dark
        from programs.draw_figure import draw

        def drawn() -> "Figure":
            runs = list(arguments.runs)
            return draw(arguments.kind, runs, arguments.columns, arguments.band, arguments.title, **typed)

        if arguments.title:
            save_light_and_dark(drawn, arguments.output)
        else:
            save_figure(drawn(), arguments.output)
        print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
