"""Train an agent with any method: python -m programs train [PRESET] [--env ID] [--setting value ...]

A preset is a name, or a JSON file that `python -m programs tune` wrote.
"""

import difflib
import sys
import textwrap
from pathlib import Path

from common.errors import UserError
from common.runs import session
from common.runs.arguments import WIDTH
from common.runs.command_line import names_of_flags, one_line_errors, parse, typed_environment, value_of
from ppo.presets import FOR_ANY
from programs.methods import METHODS, Method, read_config
from programs.preset_files import is_preset_file, read_preset

PROGRAM = "python -m programs train"


def method_of(preset: str) -> Method:
    """The method that has a preset of this name.

    Raises:
        UserError: no method has one.
    """
    names = [name for method in METHODS.values() for name in method.presets]
    for method in METHODS.values():
        if preset in method.presets:
            return method
    near = difflib.get_close_matches(preset, names, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"{PROGRAM} --help lists all presets"
    raise UserError(f"unknown preset {preset!r}: {hint}")


def method_of_run(run: Path, arguments: list[str]) -> Method:
    """The method that a run was trained with.

    Args:
        arguments: what was typed; see `typed_environment`.

    Raises:
        UserError: there is no run, or its environment must be typed again.
    """
    _, config = read_config(run, **typed_environment(arguments))
    return METHODS[config.METHOD]


def train(method: Method, arguments: list[str], program: str) -> None:
    """Train with a method.

    Args:
        arguments: as typed, beginning with a preset or a setting.

    Raises:
        UserError: an argument is wrong, or the run cannot be trained here.
        StoppedError: a signal stopped the run; a checkpoint was written.
    """
    preset, config, options = parse(arguments, program, method.presets, method.default_preset, method.preset_for)
    session.run(
        lambda config: method.trainer(config, description=f"preset {preset}", workers=options.placement),
        preset,
        config,
        options,
        typed=names_of_flags(arguments) if preset == FOR_ANY else None,
    )


def presets_of_others() -> str:
    """The presets of every method but PPO, whose own help names them."""
    others = (f"presets of {name}: {', '.join(method.presets)}" for name, method in METHODS.items() if name != "ppo")
    return "\n".join(textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in others)


def main() -> None:
    """Train what the command line names; without a preset it is PPO's own choice for the environment."""
    with one_line_errors():
        arguments = sys.argv[1:]
        resumed = value_of("--resume", arguments)
        if arguments and is_preset_file(arguments[0]):
            name, method, config = read_preset(Path(arguments[0]), **typed_environment(arguments))
            method = method._replace(presets={**method.presets, name: config})
            arguments[0] = name
        elif arguments and not arguments[0].startswith("-"):
            method = method_of(arguments[0])
        elif resumed is not None:
            method = method_of_run(Path(resumed), arguments)
        else:
            method = METHODS["ppo"]
            if {"-h", "--help"} & set(arguments):
                print(f"{presets_of_others()}\n{PROGRAM} PRESET --help shows a preset of theirs. Those of ppo:\n")
        train(method, arguments, PROGRAM)


if __name__ == "__main__":
    main()
