"""The faults that benchmarks/mutants.py makes, and that it can tell one that is noticed from one that is not."""

import ast
import contextlib
import difflib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import mutants  # noqa: E402
from mutation import faults, selections  # noqa: E402
from mutation.faults import Fault  # noqa: E402

SOURCE = '''"""ä wide letter, so that bytes are not characters."""


def share(terminated, truncated, limit=3):
    """Docstrings stay."""
    log("ä")
    if terminated and not truncated:
        return 2 + limit
    return max(limit, 5) if limit < 4 else len(truncated)
'''


def test_every_fault_is_one_change_that_still_parses():
    made = faults.faults_of("some.py", SOURCE)
    assert {fault.new for fault in made} >= {
        "pass", "terminated or not truncated", "(truncated)", "2 - limit", "min", "6", "limit <= 4", "terminated",
    }  # fmt: skip
    assert len({fault.name for fault in made}) == len(made)
    for fault in made:
        changed = fault.apply(SOURCE)
        ast.parse(changed)
        lines = [line for line in difflib.ndiff(SOURCE.splitlines(), changed.splitlines()) if line[0] in "+-"]
        assert [line[0] for line in lines] == ["-", "+"], fault
        assert SOURCE.splitlines()[fault.line - 1] == lines[0][2:]


def test_a_sample_is_spread_over_the_file_and_always_the_same():
    made = faults.faults_of("PPOAgentTrainer.py", (ROOT / "PPOAgentTrainer.py").read_text("utf-8"))
    taken = faults.sample(made, 3, 0)
    assert taken == faults.sample(made, 3, 0) != faults.sample(made, 3, 1)
    assert [made.index(fault) * 3 // len(made) for fault in taken] == [0, 1, 2]


ROOMS = ("Agent.py", "PPOAgentTrainer.py", "common/**/*.py", "ppo/*.py", "companions/*.py", "programs/**/*.py")


def test_every_module_has_tests_that_should_notice_its_faults():
    files = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for room in ROOMS for path in ROOT.glob(room)}
    assert selections.SELECTIONS.keys() <= files.keys()
    for name in files.keys() - selections.SELECTIONS.keys():
        assert not faults.faults_of(name, files[name]), name
    for group in {group for groups in selections.SELECTIONS.values() for group in groups}:
        assert (ROOT / group.split()[0]).is_file(), group


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A made-up project with one test, and a runner of its faults."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "half.py").write_text("def half(x):\n    noted = 2\n    return x / noted + 2\n", "utf-8")
    (tmp_path / "tests" / "test_half.py").write_text(
        "from half import half\n\n\ndef test_half():\n    assert half(6) == 5\n", "utf-8"
    )
    (tmp_path / "tests" / "test_wrong.py").write_text("def test_wrong():\n    assert False\n", "utf-8")
    (tmp_path / "tests" / "test_slow.py").write_text(
        "import time\n\nfrom half import half\n\n\ndef test_slow():\n    time.sleep(0 if half(6) == 5 else 60)\n",
        "utf-8",
    )
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "tracked", lambda: [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.py")])
    monkeypatch.setenv("MUTANTS_IMPORT", "pytest")
    tree = tmp_path / "tree"
    tree.mkdir()
    with contextlib.closing(mutants.Nursery(tree)) as nursery:
        yield mutants.Runner(nursery, mutants.Results(tmp_path)), tmp_path


def ran(project, monkeypatch, fault: Fault, *groups: str, why: str = "") -> dict:
    runner, folder = project
    monkeypatch.setitem(mutants.SELECTIONS, "half.py", groups)
    runner(fault, why)
    [row] = json.loads((folder / "mutants.json").read_text("utf-8"))["rows"].values()
    assert (folder / "tree" / "half.py").read_text("utf-8") == (folder / "half.py").read_text("utf-8")
    return row


def test_a_fault_is_caught_and_a_change_of_nothing_is_not(project, monkeypatch):
    [fault] = [fault for fault in faults.faults_of("half.py", (project[1] / "half.py").read_text("utf-8"))
               if fault.new == "x / noted - 2"]  # fmt: skip
    row = ran(project, monkeypatch, fault, "tests/test_half.py")
    assert row["caught"] and row["by"] == "tests/test_half.py::test_half" and not row["void"]
    assert "half.py: x / noted + 2 → x / noted - 2" in (project[1] / "mutants.md").read_text("utf-8")
    (project[1] / "mutants.json").unlink()
    nothing = Fault("half.py", 0, 0, 0, "", "# nothing\n")
    row = ran(project, monkeypatch, nothing, "tests/test_half.py", why=mutants.CONTROL)
    assert not row["caught"] and not row["void"]
    assert mutants.is_valid(row, nothing, mutants.CONTROL)
    (project[1] / "tests" / "test_half.py").write_text("", "utf-8")
    assert not mutants.is_valid(row, nothing, mutants.CONTROL)  # other tests might notice


def test_tests_that_fail_without_a_fault_prove_nothing(project, monkeypatch):
    row = ran(project, monkeypatch, Fault("half.py", 0, 0, 0, "", "# nothing\n"), "tests/test_wrong.py")
    assert row["void"] and not row["caught"]


def test_a_fault_that_takes_too_long_is_caught(project, monkeypatch):
    monkeypatch.setattr(mutants.Runner, "_limit", lambda self, group: 3.0)
    row = ran(project, monkeypatch, Fault("half.py", 2, 25, 26, "2", "3"), "tests/test_slow.py")
    assert row["caught"] and row["by"].endswith("time limit") and row["seconds"] >= 3
