"""Named arrays as .npz files: plain numbers, in which nothing could run."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.run_folder import replace_file

Arrays = dict[str, np.ndarray]


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of a file that holds them."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read(source: Path | io.BytesIO) -> Arrays:
    """Every array of a file.

    Raises:
        ValueError: it is no such file, or holds something else than plain arrays.
        OSError: it cannot be read.
    """
    try:
        with np.load(source, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError:
        raise
    except Exception as error:  # NumPy and zipfile raise some fifteen kinds on files that are not what they say
        raise ValueError(type(error).__name__) from error
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it holds something else than arrays")
    return arrays


def write_weights(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write an agent's state, replacing the file whole or not at all, and making its folder where there is none."""
    replace_file(path, packed(state))


def read_weights(path: Path, own: Mapping[str, np.ndarray], best: Mapping[str, np.ndarray]) -> Arrays:
    """Read what `write_weights` wrote for an agent of the same shape.

    Args:
        own: the reading agent's state, with or without its best parameters.
        best: what its best parameters would be, if it had any.

    Raises:
        UserError: missing, damaged, or of an agent with other networks.
    """
    try:
        state = read(path)
    except FileNotFoundError:
        raise UserError(f"no weights at {path}: expected a file that save_weights wrote") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as weights ({error}): use another copy") from None
    expected = {name: np.shape(array) for name, array in own.items() if not name.startswith("best/")}
    if any(name.startswith("best/") for name in state):
        expected |= {f"best/{name}": np.shape(array) for name, array in best.items()}
    found = {name: array.shape for name, array in state.items()}
    if found != expected:
        wrong = min(name for name in found | expected if found.get(name) != expected.get(name))
        raise UserError(f"{path} holds other networks (differs at {wrong}): use the run's own config")
    return state
