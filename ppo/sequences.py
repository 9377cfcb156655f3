"""Trajectories as sequences of steps, for networks that remember.

A sequence is at most `sequence_length` steps of one episode. It begins with the memory that was stored with its first
step, and gradients do not flow back beyond it. The steps of an environment are cut after every L of them. Where an
episode ends before, the next one begins a sequence of its own in the same L steps, with an empty memory: the row of
the reset, whose weight is 0, separates them. So nothing is padded but the end of a trajectory, with rows of weight 0.
"""

import numpy as np

from ppo.batch import minibatch_rows


def sequence_rows(steps: int, num_envs: int, length: int, trajectories: int = 1) -> np.ndarray:
    """Rows of a flat batch, L at a time, all of one environment.

    Args:
        steps, num_envs: T and N of a trajectory.
        length: L.
        trajectories: how many follow each other in the batch.

    Returns:
        [trajectories · N · ceil(T / L), L] int64; the number `trajectories`·T·N, that of the row of weight 0 which
        `flat_batch` appends, after an environment's last row.
    """
    samples = trajectories * steps * num_envs
    by_environment = np.arange(samples).reshape(trajectories, steps, num_envs).swapaxes(1, 2).reshape(-1, steps)
    rows = np.full((len(by_environment), -(-steps // length) * length), samples)
    rows[:, :steps] = by_environment
    return rows.reshape(-1, length)


def sequence_minibatches(
    rows: np.ndarray, padding: int, minibatch_size: int, passes: int, rng: np.random.Generator
) -> np.ndarray:
    """Rows of a flat batch for every gradient step: each pass visits every L steps once, in an order of its own.

    Args:
        rows: [S, L], see `sequence_rows`.
        padding: the row of weight 0, which fills up the last minibatch of a pass.
        minibatch_size: most samples of a minibatch, unless L is more.

    Returns:
        [passes · minibatches, b · L] int32: b times L rows in each minibatch.
    """
    count, length = rows.shape
    most = -(-count * length // minibatch_size)  # minibatches, of about equal sizes
    chosen = minibatch_rows(count, -(-count // min(count, most)), passes, rng)  # [K, b]
    padded = np.concatenate([rows, np.full((1, length), padding)])  # [S + 1, L]
    return padded[chosen].reshape(len(chosen), -1).astype(np.int32)
