"""Blocks of code: `source` shows what it names from the project, so that what a page shows is what runs.

    ```source
    ppo/losses.py clipped_surrogate
    ```

A block names a file and a function, a class or a method (`Class.method`). Docstrings are left out, since the page's
own text stands in their place. A block `python file=NAME` is a file for the reader to save; NAME becomes its title.
"""

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^```(\w+) file=(\S+)$", re.MULTILINE)
BLOCK = re.compile(r"^```source\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Every block `source` as Python, every file with its name as the title."""
    markdown = FILE.sub(r'```\1 title="\2"', markdown)
    return BLOCK.sub(lambda match: "\n".join(as_python(*line.split()) for line in match[1].splitlines()), markdown)


def as_python(file: str, name: str) -> str:
    """A block of Python with the file as its title."""
    return f'```python title="{file}"\n{code_of(file, name)}\n```\n'


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
        left_out = range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    kept = [lines[number - 1] for number in range(first, (node.end_lineno or 0) + 1) if number not in left_out]
    return textwrap.dedent("\n".join(kept))
