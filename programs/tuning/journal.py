"""The file that stores a search, and Optuna, which reads and writes it."""

import contextlib
import sys
from typing import Any, NamedTuple

from common.errors import UserError

STARTUP_TRIALS = 5  # that are drawn at random, and that none is pruned before


class Journal(NamedTuple):
    """Where a search is stored."""

    path: str  # a file that every worker can read and write
    name: str


def optuna() -> Any:
    """The package, without its log. Raises UserError if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise UserError("Optuna is not installed: run 'pip install -r requirements/cluster.txt' to use tune") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def open_study(journal: Journal) -> Any:
    """The Optuna study in a journal, or a new one; UserError if it is damaged or holds another preset's search."""
    package = optuna()
    journals = package.storages.journal
    windows = sys.platform == "win32"  # no symbolic links there
    lock = (journals.JournalFileOpenLock if windows else journals.JournalFileSymlinkLock)(journal.path)
    _drop_unfinished_line(journal.path, lock)
    try:
        storage = package.storages.JournalStorage(journals.JournalFileBackend(journal.path, lock_obj=lock))
    except ValueError as error:  # a line is not JSON
        raise UserError(
            f"{journal.path} is damaged ({error}): use a copy of it, or begin another search with --into"
        ) from None
    known = package.get_all_study_names(storage)
    if known and journal.name not in known:
        raise UserError(f"{journal.path} holds a search of {min(known)}: choose another folder with --into")
    return package.create_study(
        study_name=journal.name,
        storage=storage,
        pruner=package.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
        direction="maximize",
        load_if_exists=True,
    )


def _drop_unfinished_line(path: str, lock: Any) -> None:
    """Remove what a process that was killed, or a full disk, left at the end: the next line would be joined to it."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb+") as file:
        lock.acquire()  # all that write to the file hold it
        try:
            content = file.read()
            if not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
        finally:
            lock.release()
