"""Ways to break the programs, for the negative controls: a row that one of them does not lower shows nothing.

Each replaces functions in the process that it is called in, after the program's modules are imported.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Callable

from fault_table.replacing import replace


def _does_nothing(module: str, name: str) -> Callable[[], None]:
    return lambda: replace(module, name, lambda real: lambda *_, **__: None)


def _refuse() -> None:
    from common.errors import UserError

    def refuse(*_: object, **__: object) -> None:
        raise UserError("no checkpoint is whole")

    replace("common.runs.checkpoint", "load_newest", lambda real: refuse)


def _oldest() -> None:
    replace("common.runs.checkpoint", "generations", lambda real: lambda folder: real(folder)[::-1])


def _no_checksum() -> None:
    import hashlib

    class Constant:
        def update(self, content: bytes) -> None:
            """Takes no notice of it."""

        def hexdigest(self) -> str:
            return "0" * 64

    hashlib.sha256 = lambda *_: Constant()  # as written and as compared


def _other_config() -> None:
    def other(real: Callable) -> Callable:
        def read(*arguments: object, **named: object) -> tuple:
            preset, config, *more = real(*arguments, **named)
            return preset, config.replace(learning_rate=config.learning_rate * 2), *more

        return read

    replace("common.runs.run_folder", "read_config", other)


def _done_for_any_number() -> None:
    import json

    def ignoring(real: Callable) -> Callable:
        def is_done(folder: object, stage: str, epochs: int) -> bool:
            file = folder / "finished.json"
            return file.exists() and real(folder, stage, json.loads(file.read_text("utf-8"))["epochs"])

        return is_done

    replace("common.runs.finished", "is_done", ignoring)


def _no_fsync() -> None:
    os.fsync = lambda descriptor: None


def _no_folder_fsync() -> None:
    fsync = os.fsync

    def files_only(descriptor: int) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if not stat.S_ISDIR(os.fstat(number).st_mode):
            fsync(number)

    os.fsync = files_only


def _removes_first() -> None:
    import shutil

    def save(real: Callable) -> Callable:
        def written(folder: object, *arguments: object, **named: object) -> None:
            if folder.exists():
                shutil.rmtree(folder)
            real(folder, *arguments, **named)

        return written

    replace("common.runs.checkpoint", "save", save)


def _deaf() -> None:
    import signal

    real = signal.signal
    signal.signal = lambda number, handler: signal.SIG_DFL if number == signal.SIGHUP else real(number, handler)


def _leaves_a_process() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)


def _unpickles() -> None:
    import io

    import numpy as np

    def unpacked(content: bytes) -> dict:
        with np.load(io.BytesIO(content), allow_pickle=True) as file:
            return {name: file[name] for name in file.files}

    replace("common.arrays_file", "unpacked", lambda real: unpacked)


def _follows_links() -> None:
    replace("common.files", "check_plain", lambda real: lambda folder: None)
    replace("common.files", "read_bytes", lambda real: lambda path, largest: path.read_bytes())
    replace("common.files", "replace_file", lambda real: lambda path, content: path.write_bytes(content))


def _takes_any_hyperparameter() -> None:
    replace("ppo.live_settings", "LiveHyperparameters._checked", lambda real: lambda self, name, value: value)


def _accepts_anything() -> None:
    replace("common.settings", "_check_range", lambda real: lambda *_: None)


def _trusts_everybody() -> None:
    replace("common.runs.trust", "check_trusted", lambda real: lambda *_: None)
    replace("common.runs.trust", "Refusal.find_spec", lambda real: lambda *_: None)


def _traceback() -> None:
    def raising(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    replace("common.runs.command_line", "file_fault", lambda real: lambda error: None)
    replace("common.runs.checkpoint", "save", lambda real: raising)


WAYS: dict[str, Callable[[], None]] = {
    "a save that does nothing": _does_nothing("common.runs.checkpoint", "save"),
    "a save that removes the older ones first": _removes_first,
    "a loader that always refuses": _refuse,
    "a loader that takes the oldest": _oldest,
    "no checksum": _no_checksum,
    "settings not restored": _other_config,
    "generators not restored": _does_nothing("common.state", "load_generator"),
    "done for one number of epochs, done for all": _done_for_any_number,
    "the shorter run's files left in place": _does_nothing("common.runs.finished", "set_aside"),
    "fsync removed": _no_fsync,
    "folders not flushed": _no_folder_fsync,
    "deaf to SIGHUP": _deaf,
    "a process left behind": _leaves_a_process,
    "archives unpickled": _unpickles,
    "hyperparameters not checked": _takes_any_hyperparameter,
    "links followed": _follows_links,
    "ranges not checked": _accepts_anything,
    "faults of the disk not told": _traceback,
    "modules it names imported": _trusts_everybody,
}


def apply(names: str) -> None:
    """Break this process in all the ways that are named, separated by "|"."""
    for name in filter(None, names.split("|")):
        WAYS[name]()
