"""Tests and a first run with each set of versions, in environments of their own: python benchmarks/versions.py

A set is a Python and a TensorFlow. Each gets a fresh virtual environment in a temporary folder, the development
requirements, the tests and one short training; what came of it goes into results/versions.json and versions.md. A
Python that this machine does not have is said to be missing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from speed import RESULTS, ROOT, machine

from common.errors import UserError
from common.runs import run_folder
from common.runs.command_line import one_line_errors, parse_settings

SETS = {
    "Python 3.11, TensorFlow 2.18": ("3.11", "tensorflow==2.18.*"),
    "Python 3.12, TensorFlow 2.19": ("3.12", "tensorflow==2.19.*"),
    "Python 3.11, newest": ("3.11", "tensorflow"),
    "Python 3.12, newest": ("3.12", "tensorflow"),
    "Python 3.13, newest": ("3.13", "tensorflow"),
}
PACKAGES = ("tensorflow", "keras", "tensorflow-probability", "numpy", "gymnasium", "envpool")
FIRST_RUN = "PPOAgentTrainer.py pendulum --epochs 3 --evaluation-episodes 2 --record figure"


@dataclass(frozen=True)
class Arguments:
    """Run the tests with several versions of Python and TensorFlow."""

    only: str = ""
    """Only sets whose name contains this, such as "3.12"."""
    tests: str = ""
    """What pytest is asked for, such as "tests/runs/test_resume.py"; nothing: all tests."""


def interpreter(version: str) -> str | None:
    """A Python of that version: this one, one on the path or one of pyenv's; None without any."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (sys.executable, f"python{version}", *map(str, pyenv)):
        path = shutil.which(candidate)
        if path is not None:
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            if _output([path, "-c", code]) == version:
                return path
    return None


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def try_set(python: str, tensorflow: str, tests: str, work: Path) -> dict[str, object]:
    """Installs one set in `work`, tests it and trains with it; a row of the table."""
    found = interpreter(python)
    if found is None:
        return {"outcome": f"no Python {python} here"}
    subprocess.run([found, "-m", "venv", str(work / "environment")], check=True)
    own = str(work / "environment" / ("Scripts" if os.name == "nt" else "bin") / "python")
    needed = [tensorflow, "-r", str(ROOT / "requirements" / "dev.txt")]
    if subprocess.run([own, "-m", "pip", "install", "-q", *needed]).returncode:
        return {"outcome": "cannot be installed"}
    code = f"import importlib.metadata as m; print(*map(m.version, {PACKAGES}))"
    row: dict[str, object] = dict(zip(PACKAGES, _output([own, "-c", code]).split()))
    began = time.monotonic()
    tested = subprocess.run([own, "-m", "pytest", *tests.split()], cwd=ROOT, capture_output=True, text=True)
    row["minutes"] = round((time.monotonic() - began) / 60, 1)
    row["tests"] = (tested.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
    trained = subprocess.run(
        [own, *FIRST_RUN.split(), "--runs-folder", str(work)], cwd=ROOT, capture_output=True, text=True
    )
    row["first run"] = "trained" if trained.returncode == 0 else "failed"
    for part in (tested, trained):
        if part.returncode:
            print((part.stdout + part.stderr)[-10_000:], file=sys.stderr)
    row["outcome"] = "passed" if tested.returncode == trained.returncode == 0 else "failed"
    return row


def table(rows: dict[str, dict[str, object]]) -> str:
    """Markdown, a line a set."""
    columns = (*PACKAGES, "tests", "first run", "outcome")
    lines = [f"| set | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(str(row.get(column, '')) for column in columns)} |")
    return "\n".join(lines)


def main() -> None:
    with one_line_errors():
        arguments, record = parse_settings(Arguments), RESULTS / "versions.json"
        chosen = {name: what for name, what in SETS.items() if arguments.only in name}
        if not chosen:
            raise UserError(f"no set has {arguments.only!r} in its name; there are: {'; '.join(SETS)}")
        rows = json.loads(record.read_text("utf-8")) if record.exists() else {}
        for name, (python, tensorflow) in chosen.items():
            print(name, flush=True)
            with tempfile.TemporaryDirectory() as work:
                rows[name] = try_set(python, tensorflow, arguments.tests, Path(work)) | machine()
            run_folder.write_json(record, rows)
            (RESULTS / "versions.md").write_text(table(rows) + "\n", "utf-8")
        print(table(rows))
        if any(rows[name]["outcome"] == "failed" for name in chosen):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
