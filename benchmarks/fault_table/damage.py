"""Saves that are cut off at every file operation, and checkpoints that were damaged afterwards."""

import builtins
import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from common.errors import UserError
from common.runs import checkpoint
from common.state import State, pack_json
from fault_table import broken as ways
from fault_table.outcome import equal
from fault_table.tally import Tally

OPERATIONS = [
    (os, name) for name in ("mkdir", "fsync", "rename", "replace", "open", "close", "rmdir", "unlink", "write")
]
OPERATIONS += [(builtins, "open")]


class Crash(BaseException):
    """The machine stops; nothing after it happens."""


@contextlib.contextmanager
def crash_at(number: int) -> Iterator[None]:
    """The so-manieth file operation does not happen any more, nor any after it."""
    calls = 0

    def failing(real: Callable) -> Callable:
        def operation(*arguments: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls >= number:
                raise Crash
            return real(*arguments, **named)

        return operation

    with contextlib.ExitStack() as stack:
        for module, name in OPERATIONS:
            stack.enter_context(mock.patch.object(module, name, failing(getattr(module, name))))
        yield


def state_of(number: int) -> State:
    """What generation `number` holds in these rows: several types, one number that is none."""
    rng = np.random.default_rng(number)
    return {
        "numbers": rng.random(200),
        "small": rng.random(50).astype(np.float32),
        "counts": rng.integers(0, 9, (3, 4), dtype=np.int32),
        "epoch": np.int64(number),
        "nothing": np.full(3, np.nan),
        "name": pack_json({"epoch": number}),
    }


def crashes(_: int, work: Path, broken: str = "") -> Tally:
    """A crash at every file operation of a save, with and without older checkpoints to remove."""
    ways.apply(broken)
    tally = Tally()
    for keep in (1, 3):
        for number in range(1, 1000):
            folder = work / f"crash-{keep}-{number}"
            checkpoint.save(folder, 1, state_of(1), keep=3)
            try:
                with crash_at(number):
                    checkpoint.save(folder, 2, state_of(2), keep=keep)
                break  # there is no operation of that number
            except Crash:
                pass
            fault = _after_a_crash(folder)
            tally.count(not fault, f"crash at file operation {number} of a save that keeps {keep}: {fault}")
    return tally


def _after_a_crash(folder: Path) -> str:
    """What is wrong with a folder whose first checkpoint was whole and whose second was cut off."""
    try:
        generation, state = checkpoint.load_newest(folder, lambda _: None)
    except UserError as error:
        return str(error)
    if generation not in (1, 2) or not equal(state, state_of(generation)):
        return f"checkpoint {generation} is another one"
    checkpoint.save(folder, 3, state_of(3), keep=1)
    if sorted(entry.name for entry in folder.iterdir()) != ["00000003"]:
        return "what was cut off stays"
    return ""


# -- damage --


def _flip(content: bytearray, rng: random.Random) -> bytes:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def _cut(content: bytearray, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def _end_in_noise(content: bytearray, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))] + rng.randbytes(rng.randint(1, 300))


def _torn(content: bytearray, rng: random.Random) -> bytes:
    """Blocks of a write that did not reach the disk are zeros, in any order."""
    for start in range(0, len(content), 512):
        if rng.random() < 0.3:
            content[start : start + 512] = bytes(len(content[start : start + 512]))
    return content


DAMAGES: tuple[Callable[[bytearray, random.Random], bytes], ...] = (_flip, _cut, _end_in_noise, _torn)


def corruptions(wanted: int, work: Path, broken: str = "") -> Tally:
    """One to three of three generations are damaged; the newest of the others has to be loaded.

    Files of a generation have bits flipped, are cut, torn, emptied, removed or another generation's. Only where none
    is whole it may be refused, in one line.
    """
    ways.apply(broken)
    tally, rng, original = Tally(), random.Random(1), work / "original"
    for number in (1, 2, 3):
        checkpoint.save(original, number, state_of(number), keep=3)
    for attempt in range(wanted):
        folder = work / f"corrupt-{attempt}"
        shutil.copytree(original, folder)
        kinds = {number: _damage(folder, number, rng) for number in rng.sample((3, 2, 1), rng.randint(1, 3))}
        whole = {number for number in (1, 2, 3) if _files(folder, number) == _files(original, number)}
        fault = wrong_choice(folder, max(whole, default=0))
        tally.count(not fault, f"damage {kinds}: {fault}")
        shutil.rmtree(folder)
    return tally


def _files(folder: Path, number: int) -> dict[str, bytes]:
    generation = folder / f"{number:08d}"
    return {path.name: path.read_bytes() for path in generation.iterdir()} if generation.exists() else {}


def _damage(folder: Path, number: int, rng: random.Random) -> str:
    """Damage a generation and name how."""
    generation = folder / f"{number:08d}"
    victim = rng.choice(sorted(generation.iterdir()))
    kind = rng.randrange(len(DAMAGES) + 3)
    if kind < len(DAMAGES):
        victim.write_bytes(DAMAGES[kind](bytearray(victim.read_bytes()), rng))
        return f"{DAMAGES[kind].__name__} {victim.name}"
    if kind == len(DAMAGES):
        victim.unlink()
        return f"removed {victim.name}"
    if kind == len(DAMAGES) + 1:
        victim.write_bytes(b"")
        return f"emptied {victim.name}"
    other = folder / f"{rng.choice([n for n in (1, 2, 3) if n != number]):08d}" / victim.name
    if other.exists():
        shutil.copy(other, victim)
    return f"another's {victim.name}"


def wrong_choice(folder: Path, expected: int) -> str:
    """What is wrong with what is loaded where `expected` is the newest intact generation; 0: there is none."""
    try:
        generation, state = checkpoint.load_newest(folder, lambda _: None)
    except UserError as error:
        if expected:
            return f"checkpoint {expected} is whole and was refused: {error}"
        return "more than one line" if "\n" in str(error) else ""
    if generation != expected:
        return f"checkpoint {generation} was loaded, {expected} is the newest whole one"
    return "" if equal(state, state_of(generation)) else "another content was loaded"
