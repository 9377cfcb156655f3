"""Train an agent with any method: python -m programs train [PRESET] [--env ID] [--setting value ...]

A preset is a name, or a JSON file that `python -m programs tune` wrote.
"""

import sys
import textwrap
from pathlib import Path

from common.runs.arguments import WIDTH
from common.runs.command_line import one_line_errors, typed_environment, value_of
from common.runs.session import train_as_typed
from ppo.presets import FOR_ANY
from programs.methods import METHODS, read_config
from programs.preset_files import find_preset

PROGRAM = "python -m programs train"


def train(arguments: list[str], program: str) -> None:
    """Train as typed, with the method of the preset, the file or the run that is named, and with PPO if none is.

    Raises:
        UserError: an argument is wrong, or the run cannot be trained here.
        StoppedError: a signal stopped the run; a checkpoint was written.
    """
    resumed, typed = value_of("--resume", arguments), typed_environment(arguments)
    method = METHODS["ppo"]
    if arguments and not arguments[0].startswith("-"):
        name, method, config = find_preset(arguments[0], **typed)
        method = method._replace(presets={**method.presets, name: config})
        arguments = [name, *arguments[1:]]
    elif resumed is not None:
        _, config = read_config(Path(resumed), **typed)
        method = METHODS[config.METHOD]
    elif {"-h", "--help"} & set(arguments):
        others = (f"presets of {name}: {', '.join(one.presets)}" for name, one in METHODS.items() if name != "ppo")
        print(*(textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in others), sep="\n")
        print(f"{PROGRAM} PRESET --help shows a preset of theirs. Those of ppo:\n")
    presets, preset_for = method.presets, method.preset_for
    train_as_typed(method.trainer, arguments, program, presets, method.default_preset, preset_for, FOR_ANY)


def main() -> None:
    """Train what the command line names; without a preset it is PPO's own choice for the environment."""
    with one_line_errors():
        train(sys.argv[1:], PROGRAM)


if __name__ == "__main__":
    main()
