"""Atomic, checked generations of a run's state: named plain arrays, nothing in them that could run.

A generation is a folder `checkpoints/00000050` with `state.npz` and a `manifest.json` that holds the
format version, the generation and the checksum. It is written under another name, flushed to disk and
renamed, so that it is there whole or not at all.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from common import arrays_file
from common.errors import UserError

FORMAT = 1
STATE, MANIFEST = "state.npz", "manifest.json"
UNFINISHED = ".unfinished-"

State = arrays_file.Arrays


class _DamagedError(Exception):
    """A generation cannot be used; an older one may be."""


def save(folder: Path, generation: int, state: Mapping[str, np.ndarray], keep: int) -> None:
    """Write a generation and remove all but the newest `keep`.

    Raises:
        UserError: the disk is full or read-only; earlier generations stay whole.
    """
    content = arrays_file.packed(state)
    final, unfinished = folder / f"{generation:08d}", folder / f"{UNFINISHED}{generation:08d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _write(unfinished / STATE, content)
        _write(unfinished / MANIFEST, json.dumps(manifest(generation, content)).encode())
        _flush_folder(unfinished)
        if final.exists():  # a damaged one of the same epoch, or this very state
            shutil.rmtree(final)
        os.rename(unfinished, final)
        _flush_folder(folder)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise UserError(
            f"checkpoint {generation} could not be written to {folder} ({error.strerror}): "
            "the one before it is untouched; make room and resume the run"
        ) from None
    for old in generations(folder)[keep:]:
        shutil.rmtree(folder / f"{old:08d}", ignore_errors=True)


def manifest(generation: int, content: bytes) -> dict[str, object]:
    """What is written beside a generation's content."""
    return {
        "format": FORMAT,
        "generation": generation,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def generations(folder: Path) -> list[int]:
    """Numbers of the generations that are there, whole or damaged, newest first."""
    if not folder.is_dir():
        return []
    return sorted((int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal()), reverse=True)


def load_newest(folder: Path, warn: Callable[[str], None]) -> tuple[int, State]:
    """The newest generation that is whole.

    Args:
        warn: told of every generation that had to be passed over.

    Raises:
        UserError: there is none.
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


def _load(folder: Path, generation: int) -> State:
    try:
        written = json.loads((folder / MANIFEST).read_bytes())
        version = written["format"]
        content = (folder / STATE).read_bytes()
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _DamagedError(f"{type(error).__name__} while reading it") from None
    if isinstance(version, int) and version > FORMAT:
        raise UserError(f"{folder} has format {version}, this code reads up to {FORMAT}: update the code")
    if written != manifest(generation, content):
        raise _DamagedError("its checksum or number is wrong")
    try:
        return arrays_file.read(io.BytesIO(content))
    except (OSError, ValueError) as error:
        raise _DamagedError(f"{error} while opening it") from None


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere folders cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pack_json(content: object) -> np.ndarray:
    """Anything JSON can say, as a [bytes] uint8 array."""
    return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)


def unpack_json(array: np.ndarray) -> object:
    """What `pack_json` packed."""
    return json.loads(array.tobytes())


def pack_generator(generator: np.random.Generator) -> np.ndarray:
    """The position of a NumPy generator, as a [bytes] uint8 array."""
    return pack_json(generator.bit_generator.state)


def load_generator(generator: np.random.Generator, packed: np.ndarray) -> None:
    """Bring a generator of the same kind to a packed position."""
    generator.bit_generator.state = unpack_json(packed)


def join(parts: Mapping[str, Mapping[str, np.ndarray]]) -> State:
    """One state of several parts': {"agent": {"actor/0": …}} → {"agent/actor/0": …}."""
    return {f"{part}/{name}": array for part, state in parts.items() for name, array in state.items()}


def part(state: Mapping[str, np.ndarray], name: str) -> State:
    """The part that `join` put under a name."""
    return {key.removeprefix(f"{name}/"): array for key, array in state.items() if key.startswith(f"{name}/")}
