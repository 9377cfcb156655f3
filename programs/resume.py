"""Continue a run of any method: python -m programs resume RUN [--epochs N]"""

import sys
from pathlib import Path

from common.errors import UserError
from common.runs.command_line import one_line_errors, value_of
from programs.train import method_of_run, train

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
        if len(sys.argv) < 2:
            raise UserError(f"no run is named: type {PROGRAM} runs/NAME")
        run, *rest = sys.argv[1:]
        if run.startswith("-"):
            raise UserError(f"{run} stands where the run belongs: type {PROGRAM} runs/NAME, and settings after it")
        if value_of("--resume", rest) is not None or "--resume" in rest:
            raise UserError(f"--resume is not needed here: type {PROGRAM} {run}")
        train(method_of_run(Path(run), rest), ["--resume", run, *rest], f"{PROGRAM} {run}")


if __name__ == "__main__":
    main()
