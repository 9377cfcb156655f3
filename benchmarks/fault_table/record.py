"""Rows that are done: results/faults.json, written as soon as one is, and faults.md, which shows them."""

import json
import shutil
import subprocess
import threading
from pathlib import Path

from common.files import write_json
from fault_table.child import EVERY_PHASE
from fault_table.tally import Tally

ROOT = Path(__file__).resolve().parent.parent.parent
CONTROL = "negative control: "


def control_name(row: str, broken: str) -> str:
    """Under which a negative control is recorded."""
    return f"{CONTROL}{row}, {broken}"


def commit() -> str:
    """Of the code, "-dirty" where files other than results differ from it; "unknown" where git is missing."""
    if shutil.which("git") is None:
        return "unknown"
    here = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    changed = ["git", "status", "--porcelain", "--", ".", ":!benchmarks/results"]
    dirty = subprocess.run(changed, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return (here or "unknown") + ("-dirty" if dirty else "")


def failed(name: str, row: dict) -> bool:
    """A row lost something, or missed a phase; a control was not lowered."""
    if row.get("skipped"):
        return False
    if name.startswith(CONTROL):
        return not 0 <= row["survived"] < row["tries"]
    return not 0 < row["tries"] == row["survived"] or bool(row.get("notes"))


class Record:
    """The rows of a results folder.

    What is done again replaces what was there, unless it is fewer tries, all of them survived, of the same commit.
    """

    def __init__(self, folder: Path, code: str, machine: dict[str, object]) -> None:
        self._path, self._page = folder / "faults.json", folder / "faults.md"
        self._code, self._machine, self._lock = code, machine, threading.Lock()
        self.rows: dict[str, dict] = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}

    def done(self, name: str, tries: int) -> bool:
        """It is there, of this commit, with as many tries, and did not fail."""
        row = self.rows.get(name, {})
        return row.get("commit") == self._code and row["tries"] >= tries and not failed(name, row)

    def take(self, name: str, tally: Tally) -> None:
        """Write a row down."""
        row = {
            "tries": tally.tries, "survived": tally.survived, "phases": tally.phases, "notes": tally.notes,
            "skipped": tally.skipped, "commit": self._code, **self._machine,
        }  # fmt: skip
        with self._lock:
            before = self.rows.get(name, {})
            fewer = row["tries"] < before.get("tries", 0) and before.get("commit") == self._code
            if failed(name, row) or not fewer:
                self.rows[name] = row
                write_json(self._path, self.rows)
                self._page.write_text(page(self.rows), encoding="utf-8")

    def keep_only(self, names: list[str]) -> None:
        """Drop rows that are none any more, and put the others in order."""
        with self._lock:
            self.rows = {name: self.rows[name] for name in names if name in self.rows}


def page(rows: dict[str, dict]) -> str:
    """Three tables and where they were made."""
    return f"{table(rows)}\n\n{controls(rows)}\n\n{phases(rows)}\n\n{_where(rows)}\n"


def table(rows: dict[str, dict]) -> str:
    """What was survived, as it stands in docs/faults.md."""
    cells = [("fault", "tries", "survived", "lost"), ("---", "---:", "---:", "---:")]
    for name, row in rows.items():
        if not name.startswith(CONTROL):
            cells.append((name, *_counts(row)))
    return _aligned(cells)


def controls(rows: dict[str, dict]) -> str:
    """The same done to broken programs."""
    cells = [("negative control", "tries", "survived", "lost"), ("---", "---:", "---:", "---:")]
    cells += [(name.removeprefix(CONTROL), *_counts(row)) for name, row in rows.items() if name.startswith(CONTROL)]
    return _aligned(cells)


def phases(rows: dict[str, dict]) -> str:
    """In which phase of a program it happened."""
    cells = [("in phase", *EVERY_PHASE, "between"), ("---", *["---:"] * (len(EVERY_PHASE) + 1))]
    for name, row in rows.items():
        if row.get("phases") and not name.startswith(CONTROL):
            cells.append((name, *(str(row["phases"].get(phase, 0)) for phase in (*EVERY_PHASE, "between"))))
    return _aligned(cells)


def _counts(row: dict) -> tuple[str, str, str]:
    if row.get("skipped"):
        return "not tried", "", ""
    return f"{row['tries']:,}", f"{row['survived']:,}", f"{row['tries'] - row['survived']:,}"


def _aligned(cells: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells)


def _where(rows: dict[str, dict]) -> str:
    days = sorted({str(row["date"])[:10] for row in rows.values()})
    machines = sorted({f"{row['cores']} cores of {row['cpu']}, {row['system']}" for row in rows.values()})
    commits = sorted({row["commit"][:10] + row["commit"][40:] for row in rows.values() if "commit" in row})
    return f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, {'; '.join(machines)}; commit {', '.join(commits)}."
