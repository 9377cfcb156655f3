"""Checkpoints are there whole or not at all, and nothing in them can run."""

import builtins
import errno
import json
import os
import pickle
import stat

import numpy as np
import pytest

from common import arrays_file, files
from common.errors import UserError
from common.runs import checkpoint
from common.state import join_parts, part_of

STATE = {
    "weights/0": np.arange(6, dtype=np.float32).reshape(2, 3),
    "epoch": np.int64(3),
    "text": np.array([1, 2], np.uint8),
}


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def test_round_trip_keeps_the_newest(tmp_path):
    for generation in (1, 2, 3, 4):
        checkpoint.save(tmp_path, generation, STATE | {"epoch": np.int64(generation)}, keep=2)
    assert checkpoint.generations(tmp_path) == [4, 3]
    generation, state = checkpoint.load_newest(tmp_path, pytest.fail)
    assert generation == 4
    assert equal(state, STATE | {"epoch": np.int64(4)})


def damage_every_way(folder):
    """Each damage that a disk or a person can do to a generation."""
    state, manifest = folder / checkpoint.STATE, folder / checkpoint.MANIFEST
    whole, said = state.read_bytes(), json.loads(manifest.read_bytes())
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    yield "flipped bit", lambda: state.write_bytes(flipped)
    yield "cut short", lambda: state.write_bytes(whole[:-1])
    yield "empty", lambda: state.write_bytes(b"")
    yield "missing state", state.unlink
    yield "missing manifest", manifest.unlink
    yield "manifest is no JSON", lambda: manifest.write_bytes(b"{")
    yield "manifest is a list", lambda: manifest.write_bytes(b"[1]")
    yield "manifest of another generation", lambda: manifest.write_text(json.dumps(said | {"generation": 1}))
    yield "pickle in place of the state", lambda: state.write_bytes(pickle.dumps(STATE))


@pytest.mark.parametrize("case", range(9))
def test_damage_falls_back_to_the_one_before_with_a_warning(tmp_path, case):
    for generation in (1, 2):
        checkpoint.save(tmp_path, generation, STATE, keep=3)
    _, damage = list(damage_every_way(tmp_path / "00000002"))[case]
    damage()
    warnings = []
    generation, state = checkpoint.load_newest(tmp_path, warnings.append)
    assert (generation, len(warnings)) == (1, 1)
    assert equal(state, STATE)


def test_none_that_is_whole_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no checkpoint"):
        checkpoint.load_newest(tmp_path / "missing", pytest.fail)
    checkpoint.save(tmp_path, 1, STATE, keep=3)
    (tmp_path / "00000001" / checkpoint.STATE).write_bytes(b"")
    with pytest.raises(UserError, match="no checkpoint in"):
        checkpoint.load_newest(tmp_path, lambda _: None)


def test_a_newer_format_asks_for_newer_code(tmp_path):
    for generation in (1, 2):
        checkpoint.save(tmp_path, generation, STATE, keep=3)
    content = (tmp_path / "00000002" / checkpoint.STATE).read_bytes()
    newer = checkpoint.manifest(2, content, checkpoint.FORMAT + 1)
    (tmp_path / "00000002" / checkpoint.MANIFEST).write_text(json.dumps(newer))
    with pytest.raises(UserError, match="update the code"):
        checkpoint.load_newest(tmp_path, pytest.fail)


def test_no_flipped_bit_of_a_manifest_is_taken_for_a_newer_format(tmp_path):
    for generation in (1, 2):
        checkpoint.save(tmp_path, generation, STATE, keep=3)
    manifest = tmp_path / "00000002" / checkpoint.MANIFEST
    whole = manifest.read_bytes()
    loaded = set()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(flipped)
        loaded.add(checkpoint.load_newest(tmp_path, lambda _: None)[0])
    assert loaded <= {1, 2} and 1 in loaded


def test_newer_ones_that_were_damaged_go_when_the_run_has_gone_back(tmp_path):
    for generation in (1, 2, 3):
        checkpoint.save(tmp_path, generation, STATE, keep=3)
    for generation in (2, 3):
        (tmp_path / f"{generation:08d}" / checkpoint.STATE).write_bytes(b"damaged")
    assert checkpoint.load_newest(tmp_path, lambda _: None)[0] == 1
    checkpoint.save(tmp_path, 2, STATE, keep=3)
    assert checkpoint.load_newest(tmp_path, pytest.fail)[0] == 2
    assert checkpoint.generations(tmp_path) == [2, 1]


def test_unfinished_folders_go_with_the_next_save(tmp_path):
    checkpoint.save(tmp_path, 1, STATE, keep=3)
    (tmp_path / f"{checkpoint.UNFINISHED}-x").write_text("no folder")
    for name in (".unfinished-00000002", ".unfinished-00000007"):
        (tmp_path / name).mkdir()
        (tmp_path / name / checkpoint.STATE).write_bytes(b"half")
    checkpoint.save(tmp_path, 2, STATE, keep=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001", "00000002"]


@pytest.mark.parametrize(
    "fault", [OSError(5, "Input/output error"), OSError(24, "Too many open files"), MemoryError()], ids=str
)
def test_a_fault_that_passes_is_no_damage(tmp_path, monkeypatch, fault):
    for generation in (1, 2):
        checkpoint.save(tmp_path, generation, STATE, keep=3)

    def failing(*_):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(files, "read_bytes", failing)
        with pytest.raises(UserError, match="try again") as error:
            checkpoint.load_newest(tmp_path, pytest.fail)
    assert "\n" not in str(error.value)
    assert checkpoint.load_newest(tmp_path, pytest.fail)[0] == 2


def test_folders_that_cannot_be_flushed_are_no_obstacle_and_full_disks_are(tmp_path, monkeypatch):
    real = os.fsync

    def without(number):
        def fsync(descriptor):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(number, os.strerror(number))
            real(descriptor)

        return fsync

    for number in (errno.EINVAL, errno.ENOTSUP):
        monkeypatch.setattr(os, "fsync", without(number))
        checkpoint.save(tmp_path, number, STATE, keep=3)
        assert checkpoint.load_newest(tmp_path, pytest.fail)[0] == number
    monkeypatch.setattr(os, "fsync", without(errno.EIO))
    with pytest.raises(UserError, match="could not be written"):
        checkpoint.save(tmp_path, 200, STATE, keep=3)


def test_what_is_written_is_flushed_before_it_takes_its_place(tmp_path, monkeypatch):
    done, fsync, real = [], os.fsync, {"rename": os.rename, "replace": os.replace}

    def noted_fsync(descriptor):
        done.append(("flushed", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def noted(move):
        def placed(source, target):
            done.append(("placed", os.stat(source).st_ino))
            move(source, target)

        return placed

    monkeypatch.setattr(os, "fsync", noted_fsync)
    for name, move in real.items():
        monkeypatch.setattr(os, name, noted(move))
    files.replace_file(tmp_path / "config.json", b"{}")
    new = (tmp_path / "config.json").stat().st_ino
    assert done == [("flushed", new), ("placed", new), ("flushed", tmp_path.stat().st_ino)]
    checkpoint.save(tmp_path, 7, STATE, keep=3)
    folder = tmp_path / "00000007"
    placed = done.index(("placed", folder.stat().st_ino))
    for path in (folder, *folder.iterdir()):
        assert ("flushed", path.stat().st_ino) in done[:placed], path.name
    assert ("flushed", tmp_path.stat().st_ino) in done[placed:]


BEFORE = [("open", 0), ("open", 1), ("fsync", 0), ("fsync", 1), ("fsync", 2), ("rename", 0)]
AFTER = [("fsync", 3)]  # of the folder that the new one was moved into; `open` is called to prune then
KILLED, FULL = KeyboardInterrupt(), OSError(28, "No space left on device")


@pytest.mark.parametrize("fault", [FULL, KILLED], ids=["full", "killed"])
@pytest.mark.parametrize(
    ("operation", "nth", "newest"),
    [*((*step, 1) for step in BEFORE), *((*step, 2) for step in AFTER)],
)
def test_a_fault_while_saving_leaves_whole_checkpoints(tmp_path, monkeypatch, operation, nth, newest, fault):
    checkpoint.save(tmp_path, 1, STATE, keep=3)
    module = builtins if operation == "open" else os
    real, calls = getattr(module, operation), []

    def failing(*arguments, **options):
        calls.append(arguments)
        if len(calls) == nth + 1:
            raise fault
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, operation, failing)
        with pytest.raises(UserError if fault is FULL else KeyboardInterrupt) as raised:
            checkpoint.save(tmp_path, 2, STATE, keep=3)
        assert fault is KILLED or "untouched" in str(raised.value)
    generation, state = checkpoint.load_newest(tmp_path, pytest.fail)
    assert generation == newest
    assert equal(state, STATE)
    checkpoint.save(tmp_path, 3, STATE, keep=1)  # what was left half-done is in nobody's way
    assert checkpoint.load_newest(tmp_path, pytest.fail)[0] == 3


def test_parts_come_apart_as_they_were_joined():
    parts = {"agent": {"a/0": np.ones(2)}, "agents": {"a": np.zeros(1)}}
    joined = join_parts(parts)
    assert {name: list(part_of(joined, name)) for name in parts} == {"agent": ["a/0"], "agents": ["a"]}


def test_a_checkpoint_may_be_as_large_as_the_largest_file(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, STATE, keep=1)
    size = (tmp_path / "00000001" / checkpoint.STATE).stat().st_size
    monkeypatch.setattr(arrays_file, "largest_file", lambda: size)
    assert checkpoint.load_newest(tmp_path, pytest.fail)[0] == 1
    monkeypatch.setattr(arrays_file, "largest_file", lambda: size - 1)
    with pytest.raises(UserError, match="not enough memory"):
        checkpoint.load_newest(tmp_path, pytest.fail)


def test_a_file_that_replaces_another_is_new_and_empty_in_a_folder_that_is_made(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with files.replacing(path) as unfinished:
        assert unfinished.read_bytes() == b"" and unfinished.parent == path.parent and not path.exists()
    assert path.read_bytes() == b""
