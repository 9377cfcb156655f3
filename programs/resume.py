"""Continue a run of any method: python -m programs resume RUN [--epochs N]"""

import sys
from pathlib import Path

from common.errors import UserError
from common.runs.command_line import one_line_errors, value_of
from programs.methods import METHODS, read_config
from programs.train import train

PROGRAM = "python -m programs resume"


def main() -> None:
    with one_line_errors():
        if len(sys.argv) > 1 and sys.argv[1] in ("-h", "--help"):
            print(f"usage: {PROGRAM} RUN [--epochs N] [settings]; {PROGRAM} RUN --help shows the settings of a run.")
            return
        if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
            raise UserError(f"no run is named: type {PROGRAM} runs/NAME")
        run, *rest = sys.argv[1:]
        typed = (value_of(flag, rest) for flag in ("--env", "--env-kwargs"))
        _, config = read_config(Path(run), *typed)
        train(METHODS[config.METHOD], ["--resume", run, *rest], PROGRAM)


if __name__ == "__main__":
    main()
