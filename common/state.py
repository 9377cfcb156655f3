"""The state of a part of a run, as named arrays: joined, taken apart, packed and checked."""

import json
from collections.abc import Mapping

import numpy as np

from common import arrays_file

State = arrays_file.Arrays


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype | type) -> None:
    """Raises ValueError unless an array has this type, and this shape where it holds anything but packed JSON."""
    grows = 0 in shape or (dtype == np.uint8 and len(shape) == 1)
    if array.dtype != dtype or not (grows or np.shape(array) == shape):
        raise ValueError(f"{name} is {array.dtype} {np.shape(array)}, expected {np.dtype(dtype)} {shape}")


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


def join_parts(parts: Mapping[str, Mapping[str, np.ndarray]]) -> State:
    """One state of several parts': {"agent": {"actor/0": …}} → {"agent/actor/0": …}."""
    return {f"{part}/{name}": array for part, state in parts.items() for name, array in state.items()}


def part_of(state: Mapping[str, np.ndarray], name: str) -> State:
    """The part that `join_parts` put under a name."""
    return {key.removeprefix(f"{name}/"): array for key, array in state.items() if key.startswith(f"{name}/")}
