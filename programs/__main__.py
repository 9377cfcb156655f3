"""One command for everything: python -m programs COMMAND ...

Each command is a module of this folder; only the one that was typed is imported.
"""

if __name__ == "__main__":  # before the imports below, which take a second
    from common.runs import signals

    signals.end_on_ctrl_c()

import difflib
import importlib
import sys

from common.errors import UserError
from common.runs.command_line import one_line_errors

COMMANDS = {
    "train": "Train an agent: [PRESET] [--env ID] [--setting value ...].",
    "resume": "Continue a run that was stopped, or train it for more epochs: RUN [--epochs N].",
    "evaluate": "Play episodes with a trained agent and write their scores: RUN.",
    "watch": "Show a trained agent in a window or as a film: walker, or RUN.",
    "dashboard": "Show a run in a browser, with sliders of what may change while it trains: RUN.",
    "plot": "Draw figures of one run or several: RUN [RUN ...] --output PICTURE.",
    "export": "Write a policy as a SavedModel and a LiteRT file, with --onnx as an ONNX file too: RUN.",
    "ship": "Put the agent of a finished run into the project: RUN NAME.",
    "tune": "Search for better settings of a preset: PRESET [--trials N].",
    "study": "Train several settings over several seeds and summarise them: STUDY.",
}


def main() -> None:
    """Run the command that was typed; without one, print all commands."""
    with one_line_errors():
        command, *rest = sys.argv[1:] or ["--help"]
        if command in ("-h", "--help"):
            lines = (f"  {name:9} {what}" for name, what in COMMANDS.items())
            print("usage: python -m programs COMMAND ...", "", *lines, "", sep="\n")
            print("python -m programs COMMAND --help shows the settings of a command.")
            return
        if command not in COMMANDS:
            near = difflib.get_close_matches(command, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(COMMANDS)}"
            raise UserError(f"unknown command {command!r:.40}: {hint}")
        sys.argv = [f"python -m programs {command}", *rest]
        importlib.import_module(f"programs.{command}").main()


if __name__ == "__main__":
    main()
