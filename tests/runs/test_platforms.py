"""What differs between systems and can be tried on this one: consoles, file names, files that others read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from common import files
from common.runs.options import is_folder_name

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "pendulum", "--backend", "gymnasium", "--num-envs", "2", "--epochs", "2", "--steps-per-epoch", "64",
    "--passes", "1", "--minibatch-size", "64", "--max-episode-steps", "20", "--hidden-sizes", "8",
    "--evaluation-episodes", "2", "--record", "figure",
]  # fmt: skip


def typed(console, *arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": console},
    )


def test_a_run_on_a_console_that_has_not_got_every_letter(tmp_path, processes_without_xla):
    name = "größe-σ"
    done = typed("cp1252", "PPOAgentTrainer.py", *SMALL, "--runs-folder", tmp_path, "--name", name)
    assert done.returncode == 0, done.stderr
    assert b"\n    2 " in done.stdout.replace(b"\r\n", b"\n")
    table = (tmp_path / name / "results.csv").read_bytes()
    assert table.count(b"\n") == 3 and b"\r" not in table


def test_a_name_of_a_folder_is_one_on_every_system():
    on_windows = ["a:b", "a?", "a*", "<a>", "a|b", "end.", "end ", "CON", "nul.txt", "COM1", "lpt9.a.b"]
    for name in ["", ".", "..", "a/b", "a\\b", "a\0b", "a\tb", *on_windows]:
        assert not is_folder_name(name), name
    for name in ["run-1", "größe-σ", "con-1", "a.b", "a [x]", "console", "com10"]:
        assert is_folder_name(name), name


def test_a_file_that_another_program_reads_is_moved_once_it_is_free(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    refusals = []

    def move(source, target):  # as Windows does
        if len(refusals) < 2:
            refusals.append(1)
            raise PermissionError(13, "it is in use")
        os.replace(source, target)

    monkeypatch.setattr(files, "PAUSES", (0.0, 0.0, 0.0))
    files.move_with_retries(move, tmp_path / "a", tmp_path / "b")
    assert len(refusals) == 2 and (tmp_path / "b").read_bytes() == b"new"
    monkeypatch.setattr(files, "PAUSES", (0.0,))
    refusals.clear()
    with pytest.raises(PermissionError):
        files.move_with_retries(move, tmp_path / "b", tmp_path / "a")
