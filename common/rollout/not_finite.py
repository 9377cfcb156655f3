"""Errors for NaN and infinity in what environments and policies return."""

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


def not_finite_step(observations: np.ndarray, rewards: np.ndarray, first: int) -> NotFiniteError:
    """The error for K rows, from step `first` on, that are not finite: observations [K + 1, N, S], rewards [K, N]."""
    for arrays, what, step in ((observations, "observation", first - 1), (rewards[..., None], "reward", first)):
        faulty = ~np.isfinite(arrays).all(axis=-1)  # [K + 1, N], or [K, N]
        if faulty.any():
            row, n = np.argwhere(faulty)[0]
            return _environment_fault(n, what, step + row)
    raise AssertionError("all of them are finite")


def _environment_fault(n: int, what: str, step: int) -> NotFiniteError:
    where = f"step {step} of the epoch" if step >= 0 else "a reset"
    return NotFiniteError(
        f"environment {n} returned NaN or infinity as {what} at {where}: fix the environment",
        ", or collect such epochs again with --on-not-finite skip",
    )
