"""Reads and writes .npz files of named arrays that hold plain numbers and no code.

Reading trusts nobody. A file must be an uncompressed archive, its parts must not be larger than the file, and each
header must describe exactly the bytes that follow it.
"""

import functools
import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from common import files
from common.errors import UserError

Arrays = dict[str, np.ndarray]

MOST_ARRAYS = 100_000  # in a file; a run has some hundred
_DIRECTORY_ENTRY = b"PK\x01\x02"  # begins the line of each array in an archive's table of contents
_PLAIN_KINDS = "biuf"  # booleans, whole numbers and floats


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of an .npz file that holds these arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **dict(arrays))  # type: ignore[arg-type]  # mypy takes an array for `allow_pickle`
    return buffer.getvalue()


def unpacked(content: bytes) -> Arrays:
    """The arrays of an .npz file's bytes; they take no more memory than the bytes.

    Raises:
        ValueError: the content is damaged, or holds something other than plain arrays.
        MemoryError: there is not enough memory for the arrays.
    """
    if content.count(_DIRECTORY_ENTRY) > MOST_ARRAYS:  # counted before anything is parsed
        raise ValueError("it names too many arrays")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(members, len(content))
            return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}
    except (MemoryError, ValueError):
        raise
    except Exception as error:  # zipfile and NumPy raise some fifteen kinds on files that are not what they say
        raise ValueError(type(error).__name__) from error


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    """Raises ValueError unless an archive of this size consists of stored arrays with a name each."""
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("its arrays are compressed")
    if sum(member.file_size for member in members) > size:
        raise ValueError("its arrays are larger than the file")
    names = [member.filename for member in members]
    if len({*names}) < len(names) or not all(name.endswith(".npy") for name in names):
        raise ValueError("it holds something else than arrays with a name each")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        shape, kind = _header(file)
        if kind.kind not in _PLAIN_KINDS or not kind.itemsize:
            raise ValueError("it holds something else than plain numbers")
        if math.prod(shape) * kind.itemsize != member.file_size - file.tell():
            raise ValueError("an array is not as large as it says")
        file.seek(0)
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except ValueError:
            raise ValueError("an array breaks off") from None


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array whose numbers follow."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        shape, _, kind = read[np.lib.format.read_magic(file)](file)
    except Exception as error:  # MemoryError, too: Python's parser raises it on brackets within brackets
        raise ValueError(f"{type(error).__name__} in an array's header") from error
    if kind.names is not None or kind.subdtype is not None or min(shape, default=0) < 0:
        raise ValueError("it holds something else than plain numbers")
    return shape, kind


@functools.cache
def largest_file() -> int:
    """The largest file that is read, in bytes: half of this machine's memory, or 4 GiB if that is unknown."""
    half = files.memory() / 2  # GiB
    return int(half * 2**30) if math.isfinite(half) else 4 * 2**30


def read(path: Path, largest: int | None = None) -> Arrays:
    """Every array of a file of at most `largest` bytes; None takes `largest_file`.

    Raises:
        UserError: the path is a link or not a plain file, or the file is larger.
        ValueError: the file is damaged, or holds something other than plain arrays.
        OSError: it is missing or cannot be read.
    """
    return unpacked(files.read_bytes(path, largest_file() if largest is None else largest))


def write_weights(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write an agent's state atomically; the folder is made if it is missing."""
    files.replace_file(path, packed(state))


def read_weights(path: Path, own: Mapping[str, np.ndarray], best: Mapping[str, np.ndarray]) -> Arrays:
    """Read what `write_weights` wrote for an agent of the same shape.

    Args:
        own: the reading agent's state, with or without its best parameters.
        best: arrays of the shapes that its best parameters have.

    Raises:
        UserError: the file is missing, damaged, or of an agent with other networks.
    """
    expected = {name: _kind(array) for name, array in own.items() if not name.startswith("best/")}
    possible = expected | {f"best/{name}": _kind(array) for name, array in best.items()}
    largest = sum(16 * math.prod(shape) + 4096 for shape, _ in possible.values()) + 4096  # twice that of doubles
    state = read_as("weights", path, largest, "save_weights")
    if any(name.startswith("best/") for name in state):
        expected = possible
    found = {name: _kind(array) for name, array in state.items()}
    if found != expected:
        wrong = min(name for name in found | expected if found.get(name) != expected.get(name))
        raise UserError(f"{path} holds other networks (differs at {wrong}): use the run's own config")
    return state


def read_as(what: str, path: Path, largest: int, writer: str) -> dict[str, np.ndarray]:
    """`read`, with messages for people that say `what` the file should hold and what its `writer` is.

    Raises UserError if the file is missing, damaged, or no file of plain arrays.
    """
    try:
        return read(path, largest)
    except FileNotFoundError:
        raise UserError(f"no {what.removeprefix('a ')} at {path}: expected a file that {writer} wrote") from None
    except files.ForeignFileError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as {what} ({error}): use another copy") from None


def _kind(array: np.ndarray) -> tuple[tuple[int, ...], str]:
    """Shape, and whether it holds floating point numbers, whole numbers, …"""
    return np.shape(array), np.asarray(array).dtype.kind
