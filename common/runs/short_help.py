"""What `--help` of training prints: the main settings on one screen. `--help-all` shows every setting."""

import textwrap
from collections.abc import Iterable, Mapping

from common.settings import Described

WIDTH, INDENT = 100, 34  # columns


def short_help(
    program: str, presets: Iterable[str], chosen: str, settings: list[Described], values: Mapping[str, object]
) -> str:
    """The text, in lines of at most 100 columns.

    Args:
        presets: names; none where a run is resumed.
        chosen: whose values are shown: a preset, or a run's folder.
        settings: all there are; those that are `main` are shown.
        values: name → value.
    """
    presets = list(presets)
    main = [setting for setting in settings if setting.main]
    groups = dict.fromkeys(setting.group for setting in settings if not setting.main)
    others = f"--help-all explains all {len(settings)} settings. The others are in these groups: "
    lines = [f"usage: {program} {'[PRESET] ' if presets else ''}[--setting value ...]", ""]
    if presets:
        lines += [*_wrapped(f"PRESET is a named set of settings: {', '.join(presets)}."), ""]
    lines += [f"The main settings, with the values of {chosen}:"]
    for setting in main:
        lines += _entry(setting, values[setting.name])
    lines += ["", *_wrapped(f"{others}{', '.join(groups)}.")]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def _entry(setting: Described, value: object) -> list[str]:
    """A setting with its value and the first sentence of its text."""
    typed = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    flag = f"  --{setting.name.replace('_', '-')} {typed}"
    [first, *more] = textwrap.wrap(setting.text.split(". ")[0].rstrip(".") + ".", WIDTH - INDENT)
    head = [f"{flag:{INDENT}}{first}"] if len(flag) < INDENT else [flag, " " * INDENT + first]
    return [*head, *(" " * INDENT + line for line in more)]
