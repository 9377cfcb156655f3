"""Fixtures of the tests that train."""

import contextlib
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: more threads only get in each other's way
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import tiny_envs  # noqa: F401  registers the environments
import without_xla

from common.rollout import collector
from common.rollout.probe import find_restore_method
from common.runs import trust
from ppo.config import PPOConfig

without_xla.install()
LONG = (
    "test_notebook",
    "test_training",
    "test_off_policy",
    "test_workers",
    "test_sac",
    "test_resume",
    "test_own_environment",
)


def pytest_collection_modifyitems(items):
    """The longest files come first, so that both processes end at about the same time."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def pytest_collection_finish(session):
    """Look for garbage among newer objects alone, and less often: what is imported stays. Saves a twentieth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(autouse=True)
def _nothing_refused(monkeypatch):
    """Folders of runs that an earlier test refused to import from may hold this test's own modules."""
    monkeypatch.setattr(trust.Refusal, "folders", set())


WAYS = {}  # of Gymnasium's own environments, which a trial of several hundred steps finds out


@pytest.fixture(autouse=True)
def _each_way_is_found_out_once(monkeypatch):
    """Hundreds of tests build a trainer for the same few environments."""

    def find_once(environment, backend, *others):
        if environment.gymnasium_id is None:
            return find_restore_method(environment, backend, *others)
        known = environment.gymnasium_id, environment.max_episode_steps, backend
        if known not in WAYS:
            WAYS[known] = find_restore_method(environment, backend, *others)
        return WAYS[known]

    monkeypatch.setattr(collector, "find_restore_method", find_once)


@pytest.fixture(autouse=True)
def xla(request, monkeypatch):
    """XLA for tests that are marked "xla", plain graphs for all others."""
    monkeypatch.setattr(without_xla, "wanted", request.node.get_closest_marker("xla") is not None)


@pytest.fixture(autouse=True)
def _no_cluster_left():
    """A test that begins without Ray ends without it."""
    before = runs_ray()
    yield
    assert before or not runs_ray()


def runs_ray() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


@pytest.fixture
def processes_without_xla(monkeypatch):
    """Processes that the test starts run plain graphs as well."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "site"))


@pytest.fixture
def tiny() -> PPOConfig:
    """Two epochs that take a moment; timeouts fall within an epoch."""
    return PPOConfig(
        env="Pendulum-v1",
        max_episode_steps=20,
        backend="gymnasium",
        num_envs=2,
        epochs=2,
        steps_per_epoch=64,
        hidden_sizes=(8,),
        initial_gains=(2**0.5, 0.5),
        passes=2,
        minibatch_size=32,
        learning_rate=1e-2,
        best_metric="mean_episode_reward",
        score_window=1,
    )


@contextlib.contextmanager
def step_by_step():
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def eager(request):
    """Runs compiled functions step by step: for a handful of gradient steps that is faster than compiling.

    A module may use it for all tests but those that are marked "compiled".
    """
    with contextlib.nullcontext() if request.node.get_closest_marker("compiled") else step_by_step():
        yield


@pytest.fixture(scope="module")
def eager_module():
    """The same for all tests of a module and for what they share."""
    with step_by_step():
        yield


@pytest.fixture
def resident_megabytes() -> Callable[[], float]:
    """Memory that this process holds, after a collection of garbage."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc/self/statm here")

    def measure() -> float:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    return measure


@pytest.fixture
def screen(monkeypatch, tmp_path):
    """A screen of its own, in DISPLAY as for a user's programs. A function that takes its picture, [H, W, 4]."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is missing")
    import pygame

    pygame.display.quit()  # an earlier test's
    for name in ("SDL_VIDEODRIVER", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "screen"
    folder.mkdir()
    command = ["Xvfb", "-displayfd", "1", "-screen", "0", "1024x768x24", "-fbdir", folder, "-nolisten", "tcp"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        monkeypatch.setenv("DISPLAY", f":{server.stdout.readline().strip()}")

        def picture() -> np.ndarray:
            content = (folder / "Xvfb_screen0").read_bytes()  # of X's window dump format: big-endian header, colours
            header = np.frombuffer(content, ">u4", 25)
            first, height, width = int(header[0] + 12 * header[19]), int(header[5]), int(header[4])
            return np.frombuffer(content, np.uint8, height * width * 4, first).reshape(height, width, 4)

        yield picture
        pygame.display.quit()  # before its screen is gone
        server.terminate()
