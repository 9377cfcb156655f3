"""A trajectory as a flat batch, and its minibatches."""

import numpy as np


def minibatch_rows(samples: int, minibatch_size: int, passes: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of a flat batch for every gradient step: each pass visits every sample once, in an order of its own.

    Returns:
        [passes · ceil(samples / minibatch_size), minibatch_size] int32. Where the division leaves a
        remainder the last minibatch of a pass is filled up with the row `samples`, which
        `padded_rows` says to append with weight 0.
    """
    per_pass = -(-samples // minibatch_size)
    rows = np.full((passes, per_pass * minibatch_size), samples, dtype=np.int32)
    for row in rows:
        row[:samples] = rng.permutation(samples)
    return rows.reshape(passes * per_pass, minibatch_size)


def padded_rows(samples: int, minibatch_size: int) -> int:
    """1 if minibatches need a row of weight 0 to fill up with, else 0."""
    return int(samples % minibatch_size > 0)
