"""Weights in an .npz file of plain arrays: nothing in it could run."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from common.checkpoint import UNREADABLE, read_arrays
from common.errors import UserError


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write named arrays, replacing the file whole or not at all, and making its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    with open(unfinished, "wb") as file:
        np.savez(file, **state)
    unfinished.replace(path)


def read(path: Path, own: Mapping[str, np.ndarray], best: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Read what `write` wrote for an agent of the same shape.

    Args:
        own: the reading agent's state, with or without its best parameters.
        best: what its best parameters would be, if it had any.

    Raises:
        UserError: missing, damaged, or of an agent with other networks.
    """
    try:
        state = read_arrays(path)
    except FileNotFoundError:
        raise UserError(f"no weights at {path}: expected a file that save_weights wrote") from None
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read as weights ({type(error).__name__}): use another copy") from None
    expected = {name: np.shape(array) for name, array in own.items() if not name.startswith("best/")}
    if any(name.startswith("best/") for name in state):
        expected |= {f"best/{name}": np.shape(array) for name, array in best.items()}
    found = {name: array.shape for name, array in state.items()}
    if found != expected:
        wrong = min(name for name in found | expected if found.get(name) != expected.get(name))
        raise UserError(f"{path} holds other networks (differs at {wrong}): use the run's own config")
    return state
