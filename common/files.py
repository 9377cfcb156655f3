"""Writes files atomically, and reads them without trusting who made them.

A run folder may come from somebody else. Nothing here follows a link in it, waits for a pipe or a device, or reads
more than a given number of bytes.
"""

import contextlib
import errno
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from common.errors import UserError

UNFINISHED = ".unfinished"  # in the name of a file until it is complete
_LEFT_OVER = re.compile(rf"\..+-[0-9a-f]{{8}}{re.escape(UNFINISHED)}(\.\w+)?")
_BINARY = getattr(os, "O_BINARY", 0)
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY  # O_EXCL follows no link
PAUSES = (0.01, 0.03, 0.1, 0.3, 1.0) if os.name == "nt" else ()  # seconds; virus scanners read every new file
LARGEST_JSON = 4 * 2**20  # bytes
DEEPEST_JSON = 100  # lists within lists
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a full disk says


class ForeignFileError(UserError):
    """A file is not what it should be: a link, a pipe, a device, or far too large."""


# -- writing --


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new, empty file next to `path`, with the same suffix; at the end of the context it replaces `path`.

    The folder is made if it is missing. If the context raises, `path` stays as it was and the new file is removed.
    Raises ForeignFileError as `check_replaceable` does.
    """
    check_replaceable(path)
    make_folder(path.parent)
    unfinished = path.with_name(f".{path.name}-{secrets.token_hex(4)}{UNFINISHED}{path.suffix}")
    os.close(os.open(unfinished, _NEW, 0o666))
    try:
        yield unfinished
        flush_file(unfinished)
        move_with_retries(os.replace, unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    flush_folder(path.parent)


def check_replaceable(path: Path) -> None:
    """Raise ForeignFileError if a link, a device or a pipe has this path, which writing would remove."""
    if path.is_symlink() or (path.exists() and not (path.is_file() or path.is_dir())):
        raise ForeignFileError(f"{path} is a link, a device or a pipe: expected a plain file, choose another name")


def move_with_retries(move: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    """`os.replace` or `os.rename`; Windows refuses it while another program reads the file, so there it is retried."""
    for seconds in PAUSES:
        try:
            return move(source, target)
        except PermissionError:
            time.sleep(seconds)
    move(source, target)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, also in a power cut; the folder is made if it is missing."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(content)


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically; NumPy's numbers become plain ones."""
    replace_file(path, (json.dumps(content, indent=2, default=float) + "\n").encode())


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, and flush it to disk."""
    with open(os.open(path, _NEW, 0o666), "wb") as file:
        file.write(content)
    flush_file(path)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it if they are missing; once this returns, a power cut does not undo it."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        flush_folder(path.parent)


def flush_file(path: Path) -> None:
    """Flush a file to the disk, if its file system can do that."""
    _flush(path, os.O_RDWR | _BINARY)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if its file system can do that."""
    if os.name == "posix":  # elsewhere folders cannot be opened
        _flush(folder, os.O_RDONLY)


def _flush(path: Path, flags: int) -> None:
    """`os.fsync`; file systems without it (Google Drive, some network disks) refuse it in many ways."""
    try:
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (*FULL, errno.EIO, errno.ENOENT):
            raise


def remove_unfinished(folder: Path, beginning: str = "") -> None:
    """Remove what `replacing` left behind when a process was killed, of files whose names begin with `beginning`."""
    for path in folder.iterdir():
        if _LEFT_OVER.fullmatch(path.name) and path.name.startswith(f".{beginning}"):
            with contextlib.suppress(OSError):
                path.unlink()


# -- reading --


def memory() -> float:
    """GiB of this machine's memory; infinity where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (AttributeError, ValueError, OSError):
        return math.inf


def read_bytes(path: Path, largest: int) -> bytes:
    """The content of a regular file of at most `largest` bytes.

    Raises:
        ForeignFileError: it is a link, no regular file, or larger.
        OSError: it is missing or cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _BINARY
    if path.is_symlink():  # where there is no O_NOFOLLOW
        raise _foreign(path, "a link")
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link put there just now; a socket
            raise _foreign(path, "not a plain file") from None
        raise
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise _foreign(path, "not a plain file")
        if status.st_size > largest:
            raise ForeignFileError(
                f"{path} has {status.st_size:,} bytes, at most {largest:,} are expected: use an undamaged copy"
            )
        return file.read(status.st_size)


def read_json(path: Path, largest: int = LARGEST_JSON) -> object:
    """The content of a JSON file of at most `largest` bytes.

    Raises:
        ForeignFileError: see `read_bytes`.
        OSError: it is missing or cannot be read.
        ValueError: it is not JSON, is nested too deeply, or holds a number with thousands of digits.
    """
    content = read_bytes(path, largest)
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST_JSON:
            raise ValueError("it is nested too deeply")
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for items in inner for item in items]
    return value


def check_plain(folder: Path) -> None:
    """Raise ForeignFileError if a run folder, if it exists, holds a link, a pipe or a device."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise _foreign(Path(entry.path), "a link")
                if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                    raise _foreign(Path(entry.path), "not a plain file")
    except (FileNotFoundError, NotADirectoryError):
        return


def _foreign(path: Path, what: str) -> ForeignFileError:
    return ForeignFileError(
        f"{path} is {what}: a run folder holds plain files and folders, put a copy in its place or remove it"
    )
