"""The memory that a replay buffer takes; one that is too large is refused before anything is collected."""

import math
import os

import numpy as np

from common.errors import UserError


def memory() -> float:
    """GiB of this machine's memory; infinity where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (AttributeError, ValueError, OSError):
        return math.inf


def reserved(capacity: int, *columns: tuple[int, type]) -> list[np.ndarray]:
    """Zeros [capacity, size] for each column of that size and type; the memory is taken only as they are written.

    Raises:
        UserError: they would take more than half of the memory; a checkpoint takes the other half.
    """
    bytes_each = sum(size * np.dtype(kind).itemsize for size, kind in columns)
    wanted = capacity * bytes_each / 2**30  # GiB
    try:
        if wanted > memory() / 2:
            raise MemoryError
        return [np.zeros((capacity, size), kind) for size, kind in columns]
    except MemoryError:
        fitting = int(0.45 * min(memory(), wanted) * 2**30 / bytes_each)
        fitting -= fitting % 10 ** max(0, len(str(fitting)) - 2)  # two digits
        raise UserError(
            f"there is not enough memory for a replay buffer of {wanted:,.1f} GiB, and as much again for checkpoints: "
            f"use --replay-size {fitting} or less"
        ) from None
