"""The policy of a run as files that need nothing of this project: python -m common.export runs/NAME

What is written, and how it is checked, is in `common.policy_files`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common.command_line import one_line_errors, parse_settings
from common.errors import UserError
from common.load_agent import WhichWeights, load_agent


@dataclass(frozen=True)
class _Arguments:
    """Write a run's deterministic policy as a TensorFlow SavedModel and a LiteRT (TensorFlow Lite) file."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, like runs/NAME."""
    weights: WhichWeights = "best"
    """The agent the run ended with, by default the best epoch's, or that of the last checkpoint."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["--output"])] = None
    """Folder to write to; None takes RUN/export."""


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(_Arguments, prog="python -m common.export")
        agent, config, _ = load_agent(arguments.run, arguments.weights)
        if agent.sees_images:
            raise UserError(f"{config.env} shows images: export takes policies whose observations are numbers")
        from common.policy_files import export  # and with it TensorFlow

        for file in export(agent, arguments.out or arguments.run / "export"):
            print(f"{file.path}: {file.size:,} bytes, largest difference {file.difference:.2g}")


if __name__ == "__main__":
    main()
