"""The format of a checkpoint: a run's state as named plain arrays, with a checksum. Nothing in it can execute code.

A checkpoint, also called a generation, is a folder `checkpoints/00000050` with `state.npz` and a `manifest.json` that
holds the format version, the epoch and a checksum of both. It is written under another name, flushed to disk and then
renamed: it is written atomically.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from common import arrays_file, files
from common.errors import UserError
from common.state import State, check_array, pack_json, unpack_json

FORMAT = 2
STATE, MANIFEST = "state.npz", "manifest.json"
UNFINISHED = ".unfinished-"
SETTINGS = "run/config"  # name of the array that holds config.json
_NUMBER = re.compile("[0-9]{8}|[1-9][0-9]{8,17}")


class _DamagedError(Exception):
    """A checkpoint cannot be used; an older one may be whole."""


def save(folder: Path, generation: int, state: Mapping[str, np.ndarray], keep: int) -> None:
    """Write a checkpoint; then remove all but the newest `keep`.

    Newer ones than this are removed too: the run went back to before them, since they were damaged.

    Raises:
        UserError: the disk is full or read-only; earlier generations stay whole.
    """
    content = arrays_file.packed(state)
    final, unfinished = folder / f"{generation:08d}", folder / f"{UNFINISHED}{generation:08d}"
    try:
        files.make_folder(folder)
        files.check_plain(folder)
        remove_unfinished(folder)
        unfinished.mkdir()
        files.write_new(unfinished / STATE, content)
        files.write_new(unfinished / MANIFEST, json.dumps(manifest(generation, content)).encode())
        files.flush_folder(unfinished)
        if final.exists():  # a damaged one of the same epoch, or this very state
            files.move_with_retries(os.rename, final, folder / f"{UNFINISHED}{generation:08d}-before")
        files.move_with_retries(os.rename, unfinished, final)
        files.flush_folder(folder)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise UserError(
            f"checkpoint {generation} could not be written to {folder} ({error.strerror}): "
            "the one before it is untouched"
        ) from None
    remove_unfinished(folder)
    numbers = generations(folder)
    for number in {*numbers} - {*[number for number in numbers if number <= generation][:keep]}:
        shutil.rmtree(folder / f"{number:08d}", ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what interrupted saves left behind."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name.startswith(UNFINISHED):
                if not path.is_symlink():  # which `rmtree` would open before it refuses it
                    shutil.rmtree(path, ignore_errors=True)
                with contextlib.suppress(OSError):
                    path.unlink()  # where it was no folder


def manifest(generation: int, content: bytes, version: int = FORMAT) -> dict[str, object]:
    """The content of manifest.json."""
    said = {"format": version, "generation": generation, "bytes": len(content)}
    digest = hashlib.sha256(json.dumps(said).encode())
    digest.update(content)
    return said | {"sha256": digest.hexdigest()}


def generations(folder: Path) -> list[int]:
    """Numbers of the checkpoints in a folder, whole or damaged, newest first."""
    if not folder.is_dir():
        return []
    return sorted((int(entry.name) for entry in folder.iterdir() if _NUMBER.fullmatch(entry.name)), reverse=True)


def load_newest(folder: Path, warn: Callable[[str], None]) -> tuple[int, State]:
    """The number and state of the newest checkpoint that is whole; `warn` is told of every damaged one.

    Raises:
        UserError: there is none, one was written by a newer version, or the disk or the memory fails at present.
    """
    numbers = generations(folder)
    if not numbers:
        raise UserError(f"{folder} holds no checkpoint: expected a run that got as far as its first one")
    for number in numbers:
        try:
            return number, _load(folder / f"{number:08d}", number)
        except _DamagedError as damage:
            warn(f"checkpoint {number} is damaged ({damage}), going back to the one before")
    raise UserError(f"no checkpoint in {folder} is whole: use a copy of the run, or start a new one")


def load(folder: Path, number: int) -> State:
    """The state of one checkpoint.

    Raises:
        UserError: it is damaged, was written by a newer version, or cannot be read at present.
    """
    try:
        return _load(folder / f"{number:08d}", number)
    except _DamagedError as damage:
        raise UserError(f"checkpoint {number} in {folder} is damaged ({damage}): use a copy of it") from None


def _load(folder: Path, generation: int) -> State:
    """Raises _DamagedError if it is not whole, UserError if a newer version wrote it, or disk or memory fail."""
    try:
        if folder.is_symlink():
            raise _DamagedError("it is a link")
        written = files.read_json(folder / MANIFEST)
        size = os.stat(folder / STATE, follow_symlinks=False).st_size
        if not isinstance(written, dict) or written.get("bytes") != size:
            raise _DamagedError("its state is not as large as it was written")
        if size > arrays_file.largest_file():
            raise MemoryError
        content = files.read_bytes(folder / STATE, size)
        version = written.get("format")
        if not isinstance(version, int) or written != manifest(generation, content, version):
            raise _DamagedError("its checksum or number is wrong")
        if version > FORMAT:
            raise UserError(f"{folder} has format {version}, this code reads up to {FORMAT}: update the code")
        return arrays_file.unpacked(content)
    except ValueError as error:
        what = error if type(error) is ValueError else type(error).__name__
        raise _DamagedError(f"{what} while reading it") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, files.ForeignFileError) as error:
        raise _DamagedError(f"{type(error).__name__} while reading it") from None
    except MemoryError:
        raise UserError(
            f"there is not enough memory to load {folder}: end other programs and try again; nothing was changed"
        ) from None
    except OSError as error:
        raise UserError(
            f"{folder} cannot be read at present ({error.strerror}): try again, and if that does not help, move that "
            "folder away to go back to the checkpoint before it; nothing was changed"
        ) from None


def check_fits(state: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> None:
    """Check that arrays have the types and shapes of those in a trainer's own state.

    Arrays that grow during a run may have any shape: those that are empty in `own`, and packed JSON. The best
    parameters are compared with the present ones.

    Raises:
        ValueError: an array has another type or shape.
    """
    for name, array in state.items():
        pattern = own.get(name, own.get(name.replace("/best/", "/", 1)))
        if pattern is not None:
            check_array(name, array, np.shape(pattern), np.asarray(pattern).dtype)


def settings_of(state: Mapping[str, np.ndarray]) -> object:
    """The copy of config.json that `with_settings` added; None where there is none, or it cannot be read."""
    try:
        return unpack_json(state[SETTINGS])
    except (KeyError, ValueError, RecursionError):
        return None


def with_settings(state: Mapping[str, np.ndarray], content: object) -> State:
    """The state with a copy of config.json's content added, so that a run can be resumed without that file."""
    return {**state, SETTINGS: pack_json(content)}
