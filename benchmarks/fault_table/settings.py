"""Settings of the wrong kind or out of range, typed or from Python."""

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.runs.command_line import parse
from fault_table import broken as ways
from fault_table.tally import Tally
from ppo.config import PPOConfig
from ppo.presets import PRESETS, preset_for

CHOICES = ("backend", "objective", "activation", "reward_design")
WORDS = {word for name in CHOICES for word in get_args(get_type_hints(PPOConfig)[name])}  # which hypothesis finds


def _refuses(name: str, value: float) -> bool:
    try:
        PPOConfig().replace(**{name: value})
    except UserError:
        return True
    return False


def _refused(action: Callable[[], object], what: str, tally: Tally) -> None:
    """Count whether something is refused in one line."""
    try:
        action()
    except UserError as error:
        tally.count("\n" not in str(error), f"more than one line for {what}: {error}")
    except Exception as error:
        tally.count(False, f"a traceback of {type(error).__name__} for {what}")
    else:
        tally.count(False, f"accepted: {what}")


def malformed(wanted: int, _: Path, broken: str = "") -> Tally:
    """A fifth is typed, the others come from Python; each is refused in one line."""
    tally = Tally()
    limited = [field.name for field in fields(PPOConfig) if field.type in (int, float) and _refuses(field.name, -1)]
    name, flag = st.sampled_from(limited), st.sampled_from(limited).map(_flag)
    letters = st.text(st.characters(codec="ascii", categories=("L",)), min_size=1, max_size=12)
    no_choice = letters.filter(lambda text: text not in WORDS)
    not_a_number = letters.filter(lambda text: text.lower() not in ("nan", "inf", "infinity", "none", "e"))
    below = st.floats(max_value=-1e-6, allow_nan=False)
    typed = st.one_of(
        st.tuples(flag, not_a_number),
        st.tuples(flag, below.map(repr)),
        st.tuples(flag, st.sampled_from(("nan", "inf", "-inf", ""))),
        st.tuples(letters.map(lambda text: f"--x{text}"), st.integers().map(str)),
        st.tuples(st.sampled_from(CHOICES).map(_flag), no_choice),
        st.tuples(letters.map(lambda text: f"x{text}")),
    )
    no_numbers = st.one_of(
        letters, st.booleans(), st.binary(), st.lists(st.integers()), st.complex_numbers(), st.none()
    )
    from_python = st.one_of(
        st.tuples(name, below),
        st.tuples(name, st.integers(max_value=-1)),
        st.tuples(name, st.sampled_from((math.nan, math.inf, -math.inf, -(10**400)))),
        st.tuples(name, no_numbers),
        st.tuples(st.sampled_from(CHOICES), st.one_of(no_choice, st.integers(), st.lists(letters), st.none())),
    )
    ways.apply(broken)

    def done(strategy: st.SearchStrategy, count: int, action: Callable[[tuple], object]) -> None:
        @settings(
            max_examples=count, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(strategy)
        def refuse(arguments: tuple) -> None:
            _refused(lambda: action(arguments), f"{arguments}"[:200], tally)

        refuse()

    done(typed, wanted // 5, lambda typed: parse(list(typed), "program", PRESETS, "bipedal-walker", preset_for))
    done(from_python, wanted - wanted // 5, lambda pair: PPOConfig().replace(**dict([pair])))
    return tally


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
