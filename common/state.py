"""The state of a run as named arrays: helpers that join, split, pack and check it."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from common import arrays_file

State = arrays_file.Arrays


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype | type) -> None:
    """Raise ValueError for another dtype or shape; the shape of packed JSON and of arrays that grow may differ."""
    grows = 0 in shape or (dtype == np.uint8 and len(shape) == 1)
    if array.dtype != dtype or not (grows or np.shape(array) == shape):
        raise ValueError(f"{name} is {array.dtype} {np.shape(array)}, expected {np.dtype(dtype)} {shape}")


def pack_json(content: object) -> np.ndarray:
    """Anything that JSON can represent, as a uint8 array [bytes]."""
    return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)


def unpack_json(array: np.ndarray) -> Any:
    """The content that `pack_json` packed; ValueError if the array is not packed JSON."""
    return json.loads(array.tobytes())


def pack_generator(generator: np.random.Generator) -> np.ndarray:
    """The state of a NumPy generator, as a uint8 array [bytes]."""
    return pack_json(generator.bit_generator.state)


def load_generator(generator: np.random.Generator, packed: np.ndarray) -> None:
    """Set a generator of the same kind to a packed state."""
    generator.bit_generator.state = unpack_json(packed)


def join_parts(parts: Mapping[str, Mapping[str, np.ndarray]]) -> State:
    """Join the states of several parts into one: {"agent": {"actor/0": …}} → {"agent/actor/0": …}."""
    return {f"{part}/{name}": array for part, state in parts.items() for name, array in state.items()}


def part_of(state: Mapping[str, np.ndarray], name: str) -> State:
    """The state of one part, as `join_parts` took it."""
    return {key.removeprefix(f"{name}/"): array for key, array in state.items() if key.startswith(f"{name}/")}
