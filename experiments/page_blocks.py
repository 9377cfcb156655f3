"""Writes the tables of settings and the code of the project that pages show: python experiments/page_blocks.py

A page names what it shows in a comment, and what stands between this and the next `<!-- end -->` is written here:

    <!-- settings ppo.config.PPOConfig without common.config.TrainingConfig -->
    <!-- source ppo/losses.py clipped_surrogate, ppo/batch.py weighted -->

`settings` is a table of all settings of a class for each group, with what `--help` says. Settings that the other class
has, too, are left out, unless their defaults differ. `source` names functions, classes or methods (`Class.method`).
Docstrings are left out, since the page's own text stands in their place.
"""

import ast
import importlib
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.settings import described  # noqa: E402

BLOCK = re.compile(r"(<!-- (settings|source) (.+?) -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
HEAD = "| setting | default | range or choices | what it is |\n|---|---|---|---|\n"


def written(page: str) -> str:
    """The text of a page with its blocks as they must be today."""
    makers = {"settings": tables, "source": source}
    return BLOCK.sub(lambda match: f"{match[1]}\n{makers[match[2]](match[3])}\n{match[4]}", page)


def source(names: str) -> str:
    """A block of Python for each of "FILE NAME, FILE NAME", with the file in its first line."""
    pairs = (pair.split() for pair in names.split(", "))
    return "\n".join(f"```py\n# {file}\n{code_of(file, name)}\n```\n" for file, name in pairs)


def code_of(file: str, name: str) -> str:
    """The lines of a function, a class or a method, without its docstring.

    Raises:
        LookupError: the file has no such definition.
    """
    text = (ROOT / file).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        found = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == part]
        if not found:
            raise LookupError(f"{file} defines no {name}")
        [node] = found
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines, left_out = text.splitlines(), range(0)
    if ast.get_docstring(node) is not None:
        last = node.body[0].end_lineno or 0
        left_out = range(node.body[0].lineno, last + 1 + (not lines[last].strip()))  # with an empty line below
    kept = [lines[number - 1] for number in range(first, (node.end_lineno or 0) + 1) if number not in left_out]
    return textwrap.dedent("\n".join(kept))


def tables(names: str) -> str:
    """A heading and a table for each group of the settings of "CLASS" or "CLASS without CLASS"."""
    groups: dict[str, list[str]] = {}
    for group, row in rows(*map(named, names.split(" without "))):
        groups.setdefault(group, []).append(row)
    return "\n".join(
        f"### {group[0].upper()}{group[1:]} settings\n\n"
        f'<div class="settings" markdown>\n\n{HEAD}{"".join(lines)}\n</div>\n'  # site.css stacks it on a phone
        for group, lines in groups.items()
    )


def named(name: str) -> type:
    """A class of the project by its dotted name."""
    module, _, attribute = name.rpartition(".")
    found: type = getattr(importlib.import_module(module), attribute)
    return found


def rows(settings: type, without: type | None = None) -> Iterator[tuple[str, str]]:
    """Group and table row of every setting."""
    known = described(without) if without is not None else {}
    for what in described(settings).values():
        if what.name in known and known[what.name].default == what.default:
            continue
        allowed = str(what.range) or choices(what.kind)
        text = what.text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
        yield what.group, f"| `--{what.name.replace('_', '-')}` | {shown(what.default)} | {allowed} | {text} |\n"


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


if __name__ == "__main__":
    for page in (ROOT / "docs").rglob("*.md"):
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
