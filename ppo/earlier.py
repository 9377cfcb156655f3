"""The trajectories before the newest one, from which an update may learn too.

Queeney, Paschalidis and Cassandras (2021, arXiv:2111.00072), "Generalized proximal policy optimization with sample
reuse". An earlier policy acted then, so each of its steps is weighted by the ratio of the present policy's probability
of its action to that policy's, and the clip range lies around the present policy.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from common.records import Batch, Trajectory
from common.state import State, check_array, join_parts, part_of
from ppo.batch import padded_rows
from ppo.config import PPOConfig

LARGEST_WEIGHT = 1.5  # of an earlier step, so that none of them outweighs the new ones


class Acted(NamedTuple):
    """A trajectory, and the log-probabilities [M] of its actions under the policy that acted."""

    trajectory: Trajectory
    log_probs: np.ndarray


class EarlierTrajectories:
    """The last trajectories that updates learned from, the newest first.

    Args:
        most: how many are kept; 0 keeps none.
        check: raises ValueError for arrays that are not a trajectory of this run.
    """

    def __init__(self, most: int, check: Callable[[State], None]) -> None:
        self._most, self._check = most, check
        self._kept: deque[Acted] = deque(maxlen=most)

    def __iter__(self) -> Iterator[Acted]:
        """The newest first."""
        return iter(self._kept)

    def add(self, trajectory: Trajectory, log_probs: np.ndarray) -> None:
        """Keep one more, and forget the oldest if there are too many.

        Args:
            log_probs: of its actions under the policy that acted, [M].
        """
        self._kept.appendleft(Acted(trajectory.without_outputs, log_probs))

    def joined(self, newest: Batch, prepare: Callable[[Trajectory], Batch], config: PPOConfig) -> Batch:
        """One batch of 1 + `most` trajectories. In the first updates the newest one fills the missing places.

        Args:
            newest: the newest trajectory as a flat batch.
            prepare: an earlier trajectory → such a batch, with values and log-probabilities of the present networks.
        """
        if not self._most:
            return newest
        batches = [newest, *(weighted(prepare(trajectory), log_probs) for trajectory, log_probs in self._kept)]
        batches += [newest] * (1 + self._most - len(batches))
        steps, padding = config.steps_per_update, padded_rows(config.samples_per_update, config.minibatch_size)
        return Batch(*(_together(columns, steps, padding) for columns in zip(*batches)))

    # -- state --

    def state(self) -> State:
        """Everything that is kept, the newest under the name 0."""
        return join_parts({str(i): _arrays(acted) for i, acted in enumerate(self._kept)})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: an array does not fit the run.
        """
        self._kept.clear()
        for i in range(self._most):
            arrays = part_of(state, str(i))
            if not arrays:
                break
            log_probs = arrays.pop("log_probs")
            self._check(arrays)
            outputs = np.empty((*arrays["observations"].shape[:2], 0), np.float32)  # [T+1, N, 0]
            check_array("log_probs", log_probs, (arrays["valid"].size,), np.float32)
            self._kept.append(Acted(Trajectory(**arrays, outputs=outputs), log_probs))


def weighted(batch: Batch, log_probs: np.ndarray) -> Batch:
    """A batch of an earlier policy's steps, for an update of the present one.

    Each advantage is multiplied by the ratio of the two policies' probabilities, at most `LARGEST_WEIGHT`. The clipped
    surrogate then clips around that ratio: to the ratio times 1 ± ε, where arXiv:2111.00072 has the ratio ± ε.

    Args:
        batch: its log-probabilities are those of the present policy, [M] or more rows.
        log_probs: of the same actions under the policy that acted, [M].
    """
    advantages = batch.advantages.copy()  # [M + padding]
    log_ratios = batch.log_probs[: len(log_probs)] - log_probs  # [M]
    advantages[: len(log_probs)] *= np.exp(np.minimum(log_ratios, np.log(LARGEST_WEIGHT)))
    return batch._replace(advantages=advantages)


def _arrays(acted: Acted) -> State:
    arrays = {name: array for name, array in acted.trajectory._asdict().items() if name != "outputs"}
    return arrays | {"log_probs": acted.log_probs}


def _together(columns: tuple[np.ndarray, ...], steps: int, padding: int) -> np.ndarray:
    rows = np.concatenate([column[:steps] for column in columns])  # [(1 + most) · M, ...]
    return np.pad(rows, [(0, padding)] + [(0, 0)] * (rows.ndim - 1)) if padding else rows
