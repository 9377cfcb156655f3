"""How soon a program answers, what it imports before it has read its arguments, and what if nobody reads on."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import UserError
from common.runs import run_folder
from common.runs.command_line import UNREAD, ends_when_unread

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"tensorflow", "tensorflow_probability", "keras", "tf_keras", "tensorboard", "scipy", "envpool", "ale_py"}
PROGRAMS = {
    "PPO": ["PPOAgentTrainer.py"],
    "programs": ["-m", "programs"],
    "off-policy": ["-m", "companions.OffPolicyAgentTrainer"],
    "SAC": ["-m", "companions.SACAgentTrainer"],
    "train": ["-m", "programs", "train"],
    "evaluate": ["-m", "programs", "evaluate"],
    "watch": ["-m", "programs", "watch"],
    "export": ["-m", "programs", "export"],
    "plot": ["-m", "programs", "plot"],
}
MISTAKES = {
    "a setting": ("PPO", ["--gama", "0.9"]),
    "a name that is taken": ("PPO", ["--runs-folder", str(ROOT), "--name", "tests"]),
    "an environment off policy": ("off-policy", ["--env", "Pendulun-v1"]),
    "a setting of SAC": ("SAC", ["sac", "--quantiles", "0"]),
    "no run to evaluate": ("evaluate", ["no/such/run"]),
}


def imported(*arguments, **variables):
    """A program that has ended, the packages that it imported, and its other lines of errors."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], cwd=ROOT, capture_output=True, text=True, encoding="utf-8",
        env=os.environ | variables,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    packages = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines if line.startswith("import time:")}
    assert "argparse" in packages
    return done, packages, [line for line in lines if not line.startswith("import time:")]


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_waits_for_nothing_heavy_and_any_console_shows_it(program):
    c_locale = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done, packages, errors = imported(*PROGRAMS[program], "--help", **c_locale)
    assert (done.returncode, errors) == (0, []) and len(done.stdout.splitlines()) > 5
    assert not (HEAVY | {"matplotlib"}) & packages


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_waits_for_nothing_heavy(mistake):
    program, arguments = MISTAKES[mistake]
    done, packages, _ = imported(*PROGRAMS[program], *arguments)
    assert done.returncode == 2
    assert not HEAVY & packages


def test_a_name_is_tried_and_leaves_no_folder(tmp_path):
    for name, refused in ((None, contextlib.nullcontext()), ("n" * 300, pytest.raises(UserError))):
        with refused:
            run_folder.check_creatable(str(tmp_path / "some" / "runs"), name, "run")
        assert not list(tmp_path.iterdir())


def test_what_the_shell_sets_for_other_programs_does_no_harm():
    environment = os.environ | {"KERAS_BACKEND": "torch", "MPLBACKEND": "no-such-backend"}
    code = "import Agent, keras, common.figures.five_panels; print(keras.backend.backend())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "tensorflow\n", "")


@pytest.mark.parametrize("program", ["PPOAgentTrainer.py"])
def test_a_program_finds_its_own_modules_whatever_the_shell_says(program, tmp_path):
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(ROOT / program), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


INTERRUPTED = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == {package!r}:
            os.write(2, b"a line of C++ code\\n" if name == "keras" else b"")
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
sys.argv[1:] = ["--runs-folder", {folder!r}]
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="os.kill ends the process on Windows")
@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("PPOAgentTrainer", "numpy"),
        ("PPOAgentTrainer", "keras"),
        ("programs", "argparse"),
        ("companions.OffPolicyAgentTrainer", "numpy"),
        ("companions.SACAgentTrainer", "numpy"),
    ],
)
def test_ctrl_c_while_packages_are_imported_is_one_line(module, package, tmp_path):
    code = INTERRUPTED.format(module=module, package=package, folder=str(tmp_path / "runs"))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nstopped\n")
    assert not (tmp_path / "runs").exists()


IMPORTS = """
import gc, sys
collected = []
gc.callbacks.append(lambda phase, info: collected.append("tensorflow" in sys.modules))
import common.learning.quiet_start
print(sum(collected), gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def test_garbage_is_not_collected_while_tensorflow_is_imported():
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0 True True\n"


@pytest.fixture
def unread():
    """The writing end of a pipe whose reader has closed it."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("program", ["PPO", "evaluate"])
def test_help_that_nobody_reads_ends_without_a_word(program, unread):
    done = subprocess.run(
        [sys.executable, *PROGRAMS[program], "--help"], cwd=ROOT, stdout=unread, stderr=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (UNREAD, b"")


SHORT = """
import sys
from common.runs.command_line import one_line_errors
from common.errors import UserError
with one_line_errors():
    print("a line that waits in the buffer")
    {then}
"""


@pytest.mark.parametrize(
    ("then", "code", "error"),
    [
        ("pass", UNREAD, ""),
        ("sys.exit()", UNREAD, ""),
        ("print('more', flush=True)", UNREAD, ""),
        ("sys.exit(3)", 3, ""),
        ("raise UserError('wrong')", 2, "error: wrong\n"),
    ],
)
def test_output_that_nobody_reads_hides_no_failure(then, code, error, unread):
    done = subprocess.run(
        [sys.executable, "-c", SHORT.format(then=then)], cwd=ROOT, stdout=unread, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, error)


def test_another_broken_pipe_is_not_taken_for_the_output(capfd):
    with pytest.raises(BrokenPipeError, match="a worker"), ends_when_unread():
        raise BrokenPipeError(errno.EPIPE, "a worker's pipe")
