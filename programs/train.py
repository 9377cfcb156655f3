"""Train an agent with any method: python -m programs train [PRESET] [--env ID] [--setting value ...]"""

import difflib
import sys

from common.errors import UserError
from common.runs import session
from common.runs.command_line import one_line_errors, parse
from programs.methods import METHODS, Method


def method_of(preset: str) -> Method:
    """The method that has a preset of this name.

    Raises:
        UserError: none has.
    """
    names = [name for method in METHODS.values() for name in method.presets]
    for method in METHODS.values():
        if preset in method.presets:
            return method
    near = difflib.get_close_matches(preset, names, n=2) or names
    raise UserError(f"unknown preset {preset!r}: did you mean {' or '.join(near)}?")


def train(method: Method, arguments: list[str], program: str) -> None:
    """Train as the arguments say, which begin with a preset or a setting."""
    preset, config, options = parse(arguments, program, method.presets, method.default_preset, method.preset_for)
    session.run(lambda config: method.trainer(config, description=f"preset {preset}"), preset, config, options)


def main() -> None:
    with one_line_errors():
        arguments = sys.argv[1:]
        named = arguments and not arguments[0].startswith("-")
        train(method_of(arguments[0]) if named else METHODS["ppo"], arguments, "python -m programs train")


if __name__ == "__main__":
    main()
