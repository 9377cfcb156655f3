"""Continue a run of any method: python -m programs resume RUN [--epochs N]"""

import sys

from common.errors import UserError
from common.runs.command_line import one_line_errors, value_of
from programs.train import train

PROGRAM = "python -m programs resume"
USAGE = f"""usage: {PROGRAM} RUN [--epochs N] [settings]

Continue an interrupted run from its newest checkpoint, or train a finished run for more epochs.
{PROGRAM} RUN --help shows the settings that may be changed, with their present values."""


def main() -> None:
    """Continue the run that the command line names."""
    with one_line_errors():
        if sys.argv[1:2] in (["-h"], ["--help"]):
            print(USAGE)
            return
        if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
            raise UserError(f"no run is named first: type {PROGRAM} runs/NAME, and settings after it")
        run, *rest = sys.argv[1:]
        if value_of("--resume", rest) is not None or "--resume" in rest:
            raise UserError(f"--resume is not needed here: type {PROGRAM} {run}")
        train(["--resume", run, *rest], f"{PROGRAM} {run}")


if __name__ == "__main__":
    main()
