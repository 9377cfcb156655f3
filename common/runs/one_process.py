"""A run folder is written by one process at a time."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from common import files
from common.errors import UserError

LOCK, SOFT_LOCK = "lock", "lock-by-name"
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


class FolderLostError(UserError):
    """The folder of a run was removed, moved or replaced."""


@contextlib.contextmanager
def only_here(folder: Path, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hold a run folder's lock.

    On a file system without locks (Google Drive, some network disks), a file that exists while the run trains
    replaces them.

    Yields:
        A function that raises FolderLostError if the lock in the folder is not the one that is held. Call it before
        something is written: the folder may have been removed, and another run may have begun in its place.

    Raises:
        UserError: another process holds it.
        FolderLostError: in place of what the context raised, if the folder was lost meanwhile.
    """
    files.check_plain(folder)
    lock: BaseFileLock = FileLock(folder / LOCK, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"another process is training in {folder}: wait for it or stop it first") from None
    except (OSError, NotImplementedError) as error:  # filelock raises either where there are no locks
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        lock = _by_name(folder)
        say(f"{folder} is on a disk without locks: {SOFT_LOCK} in it keeps other processes away")
    try:
        with open(lock.lock_file, "rb") as held:  # an open file keeps its number, by which it is known again
            try:
                yield lambda: _check_same(folder, lock.lock_file, held.fileno())
            except Exception:
                _check_same(folder, lock.lock_file, held.fileno())
                raise
    finally:
        lock.release()


def _check_same(folder: Path, file: str, held: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(os.stat(file), os.fstat(held)):
            return
    raise FolderLostError(
        f"{folder} was removed, moved or replaced while the run was going on: nothing more is written, so put it back "
        "and resume it, or start a new run"
    )


def _by_name(folder: Path) -> SoftFileLock:
    """Its file stays behind when its process is killed or its machine is lost, as on Colab."""
    lock = SoftFileLock(folder / SOFT_LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another process seems to be training in {folder}: wait for it. If there is none, for example because "
            f"its machine was lost, remove {folder / SOFT_LOCK}"
        ) from None
    return lock
