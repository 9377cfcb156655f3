"""Worker processes: same results whatever their number, no TensorFlow, gone with their parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from run_program import is_there

from common.envs.worker_processes import CannotStartError, in_background, run_in_workers
from common.errors import UserError

POSIX = pytest.mark.skipif(os.name != "posix", reason="sends POSIX's signals")


def test_results_come_in_the_items_order():
    def late(item):
        time.sleep(0.05 * (item == 0))
        return item, os.getpid()

    results = run_in_workers(late, range(7), 2)
    assert [item for item, _ in results] == list(range(7))
    processes = {process for _, process in results}
    assert 1 <= len(processes) <= 2 and os.getpid() not in processes


def test_workers_leave_ctrl_c_to_their_parent():
    assert run_in_workers(lambda _: signal.getsignal(signal.SIGINT) == signal.SIG_IGN, [0], 1) == [True]


def test_workers_hold_no_tensorflow():
    import tensorflow  # noqa: F401  this process does

    from common.rollout.playing import play  # what they are used for

    def modules(_, play=play):
        return {name.split(".")[0] for name in sys.modules}

    [found] = run_in_workers(modules, [0], 1)
    assert "gymnasium" in found and not found & {"tensorflow", "keras", "imageio", "matplotlib"}


def test_a_users_mistake_is_passed_on_in_its_one_line():
    def mistaken(_):
        raise UserError("nothing works: try something else")

    with pytest.raises(UserError, match=r"^nothing works: try something else$"):
        run_in_workers(mistaken, range(3), 2)


def test_a_defect_shows_where_it_is():
    def defective(item):
        return 1 / item

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_in_workers(defective, [0], 1)


@pytest.mark.parametrize("allowed", [0, 1])
def test_what_a_process_died_of_goes_to_a_new_one(tmp_path, allowed):
    def deadly(item):
        if item == 1 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os._exit(7)
        return item

    if allowed:
        assert run_in_workers(deadly, range(4), 2, deaths_allowed=1) == [0, 1, 2, 3]
    else:
        with pytest.raises(UserError, match="ended with exit code 7"):
            run_in_workers(deadly, range(4), 2)


@POSIX
def test_sigterm_is_the_parents_but_ends_what_a_worker_starts():
    def deaf(item):
        os.kill(os.getpid(), signal.SIGTERM)
        with subprocess.Popen(["sleep", "60"]) as simulator:
            simulator.terminate()
        return simulator.returncode

    assert run_in_workers(deaf, range(2), 2) == [-signal.SIGTERM] * 2


class Stubborn:
    """Can be pickled, but not read back."""

    def __reduce__(self):
        return _refuse, ()

    def __call__(self, item):
        return item


def _refuse():
    raise ModuleNotFoundError("no module named somewhere")


def test_what_no_worker_can_take_over_is_told():
    lock = threading.Lock()
    for function in (lambda item: (lock, item), Stubborn()):
        with pytest.raises(CannotStartError):
            run_in_workers(function, range(2), 2)


def test_no_process_can_be_started(monkeypatch):
    def refuse(*_):
        raise OSError("Resource temporarily unavailable")

    for kind in (multiprocessing.context.SpawnProcess, multiprocessing.context.ForkServerProcess):
        monkeypatch.setattr(kind, "_Popen", staticmethod(refuse))
    with pytest.raises(CannotStartError, match="Resource temporarily unavailable"):
        run_in_workers(str, range(2), 2)


# -- a function in the background --


def test_a_result_from_the_background():
    for limit in (None, 60.0):
        with in_background(lambda: os.getpid(), limit) as result:
            assert result() != os.getpid()


def fail():
    raise UserError("there is no such game")


WRONG = [
    (fail, UserError, "there is no such game"),
    (lambda: os._exit(7), UserError, "exit code 7"),
    (Stubborn(), CannotStartError, "no module named somewhere"),
]


@pytest.mark.parametrize(
    ("function", "error", "words", "limit"),
    [(*case, limit) for case in WRONG for limit in (None, 3.0)]
    + [(lambda: time.sleep(3600), UserError, "its process did not answer within 3 s", 3.0)],
)
def test_what_goes_wrong_in_the_background_is_raised_here(function, error, words, limit):
    with in_background(lambda: function(), limit) as result, pytest.raises(error, match=words):
        result()


# -- the program that starts them --

PROGRAM = """
import os, sys, time
from pathlib import Path
from common.envs.worker_processes import run_in_workers
print("imported", flush=True)
def function(item):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(float(sys.argv[2]))
    return item
print(run_in_workers(function, range(2), 2))
"""


def start(folder: Path, seconds: float) -> subprocess.Popen:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "pids").mkdir()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, folder / "program.py", folder / "pids", str(seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip


def workers_of(folder: Path) -> list[int]:
    """Once both are at work."""
    for _ in range(600):
        pids = [int(path.name) for path in (folder / "pids").iterdir()]
        if len(pids) == 2:
            return pids
        time.sleep(0.1)
    raise AssertionError("the workers did not begin")


def gone(pids: list[int]) -> bool:
    """Within ten seconds."""
    for _ in range(100):
        if not any(map(is_there, pids)):
            return True
        time.sleep(0.1)
    return False


def test_the_program_is_not_imported_again(tmp_path):
    out, error = start(tmp_path, 0).communicate(timeout=60)
    assert (out, error) == ("imported\n[0, 1]\n", "")


@POSIX
def test_ctrl_c_ends_the_workers_in_silence(tmp_path):
    program = start(tmp_path, 60)
    pids = workers_of(tmp_path)
    for pid in pids:  # a terminal sends it to all of them; the workers are first here
        os.kill(pid, signal.SIGINT)
    time.sleep(0.2)
    os.killpg(program.pid, signal.SIGINT)
    _, error = program.communicate(timeout=20)
    assert error.count("Traceback") == 1 and error.rstrip().endswith("KeyboardInterrupt")
    assert gone(pids)


@POSIX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path, number):
    program = start(tmp_path, 60)
    pids = workers_of(tmp_path)
    program.send_signal(number)
    program.communicate(timeout=20)
    assert gone(pids)
