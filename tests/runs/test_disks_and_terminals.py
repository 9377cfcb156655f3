"""Disks without locks, full or failing; terminals that were closed; signals. One line each, and nothing is lost."""

import errno
import io
import math
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from run_program import call

import PPOAgentTrainer as main_program
from common import arrays_file, files
from common.errors import UserError
from common.figures import style
from common.results import columns_of
from common.runs import board, checkpoint, finished, one_process, run_folder, terminal
from common.runs.board import Board
from common.runs.command_line import one_line_errors
from common.runs.signals import StopSignals
from common.runs.terminal import Terminal
from ppo.results import PPOResult

ROOT = Path(main_program.__file__).parent
SETTINGS = (  # noqa: SIM905  (as it is typed)
    "pendulum --backend gymnasium --epochs 3 --num-envs 2 --steps-per-epoch 64 --minibatch-size 64 --passes 1 "
    "--hidden-sizes 4 --evaluation-episodes 0 --record tensorboard --checkpoint-every 1"
).split()
RESUME = SETTINGS[-6:]
pytestmark = pytest.mark.usefixtures("eager")


def program(monkeypatch, *arguments) -> int:
    return call(monkeypatch, main_program, *arguments)


def learned(folder: Path) -> list:
    table = run_folder.read_results(folder)
    with np.load(folder / run_folder.BEST_AGENT) as file:
        return [table["loss_critic"].tolist(), {name: file[name].tolist() for name in file.files}]


# -- locks --


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_without_locks_a_file_takes_their_place_and_that_is_told(monkeypatch, tmp_path, number):
    import fcntl

    def without(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", without)
    said = []
    with one_process.only_here(tmp_path, said.append):
        [line] = said
        assert "disk without locks" in line
        seems = pytest.raises(UserError, match="another process seems to be training")
        with seems as error, one_process.only_here(tmp_path, said.append):
            pass
        assert "\n" not in str(error.value)
        left = Path(str(error.value).rsplit("remove ", 1)[1])  # where its machine is lost
        assert left.parent == tmp_path and left.exists()
    with one_process.only_here(tmp_path, said.append):  # and once it is over it is free again
        pass


# -- disks that are full or fail --


@pytest.mark.skipif(os.name == "nt", reason="os.kill ends the process on Windows")
def test_only_a_second_ctrl_c_stops_at_once(capfd):
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert capfd.readouterr().err.count("stopping at the end of this epoch") == 2


def test_a_terminal_gets_its_cursor_back_when_the_bar_ends(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    screen = Terminal()
    screen.begin(5, 2)
    screen.end()
    out = capsys.readouterr().out
    assert "2/5" in out and out.rindex(shown) > out.index(hidden)


def test_the_time_left_is_shown_however_long_an_epoch_takes(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    columns = dict.fromkeys(columns_of(PPOResult), 1.0) | {"steps": 1, "episodes": 1, "is_best": False}
    now = 0.0
    monkeypatch.setattr("rich.console.monotonic", lambda: now)
    screen = Terminal()
    screen.begin(5, 0)
    for epoch in (1, 2):
        now += 60.0
        screen.row(PPOResult(**columns | {"epoch": epoch}))
    now += 40.0
    screen.progress("epoch 3: 100 of 200 steps")
    screen.end()
    assert "0:03:00" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_table_that_cannot_be_written_is_one_line_and_the_run_resumes(monkeypatch, tmp_path, capfd):
    assert program(monkeypatch, *SETTINGS, "--record", "--runs-folder", tmp_path, "--name", "whole") == 0
    write = run_folder.ResultsFile.write

    def failing(self, row):
        if row.epoch == 3:
            self._file.close()
            self._file = open("/dev/full", "ab")  # noqa: SIM115  closed by the run
        write(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.ResultsFile, "write", failing)
        assert program(patch, *SETTINGS, "--record", "--runs-folder", tmp_path, "--name", "run") == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1 and "results.csv cannot be written" in error
    assert f"python -m programs resume {tmp_path / 'run'}" in error
    assert program(monkeypatch, "--resume", tmp_path / "run", *RESUME, "--record") == 0
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("create_file_writer", tf.errors.ResourceExhaustedError(None, None, "No space left on device")),
        ("scalar", tf.errors.ResourceExhaustedError(None, None, "No space left on device")),
        ("scalar", ValueError("of a library")),
    ],
)
def test_a_board_that_fails_is_given_up_once(monkeypatch, tmp_path, where, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(board.tf.summary, where, full)
    said = []
    with Board(tmp_path / "tensorboard", said.append) as made:
        for epoch in (1, 2):
            made.scores("final", {"deterministic": {"mean": 1.0}}, epoch)
    [line] = said
    assert "the run continues without TensorBoard" in line and "\n" not in line


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("of a library")])
def test_a_figure_that_cannot_be_drawn_does_not_stop_the_run(monkeypatch, tmp_path, capfd, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(style, "drawn", fails)
    assert program(monkeypatch, *SETTINGS, "--record", "figure", "--runs-folder", tmp_path, "--name", "run") == 0
    assert "figure.png cannot be drawn" in capfd.readouterr().out
    assert finished.is_done(tmp_path / "run", finished.ADOPT, 3)


def test_a_figure_does_not_make_a_run_folder_anew_that_was_removed_meanwhile(monkeypatch, tmp_path):
    draw = style.drawn

    def removed(*arguments):
        shutil.rmtree(tmp_path / "run")
        return draw(*arguments)

    monkeypatch.setattr(style, "drawn", removed)
    assert program(monkeypatch, *SETTINGS, "--record", "figure", "--runs-folder", tmp_path, "--name", "run") == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("module", "name"), [(checkpoint, "save"), (finished, "note")])
def test_a_full_disk_names_itself_and_the_command_that_continues(monkeypatch, tmp_path, capfd, module, name):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        assert program(patch, *SETTINGS, "--record", "--runs-folder", tmp_path, "--name", "run") == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1 and f"{run} cannot be written (No space left on device)" in error
    assert error.endswith(f"continue with python -m programs resume {run}\n")


def test_a_disk_that_is_full_before_the_first_epoch_leaves_no_folder(monkeypatch, tmp_path, capfd):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "config.json")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_config", full)
        assert program(patch, *SETTINGS, "--record", "--runs-folder", tmp_path, "--name", "run") == 2
    assert "make room first" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [-3.14159, 123456.7, -1234567.8, -1e30, math.nan, math.inf])
def test_columns_stay_in_line_however_large_their_numbers(capsys, value):
    columns = dict.fromkeys(columns_of(PPOResult), value)
    result = PPOResult(
        **(columns | {"epoch": 99999, "steps": 99_999_999, "episodes": 1, "is_best": False, "steps_per_second": 1.0})
    )
    screen = Terminal()
    screen.begin(1, 0)
    screen.row(result)
    screen.end()
    heading, row = capsys.readouterr().out.splitlines()
    ends = [match.end() for match in re.finditer(r"\S+", heading)]
    assert [match.end() for match in re.finditer(r"\S+", row)] == ends
    shown = [float(text.replace(",", "")) if text != "-" else math.nan for text in row.split()]
    assert_allclose(shown[2:6], [value] * 4, rtol=0.05)


def test_leftovers_of_a_kill_are_removed_when_the_run_resumes(monkeypatch, tmp_path):
    assert program(monkeypatch, *SETTINGS, "--record", "--runs-folder", tmp_path, "--name", "run") == 0
    run, left = tmp_path / "run", []
    for path in (run / run_folder.CONFIG, run / run_folder.VIDEO):
        with pytest.raises(KeyboardInterrupt), files.replacing(path) as unfinished:
            left.append(unfinished.name)
            raise KeyboardInterrupt
    for name in left:
        (run / name).write_bytes(b"half")
    (run / run_folder.CHECKPOINTS / ".unfinished-00000009").mkdir()
    (run / ".mine").write_text("stays")
    assert program(monkeypatch, "--resume", run, *RESUME, "--record", "--epochs", 4) == 0
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == [".mine"]
    assert not [path for path in (run / run_folder.CHECKPOINTS).iterdir() if path.name.startswith(".")]


def test_too_little_memory_is_one_line(monkeypatch, tmp_path, capsys):
    assert program(monkeypatch, *SETTINGS, "--record", "--runs-folder", tmp_path, "--name", "run") == 0

    def none(_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(arrays_file, "unpacked", none)
        assert program(patch, "--resume", tmp_path / "run", *RESUME, "--record", "--epochs", 4) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "not enough memory" in error and "try again" in error
    assert checkpoint.generations(tmp_path / "run" / run_folder.CHECKPOINTS)[0] == 3
    with pytest.raises(SystemExit) as stop, one_line_errors():
        np.empty(2**58, np.uint8)
    assert stop.value.code == 2 and "not enough memory" in capsys.readouterr().err


# -- terminals and signals --


class Closed(io.StringIO):
    """A stream whose other end goes away after so many writes."""

    def __init__(self, writes, number):
        super().__init__()
        self._writes, self._number = writes, number

    def write(self, text):
        if self._writes == 0:
            raise OSError(self._number, os.strerror(self._number))
        self._writes -= 1
        return super().write(text)


def test_a_terminal_that_was_closed_stops_nothing(monkeypatch):
    stream = Closed(1, errno.EIO)
    monkeypatch.setattr(terminal.sys, "stdout", stream)
    shown = Terminal()
    for line in ("first", "second", "third"):
        shown.say(line)
    assert stream.getvalue() == "first\n" and shown.stop == 0


def test_a_pipe_without_a_reader_ends_the_run_in_good_order(monkeypatch, tmp_path):
    monkeypatch.setattr(terminal.sys, "stdout", Closed(1, errno.EPIPE))
    arguments = [*SETTINGS, "--record", "--runs-folder", tmp_path, "--name", "run"]
    assert program(monkeypatch, *arguments) == 128 + signal.SIGPIPE
    assert checkpoint.generations(tmp_path / "run" / run_folder.CHECKPOINTS) == [1]


def test_other_faults_of_a_terminal_are_not_hidden(monkeypatch):
    monkeypatch.setattr(terminal.sys, "stdout", Closed(0, errno.EBADF))
    with pytest.raises(OSError, match="Bad file"):
        Terminal().say("line")


def test_errors_can_be_written_to_any_terminal(monkeypatch):
    error = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", error)
    with pytest.raises(SystemExit), one_line_errors():
        raise UserError("expected σ → \udcff")
    error.flush()
    assert error.buffer.getvalue() == b"error: expected \\u03c3 \\u2192 \\udcff\n"


def test_a_table_of_a_run_is_flushed_at_its_end(monkeypatch, tmp_path):
    flushed = []
    monkeypatch.setattr(files, "flush_file", flushed.append)
    with run_folder.ResultsFile(tmp_path, [], PPOResult):
        pass
    assert tmp_path / run_folder.RESULTS in flushed


def test_a_lock_that_is_a_link_is_refused_and_what_it_names_stays(tmp_path):
    (tmp_path / "theirs").write_text("stays", encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / one_process.LOCK).symlink_to(tmp_path / "theirs")
    with pytest.raises(UserError, match="a link"), one_process.only_here(tmp_path / "run", print):
        pass
    assert (tmp_path / "theirs").read_text(encoding="utf-8") == "stays"
