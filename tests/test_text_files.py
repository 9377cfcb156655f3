"""Text files have an encoding of their own, not the locale's; those of the product are written whole or not at all."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("benchmarks", "experiments", "docs")
LISTED = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, encoding="utf-8").stdout.split()


def faults(code: str, is_product: bool) -> Iterator[str]:
    """Calls of `read_text` without an encoding, and of `write_text` without one or, in the product, at all."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, places = node.func.attr, {"read_text": 1, "write_text": 2}
            encoded = len(node.args) >= places.get(name, 0) or any(one.arg == "encoding" for one in node.keywords)
            if not encoded or (name == "write_text" and is_product):
                yield f"line {node.lineno}: {name}"


@pytest.mark.skipif(not LISTED, reason="this is no git repository")
def test_files_are_read_and_written_in_utf_8_and_whole():
    found = {
        name: wrong
        for name in LISTED
        if not name.startswith("tests/")
        if (wrong := list(faults((ROOT / name).read_text("utf-8"), not name.startswith(TOOLS))))
    }
    assert found == {}


def test_faults_are_found():
    assert list(faults("path.read_text()", False)) == ["line 1: read_text"]
    assert list(faults("path.write_text(text)", False)) == ["line 1: write_text"]
    assert list(faults("path.write_text(text, 'utf-8')", False)) == []
    assert list(faults("path.write_text(text, encoding='utf-8')", True)) == ["line 1: write_text"]
