"""The records that one stage of training hands to the next, with the shapes of their arrays.

T: steps of an epoch in one environment; N: parallel environments; A: numbers in an action; S: numbers in an
observation, or H, W, C of images, which are uint8; M = T·N: steps of an epoch; B: minibatch; E: finished episodes;
X: numbers that the actor returns; K: any number of samples.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Trajectory(NamedTuple):
    """One epoch of experience as the environments returned it: nothing scaled, nothing bootstrapped.

    Environments restart on the step after an episode's end (next-step autoreset). That step ignores
    its action, so it is not `valid`; its observation is the ended episode's true final one. A step in which an
    environment failed is not `valid` either; it ends its episode, which does not count as finished.
    """

    observations: np.ndarray  # [T+1, N, S] float32 or uint8; row T follows the last step
    actions: np.ndarray  # [T, N, A] float32, as drawn: before clipping to the environment's bounds
    rewards: np.ndarray  # [T, N] float64, the environment's own
    terminated: np.ndarray  # [T, N] bool: the task ended, or a life was lost: no later reward counts
    truncated: np.ndarray  # [T, N] bool: the time was up; the task itself had not ended
    ended: np.ndarray  # [T, N] bool: the episode is over: terminated or truncated, but not a lost life
    valid: np.ndarray  # [T, N] bool: False on autoreset steps and where the environment failed
    episode_steps: np.ndarray  # [T, N] int64: steps of the episode so far, this one included
    replaced: np.ndarray  # [T, N] bool: the environment took another action than this one


class Episodes(NamedTuple):
    """Finished episodes, in the order in which they ended."""

    returns: np.ndarray  # [E] sum of shaped rewards
    original_returns: np.ndarray  # [E] sum of the environment's own rewards
    lengths: np.ndarray  # [E] steps


class Batch(NamedTuple):
    """A flattened trajectory, from which an update learns. `weights` is 0 where a step is not valid."""

    observations: np.ndarray  # [M, S] float32, normalised; of images [M, height, width, channels] uint8
    actions: np.ndarray  # [M, A] float32
    log_probs: np.ndarray  # [M] float32, under the policy that acted
    advantages: np.ndarray  # [M] float32
    value_targets: np.ndarray  # [M] float32
    weights: np.ndarray  # [M] float32, 0 or 1
    heads: np.ndarray  # [M, X] float32, outputs of the actor that acted; used by the KL penalty
    values: np.ndarray  # [M] float32, by the critic before the update; used by the clipped value loss
    next_observations: np.ndarray  # [M, S] float32 if gradients flow through the target, else [M, 0]
    discounts: np.ndarray  # [M] float32, γ, or 0 after a termination; used in the same case
    actor_weights: np.ndarray  # [M] float32, as `weights`, and 0 where the action was not the policy's


class Transitions(NamedTuple):
    """Single steps for off-policy learning; a truncated step has its true final observation."""

    observations: np.ndarray  # [K, S] float32
    actions: np.ndarray  # [K, A] float32 in [−1, 1]
    rewards: np.ndarray  # [K] float32, shaped
    terminated: np.ndarray  # [K] float32, 1 where nothing follows
    next_observations: np.ndarray  # [K, S] float32


@dataclass
class Timing:
    """Seconds of an epoch, by stage."""

    environment: float = 0.0  # waiting for environment steps
    policy: float = 0.0  # choosing actions
    update: float = 0.0  # values, advantages, gradients
    validation: float = 0.0  # scoring the parameters; not part of training

    def columns(self, steps: int) -> dict[str, float]:
        """The timing columns of `common.results.EpochResult` for an epoch of `steps` environment steps."""
        training = self.environment + self.policy + self.update
        return {
            "seconds": training + self.validation,
            "seconds_environment": self.environment,
            "seconds_policy": self.policy,
            "seconds_update": self.update,
            "seconds_validation": self.validation,
            "steps_per_second": steps / training,
        }


def empty_trajectory(steps: int, count: int, seen: np.ndarray, action_size: int) -> Trajectory:
    """A trajectory to fill, of `count` environments that return observations like `seen` [n, *shape]."""
    shape = steps, count
    return Trajectory(
        observations=np.empty((steps + 1, count, *seen.shape[1:]), seen.dtype),
        actions=np.empty((*shape, action_size), np.float32),
        rewards=np.empty(shape),
        terminated=np.empty(shape, bool),
        truncated=np.empty(shape, bool),
        ended=np.empty(shape, bool),
        valid=np.empty(shape, bool),
        episode_steps=np.empty(shape, np.int64),
        replaced=np.zeros(shape, bool),
    )
