"""Typed words such as `--epochs 60 --no-video` → values of a dataclass's fields; a mistake is one line with advice.

argparse splits the words and prints the help. The values are read here, so that a message names what was expected.
"""

import argparse
import dataclasses
import difflib
import functools
import json
import textwrap
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from common.errors import UserError
from common.settings import Described, json_object

T = TypeVar("T")
WIDTH, HELP_INDENT = 100, 34  # columns of the help
EXPECTED = {int: "a whole number", float: "a number"}
_TABLE = Path(__file__).with_name("replaced_settings.toml").read_text(encoding="utf-8")
REPLACED: dict[str, str] = {f"--{name}": instead for name, instead in tomllib.loads(_TABLE).items()}


def read(
    arguments: Sequence[Described], words: Sequence[str], program: str, description: str, help_flag: str = "--help"
) -> dict[str, Any]:
    """Name → value of every argument; error messages name `help_flag` for all settings.

    Raises:
        UserError: an argument is unknown, is missing, or has a wrong value.
        SystemExit: `--help` was printed.
    """
    more = f"; {help_flag} shows every setting"
    names = " ".join(argument.example for argument in arguments if argument.example)
    usage = f"{program} {names} [--setting value ...]".replace("  ", " ")
    parser = _parser(usage, textwrap.fill(" ".join(description.split()), WIDTH, break_on_hyphens=False))
    groups = {title: parser.add_argument_group(title) for title in dict.fromkeys(a.group for a in arguments)}
    for argument in arguments:
        _add(groups[argument.group], argument)
    if {"-h", "--help"} & set(words):
        print(parser.format_help(), end="")  # argparse would not say if nobody reads it
        raise SystemExit(0)
    try:
        typed, unknown = parser.parse_known_intermixed_args([_as_typed(word) for word in words])
    except argparse.ArgumentError as error:
        flag = (error.argument_name or "").split("/")[0]
        takes_none = "/--no-" in (error.argument_name or "")
        raise UserError(
            f"{flag} {'takes no value' if takes_none else 'has no value: type one after it'}{more}"
        ) from None
    if unknown:
        raise UserError(_unknown(unknown, [argument.flag for argument in arguments], more))
    for argument in arguments:
        if argument.default is dataclasses.MISSING and getattr(typed, argument.name) is None:
            raise UserError(f"no {argument.name} is named: type {program} {names}")
    return {argument.name: _value(argument, getattr(typed, argument.name), more) for argument in arguments}


def _add(group: Any, argument: Described) -> None:
    kind, _ = _without_none(argument.kind)
    several = get_origin(kind) is tuple
    if argument.example:
        text = argument.text.replace("%", "%%")
        group.add_argument(argument.name, metavar=argument.example, nargs="*" if several else "?", help=text)
        return
    text = f"{argument.text} (default: {_shown(argument.default)})".replace("%", "%%")
    flags = [argument.flag, *filter(None, [argument.alias])]
    if kind is bool:
        group.add_argument(*flags, dest=argument.name, action=argparse.BooleanOptionalAction, help=text)
    else:
        group.add_argument(
            *flags, dest=argument.name, nargs="*" if several else None, metavar=_metavar(argument.kind), help=text
        )


def _metavar(kind: Any) -> str:
    """What a flag's value is, for the help: INT, FLOAT|None, {deterministic,sampled}."""
    one, optional = _without_none(kind)
    one = get_args(one)[0] if get_origin(one) is tuple else one
    if get_origin(one) is Literal:
        name = f"{{{','.join(get_args(one))}}}"
    else:
        name = "JSON" if get_origin(one) is dict else one.__name__.upper()
    return f"{name}|None" if optional else name


def _without_none(kind: Any) -> tuple[Any, bool]:
    """A type without None, and whether None is allowed: `float | None` → float, True."""
    if get_origin(kind) in (UnionType, Union):
        [one] = [part for part in get_args(kind) if part is not type(None)]
        return one, True
    return kind, False


def _shown(value: object) -> str:
    """A value as it is typed."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _as_typed(word: str) -> str:
    """A word for argparse, which takes -1e-5 for a flag unless a space stands before it, and knows flags with "-"."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        return flag.replace("_", "-") + equals + value
    try:
        float(word)
    except ValueError:
        return word
    return f" {word}" if word.startswith("-") else word


def _value(argument: Described, typed: Any, more: str) -> Any:
    if typed is None:
        return argument.default
    kind, optional = _without_none(argument.kind)
    words = [typed] if isinstance(typed, str) else typed
    if kind is bool:
        return typed
    if optional and words == ["None"]:
        return None
    if get_origin(kind) is dict:
        return json_object(argument.name, words[0])
    several = get_origin(kind) is tuple
    one = get_args(kind)[0] if several else kind
    label = argument.name if argument.example else argument.flag
    if get_origin(one) is Literal:
        for word in words:
            if word not in get_args(one):
                raise UserError(f"{label} is {word!r}: expected one of {', '.join(get_args(one))}{more}")
        one = str
    try:
        values = tuple(map(one, words))
    except ValueError:
        raise UserError(_wrong_number(argument, words, one, several, optional) + more) from None
    return values if several else values[0]


def _wrong_number(argument: Described, words: list[str], one: type, several: bool, optional: bool) -> str:
    shown = " ".join(word.strip() for word in words) if several else repr(words[0].strip())
    expected = EXPECTED[one].replace("a ", "") + "s" if several else EXPECTED[one]
    default = _shown(argument.default) if argument.default is not None else ""
    example = f", such as {argument.flag} {default}" if default else ""
    return f"{argument.flag} is {shown}: expected {expected}{' or None' * optional}{example}"


def _unknown(words: list[str], flags: list[str], more: str) -> str:
    """The line for words that are no settings, with the most similar setting if there is one."""
    wrong = next((word.split("=")[0] for word in words if word.startswith("--")), None)
    if wrong is None:
        return f"{' '.join(word.strip() for word in words)} is not a setting: expected --setting value{more}"
    near = difflib.get_close_matches(wrong, flags, n=1, cutoff=0.75)
    if wrong in REPLACED:
        longer = "not" if wrong == "--preset" else "no longer"
        return f"{wrong} is {longer} a setting: {f'use {REPLACED[wrong]}' if REPLACED[wrong] else 'leave it out'}"
    return f"{wrong} is not a setting" + (f": did you mean {near[0]}?" if near else more)


# -- the help on one screen --


def short_help(
    program: str, presets: Collection[str], chosen: str, settings: list[Described], values: Mapping[str, object]
) -> str:
    """The text, in lines of at most 100 columns: those of all settings that are `main`, and how to see the others.

    Args:
        presets: none where a run is resumed.
        chosen: whose values are shown: a preset, or a run's folder.
    """
    groups = ", ".join(dict.fromkeys(setting.group for setting in settings if not setting.main))
    names = f"PRESET is a named set of settings: {', '.join(presets)}." if presets else ""
    others = f"--help-all explains all {len(settings)} settings. The others are in these groups: {groups}."
    usage = f"{program} {'[PRESET] ' if presets else ''}[--setting value ...]"
    parser = _parser(usage, *(textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in (names, others)))
    group = parser.add_argument_group(f"The main settings, with the values of {chosen}")
    for setting in settings:
        if setting.main:
            first = setting.text.split(". ")[0].rstrip(".").replace("%", "%%")
            group.add_argument(setting.flag, metavar=_shown(values[setting.name]), help=f"{first}.")
    return parser.format_help()


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Lines that are not broken within a flag."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _parser(usage: str, description: str, epilog: str = "") -> argparse.ArgumentParser:
    layout = functools.partial(_Layout, max_help_position=HELP_INDENT, width=WIDTH)
    return argparse.ArgumentParser(
        usage=usage.replace("%", "%%"), description=description, epilog=epilog, allow_abbrev=False,
        exit_on_error=False, add_help=False, formatter_class=layout,
    )  # fmt: skip
