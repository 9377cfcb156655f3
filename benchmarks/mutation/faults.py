"""One-line faults of a source file: found in its syntax tree, so that they follow the code when it changes."""

import ast
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
SWAPPED = {
    "terminated": "truncated",
    "truncated": "terminated",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
}
QUIET = ("__repr__", "__str__", "__exit__", "close")  # what they do is seldom a number


@dataclass(frozen=True)
class Fault:
    """A piece of a file that is replaced; `start` and `end` count bytes."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    nth: int = 1
    """Of those of a file that are written alike."""

    @property
    def name(self) -> str:
        """What it is called in results, whatever line it stands on today."""
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.file}: {self.old.strip()[:60]} → {self.new.strip()[:60]}{nth}"

    def apply(self, source: str) -> str:
        """The file with the fault in it."""
        content = source.encode()
        return (content[: self.start] + self.new.encode() + content[self.end :]).decode()


def faults_of(file: str, source: str) -> list[Fault]:
    """All that can be made in a file's functions, or, where it has none, in its tables; in the order of its lines."""
    tree = ast.parse(source)
    lines = source.encode().splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))

    def fault(node: ast.expr | ast.stmt, new: str) -> Fault:
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[node.end_lineno - 1] + node.end_col_offset
        return Fault(file, node.lineno, start, end, source.encode()[start:end].decode(), new)

    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name not in QUIET]
    found = [fault(*made) for function in functions for made in _replaced(function, source)]
    if not found:  # tables of settings
        found = [fault(*made) for made in _replaced(tree, source)]
    found = sorted({(fault.start, fault.end): fault for fault in found}.values(), key=lambda fault: fault.start)
    alike: Counter[str] = Counter()
    for i, one in enumerate(found):
        alike[one.name] += 1
        found[i] = replace(one, nth=alike[one.name])
    return found


def _replaced(scope: ast.FunctionDef | ast.Module, source: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Nodes and what each becomes."""
    for node in _own_nodes(scope):
        yield from ((node, new) for new in _replacements(node, source))
        if isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
            yield node.test, f"(not {ast.get_source_segment(source, node.test)})"


def _own_nodes(function: ast.FunctionDef | ast.Module) -> Iterator[ast.AST]:
    """Those of a function's body, without the functions inside it, annotations, texts and what is raised."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        yield node
        waiting += [child for name, child in _children(node) if name not in ("annotation", "returns")]


def _is_path(node: ast.BinOp) -> bool:
    """A text on either side, or a path that is put together: another operator raises an error at once."""
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str) for side in sides)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _replacements(node: ast.AST, source: str) -> Iterator[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = (ast.get_source_segment(source, side) for side in (node.left, node.comparators[0]))
        yield f"{left} {COMPARISONS[type(node.ops[0])]} {right}"
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _is_path(node):
        left, right = (ast.get_source_segment(source, side) for side in (node.left, node.right))
        yield f"{left} {OPERATORS[type(node.op)]} {right}"
    elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
        left, right = (ast.get_source_segment(source, side) for side in node.values)
        yield f"{left} {'or' if isinstance(node.op, ast.And) else 'and'} {right}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield f"({ast.get_source_segment(source, node.operand)})"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in (0, 1):
        yield repr(node.value + 1 if isinstance(node.value, int) else node.value * 2)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield repr(not node.value)
    elif isinstance(node, ast.Name) and node.id in SWAPPED and isinstance(node.ctx, ast.Load):
        yield SWAPPED[node.id]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "pass"


def sample(faults: list[Fault], count: int, seed: int) -> list[Fault]:
    """Some of a file's faults, spread over its whole length; the same ones for the same file."""
    if len(faults) <= count:
        return faults
    rng = random.Random(seed)
    bounds = [round(i * len(faults) / count) for i in range(count + 1)]
    return [rng.choice(faults[first:last]) for first, last in pairwise(bounds)]
