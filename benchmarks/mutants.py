"""Whether the tests notice faults: python benchmarks/mutants.py

One-line faults are put into a copy of the work tree, one at a time, and the tests that should notice are run: a fault
is caught if one of them fails or takes too long. The faults are those that no test noticed once, and a sample from
every file's syntax tree: comparisons, operators, conditions, numbers and swapped names changed, calls left out. A
change of nothing is the negative control, which must not be caught. Every group of tests must pass without a fault
first, else the row is void.

Results go to results/mutants.json as they come, and to mutants.md. `--go-on` keeps those that are still valid: the
file and, where a fault survived, the tests are the same. Several processes may share the work: `--share 1/2` in one,
`--share 2/2` in the other. Two cores need about forty minutes.
"""

import ast
import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault_table import record
from mutation.equivalent import EQUIVALENT
from mutation.faults import Fault, faults_of, sample
from mutation.known import KNOWN
from mutation.selections import SELECTIONS
from speed import RESULTS, ROOT, machine

from common.errors import UserError
from common.files import write_json
from common.runs.command_line import one_line_errors, parse_settings

CONTROL = "negative control"
NO_TESTS = 5  # pytest's exit code
UNKNOWN = 12.0  # seconds; quicker groups of tests go before those that have not been run yet
LONGEST = 240.0  # seconds that a group of tests may take without a fault


@dataclass(frozen=True)
class Arguments:
    """Put one-line faults into the code and see whether the tests notice."""

    per_file: int = 3
    """Faults of each file, besides those that no test noticed once. With `--go-on` recorded ones stay, if they can
    still be made, and new ones fill up."""
    seed: int = 0
    """Seed of the sample."""
    only: str = ""
    """Only files whose name contains this, or one of several with commas between them."""
    groups: int = 99
    """How many groups of tests are run at most until one notices; a fault that survived is run again for more."""
    share: str = "1/1"
    """Which part of the files, of how many: "2/3" is the second of three."""
    go_on: bool = False
    """Keep the results that are still valid, and run the rest."""
    minutes: float = 600.0
    """No fault is begun after so many."""
    results: Path = RESULTS
    """Folder of mutants.json and mutants.md."""


def tracked() -> list[str]:
    """Every file of the work tree that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


class Nursery:
    """A process that runs tests in its children, and the copy of the work tree they run in."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder
        for name in tracked():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "mutation" / "nursery.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def tests(self, selection: str, limit: float) -> dict:
        """The outcome of some tests in the tree as it is now."""
        request = {"tree": str(self.tree), "arguments": shlex.split(selection), "limit": limit}
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


def known_faults(files: list[str]) -> Iterator[tuple[Fault, str]]:
    """KNOWN, found in the files as they are; those that no longer apply are printed."""
    for file, old, new, why in KNOWN:
        if file not in files:
            continue
        source = (ROOT / file).read_text(encoding="utf-8")
        if source.count(old) != 1:
            print(f"no longer applies: {file} holds {source.count(old)} times: {old}", flush=True)
            continue
        start = len(source[: source.index(old)].encode())
        line = source[: source.index(old)].count("\n") + 1
        yield Fault(file, line, start, start + len(old.encode()), old, new), why


def sampled_faults(files: list[str], per_file: int, seed: int, recorded: set[str]) -> list[tuple[Fault, str]]:
    """Recorded ones that can still be made, and new ones up to `per_file`; each file's first before any second."""
    found = []
    for file in files:
        possible = faults_of(file, (ROOT / file).read_text(encoding="utf-8"))
        own = [fault for fault in possible if fault.name in recorded]
        if (missing := per_file - len(own)) > 0:
            others = [fault for fault in possible if fault not in own]
            own += sample(others, missing, seed + zlib.crc32(file.encode()))
        found += [(i, (fault, "")) for i, fault in enumerate(own)]
    return [pair for _, pair in sorted(found, key=lambda entry: entry[0])]


class Results:
    """The rows of mutants.json, which several processes may write."""

    def __init__(self, folder: Path) -> None:
        self._path, self._page = folder / "mutants.json", folder / "mutants.md"
        self._lock = FileLock(folder / "mutants.lock")

    def read(self) -> dict[str, dict]:
        """Its "rows" by the fault's name, and the "groups" of tests with the seconds they take without a fault."""
        if not self._path.exists():
            return {"rows": {}, "groups": {}}
        return json.loads(self._path.read_text("utf-8"))

    def clear(self) -> None:
        """Forget what was run before."""
        with self._lock:
            self._path.unlink(missing_ok=True)

    def keep(self, faults: set[str], files: list[str]) -> None:
        """Forget rows of these files whose faults cannot be made any more."""
        with self._lock:
            content = self.read()
            rows = {
                name: row
                for name, row in content["rows"].items()
                if (name in faults if row["file"] in files else (ROOT / row["file"]).exists())
            }
            if rows != content["rows"]:
                write_json(self._path, content | {"rows": rows})

    def take(self, kind: str, name: str, row: dict) -> None:
        """Write a row down; the page follows."""
        with self._lock:
            content = self.read()
            content[kind][name] = row
            write_json(self._path, content | {"machine": machine()})
            self._page.write_text(page(content["rows"]), "utf-8")


class Runner:
    """Runs faults one after another in a nursery."""

    def __init__(self, nursery: Nursery, results: Results, groups: int = 99) -> None:
        self._nursery, self._results, self._groups, self._commit = nursery, results, groups, record.commit()

    def __call__(self, fault: Fault, why: str) -> None:
        """Run the groups of tests that should notice, until one does."""
        groups = SELECTIONS[fault.file][: None if why else self._groups]  # all where it is known which should notice
        row = described(fault, why, groups) | {"commit": self._commit, "by": "", "seconds": 0.0, "void": False}
        for group in groups:
            limit = self._limit(group)
            if limit is None:
                row["void"] = True
                continue
            with self._nursery.with_fault(fault):
                outcome = self._nursery.tests(group, limit)
            row["seconds"] = round(row["seconds"] + outcome["seconds"], 1)
            if outcome["code"] not in (0, NO_TESTS):
                row |= {"void": False, "by": outcome["by"] or _how(outcome["code"], group)}
                break
        row["caught"] = bool(row["by"])
        row["unfinished"] = not row["caught"] and len(groups) < len(SELECTIONS[fault.file])
        self._results.take("rows", row_name(fault, why), row)
        verdict = (
            "caught" if row["caught"] else "void" if row["void"] else "later" if row.get("unfinished") else "SURVIVED"
        )
        print(f"{verdict:8} {row['seconds']:6.1f} s  {fault.file}:{fault.line} {why or fault.name}", flush=True)

    def _limit(self, group: str) -> float | None:
        """Seconds after which a group of tests is stopped; None where it fails without a fault."""
        tests = fingerprint([group])
        known = self._results.read()["groups"].get(group, {})
        if known.get("tests") != tests:
            without = self._nursery.tests(group, LONGEST)
            known = {"tests": tests, "seconds": round(without["seconds"], 1), "commit": self._commit}
            known["passed"] = without["code"] == 0
            print(
                f"{'passes' if known['passed'] else 'FAILS '}   {known['seconds']:6.1f} s  {group} {without['by']}",
                flush=True,
            )
            self._results.take("groups", group, known)
        return 5 * known["seconds"] + 60 if known["passed"] else None


def _how(code: int | None, group: str) -> str:
    return f"{group}: {'time limit' if code is None else f'exit code {code}'}"


def fingerprint(groups: list[str] | tuple[str, ...]) -> int:
    """Of groups of tests: their names, and what their files hold."""
    paths = {ROOT / word for group in groups for word in shlex.split(group) if word.endswith(".py")}
    content = [path.read_bytes() for path in sorted(paths)]
    return zlib.crc32(b"".join(content), zlib.crc32("\n".join(groups).encode()))


def without_texts(source: str) -> str:
    """A module's syntax tree, without comments and docstrings: a change of these needs no new run."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not (isinstance(line, ast.Expr) and _is_text(line.value))]
    return ast.dump(tree)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def described(fault: Fault, why: str, groups: tuple[str, ...]) -> dict[str, object]:
    """What a row says of a fault before it is run."""
    source = zlib.crc32(without_texts((ROOT / fault.file).read_text(encoding="utf-8")).encode())
    known = {"file": fault.file, "line": fault.line, "fault": fault.name, "why": why}
    return known | {"source": source, "tests": fingerprint(groups)}


def row_name(fault: Fault, why: str) -> str:
    """Under which a fault's row is stored."""
    return f"{fault.name} ({CONTROL})" if why == CONTROL else fault.name


def is_valid(row: dict, fault: Fault, why: str, groups: int = 99) -> bool:
    """Whether a row need not be run again."""
    now = described(fault, why, SELECTIONS[fault.file][: None if why else groups])
    same = ("source",) if row["caught"] and why != CONTROL else ("source", "tests")
    return not row["void"] and all(row[name] == now[name] for name in same)


def page(rows: dict[str, dict]) -> str:
    """How many of each folder's faults were caught, those that were not, and all of them."""
    faults = [row for row in rows.values() if row["why"] != CONTROL]
    counted = [row for row in faults if not row["void"] and not row.get("unfinished")]
    lines = ["| folder | faults | caught | equivalent | survived |", "|---|---:|---:|---:|---:|"]
    for folder in [*sorted({_folder(row) for row in counted}), "all"]:
        own = [row for row in counted if folder in (_folder(row), "all")]
        caught = sum(row["caught"] for row in own)
        equivalent = sum(not row["caught"] and row["fault"] in EQUIVALENT for row in own)
        lines.append(f"| {folder} | {len(own)} | {caught} | {equivalent} | {len(own) - caught - equivalent} |")
    survivors = [row for row in counted if not row["caught"]]
    lines += ["", f"Caught: {1 - len(survivors) / max(1, len(counted)):.1%} of {len(counted)}."]
    controls = [row["caught"] for row in rows.values() if row["why"] == CONTROL]
    lines += [f"Negative controls caught, of which none may be: {sum(controls)} of {len(controls)}.", ""]
    lines += ["Not caught:", "", "| fault | why |", "|---|---|"]
    lines += [f"| {_code(row['fault'])} | {EQUIVALENT.get(row['fault'], 'no test notices')} |" for row in survivors]
    lines += ["", "Void, since the tests fail without the fault:", ""]
    lines += [f"- {_code(row['fault'])}" for row in faults if row["void"]] or ["- none"]
    lines += ["", "Not caught by the first groups of tests, with others still to run (not counted above):", ""]
    lines += [f"- {_code(row['fault'])}" for row in faults if row.get("unfinished")] or ["- none"]
    lines += ["", "| fault | line | caught by | seconds | commit |", "|---|---:|---|---:|---|"]
    for row in sorted(counted, key=lambda row: (row["file"], row["line"])):
        by = row["by"].replace("|", "\\|") or "–"
        lines.append(f"| {_code(row['fault'])} | {row['line']} | {by} | {row['seconds']} | {row['commit'][:7]} |")
    return "\n".join(lines) + "\n"


def _folder(row: dict) -> str:
    return row["file"].rpartition("/")[0] or "."


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'").replace("\n", " ") + "`"


def shared(files: list[str], share: str) -> list[str]:
    """The part of the files that `share` names.

    Raises:
        UserError: it names none.
    """
    number, _, count = share.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f"share is {share!r}: expected two numbers, such as 1/2 and 2/2")
    return files[int(number) - 1 :: int(count)]


def main() -> None:
    with one_line_errors():
        arguments, began = parse_settings(Arguments), time.monotonic()
        results = Results(arguments.results)
        if not arguments.go_on:
            results.clear()
        wanted = arguments.only.split(",")
        chosen = [file for file in SELECTIONS if any(map(file.__contains__, wanted)) and (ROOT / file).exists()]
        files = shared(chosen, arguments.share)
        if not files:
            raise UserError(f"no file's name contains {arguments.only!r}: expected a part of ppo/losses.py, say")
        control = Fault(files[0], 0, 0, 0, "", "# nothing\n")
        recorded = set(results.read()["rows"])
        sampled = sampled_faults(files, arguments.per_file, arguments.seed, recorded)
        faults = [*known_faults(files), (control, CONTROL), *sampled]
        results.keep({row_name(*pair) for pair in faults}, files)
        rows = results.read()["rows"].values()
        before = {(row["fault"], row["why"]): row for row in rows}
        waiting = [
            (fault, why)
            for fault, why in faults
            if (fault.name, why) not in before or not is_valid(before[fault.name, why], fault, why, arguments.groups)
        ]
        seconds = {group: row["seconds"] for group, row in results.read()["groups"].items()}
        waiting.sort(key=lambda pair: 0.0 if pair[1] else seconds.get(SELECTIONS[pair[0].file][0], UNKNOWN))
        print(f"{len(faults)} faults, {len(waiting)} of them to run", flush=True)
        with tempfile.TemporaryDirectory() as work, contextlib.closing(Nursery(Path(work))) as nursery:
            run = Runner(nursery, results, arguments.groups)
            for fault, why in waiting:
                if time.monotonic() - began > 60 * arguments.minutes:
                    break
                run(fault, why)


if __name__ == "__main__":
    main()
