"""Ray for a run: started and ended with it on this machine, or joined where it runs already."""

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common.envs.worker_processes import signals_held_back
from common.errors import UserError

PACKAGE = Path(__file__).resolve().parents[2]  # common/, which other machines are sent
STORE = 256 * 2**20  # bytes of shared memory for policies, noise and trajectories on their way
ELSEWHERE = "compare --cluster with what 'ray status' says there, and RAY_AUTH_TOKEN with the cluster's"
NEEDED = ("gcs_server", "raylet")  # by this process until it has disconnected
TRIES = 3  # connections to a busy cluster that fail before it counts as gone
LONGEST_FOLDER = 26  # bytes of the path of the temporary folder
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # its lines about lost workers; `Team` writes its own
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it announces a change of a default
}


class WorkerPlacement(NamedTuple):
    """Who steps a run's environments."""

    number: int = 0  # at most; 0: this process
    cluster: str | None = None  # address of a running cluster; None starts one on this machine


NO_WORKERS = WorkerPlacement()


class Cluster:
    """A connection to Ray, whose control process is at `address`.

    Args:
        address: of a running cluster, like 10.0.0.1:6379; None starts one on this machine, which only it can reach.
        workers: how many a local one has room for.

    Raises:
        UserError: Ray is not installed, does not start, or there is no cluster.
    """

    def __init__(self, address: str | None, workers: int) -> None:
        os.environ.update(QUIET)
        if address is None:  # no network reaches it, and it asks for a token
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # its servers listen on 127.0.0.1 alone
            os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 gives way to whatever else the machine does
            os.environ["RAY_AUTH_TOKEN"] = os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)
        try:
            import ray
        except ImportError:
            raise UserError(
                "Ray is not installed: run 'pip install -r requirements/cluster.txt' or leave --workers out"
            ) from None
        logging.getLogger("ray").setLevel(logging.ERROR)
        self._ray: Any = ray
        self._folder: str | None = None
        self._is_ours = not ray.is_initialized()  # else it is a notebook's, or a test's
        if self._is_ours:
            try:
                self._connect(address, workers)
            except Exception as error:
                self.close()
                where = "on this machine" if address is None else f"at {address}"
                first = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
                advice = "leave --workers out" if address is None else ELSEWHERE
                raise UserError(f"no Ray cluster {where} ({first}): {advice}") from error
        self.address = ray.get_runtime_context().gcs_address

    def _connect(self, address: str | None, workers: int) -> None:
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        with _signals_kept(), signals_held_back():
            if address is not None:
                _check_listens(address)
                self._ray.init(address, runtime_env={"py_modules": [str(PACKAGE)]}, **common)
                return
            self._folder = tempfile.mkdtemp(prefix="ray-", dir=_short_folder())
            found = [str(PACKAGE.parent), *(folder or os.getcwd() for folder in sys.path)]
            before = os.environ.get("PYTHONPATH", "")
            os.environ["PYTHONPATH"] = os.pathsep.join(found)  # its processes find the modules that this one finds
            try:
                self._ray.init(
                    "local", num_cpus=workers, include_dashboard=False, object_store_memory=STORE,
                    _node_ip_address="127.0.0.1", _temp_dir=self._folder, **common,
                )  # fmt: skip
            finally:
                os.environ["PYTHONPATH"] = before

    def answers(self) -> bool:
        """Whether its control process still accepts connections."""
        for tries_left in reversed(range(TRIES)):
            try:
                _check_listens(self.address)
                return True
            except ConnectionRefusedError:
                return False
            except OSError:  # it is busy, or this process has too many open files
                time.sleep(1.0 if tries_left else 0.0)
        return False

    def close(self) -> None:
        """Disconnect, and end the cluster if this process started it."""
        if self._is_ours:
            processes = [] if self._folder is None else _processes(self._folder)
            _kill(processes, lambda process: process.ppid() == os.getpid() and process.name() not in NEEDED)
            for _ in range(2):  # the first call may end half-way
                with _signals_kept(), contextlib.suppress(Exception):  # it may have vanished
                    self._ray.shutdown()
            _kill(processes)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _short_folder() -> str | None:
    """Where Ray may keep its sockets; None means the usual temporary folder.

    The path of a socket has at most 103 bytes on macOS and 107 on Linux, and Ray adds up to 77 to the folder's.
    """
    usual = tempfile.gettempdir()
    too_long = len(os.fsencode(usual)) > LONGEST_FOLDER
    return "/tmp" if too_long and os.name == "posix" and os.access("/tmp", os.W_OK) else None


def _check_listens(address: str) -> None:
    """Raises OSError or ValueError unless something accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is not HOST:PORT")
    socket.create_connection((host, int(port)), timeout=5).close()


def _processes(folder: str) -> list[Any]:
    """Those of the cluster whose files are in this folder, and all that they started."""
    import psutil  # which Ray brings

    found: list[Any] = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            if any(folder in argument for argument in child.cmdline()):
                found += [child, *child.children(recursive=True)]
    return found


def _kill(processes: list[Any], chosen: Callable[[Any], bool] = lambda process: True) -> None:
    """Kill those of some processes that still run; all hold SIGTERM back, so Ray would wait a second for each."""
    for process in processes:
        with contextlib.suppress(Exception):  # it ended meanwhile
            if chosen(process):
                process.kill()


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not the main thread, where Ray replaces none
            signal.signal(signal.SIGTERM, before)
