"""What a setting is: a field of a frozen dataclass, with its range beside it, a text of its own and a group.

Settings are written in small parts, which a method's config inherits side by side, so that every field is flat:

    @dataclass(frozen=True)
    class Advantages(Settings):
        GROUP = "advantage"

        gamma: float = setting(0.99, at_least=0, at_most=1)
        \"\"\"Discount factor of one step.\"\"\"

    @dataclass(frozen=True)
    class Config(Advantages, TrainingConfig): ...

A class may repeat a field of its bases to change the default; range, group and text stay, unless it gives its own.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import math
import os
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from common.errors import UserError

T = TypeVar("T")

SMALLEST = 1e-45
"""The lower end of a range that begins above 0: float32 has no smaller positive number."""


@dataclass(frozen=True)
class Range:
    """The range of a number, both ends included; of a tuple, that of each of its numbers."""

    low: float = -math.inf
    high: float = math.inf

    def __contains__(self, number: object) -> bool:
        """Whether a number is finite and within; NaN is in no range."""
        return isinstance(number, int | float) and math.isfinite(number) and self.low <= number <= self.high

    def __str__(self) -> str:
        """For an error message: '0 to 1', '1 or more', 'above 0'; empty where every number is allowed."""
        if self.low == SMALLEST and self.high == math.inf:
            return "above 0"
        if self.high == math.inf:
            return "" if self.low == -math.inf else f"{self.low} or more"
        return f"{self.high} or less" if self.low == -math.inf else f"{self.low} to {self.high}"


class Needs(NamedTuple):
    """What must be set for a setting to have an effect."""

    other: str  # the setting that it belongs to
    allows: Callable[[Any], bool]  # whether this value of the other one uses it
    flag: str  # what turns the other one on, as it is typed


def setting(
    default: T,
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    main: bool = False,
    needs: Needs | None = None,
    used_with: tuple[Needs, ...] = (),
) -> T:
    """A field of a class of settings.

    Args:
        default: its value if none is given; not a list. A dictionary is left out of the settings' hash.
        at_least, at_most: ends of its range, both included; for a tuple, of each of its numbers.
        main: whether `--help` shows it first, among the settings that matter most.
        needs: the setting without which it has no effect; then only its default is accepted.
        used_with: settings without which it has no effect; then a value that was typed is refused. Presets and stored
            runs may have any.
    """
    said = {"main": main, "needs": needs, "used_with": used_with}
    metadata = {"range": Range(at_least, at_most)} | {name: value for name, value in said.items() if value}
    field: Any = (
        dataclasses.field(default_factory=lambda: dict(default), hash=False, metadata=metadata)
        if isinstance(default, dict)
        else dataclasses.field(default=default, metadata=metadata)
    )
    return field


class Described(NamedTuple):
    """All that is known of a setting; see `setting`."""

    name: str
    kind: Any  # its type
    default: Any
    group: str
    text: str = ""  # in one line
    range: Range = Range()
    main: bool = False  # shown first
    needs: Needs | None = None
    used_with: tuple[Needs, ...] = ()
    example: str = ""  # of one that is typed without a flag; "" for one with a flag
    alias: str = ""  # another flag of the same meaning

    @property
    def flag(self) -> str:
        """As it is typed: --hidden-sizes."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Settings:
    """Base of all classes of settings. It checks each field's kind and range, and makes it a plain Python value.

    Raises:
        UserError: a value has the wrong type, is out of its range, or does not go with another setting.
    """

    GROUP: ClassVar[str] = "settings"
    """The part's heading in `--help`."""

    def __post_init__(self) -> None:
        whole: Any = type(self)
        for what in declared(whole).values():
            value = _plain(what.name, what.kind, getattr(self, what.name))
            object.__setattr__(self, what.name, value)
            _check_range(what.name, value, what.range)
        for what in declared(whole).values():
            if what.needs is not None and getattr(self, what.name) != what.default:
                _check_effect(self, what.name, what.needs)

    def replace(self, **changes: object) -> Self:
        """A copy with changes; a setting that loses its effect, such as tau with hard updates, gets its default."""
        whole: Any = type(self)
        settings = declared(whole)
        lost: dict[str, object] = {}
        for what in settings.values():
            if what.needs is not None and what.needs.other in changes:
                other = settings[what.needs.other]
                if not what.needs.allows(_plain(other.name, other.kind, changes[other.name])):
                    lost[what.name] = what.default
        return dataclasses.replace(self, **lost | changes)


def _check_effect(settings: Settings, name: str, needs: Needs, is_fixed: bool = False) -> None:
    """Raise UserError if a setting has no effect beside the one that it needs."""
    value, other = getattr(settings, name), getattr(settings, needs.other)
    if needs.allows(other):
        return
    flag = ("--no-" if value is False else "--") + name.replace("_", "-")
    advice = f"leave {flag} out" if is_fixed else f"add {needs.flag}, or leave {flag} out"
    raise UserError(f"{name} {value} has no effect with {needs.other} {other}: {advice}")


def check_used(settings: Settings, typed: Iterable[str], is_fixed: bool = False) -> None:
    """Raise UserError if a setting whose name was typed has no effect; see `used_with` of `setting`.

    `is_fixed`: the other settings cannot be changed, as in a resumed run.
    """
    whole: Any = type(settings)
    for what in declared(whole).values():
        for needs in what.used_with if what.name in typed else ():
            _check_effect(settings, what.name, needs, is_fixed)


@functools.cache
def declared(settings: Any) -> dict[str, Described]:
    """Every setting of a dataclass without its text, in the order of its fields.

    What a class leaves out when it repeats a setting is as in its bases.
    """
    known: dict[str, dict[str, Any]] = {}
    for part in reversed(_parts(settings)):
        for field in dataclasses.fields(part):
            known.setdefault(field.name, {"group": getattr(part, "GROUP", Settings.GROUP)}).update(
                {name: value for name, value in field.metadata.items() if name in Described._fields}
            )
    hints, found = get_type_hints(settings), {}
    for field in dataclasses.fields(settings):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        found[field.name] = Described(field.name, hints[field.name], default, **known[field.name])
    return found


@functools.cache
def described(settings: Any) -> dict[str, Described]:
    """Every setting of a class with its text, in the order of its fields."""
    texts: dict[str, str] = {}
    for part in reversed(_parts(settings)):
        texts |= texts_of(part)
    return {name: what._replace(text=texts.get(name, "")) for name, what in declared(settings).items()}


def _parts(settings: type) -> list[Any]:
    """A class and its bases, the most derived first."""
    return [part for part in settings.__mro__ if dataclasses.is_dataclass(part)]


def texts_of(part: type) -> dict[str, str]:
    """The text below each field of one class, each in one line; none where the source is not at hand."""
    try:
        definition: Any = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    except (OSError, TypeError):
        return {}
    texts = {}
    for pair in itertools.pairwise(definition.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(written))):
                texts[name] = " ".join(written.split())
    return texts


# -- checks --


_ACCEPTED: dict[type, tuple[Any, str]] = {  # what a setting may be given as, and what the error message expects
    bool: ((bool, np.bool_), "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    Path: ((str, os.PathLike), "a path"),
}


def _plain(name: str, hint: Any, value: Any) -> object:
    """A setting as Python's own number, text or tuple; UserError if it is of another kind."""
    if get_origin(hint) in (UnionType, Union):  # kind | None
        return None if value is None else _plain(name, get_args(hint)[0], value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UserError(f"{name} is {value!r}: expected one of {', '.join(get_args(hint))}")
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{name} is {value!r}: expected a tuple")
        return tuple(_plain(name, get_args(hint)[0], number) for number in value)
    if get_origin(hint) is dict:
        return json_object(name, value)
    kinds, expected = _ACCEPTED[hint]
    if not isinstance(value, kinds) or (hint is not bool and isinstance(value, bool)):
        raise UserError(f"{name} is {value!r:.80}: expected {expected}")
    if isinstance(value, Integral) and abs(int(value)) >= 2**63:  # more than NumPy and TensorFlow can hold
        raise UserError(f"{name} has {len(str(abs(int(value))))} digits: expected {expected} of 18 at most")
    return hint(value)


def _check_range(name: str, value: object, allowed: Range) -> None:
    """Raises UserError where a number, or one of a tuple, is out of its range; other values have none."""
    if isinstance(value, tuple):
        if any(number not in allowed for number in value if isinstance(number, int | float)):
            raise UserError(f"{name} is {value}: expected {allowed} for each number")
    elif isinstance(value, int | float) and value not in allowed:
        expected = str(allowed)
        if not math.isfinite(value):
            expected = f"a finite number, {expected}" if expected else "a finite number"
        raise UserError(f"{name} is {value}: expected {expected}")


def json_object(name: str, value: object) -> dict[str, object]:
    """A setting that is a JSON object, from its text or from a dictionary of what JSON can hold.

    Raises:
        UserError: it is not a JSON object.
    """
    example = '{"gravity": 3.7}'
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=_number_of_numpy, allow_nan=False)
        parsed = json.loads(text, parse_constant=_refuse)
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{name} is {value!r:.80}: expected a JSON object like {example} ({error})") from None
    if not isinstance(parsed, dict):
        raise UserError(f"{name} is {value!r:.80}: expected a JSON object like {example}")
    return parsed


def _number_of_numpy(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored; give make_env a function that has it")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
