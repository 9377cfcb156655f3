"""Runs that are stopped, killed, resumed, or asked for twice."""

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from run_program import call

import PPOAgentTrainer
from common.errors import UserError
from common.results import TIMING_COLUMNS
from common.runs import after_training, checkpoint, one_process, recorder, run_folder, session
from common.runs.options import RunOptions
from common.runs.recorder import Recorder
from common.runs.signals import StopSignals
from common.runs.terminal import Terminal
from companions import OffPolicyAgentTrainer
from companions.results import OffPolicyResult
from ppo.config import PPOConfig

ROOT = Path(PPOAgentTrainer.__file__).parent
SETTINGS = (  # noqa: SIM905  (as it is typed)
    "pendulum --backend gymnasium --epochs 6 --num-envs 2 --steps-per-epoch 128 --minibatch-size 64 --passes 1 "
    "--hidden-sizes 4"
).split()
TD3 = (  # noqa: SIM905  (as it is typed)
    "td3 --env Pendulum-v1 --epochs 6 --num-envs 2 --steps-per-epoch 100 --warmup-steps 100 --train-every 10 "
    "--updates-per-train 2 --batch-size 16 --hidden-sizes 4"
).split()
QUIET = ["--evaluation-episodes", "0", "--record", "--checkpoint-every", "2"]
pytestmark = pytest.mark.usefixtures("eager_module")


def program(monkeypatch, *arguments) -> int:
    return call(monkeypatch, PPOAgentTrainer, *arguments)


def learned(folder: Path) -> tuple[str, dict[str, np.ndarray]]:
    """The table without its timing columns, and the best agent."""
    columns = run_folder.read_results(folder)
    table = repr({name: column.tolist() for name, column in columns.items() if name not in TIMING_COLUMNS})
    with np.load(folder / run_folder.BEST_AGENT) as file:
        return table, {name: file[name] for name in file.files}


def same(a, b) -> bool:
    return a[0] == b[0] and a[1].keys() == b[1].keys() and all(np.array_equal(a[1][k], b[1][k]) for k in a[1])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a run that was not cut off; tests that change it copy it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("whole")
        assert program(monkeypatch, *SETTINGS, *QUIET, "--runs-folder", folder, "--name", "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def whole(finished):
    return learned(finished)


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A finished run."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.parametrize(("number", "epoch"), [(signal.SIGTERM, 1), (signal.SIGINT, 3), (signal.SIGHUP, 5)])
def test_a_signal_saves_and_the_resumed_run_is_the_same(monkeypatch, tmp_path, capfd, request, whole, number, epoch):
    if number == signal.SIGHUP:  # under nohup it is ignored, and stays so in a run
        before = signal.signal(number, signal.SIG_DFL)
        request.addfinalizer(lambda: signal.signal(number, before))
    write = Terminal.row

    def signalled(self, row):
        write(self, row)
        if row.epoch == epoch:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(Terminal, "row", signalled)
        assert program(patch, *SETTINGS, *QUIET, "--runs-folder", tmp_path, "--name", "run") == 128 + number
    told = capfd.readouterr().err
    assert told.index("stopping at the end of this epoch") < told.index(
        f"continue with python -m programs resume {tmp_path / 'run'}"
    )
    assert checkpoint.generations(tmp_path / "run" / session.CHECKPOINTS)[0] == epoch
    assert program(monkeypatch, "--resume", tmp_path / "run", *QUIET) == 0
    assert same(learned(tmp_path / "run"), whole)


SLOWLY = """
import runpy, sys, time
sys.path.insert(0, ".")
import tensorflow
from common.runs.terminal import Terminal

def slowly(self, row, write=Terminal.row):
    write(self, row)
    time.sleep(0.5)

tensorflow.config.run_functions_eagerly(True)
Terminal.row = slowly
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def killed(module: str, *arguments: object, folder: Path) -> None:
    """Begin a run in a process of its own, and kill it somewhere between its first checkpoint and its last epoch."""
    command = [sys.executable, "-c", SLOWLY, module, *map(str, arguments), "--runs-folder", folder.parent]
    process = subprocess.Popen(
        [*command, "--name", folder.name], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not checkpoint.generations(folder / session.CHECKPOINTS) and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(random.uniform(0.0, 1.0))  # of the two seconds that the run still takes
    process.kill()
    process.wait()


@pytest.mark.parametrize("module", [PPOAgentTrainer, OffPolicyAgentTrainer])
def test_killed_at_any_moment_and_resumed_until_done(monkeypatch, tmp_path, whole, module):
    folder, settings = tmp_path / "run", SETTINGS
    if module is OffPolicyAgentTrainer:
        settings = TD3
        assert call(monkeypatch, module, *TD3, *QUIET, "--runs-folder", tmp_path, "--name", "whole") == 0
        whole = learned(tmp_path / "whole")
    killed(module.__name__, *settings, *QUIET, folder=folder)
    assert checkpoint.generations(folder / session.CHECKPOINTS)
    with open(folder / run_folder.RESULTS, "a", encoding="utf-8") as file:
        file.write("3,torn ro")  # a row the kill cut short
    assert call(monkeypatch, module, "--resume", folder, *QUIET) == 0
    assert same(learned(folder), whole)


def test_cut_off_before_its_first_checkpoint_begins_again(monkeypatch, tmp_path, capsys, whole):
    def cut(self, row):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Terminal, "row", cut)
        assert program(patch, *SETTINGS, *QUIET, "--runs-folder", tmp_path, "--name", "run") == 130
    assert program(monkeypatch, "--resume", tmp_path / "run", *QUIET) == 0
    assert "before its first checkpoint" in capsys.readouterr().out
    assert same(learned(tmp_path / "run"), whole)


def test_a_damaged_checkpoint_falls_back_and_says_so(monkeypatch, run, capsys, whole):
    newest = run / session.CHECKPOINTS / "00000006" / checkpoint.STATE
    newest.write_bytes(newest.read_bytes()[:-100])
    (run / run_folder.BEST_AGENT).unlink()
    assert program(monkeypatch, "--resume", run, *QUIET) == 0
    assert "checkpoint 6 is damaged" in capsys.readouterr().out
    assert same(learned(run), whole)


@pytest.mark.parametrize(
    ("place", "name", "replaced"),
    [
        (Terminal, "row", False),
        (Terminal, "row", True),
        (after_training, "evaluate", True),
        (PPOAgentTrainer.PPOAgentTrainer, "prepare", True),
    ],
)
def test_a_run_whose_folder_was_removed_writes_nothing_there(monkeypatch, tmp_path, capsys, place, name, replaced):
    folder, before = tmp_path / "run", getattr(place, name)

    def remove(*arguments):
        shutil.rmtree(folder)
        if replaced:
            folder.mkdir()
            (folder / one_process.LOCK).touch()
        if name == "prepare":
            raise UserError("the environment fails")
        monkeypatch.setattr(place, name, before)
        return before(*arguments)

    monkeypatch.setattr(place, name, remove)
    arguments = ["--runs-folder", tmp_path, "--name", "run", "--epochs", "2", "--evaluation-episodes", "1"]
    assert program(monkeypatch, *SETTINGS, *QUIET, *arguments) == 2
    assert "run was removed, moved or replaced" in capsys.readouterr().err
    left = [path.name for path in tmp_path.rglob("*")]
    assert left == (["run", one_process.LOCK] if replaced else [])


def test_more_epochs_continue_unless_another_process_trains(monkeypatch, run, capsys):
    with FileLock(run / one_process.LOCK):
        assert program(monkeypatch, "--resume", run, *QUIET, "--epochs", "8") == 2
    assert "another process is training" in capsys.readouterr().err
    assert program(monkeypatch, "--resume", run, *QUIET, "--epochs", "8") == 0
    assert run_folder.read_results(run)["epoch"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_stored_run_is_continued(monkeypatch, tmp_path):
    """From version 1.1 on, formats are kept: tests/data/run loads in every later version."""
    stored = Path(__file__).parents[1] / "data" / "run"
    shutil.copytree(stored, tmp_path / "run")
    assert program(monkeypatch, "--resume", tmp_path / "run", "--epochs", 6, *QUIET) == 0
    written, again = (run_folder.read_results(folder) for folder in (stored, tmp_path / "run"))
    assert again["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert np.array_equal(written["loss_critic"], again["loss_critic"][:4])


# -- how often --


class Clock:
    """Time that passes only when it is told to."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


@pytest.mark.parametrize(
    ("seconds_an_epoch", "seconds_a_save", "saved"),
    [(1.0, 0.001, [10, 20, 30, 40, 50, 60]), (1.0, 0.25, [10, 35, 60]), (0.0, 1.0, [10])],
)
def test_checkpoints_by_default_cost_a_percent_at_most(monkeypatch, tmp_path, seconds_an_epoch, seconds_a_save, saved):
    clock, epochs = Clock(), []

    class Trainer:
        epoch, config = 0, PPOConfig()
        agent = type("Agent", (), {"save_weights": lambda self, path: None})()

        def state(self):
            return {}

    def save(folder, epoch, state, keep):
        epochs.append(epoch)
        clock.now += seconds_a_save

    monkeypatch.setattr(recorder, "time", clock)
    monkeypatch.setattr(checkpoint, "save", save)
    writes = Recorder(Trainer(), tmp_path, RunOptions())
    for epoch in range(1, 61):
        clock.now += seconds_an_epoch
        if writes.is_due(epoch):
            writes.save(epoch)
    assert epochs == saved
    assert writes.saving_seconds == pytest.approx(len(saved) * seconds_a_save)
    third = Recorder(Trainer(), tmp_path, RunOptions(checkpoint_every=3))
    assert [epoch for epoch in range(1, 9) if third.is_due(epoch)] == [3, 6]


def test_a_terminal_that_closes_does_not_stop_a_run_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.received == 0
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.received == signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("reward", "shown"), [(-1.09e-5, "-1.1e-05"), (0.955, "0.955"), (307.14, "307.1"), (1e9, "1.0e+09"), (0.0, "0.0")]
)
def test_a_row_shows_significant_digits(reward, shown, capsys):
    numbers = {field.name: 1 for field in dataclasses.fields(OffPolicyResult)}
    row = OffPolicyResult(**numbers | {"avg_reward_orig": reward, "score": reward, "mean_value": reward})
    terminal = Terminal()
    terminal.begin(1, 0)
    terminal.row(row)
    headings, cells = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    found = dict(zip(headings, cells))
    assert (found["unshaped"], found["score"]) == (shown, shown) and float(found["Q"]) == pytest.approx(reward, 0.1)


def test_a_name_is_no_markup(capsys):
    Terminal().say("table and weights are in runs/a:smile: [bold] \\b")
    assert capsys.readouterr().out == "table and weights are in runs/a:smile: [bold] \\b\n"
