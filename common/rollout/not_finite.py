"""Checks for NaN and infinity in what environments and policies return."""

import numpy as np

from common.errors import NotFiniteError


def not_finite_action(observations: np.ndarray, first_env: int, t: int) -> NotFiniteError:
    """The error for a non-finite action: it names the environment or the policy. observations: [n, *shape]."""
    faulty = np.flatnonzero(~np.isfinite(observations.reshape(len(observations), -1)).all(axis=-1))
    if len(faulty):
        return _environment_fault(first_env + faulty[0], "observation", t - 1)
    return NotFiniteError(
        f"the policy returned NaN or infinity at step {t} of the epoch: training diverged; lower --learning-rate"
    )


def check_finite(arrays: np.ndarray, what: str, first: int) -> None:
    """Raises NotFiniteError for NaN and infinity.

    Args:
        arrays: [rows, N, X], or images.
        first: step of the first row, -1 for what a reset returned.
    """
    if np.issubdtype(arrays.dtype, np.integer):
        return  # whole numbers are finite
    finite = np.isfinite(arrays)
    if not finite.all():
        row, n = np.argwhere(~finite.all(axis=-1))[0]
        raise _environment_fault(n, what, first + row)


def _environment_fault(n: int, what: str, step: int) -> NotFiniteError:
    where = f"step {step} of the epoch" if step >= 0 else "a reset"
    return NotFiniteError(
        f"environment {n} returned NaN or infinity as {what} at {where}: fix the environment",
        ", or collect such epochs again with --on-not-finite skip",
    )
