"""Whether the tests notice faults: python benchmarks/mutants.py

One-line faults are put into a copy of the work tree, one at a time, and the tests that should notice are run: a fault
is caught if one of them fails or takes too long. The faults are those that no test noticed once, and a sample from
every file's syntax tree: comparisons, operators, conditions, numbers and swapped names changed, calls left out. A
change of nothing is the negative control, which must not be caught. Results go to results/mutants.json as they come
and to mutants.md; `--go-on` keeps those of the same commit. Two cores need about forty minutes.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table import record
from mutation.faults import Fault, faults_of, sample
from mutation.known import KNOWN
from mutation.selections import SELECTIONS
from speed import RESULTS, ROOT, machine

from common.files import write_json
from common.runs.command_line import one_line_errors, parse_settings

CONTROL = "negative control"
EQUIVALENT: dict[str, str] = {}
"""Names of faults that change nothing that anybody can see, and why."""


@dataclass(frozen=True)
class Arguments:
    """Put one-line faults into the code and see whether the tests notice."""

    per_file: int = 3
    """Faults sampled from each file, besides those that no test noticed once."""
    seed: int = 0
    """Of the sample."""
    only: str = ""
    """Only files whose name contains this."""
    go_on: bool = False
    """Keep the results of this commit that are there, and run the rest."""
    results: Path = RESULTS
    """Folder of mutants.json and mutants.md."""


class Nursery:
    """A process that runs tests in its children, and the copy of the work tree they run in."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "mutation" / "nursery.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def tests(self, selection: str, limit: float) -> dict:
        """The outcome of some tests in the tree as it is now."""
        words = [word.replace("_or_", " or ") if before == "-k" else word for before, word in _pairs(selection)]
        request = {"tree": str(self.tree), "arguments": words, "limit": limit}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    @contextlib.contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        path = self.tree / fault.file
        source = path.read_text(encoding="utf-8")
        path.write_text(fault.apply(source), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(source, encoding="utf-8")

    def close(self) -> None:
        self._process.kill()


def _pairs(selection: str) -> list[tuple[str, str]]:
    words = selection.split()
    return list(zip(["", *words], words))


def known_faults(only: str) -> list[tuple[Fault, str]]:
    """KNOWN, found in the files as they are."""
    found = []
    for file, old, new, why in KNOWN:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert source.count(old) == 1, f"{file} holds {source.count(old)} times: {old}"
        start = len(source[: source.index(old)].encode())
        line = source[: source.index(old)].count("\n") + 1
        found.append((Fault(file, line, start, start + len(old.encode()), old, new), why))
    return [(fault, why) for fault, why in found if only in fault.file]


def sampled_faults(arguments: Arguments) -> list[tuple[Fault, str]]:
    """Of every file in SELECTIONS, and a change of nothing in the first of them."""
    found = []
    for file in SELECTIONS:
        if arguments.only in file:
            source = (ROOT / file).read_text(encoding="utf-8")
            seed = arguments.seed + zlib.crc32(file.encode())
            found += [(fault, "") for fault in sample(faults_of(file, source), arguments.per_file, seed)]
    if found:
        found.append((Fault(found[0][0].file, 0, 0, 0, "", "# nothing\n"), CONTROL))
    return found


class Runner:
    """Runs faults, each in one of the nurseries; what was run before is skipped."""

    def __init__(self, nurseries: list[Nursery], rows: list[dict], path: Path) -> None:
        self._free, self._rows, self._path = list(nurseries), rows, path
        self._lock = threading.Condition()
        self._limits: dict[str, float | None] = {}  # selection → seconds; None: it fails without a fault

    def __call__(self, fault: Fault, why: str) -> None:
        with self._lock:
            self._lock.wait_for(lambda: bool(self._free))
            nursery = self._free.pop()
        try:
            selection = SELECTIONS[fault.file]
            row = {"file": fault.file, "line": fault.line, "fault": fault.name, "why": why}
            limit = self._limit(nursery, selection)
            if limit is None:
                row |= {"void": True}
            else:
                with nursery.with_fault(fault):
                    outcome = nursery.tests(selection, limit)
                row |= {"caught": outcome["code"] not in (0, 5), "by": outcome["by"] or f"exit {outcome['code']}"}
                row |= {"seconds": round(outcome["seconds"], 1)}
            with self._lock:
                self._rows.append(row)
                write_json(self._path, {"commit": record.commit(), "machine": machine(), "rows": self._rows})
                verdict = "void" if row.get("void") else "caught" if row["caught"] else "SURVIVED"
                print(f"{len(self._rows):4} {verdict:8} {fault.file}:{fault.line} {why or fault.name}", flush=True)
        finally:
            with self._lock:
                self._free.append(nursery)
                self._lock.notify()

    def _limit(self, nursery: Nursery, selection: str) -> float | None:
        if selection not in self._limits:
            without = nursery.tests(selection, 600)
            self._limits[selection] = 3 * without["seconds"] + 20 if without["code"] == 0 else None
            if without["code"] != 0:
                print(f"{selection} fails without a fault: {without}", flush=True)
        return self._limits[selection]


def write_table(rows: list[dict], path: Path) -> None:
    """How many of each folder's faults were caught, and those that were not."""
    counted = [row for row in rows if not row.get("void") and row["why"] != CONTROL]
    folders = sorted({row["file"].rpartition("/")[0] or "." for row in counted})
    lines = ["| folder | faults | caught |", "|---|---:|---:|"]
    for folder in folders:
        own = [row for row in counted if (row["file"].rpartition("/")[0] or ".") == folder]
        lines.append(f"| {folder} | {len(own)} | {sum(row['caught'] for row in own)} |")
    caught = sum(row["caught"] for row in counted)
    lines += [f"| all | {len(counted)} | {caught} ({caught / max(1, len(counted)):.1%}) |", ""]
    control = [row["caught"] for row in rows if row["why"] == CONTROL]
    lines += [f"The negative control was {'caught' if any(control) else 'not caught'}, as it must not be.", ""]
    lines += ["Not caught:", ""]
    for row in counted:
        if not row["caught"]:
            reason = EQUIVALENT.get(row["fault"], "")
            lines.append(f"- `{row['fault']}`{f' ({reason})' if reason else ''}")
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        path, rows = arguments.results / "mutants.json", []
        if arguments.go_on and path.exists():
            before = json.loads(path.read_text("utf-8"))
            rows = before["rows"] if before["commit"] == record.commit() else []
        done = {(row["fault"], row["why"]) for row in rows if not row.get("void")}
        rows = [row for row in rows if not row.get("void")]
        faults = known_faults(arguments.only) + sampled_faults(arguments)
        waiting = [(fault, why) for fault, why in faults if (fault.name, why) not in done]
        print(f"{len(faults)} faults, {len(waiting)} of them to run", flush=True)
        with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as ended:
            nurseries = []
            for number in range(2):
                (Path(work) / str(number)).mkdir()
                nurseries.append(Nursery(Path(work) / str(number)))
                ended.callback(nurseries[-1].close)
            run = Runner(nurseries, rows, path)
            with ThreadPoolExecutor(len(nurseries)) as threads:
                list(threads.map(lambda pair: run(*pair), waiting))
        write_table(rows, path.with_suffix(".md"))


if __name__ == "__main__":
    main()
