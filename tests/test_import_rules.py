"""Who may import whom: no file imports upwards, no two import each other in a circle."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEVELS = (  # from the bottom up; a module imports from its own level and from those below
    (
        "common.records",
        "common.env_wrappers",
        "common.hidden_speeds",
        "common.errors",
        "common.progress",
        "common.user_code",
    ),
    (
        "common.envs",
        "common.funcs",
        "common.files",
        "common.arrays_file",
        "common.settings",
        "common.config",
    ),
    ("common.figures", "common.results", "common.state", "common.nets"),
    ("common.rollout",),
    ("common.learning",),
    ("common.runs",),  # from learning types alone, since it must not wait for TensorFlow
    ("ppo", "companions"),
    ("Agent",),
    ("PPOAgentTrainer",),
    ("programs",),
)
STRANGERS = (
    ("ppo", "companions"),
    ("companions", "Agent"),
)  # neither may import the other
HEAVY = ("tensorflow", "keras", "tf_keras", "tensorflow_probability", "scipy", "matplotlib")


def modules(root: Path) -> dict[str, Path]:
    """Every module of the project, by its dotted name; a package inside a folder is one, since it may hold code."""
    folders = [root / name for name in ("common", "ppo", "companions", "programs")]
    paths = [*root.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    names = [path.relative_to(root) for path in paths if path not in [folder / "__init__.py" for folder in folders]]
    dotted = {name: name.parent if name.name == "__init__.py" else name.with_suffix("") for name in names}
    return {".".join(dotted[name].parts): root / name for name in names}


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The project's modules that a file imports, those inside functions and for types alone included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relative to itself"
            assert all(alias.name != "*" for alias in node.names), f"{path} imports *"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & set(known)


def level(module: str) -> int:
    return next(i for i, names in enumerate(LEVELS) if within(module, names))


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def upwards(arrows: dict[str, set[str]]) -> list[str]:
    """Imports that no rule allows, as "from → to"."""
    return [
        f"{one} → {other}"
        for one, others in arrows.items()
        for other in others
        if level(other) > level(one) or strangers(one, other) or strangers(other, one)
    ]


def strangers(one: str, other: str) -> bool:
    return any(within(one, (a,)) and within(other, (b,)) for a, b in STRANGERS)


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import themselves by way of others."""
    found = []
    for start in arrows:
        seen, waiting = set(), [start]
        while waiting:
            for other in arrows[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        if start in seen:
            found.append(start)
    return found


def arrows_of(root: Path) -> dict[str, set[str]]:
    known = modules(root)
    return {module: imports(path, known) - {module} for module, path in known.items()}


def test_nothing_imports_upwards():
    arrows = arrows_of(ROOT)
    assert len(arrows) > 70 and sum(map(len, arrows.values())) > 250
    assert upwards(arrows) == []


def test_nothing_imports_itself_by_way_of_others():
    assert circles(arrows_of(ROOT)) == []


def test_no_function_is_longer_than_60_lines():
    for path in modules(ROOT).values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"


def test_no_module_is_named_for_nothing_in_particular():
    assert not [
        module for module in modules(ROOT) if module.rsplit(".", 1)[-1] in ("utils", "util", "helpers", "misc")
    ]


@pytest.mark.parametrize(
    ("file", "content", "upward", "circle"),
    [
        ("common/envs/a.py", "def f():\n    from common.runs import b", 1, 0),
        ("common/envs/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import Agent", 1, 0),
        ("ppo/a.py", "from companions.c import x", 1, 0),
        ("companions/c.py", "from ppo import a", 1, 0),
        ("common/learning/d.py", "from common.runs import b", 1, 0),
        ("common/learning/__init__.py", "from common.runs import b", 1, 0),
        ("common/runs/b.py", "from common.runs.e import x", 0, 2),
        ("common/runs/b.py", "from common.envs import a", 0, 0),
    ],
)
def test_each_rule_can_be_broken(tmp_path, file, content, upward, circle):
    files = {
        "Agent.py": "", "common/__init__.py": "", "common/envs/a.py": "", "common/runs/b.py": "", "ppo/a.py": "",
        "common/runs/e.py": "import common.runs.b", "companions/c.py": "", "common/learning/d.py": "",
    }  # fmt: skip
    for name, text in {**files, file: content}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    arrows = arrows_of(tmp_path)
    assert (len(upwards(arrows)), len(circles(arrows))) == (upward, circle)


def test_stars_are_found(tmp_path):
    (tmp_path / "Agent.py").write_text("from common.funcs import *")
    with pytest.raises(AssertionError, match="imports \\*"):
        arrows_of(tmp_path)


def imported_by(modules_: list[str]) -> tuple[set[str], float]:
    """The packages that are loaded once these modules are, in a new process, and its seconds of processor time."""
    code = f"import sys, time, {', '.join(modules_)}; print(time.process_time(), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, *loaded = done.stdout.split()
    return {name.split(".")[0] for name in loaded}, float(seconds)


def test_environments_and_collecting_need_no_tensorflow():
    wanted = (
        "common.envs",
        "common.rollout",
        "common.nets.network",
        "common.funcs",
        "common.records",
        "common.config",
    )
    lower = [module for module in modules(ROOT) if within(module, wanted)]
    assert len(lower) > 20
    assert not imported_by(lower)[0] & set(HEAVY)


def test_a_process_that_only_steps_environments_is_there_soon():
    loaded, seconds = imported_by(["common.envs.worker_processes", "common.envs.process_group"])
    assert not loaded & set(HEAVY)
    assert seconds < 1.5
