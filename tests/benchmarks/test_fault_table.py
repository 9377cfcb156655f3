"""The fault table's own checks can fail: what is lost counts as lost, a control that scores full as a failure."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import resume  # noqa: E402
from fault_table import (  # noqa: E402
    broken,
    child,
    damage,
    disk_trace,
    guard,
    kills,
    outcome,
    payloads,
    power,
    programs,
    record,
    rows,
)
from fault_table.tally import Tally  # noqa: E402

from common.runs import checkpoint  # noqa: E402

HERE = {"date": "2026-11-22T00:00:00", "cpu": "a processor", "cores": 2, "system": "Linux"}


# -- comparing --


def test_what_differs_is_not_equal():
    one = {"a": np.float32([1, np.nan])}
    assert outcome.equal(one, {"a": one["a"].copy()})
    for other in (
        {"a": np.float64([1, np.nan])},
        {"a": np.float32([2, np.nan])},
        {"a": np.float32([[1, np.nan]])},
        one | {"b": np.int64(1)},
        {},
    ):
        assert not outcome.equal(one, other) and outcome.differences(one, other)


# -- progress --


def session(*lines: str, code: int = -9, errors: tuple[str, ...] = ()) -> SimpleNamespace:
    """A program that announced so much and ended."""
    announced = programs.Announced([(float(i), line) for i, line in enumerate(lines)])
    process = SimpleNamespace(returncode=code)
    return SimpleNamespace(announced=announced, process=process, errors=list(errors), said=lambda: f"exit code {code}")


@pytest.mark.parametrize(
    ("lines", "before", "after", "is_fault"),
    [
        (("row 5", "row 6", "saved 6", "row 7"), 4, 6, False),
        (("row 1",), 0, 0, False),
        (("phase import",), 4, 4, False),
        (("row 1", "row 2"), 4, 4, True),  # it began with its first epoch
        (("row 1", "row 2", "row 3"), 0, 0, True),  # nothing was saved
        (("row 5", "row 6", "row 7"), 4, 4, True),  # epoch 6 was not
        (("phase restoring",), 4, 2, True),  # one was lost
        (("row 3",), 4, 4, True),  # an older one was taken
    ],
)
def test_a_session_without_progress_is_a_fault(lines, before, after, is_fault):
    assert bool(kills.progress_faults(session(*lines), before, after)) == is_fault


def test_ends_that_count_as_lost(tmp_path):
    done = ("error: runs/A has all its 14 epochs: ask for more",)
    for well in (session(), session(code=0), session(code=2, errors=done)):
        assert not kills.ended_faults(well)
    refused = session(code=2, errors=("error: no checkpoint is whole",))
    for lost in (refused, session(code=1, errors=("Traceback",)), session(code=None)):  # the last one hangs
        assert kills.ended_faults(lost)
    assert kills.outcome_faults(tmp_path / "nothing", {"generation": np.int64(2)})  # a run without its files


def test_kills_are_spread_over_all_phases():
    rng = random.Random(0)
    for _ in range(3):
        chosen = kills.phases_of(len(child.EVERY_PHASE), {}, rng)
        assert sorted(chosen) == sorted(child.EVERY_PHASE)
        assert chosen[-2:] == ["evaluating", "filming"] and chosen.index("restoring") > 0
    once = dict.fromkeys(child.EVERY_PHASE, 1)
    assert kills.phases_of(2, once | {"saving": 0, "filming": 0}, rng) == ["saving", "filming"]
    last = kills.phases_of(2, once | {"restoring": 0, "filming": 0}, rng)
    assert last == ["collecting", "restoring", "filming"]  # there must be a checkpoint
    announced = programs.Announced([(0.0, "phase collecting"), (1.0, "row 3"), (2.0, "phase between")])
    assert (announced.phase, programs.Announced().phase) == ("between", "import")  # the one announced last
    assert announced.profile() == {"collecting": (1, 2.0)} and announced.numbers("row") == [3]


def test_every_phase_is_a_function_of_the_code():
    """A function that was renamed would leave its phase without kills."""
    import importlib

    for functions in child.PHASES.values():
        for module, path in functions:
            owner = importlib.import_module(module)
            for part in path.split("."):
                owner = getattr(owner, part)
            assert callable(owner)


# -- negative controls --


@pytest.fixture
def unbroken(monkeypatch):
    """Puts back what a way to break the programs replaces."""
    import hashlib

    monkeypatch.setattr(hashlib, "sha256", hashlib.sha256)
    for name in ("save", "load_newest", "generations", "manifest"):
        monkeypatch.setattr(checkpoint, name, getattr(checkpoint, name))


@pytest.mark.parametrize(
    ("made", "way"),
    [
        *((damage.corruptions, way) for way in ("", "a loader that always refuses", "a loader that takes the oldest")),
        (damage.corruptions, "no checksum"),
        *((damage.crashes, way) for way in ("", "a save that removes the older ones first")),
    ],
)
def test_damage_and_crashes_are_survived_by_the_checkpoints_as_they_are_alone(tmp_path, unbroken, made, way):
    assert all(set(row.controls) <= set(broken.WAYS) and min(row.controls.values(), default=1) > 0
               for row in rows.ROWS.values())  # fmt: skip
    tally = made(60 if made is damage.corruptions else 1, tmp_path, way)
    assert tally.tries > 10
    assert (tally.survived == tally.tries) == (not way)


def test_every_way_to_break_the_programs_finds_what_it_replaces():
    code = "from fault_table import broken; broken.apply('|'.join(broken.WAYS))"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": paths})


# -- power cuts --


def a_record(tmp_path: Path, write) -> list[dict]:
    """The steps of what `write` does to a folder, recorded in a process of its own."""
    folder, trace = tmp_path / "folder", tmp_path / "trace.json"
    folder.mkdir()
    code = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "benchmarks")!r}]
import os
from pathlib import Path
from fault_table import disk_trace
disk_trace.record(Path({str(trace)!r}), Path({str(folder)!r}))
folder = Path({str(folder)!r})
{write}
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    return json.loads(trace.read_text())


def survivors(tmp_path: Path, steps: list[dict]) -> set[tuple[tuple[str, bytes], ...]]:
    """What can be left of the folder once everything has been done."""
    disk, found = power.Disk(), set()
    for step in steps:
        disk.play(step)
    for i in range(40):
        for survival in power.SURVIVALS:
            target = tmp_path / "left"
            disk.survivor(survival, random.Random(i), disk_trace.contents(tmp_path / "trace.json"), target)
            found.add(tuple(sorted((path.name, path.read_bytes()) for path in target.iterdir())))
            shutil.rmtree(target)
    return found


PLAIN = """
(folder / "a").write_bytes(b"old")
os.fsync(os.open(folder / "a", os.O_RDONLY))
os.fsync(os.open(folder, os.O_RDONLY))
"""
REPLACED = """
(folder / "b").write_bytes(b"new!")
FLUSH
os.replace(folder / "b", folder / "a")
"""
FLUSH_FILE, FLUSH_FOLDER = 'os.fsync(os.open(folder / "b", os.O_RDONLY))', "os.fsync(os.open(folder, os.O_RDONLY))"


OLD, NEW = (("a", b"old"),), (("a", b"new!"),)
EMPTY_OR_TORN = {(("a", content),) for content in (b"", b"ne", bytes(4))}


@pytest.mark.parametrize(
    ("write", "at_least", "never"),
    [
        (PLAIN, {OLD}, {NEW, *EMPTY_OR_TORN}),
        (PLAIN + REPLACED.replace("FLUSH", FLUSH_FILE) + FLUSH_FOLDER, {NEW}, {OLD, *EMPTY_OR_TORN}),
        (PLAIN + REPLACED.replace("FLUSH", FLUSH_FILE), {OLD, NEW}, EMPTY_OR_TORN),  # undone without its folder
        (PLAIN + REPLACED.replace("FLUSH", "") + FLUSH_FOLDER, EMPTY_OR_TORN, {OLD}),
    ],
    ids=["flushed", "replaced and flushed", "folder not flushed", "file not flushed"],
)
def test_what_was_flushed_survives_and_what_was_not_may_be_lost(tmp_path, write, at_least, never):
    left = survivors(tmp_path, a_record(tmp_path, write))
    assert at_least <= left and not never & left


A_RUN = """
import numpy as np
from common import files
from common.runs import checkpoint, run_folder
run = run_folder.create(str(folder / "runs"), "run", "run")
files.write_json(run / "config.json", {})
checkpoint.save(run / "checkpoints", 1, {"a": np.zeros(3)}, keep=1)
"""


@pytest.mark.parametrize("survival", power.SURVIVALS)
def test_a_run_folder_and_its_first_checkpoint_survive_with_the_folders_they_are_in(tmp_path, survival):
    disk = power.Disk()
    for step in a_record(tmp_path, A_RUN):
        disk.play(step)
    disk.survivor(survival, random.Random(0), disk_trace.contents(tmp_path / "trace.json"), tmp_path / "left")
    run = tmp_path / "left" / "runs" / "run"
    assert (run / "config.json").read_bytes() == b"{}\n"
    generation, state = checkpoint.load_newest(run / "checkpoints", pytest.fail)
    assert generation == 1 and state["a"].shape == (3,)


# -- hostile folders --


@pytest.fixture
def watched(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret").write_text("secret")
    return guard.Guard(outside, [inside], tmp_path.parent), outside, inside


def test_a_guard_hears_what_reaches_outside(watched, tmp_path):
    guarded, outside, inside = watched
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    deeds = (
        lambda: (inside / "link").read_text(),
        lambda: (inside / "link").write_text("x"),
        lambda: (inside / "folder" / "new").write_text("x"),
        lambda: (outside / "new").unlink(),
        lambda: (inside / "folder" / "made").mkdir(),
        lambda: (outside.parent / "beside").write_text("x"),
    )
    for deed in deeds:
        with guarded.watching() as violations:
            deed()
        assert violations
    with guarded.watching() as violations:
        (inside / "own").write_text("x")
        (inside / "own").unlink()
        (tmp_path.parent / "temporary").write_text("x")
        (tmp_path.parent / "temporary").unlink()
    assert not violations


def test_a_link_in_place_of_an_unfinished_checkpoint_is_removed_unopened(watched):
    guarded, outside, inside = watched
    (inside / f"{checkpoint.UNFINISHED}00000003").symlink_to(outside)
    with guarded.watching() as violations:
        checkpoint.remove_unfinished(inside)
    assert not violations and not list(inside.iterdir()) and (outside / "secret").exists()


def ends(code: object, *lines: str):
    def main():
        for line in lines:
            print(line, file=sys.stderr)
        raise code if isinstance(code, BaseException) else SystemExit(code)

    return main


def test_a_program_ends_well_or_in_one_line():
    for well in (ends(0), ends(2, "error: it is damaged")):
        assert not guard.call(well)[0]
    for badly in (ends(2, "error: it is", "damaged"), ends(2, "it is damaged"), ends(1)):
        assert guard.call(badly)[0]
    assert "traceback of ValueError" in guard.call(ends(ValueError("x")))[0]


def test_a_program_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE", 0.1)

    def hangs():
        import time

        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue

    assert "no end" in guard.call(hangs)[0]


@pytest.mark.parametrize("make", payloads.ARCHIVES, ids=lambda make: make.__name__)
def test_hostile_archives_and_values_are_made(make, tmp_path):
    assert make(random.Random(0), tmp_path / "trap") and not (tmp_path / "trap").exists()
    changed = payloads.with_value({"config": {"gamma": 0.9, "passes": 3}}, ("config", "gamma"), "NaN")
    assert changed == b'{"config": {"gamma": NaN, "passes": 3}}'


# -- the record --


@pytest.mark.parametrize(
    ("name", "tried", "failed"),
    [
        ("kills", Tally(tries=3, survived=3), False),
        ("kills", Tally(tries=3, survived=2), True),
        ("kills", Tally(tries=0, survived=0), True),
        ("kills", Tally(tries=3, survived=3, notes=["no kill fell in: saving"]), True),
        (record.control_name("kills", "no save"), Tally(tries=3, survived=3), True),
        (record.control_name("kills", "no save"), Tally(tries=0, survived=0), True),
        (record.control_name("kills", "no save"), Tally(tries=3, survived=2), False),
        ("disk full", Tally(tries=0, survived=0, skipped="needs root"), False),
    ],
)
def test_a_row_fails_if_anything_was_lost_and_a_control_if_nothing_was(name, tried, failed):
    assert bool(record.failed(name, vars(tried))) == failed


def test_a_rerun_that_failed_replaces_what_it_reran(tmp_path):
    kept = record.Record(tmp_path, "abc", HERE)
    kept.take("kills", Tally(tries=24, survived=24, phases={"saving": 24}))
    kept.take("kills", Tally(tries=3, survived=3))  # fewer, and well: what is there says more
    assert kept.rows["kills"]["tries"] == 24
    kept.take("kills", Tally(tries=3, survived=2, notes=["lost"]))
    assert (kept.rows["kills"]["tries"], kept.rows["kills"]["survived"]) == (3, 2)
    kept.take("kills", Tally(tries=24, survived=24))
    again = record.Record(tmp_path, "def", HERE)
    assert again.rows["kills"]["survived"] == 24
    assert kept.done("kills", 24) and not kept.done("kills", 25)
    assert not again.done("kills", 24)  # of another commit
    again.take("kills", Tally(tries=3, survived=3))
    assert again.rows["kills"]["commit"] == "def"


def test_every_row_has_the_commit_and_the_page_shows_all(tmp_path):
    kept = record.Record(tmp_path, "0123456789abcdef0123456789abcdef01234567-dirty", HERE)
    kept.take("kills", Tally(tries=8, survived=8, phases={"saving": 8}))
    kept.take(record.control_name("kills", "no save"), Tally(tries=4, survived=1))
    kept.take("disk full", Tally(tries=0, survived=0, skipped="needs root"))
    page = (tmp_path / "faults.md").read_text(encoding="utf-8")
    table, controls, phases, where = page.strip().split("\n\n")
    assert "| kills     | 8         | 8        | 0    |" in table and "not tried" in table and "no save" not in table
    assert "| kills, no save   | 4     | 1        | 3    |" in controls
    assert "| kills    | 0 " in phases
    assert where.endswith("commit 0123456789-dirty.")
    assert record.table(kept.rows) == table
    recorded = json.loads((ROOT / "benchmarks" / "results" / "faults.json").read_text())
    assert record.table(recorded).startswith("| fault")  # that of this commit


# -- benchmarks/resume.py --


def test_what_a_resume_changed_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "WATCHED", 1)
    whole, other = ROOT / "tests" / "data" / "run", tmp_path / "run"
    shutil.copytree(whole, other)
    assert resume.compare(whole, other, 3) == []
    file = other / "checkpoints" / "00000004" / "state.npz"
    state = dict(np.load(file))
    name = next(key for key, array in state.items() if array.dtype == np.float32 and array.size)
    state[name] = np.nextafter(state[name], np.float32(np.inf))
    np.savez(file, **state)
    table = (other / "results.csv").read_text().splitlines()
    cells = table[-1].split(",")
    cells[table[0].split(",").index("steps")] += "0"
    (other / "results.csv").write_text("\n".join([*table[:-1], ",".join(cells)]) + "\n")
    assert resume.compare(whole, other, 3) == sorted([name, "steps"])


def test_a_folder_is_cut_back_to_an_epoch(tmp_path):
    shutil.copytree(ROOT / "tests" / "data" / "run", tmp_path / "whole")
    shutil.copytree(tmp_path / "whole" / "checkpoints" / "00000004", tmp_path / "whole" / "checkpoints" / "00000002")
    resume.cut_back(tmp_path / "whole", 2, tmp_path / "cut")
    assert checkpoint.generations(tmp_path / "cut" / "checkpoints") == [2]
    assert checkpoint.generations(tmp_path / "whole" / "checkpoints") == [4, 2]
