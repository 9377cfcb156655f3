"""Replaces a block `settings` by tables of all settings of a class, one for each group, with what `--help` says.

    ```settings
    ppo.config.PPOConfig without common.config.TrainingConfig
    ```

Settings that the other class has, too, are left out, unless their defaults differ.
"""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```settings\n(\S+)(?: without (\S+))?\n```$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Every block `settings` as tables."""
    return BLOCK.sub(lambda match: tables(match[1], match[2]), markdown)


def named(name: str | None) -> type | None:
    """A class of the project by its dotted name."""
    if name is None:
        return None
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    module, _, attribute = name.rpartition(".")
    found: type = getattr(importlib.import_module(module), attribute)
    return found


def tables(name: str, without: str | None) -> str:
    """Markdown with a heading and a table for each group."""
    groups: dict[str, list[str]] = {}
    for group, row in rows(named(name), named(without)):
        groups.setdefault(group, []).append(row)
    head = "| setting | default | range or choices | what it is |\n|---|---|---|---|\n"
    return "\n".join(
        f"### {group[0].upper()}{group[1:]} settings\n\n"
        f'<div class="settings" markdown>\n\n{head}{"".join(lines)}\n</div>\n'  # site.css stacks it on a phone
        for group, lines in groups.items()
    )


def rows(settings: type, without: type | None) -> Iterator[tuple[str, str]]:
    """Group and table row of every setting."""
    from common.settings import described

    known = described(without) if without is not None else {}
    for what in described(settings).values():
        if what.name in known and known[what.name].default == what.default:
            continue
        allowed = str(what.range) or choices(what.kind)
        text = what.text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
        flag = what.name.replace("_", "-")
        yield what.group, f"| `--{flag}` {{: #{flag} }} | {shown(what.default)} | {allowed} | {text} |\n"


def choices(kind: object) -> str:
    """The values of a setting that has a few, or is some of them."""
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    return ", ".join(f"`{value}`" for value in get_args(kind)) if get_origin(kind) is Literal else ""


def shown(default: object) -> str:
    """A default as it is typed."""
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        words = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in default)
        return f"`{' '.join(words)}`" if default else "none"
    if isinstance(default, int) and default >= 10_000:
        return f"{default:,}"
    if isinstance(default, float):
        return f"{default:.4g}"
    if default is None or default in ("", {}):
        return "none"
    return f"`{default}`" if isinstance(default, str) else str(default)
