"""What a hostile person would put into a run folder's files. Whatever is executed makes the file `trap`."""

import io
import json
import pickle
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

LARGE = 64 * 2**20  # bytes that a bomb of some kilobytes is unpacked to; a header claims terabytes


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, trap: Path) -> None:
        self._trap = trap

    def __reduce__(self) -> tuple:
        return open, (str(self._trap), "w")


# -- archives --


def _pickle(rng: random.Random, trap: Path) -> bytes:
    return pickle.dumps(Bomb(trap), protocol=rng.randrange(6))


def _archive_of_objects(rng: random.Random, trap: Path) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{f"array_{rng.randrange(9)}": np.array([Bomb(trap)], dtype=object)})
    return buffer.getvalue()


def _array_of_objects(rng: random.Random, trap: Path) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb(trap), rng.random()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _lambda_layer(rng: random.Random, trap: Path) -> bytes:
    code = f"__import__('pathlib').Path({str(trap)!r}).touch()"
    function = {"class_name": "__lambda__", "config": {"code": code}}
    layer = {"class_name": "Lambda", "config": {"function": function}}
    model = {"class_name": "Sequential", "config": {"layers": [layer]}}
    return archive({"config.json": json.dumps(model).encode()})


def _climbing_names(rng: random.Random, trap: Path) -> bytes:
    climbing = rng.choice(("../" * rng.randint(1, 6) + trap.name, str(trap)))
    return archive({climbing: array_bytes(np.zeros(rng.randint(1, 5)))})


def _code_for_a_shape(rng: random.Random, trap: Path) -> bytes:
    return archive({"numbers.npy": header(f"(open({str(trap)!r}, 'w'),)")})


def _promises_terabytes(rng: random.Random, trap: Path) -> bytes:
    shape = rng.choice(("(10000000000000,)", "(1" + "0" * 40 + ",)", "(9999999, 9999999)", "(-1,)"))
    return archive({f"{rng.choice(('numbers', 'agent/actor/0'))}.npy": header(shape) + bytes(rng.randint(0, 100))})


def _unpacks_to_much(rng: random.Random, trap: Path) -> bytes:
    """Some kilobytes of compressed zeros, under a directory entry that says terabytes."""
    content = header(f"({LARGE // 8},)") + bytes(LARGE)
    packed = bytearray(archive({"numbers.npy": content, "again.npy": content}, zipfile.ZIP_DEFLATED))
    if rng.random() < 0.5:
        where = packed.rindex(b"PK\x01\x02") + 24  # its uncompressed size
        packed[where : where + 4] = b"\xfe\xff\xff\xff"
    return bytes(packed)


def _many_names(rng: random.Random, trap: Path) -> bytes:
    return archive({f"{i}.npy": b"" for i in range(5000)})


def _twice_the_same_name(rng: random.Random, trap: Path) -> bytes:
    one = archive({"numbers.npy": array_bytes(np.zeros(2))})
    return one.replace(b"numbers.npy", b"number\xff.npy") + one


def _compressed_noise(rng: random.Random, trap: Path) -> bytes:
    return b"PK\x03\x04" + zlib.compress(rng.randbytes(rng.randint(0, 2000)))


def _deep_header(rng: random.Random, trap: Path) -> bytes:
    return archive({"numbers.npy": header("(" * 3000 + ")" * 3000)})


ARCHIVES: tuple[Callable[[random.Random, Path], bytes], ...] = (
    _pickle, _archive_of_objects, _array_of_objects, _lambda_layer, _climbing_names, _code_for_a_shape,
    _promises_terabytes, _unpacks_to_much, _many_names, _twice_the_same_name, _compressed_noise, _deep_header,
)  # fmt: skip


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def array_bytes(array: np.ndarray) -> bytes:
    """The content of an .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(shape: str) -> bytes:
    """The beginning of an .npy file of doubles with that shape."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
    text = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


# -- JSON --

NUMBERS = ("1" + "0" * 400, "-1" + "0" * 5000, "1e400", "NaN", "-Infinity", "0.1e-400", "9" * 30)
TEXTS = ("\ud800", "a\nb", "\x1b[2J\x1b]0;x\x07", "../../x", "x" * 100_000, "\x00", "__class__", "${HOME}", "%n%s")


def deep(rng: random.Random) -> str:
    """JSON nested so deeply that a parser that follows it would end."""
    depth = rng.choice((500, 5_000, 200_000))
    opened, closed = rng.choice((("[", "]"), ('{"a":', "}")))
    return opened * depth + "0" + closed * depth


def strange_value(rng: random.Random) -> str:
    """JSON of a value that nothing here expects."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return json.dumps(rng.choice(TEXTS))
    if kind == 2:
        return deep(rng)
    return rng.choice(("null", "[]", "{}", "true", '""', "[[[]]]", '{"__reduce__": ["os.system", "id"]}', "[NaN]"))


def strange_file(rng: random.Random) -> bytes:
    """No JSON, or another one than expected."""
    return rng.choice((
        b"", b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b"\x80\x04}.", b"[" * 100_000, b"{" + b" " * 2**23 + b"}",
        b"null", b"1" * 10_000, b'{"preset": 1, "preset": {}}', bytes(5000), b'"' + b"\\ud800" * 10 + b'"',
        rng.randbytes(3000), strange_value(rng).encode("utf-8", "surrogatepass"),
    ))  # fmt: skip


def with_value(content: dict, path: tuple[str, ...], value: str) -> bytes:
    """The JSON of `content` with raw JSON in one place."""
    mark = "\uffff value \uffff"
    changed: dict = json.loads(json.dumps(content))
    part = changed
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = mark
    return json.dumps(changed).replace(json.dumps(mark), value).encode("utf-8", "surrogatepass")
