"""Spaces as JSON, so that an agent can act where its environment is not installed; one observation or a batch."""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from common.errors import UserError

LARGEST = 10_000_000  # numbers in a space; a forged shape would fill the memory


class SpacesAlone(gymnasium.Env):
    """Stands for an environment where only its spaces matter; it cannot be stepped."""

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def to_json(space: gymnasium.Space) -> dict[str, Any]:
    """A space that `check_spaces` accepts, for JSON; `from_json` makes the same of it."""
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "parts": {key: to_json(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [to_json(part) for part in space.spaces]}
    assert space.dtype is not None
    stored: dict[str, Any] = {"kind": type(space).__name__, "dtype": space.dtype.name}
    if isinstance(space, spaces.Box):
        return stored | {"kind": "Box", "shape": [*space.shape], "low": _text(space.low), "high": _text(space.high)}
    if isinstance(space, spaces.Discrete):
        return stored | {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        start = space.start.tolist()
        return stored | {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": start}
    return stored | {"kind": "MultiBinary", "shape": [*(space.shape or ())]}


def _text(numbers: np.ndarray) -> str:
    """The numbers in one line of text; one that all are equal to stands for all."""
    flat = (numbers.astype(np.int8) if numbers.dtype == bool else numbers).ravel()
    return " ".join(str(number) for number in (flat[:1] if np.all(flat == flat[:1]) else flat).tolist())


def from_json(stored: Any) -> gymnasium.Space:
    """The space that `to_json` was called with. Raises ValueError, LookupError or TypeError if it was not."""
    kind = stored["kind"]
    if kind == "Dict":
        return spaces.Dict([(key, from_json(part)) for key, part in stored["parts"].items()])  # a dict would be sorted
    if kind == "Tuple":
        return spaces.Tuple([from_json(part) for part in stored["parts"]])
    if math.prod(stored.get("shape", ())) > LARGEST:
        raise ValueError(f"a shape of {stored['shape']}")
    dtype = np.dtype(stored["dtype"])
    if kind == "Box":
        kept = float if dtype.kind == "f" else int
        low, high = (
            np.broadcast_to(np.array([*map(kept, stored[name].split())], dtype), math.prod(stored["shape"]))
            for name in ("low", "high")
        )
        shape = tuple(stored["shape"])
        return spaces.Box(low.reshape(shape), high.reshape(shape), shape, dtype.type)
    if kind == "Discrete":
        other = {} if dtype == np.int64 else {"dtype": dtype.type}  # from Gymnasium 1.2.2 on
        return spaces.Discrete(stored["n"], start=stored["start"], **other)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(stored["nvec"], dtype=dtype.type, start=stored["start"])
    return spaces.MultiBinary(stored["shape"])


def rows_of(space: gymnasium.Space, observation: Any) -> tuple[list[Any], bool]:
    """The observations of a batch, and whether it is one; a single observation is the only one.

    A batch is as Gymnasium's vector environments return it: arrays with one axis more, in a dictionary or tuple if the
    space is a Dict or Tuple. Raises UserError if it is neither.
    """
    part: Any = space
    try:
        first = observation
        while isinstance(part, spaces.Dict | spaces.Tuple):
            key: Any = next(iter(part.spaces)) if isinstance(part, spaces.Dict) else 0
            part, first = part.spaces[key], first[key]
        found, shape = np.shape(first), part.shape
        if found == shape:
            return [observation], False
        if len(found) == len(shape) + 1 and found[1:] == shape:
            return [_row(space, observation, i) for i in range(found[0])], True
    except (LookupError, TypeError, ValueError):  # it is no dictionary, lacks a part, or is ragged
        pass
    shown, expected = (" ".join(repr(value).split()) for value in (observation, space))
    raise UserError(f"the observation is {shown:.80}: expected one of {expected:.200}, or a batch of those")


def _row(space: gymnasium.Space, batch: Any, i: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _row(part, batch[key], i) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_row(part, batch[k], i) for k, part in enumerate(space.spaces))
    return batch[i]
