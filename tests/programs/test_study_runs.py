"""Runs of a study on workers: the results of one after the other, also after a worker is lost."""

import contextlib
import io
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from common.errors import StoppedError, UserError
from common.results import TIMING_COLUMNS
from common.runs import checkpoint, finished, one_process, run_folder
from programs import study_runs, worker_pool
from programs.study_runs import StudyRun, train_all, train_run
from programs.worker_pool import result_of

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "pendulum", "--backend", "gymnasium", "--num-envs", "2", "--epochs", "12", "--steps-per-epoch", "64",
    "--passes", "1", "--minibatch-size", "64", "--max-episode-steps", "20", "--hidden-sizes", "4",
    "--checkpoint-every", "2", "--evaluation-episodes", "2", "--record",
)  # fmt: skip


def run_in(folder):
    return StudyRun("small, seed 0", (*SMALL, "--seed", "0"), str(folder / "seed0"))


def learned(run):
    table = run_folder.read_results(Path(run.folder))
    weights = Path(run.folder) / run_folder.BEST_AGENT
    scores = (Path(run.folder) / run_folder.EVALUATION).read_bytes()
    return repr({k: v.tolist() for k, v in table.items() if k not in TIMING_COLUMNS}), weights.read_bytes(), scores


def test_a_run_that_fails_ends_the_study_in_one_line(tmp_path, processes_without_xla):
    wrong = StudyRun("wrong, seed 0", ("pendulum", "--gamma", "2"), str(tmp_path / "wrong"))
    with pytest.raises(UserError, match=r"wrong, seed 0 ended with exit code 2 \(error: gamma is 2.0") as refusal:
        train_all([wrong], 0, None)
    assert "\n" not in str(refusal.value)


def test_a_run_that_another_process_trains_is_left_alone(tmp_path, monkeypatch):
    run = run_in(tmp_path)
    folder = Path(run.folder)
    folder.mkdir()
    (folder / "results.csv").write_text("theirs")
    monkeypatch.setattr(sys, "argv", ["study"])
    with FileLock(folder / one_process.LOCK):
        code, said = train_run(run)
    assert code == 2 and "another process is training" in said
    assert (folder / "results.csv").read_text() == "theirs"


def at_once(code):
    """A pool in which every run has ended with this exit code before it begins."""

    @contextlib.contextmanager
    def pool(*_):
        done = Future()
        done.set_result((code, ""))
        yield lambda *_: done

    return pool


def test_a_run_that_a_signal_stopped_stops_the_study_which_can_be_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(study_runs, "worker_pool", at_once(130))
    with pytest.raises(StoppedError, match="was stopped, and saved a checkpoint: start the study again") as stopped:
        train_all([run_in(tmp_path)], 0, None)
    assert stopped.value.exit_code == 130


def test_a_line_is_in_a_studys_log_as_soon_as_it_is_said(tmp_path, monkeypatch):
    """A file or a pipe keeps what was not flushed."""

    class Log(io.StringIO):
        seen = ""

        def flush(self):
            self.seen = self.getvalue()

    monkeypatch.setattr(study_runs, "worker_pool", at_once(0))
    monkeypatch.setattr(sys, "stdout", log := Log())
    clock = itertools.count(0, 3660).__next__
    monkeypatch.setattr(study_runs, "time", SimpleNamespace(monotonic=clock))
    train_all([run_in(tmp_path)], 0, None)
    assert "small, seed 0: done after 61.0 minutes" in log.seen


def test_a_run_that_was_scored_before_its_end_is_not_done(tmp_path):
    run = run_in(tmp_path)
    (Path(run.folder) / run_folder.CHECKPOINTS).mkdir(parents=True)
    (Path(run.folder) / run_folder.EVALUATION).touch()
    assert not run.is_done
    finished.note(Path(run.folder), finished.EVALUATE, 3, run_folder.EVALUATION)
    assert run.is_done


def test_after_an_error_what_waits_does_not_begin():
    with pytest.raises(UserError), worker_pool.worker_pool(1, None) as submit:
        futures = [submit(time.sleep, 0.5) for _ in range(4)]
        raise UserError("one run failed")
    assert futures[-1].cancelled()


POOL = """
import time
from programs.worker_pool import worker_pool

if __name__ == "__main__":
    with worker_pool(2, None, calls=5) as submit:
        submit(time.sleep, 60)
        submit(print, "there", flush=True).result()  # and then waits
        submit(print, "again", flush=True).result()
"""


def test_what_trains_ends_with_the_process_that_wants_it(tmp_path):
    (tmp_path / "wants.py").write_text(POOL)
    command, paths = [sys.executable, str(tmp_path / "wants.py")], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=paths) as wants:
        assert wants.stdout is not None
        assert wants.stdout.readline() == "there\n"
        wants.kill()
        wants.communicate(timeout=30)  # the end of what all of them may print


@pytest.mark.parametrize("where", ["here", "on a cluster"])
def test_a_lost_process_is_one_line_and_other_errors_stay_what_they_are(where):
    lost, wrong = Future(), Future()
    if where == "here":
        lost.set_exception(BrokenProcessPool("it was killed"))
    else:
        lost.set_exception(pytest.importorskip("ray.exceptions").WorkerCrashedError())
    wrong.set_exception(ZeroDivisionError())
    with pytest.raises(UserError, match=r"a process that trained was lost .*continue with the same command"):
        result_of(lost)
    with pytest.raises(ZeroDivisionError):
        result_of(wrong)


def test_a_call_on_a_cluster_returns_what_its_function_does_and_the_connection_is_closed(monkeypatch):
    """`benchmarks/cluster.py` does the same with Ray itself."""
    asked, closed = [], []

    class Remote:
        def __init__(self, function):
            self.function = function

        def remote(self, *arguments):
            future = Future()
            future.set_result(self.function(*arguments))
            return SimpleNamespace(future=lambda: future)

    ray = SimpleNamespace(remote=lambda **options: asked.append(options) or Remote, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    cluster = lambda *given: asked.append(given) or SimpleNamespace(close=lambda: closed.append(True))  # noqa: E731
    monkeypatch.setattr(worker_pool, "Cluster", cluster)
    with worker_pool.worker_pool(2, "10.0.0.1:6379", calls=3) as submit:
        assert result_of(submit(max, 4, 7)) == 7 and not closed
    assert asked == [("10.0.0.1:6379", 2), {"num_cpus": 1, "max_retries": 5, "max_calls": 3}] and closed == [True]


def test_a_run_that_was_cut_off_continues_with_the_same_results(tmp_path, monkeypatch, eager):
    alone, cut = run_in(tmp_path / "one"), run_in(tmp_path / "two")
    monkeypatch.setattr(sys, "argv", ["study"])  # which `train_run` sets
    assert train_run(alone) == (0, "")

    def end():
        folder = Path(cut.folder) / run_folder.CHECKPOINTS
        while not checkpoint.generations(folder):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    assert train_run(cut)[0] == 128 + signal.SIGTERM
    assert not cut.is_done and train_run(cut) == (0, "")
    assert learned(cut) == learned(alone)
    assert train_run(cut) == (0, "")  # nothing is left to do
