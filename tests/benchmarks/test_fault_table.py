"""The fault table's own checks can fail: what is lost counts as lost, a control that scores full as a failure."""

import json
import random
import shutil
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


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.float64([1, 2])},
        {"a": np.float32([1, 3])},
        {"a": np.float32([[1, 2]])},
        {"a": np.float32([1, 2]), "b": np.int64(1)},
        {},
    ],
    ids=["type", "value", "shape", "one more", "missing"],
)
def test_what_differs_is_not_equal(other):
    assert not outcome.equal({"a": np.float32([1, 2])}, other)
    assert outcome.differences({"a": np.float32([1, 2])}, other)


def test_what_is_the_same_is_equal_numbers_that_are_none_too():
    one = {"a": np.array([1.0, np.nan]), "b": np.int64(3)}
    assert outcome.equal(one, {name: array.copy() for name, array in one.items()})


# -- progress --


def session(*lines: str, code: int = -9, errors: tuple[str, ...] = ()) -> SimpleNamespace:
    """A program that announced so much and ended."""
    announced = programs.Announced([(float(i), line) for i, line in enumerate(lines)])
    process = SimpleNamespace(returncode=code)
    return SimpleNamespace(announced=announced, process=process, errors=list(errors), said=lambda: f"exit code {code}")


def test_a_session_that_goes_on_and_saves_has_no_faults():
    assert not kills.progress_faults(session("row 5", "row 6", "saved 6", "row 7"), before=4, after=6)
    assert not kills.progress_faults(session("row 1"), before=0, after=0)
    assert not kills.progress_faults(session("phase import"), before=4, after=4)


@pytest.mark.parametrize(
    ("lines", "before", "after"),
    [
        (("row 1", "row 2"), 4, 4),  # it began with its first epoch
        (("row 1", "row 2", "row 3"), 0, 0),  # nothing was saved
        (("row 5", "row 6", "row 7"), 4, 4),  # epoch 6 was not
        (("phase restoring",), 4, 2),  # one was lost
        (("row 3",), 4, 4),  # an older one was taken
    ],
)
def test_a_session_without_progress_is_a_fault(lines, before, after):
    assert kills.progress_faults(session(*lines), before, after)


def test_ends_that_count_as_lost():
    assert not kills.ended_faults(session())
    assert not kills.ended_faults(session(code=0))
    assert not kills.ended_faults(session(code=2, errors=("error: runs/A has all its 14 epochs: ask for more",)))
    assert kills.ended_faults(session(code=2, errors=("error: no checkpoint is whole",)))
    assert kills.ended_faults(session(code=1, errors=("Traceback",)))
    assert kills.ended_faults(session(code=None))  # it hangs


def test_a_run_without_its_files_differs(tmp_path):
    assert kills.outcome_faults(tmp_path / "nothing", {"generation": np.int64(2)})


def test_kills_are_spread_over_all_phases():
    fallen, rng = {}, random.Random(0)
    for _ in range(3):
        chosen = kills.phases_of(len(child.EVERY_PHASE), fallen, rng)
        assert sorted(chosen) == sorted(child.EVERY_PHASE)
        assert chosen[-2:] == ["evaluating", "filming"]
        assert chosen.index("restoring") > 0
    few = kills.phases_of(2, dict.fromkeys(child.EVERY_PHASE, 1) | {"saving": 0, "filming": 0}, rng)
    assert few == ["saving", "filming"]
    last = kills.phases_of(2, dict.fromkeys(child.EVERY_PHASE, 1) | {"restoring": 0, "filming": 0}, rng)
    assert last == ["collecting", "restoring", "filming"]  # there must be a checkpoint


def test_the_phase_is_the_one_announced_last():
    announced = programs.Announced([(0.0, "phase collecting"), (1.0, "row 3"), (2.0, "phase between")])
    assert announced.phase == "between"
    assert programs.Announced().phase == "import"
    assert announced.profile() == {"collecting": (1, 2.0)}
    assert announced.numbers("row") == [3]


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


def test_controls_name_ways_that_there_are():
    for row in rows.ROWS.values():
        assert set(row.controls) <= set(broken.WAYS)
        assert all(tries > 0 for tries in row.controls.values())


@pytest.fixture
def unbroken(monkeypatch):
    """Puts back what a way to break the programs replaces."""
    import hashlib

    monkeypatch.setattr(hashlib, "sha256", hashlib.sha256)
    for name in ("save", "load_newest", "generations", "manifest"):
        monkeypatch.setattr(checkpoint, name, getattr(checkpoint, name))


@pytest.mark.parametrize("way", ["", "a loader that always refuses", "a loader that takes the oldest", "no checksum"])
def test_damage_is_survived_by_the_loader_alone(tmp_path, unbroken, way):
    tally = damage.corruptions(60, tmp_path, way)
    assert tally.tries == 60
    assert (tally.survived == 60) == (not way)


@pytest.mark.parametrize("way", ["", "a save that removes the older ones first"])
def test_crashes_are_survived_by_an_atomic_save_alone(tmp_path, unbroken, way):
    tally = damage.crashes(1, tmp_path, way)
    assert tally.tries > 10
    assert (tally.survived == tally.tries) == (not way)


# -- power cuts --


def a_record(tmp_path: Path, write) -> list[dict]:
    """The steps of what `write` does to a folder, recorded in a process of its own."""
    import subprocess

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


def test_what_was_flushed_survives(tmp_path):
    assert survivors(tmp_path, a_record(tmp_path, PLAIN)) == {(("a", b"old"),)}


def test_what_was_replaced_and_flushed_survives(tmp_path):
    steps = a_record(tmp_path, PLAIN + REPLACED.replace("FLUSH", FLUSH_FILE) + FLUSH_FOLDER)
    assert survivors(tmp_path, steps) == {(("a", b"new!"),)}


def test_a_replacement_may_be_undone_while_its_folder_is_not_flushed(tmp_path):
    left = survivors(tmp_path, a_record(tmp_path, PLAIN + REPLACED.replace("FLUSH", FLUSH_FILE)))
    assert {(("a", b"old"),), (("a", b"new!"),)} <= left


def test_a_replacement_may_be_empty_or_torn_while_it_is_not_flushed(tmp_path):
    left = survivors(tmp_path, a_record(tmp_path, PLAIN + REPLACED.replace("FLUSH", "") + FLUSH_FOLDER))
    assert {(("a", b""),), (("a", b"ne"),), (("a", bytes(4)),)} <= left
    assert (("a", b"old"),) not in left


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


def test_a_guard_hears_code_that_is_unpickled(watched, tmp_path):
    import pickle

    guarded, _, inside = watched
    content = pickle.dumps(payloads.Bomb(inside / "trap"))
    with guarded.watching() as violations:
        pickle.loads(content).close()
    assert violations and (inside / "trap").exists()


def ends(code: object, *lines: str):
    def main():
        for line in lines:
            print(line, file=sys.stderr)
        if isinstance(code, BaseException):
            raise code
        raise SystemExit(code)

    return main


def test_a_program_ends_well_or_in_one_line():
    assert not guard.call(ends(0))[0]
    assert not guard.call(ends(2, "error: it is damaged"))[0]
    assert guard.call(ends(2, "error: it is", "damaged"))[0]
    assert guard.call(ends(2, "it is damaged"))[0]
    assert guard.call(ends(1))[0]
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
def test_hostile_archives_are_made_anew_each_time(make, tmp_path):
    assert make(random.Random(0), tmp_path / "trap")
    assert not (tmp_path / "trap").exists()


def test_raw_json_lands_where_it_should():
    content = {"config": {"gamma": 0.9, "passes": 3}}
    changed = payloads.with_value(content, ("config", "gamma"), "NaN")
    assert changed == b'{"config": {"gamma": NaN, "passes": 3}}'


# -- the record --


def tally(tries: int, survived: int, **others) -> Tally:
    return Tally(tries=tries, survived=survived, **others)


def test_a_row_fails_if_anything_was_lost_and_a_control_if_nothing_was():
    def row(tried: Tally) -> dict:
        return vars(tried)

    control = record.control_name("kills", "no save")
    assert not record.failed("kills", row(tally(3, 3)))
    assert record.failed("kills", row(tally(3, 2)))
    assert record.failed("kills", row(tally(0, 0)))
    assert record.failed("kills", row(tally(3, 3, notes=["no kill fell in: saving"])))
    assert record.failed(control, row(tally(3, 3)))
    assert record.failed(control, row(tally(0, 0)))
    assert not record.failed(control, row(tally(3, 2)))
    assert not record.failed("disk full", row(tally(0, 0, skipped="needs root")))


def test_a_rerun_that_failed_replaces_what_it_reran(tmp_path):
    kept = record.Record(tmp_path, "abc", HERE)
    kept.take("kills", tally(24, 24, phases={"saving": 24}))
    kept.take("kills", tally(3, 3))  # fewer, and well: what is there says more
    assert kept.rows["kills"]["tries"] == 24
    kept.take("kills", tally(3, 2, notes=["lost"]))
    assert (kept.rows["kills"]["tries"], kept.rows["kills"]["survived"]) == (3, 2)
    kept.take("kills", tally(24, 24))
    again = record.Record(tmp_path, "def", HERE)
    assert again.rows["kills"]["survived"] == 24
    assert kept.done("kills", 24) and not kept.done("kills", 25)
    assert not again.done("kills", 24)  # of another commit
    again.take("kills", tally(3, 3))
    assert again.rows["kills"]["commit"] == "def"


def test_every_row_has_the_commit_and_the_page_shows_all(tmp_path):
    kept = record.Record(tmp_path, "0123456789abcdef0123456789abcdef01234567-dirty", HERE)
    kept.take("kills", tally(8, 8, phases={"saving": 8}))
    kept.take(record.control_name("kills", "no save"), tally(4, 1))
    kept.take("disk full", tally(0, 0, skipped="needs root"))
    page = (tmp_path / "faults.md").read_text(encoding="utf-8")
    table, controls, phases, where = page.strip().split("\n\n")
    assert "| kills     | 8         | 8        | 0    |" in table and "not tried" in table and "no save" not in table
    assert "| kills, no save   | 4     | 1        | 3    |" in controls
    assert "| kills    | 0 " in phases
    assert where.endswith("commit 0123456789-dirty.")
    assert record.table(kept.rows) == table


def test_the_table_of_this_commit_can_be_printed():
    recorded = json.loads((ROOT / "benchmarks" / "results" / "faults.json").read_text())
    assert record.table(recorded).startswith("| fault")


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
