"""The hand-overs between the stages; every array's shape is written here and nowhere else.

T: steps of an epoch in one environment; N: environments side by side; A: action dimensions;
S: observation dimensions, or H, W, C of images, which are uint8; M = T·N: steps of an epoch; B: minibatch;
E: finished episodes; K: any number of samples.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Trajectory(NamedTuple):
    """One epoch of experience as the environments gave it: nothing scaled, nothing bootstrapped.

    Environments restart on the step after an episode's end (next-step autoreset). That step ignores
    its action, so it is not `valid`; its observation is the ended episode's true final one. A step in which an
    environment failed is not `valid` either; it ends its episode, which does not count as finished.
    """

    observations: np.ndarray  # [T+1, N, S] float32 or uint8; row T is where the epoch stopped
    actions: np.ndarray  # [T, N, A] float32, as drawn: before clipping to the environment's bounds
    rewards: np.ndarray  # [T, N] float64, the environment's own
    terminated: np.ndarray  # [T, N] bool: the task ended, or a life of it: nothing that follows is to count
    truncated: np.ndarray  # [T, N] bool: the time was up, the task would have gone on
    ended: np.ndarray  # [T, N] bool: the episode is over; terminated or truncated, but not where only a life was lost
    valid: np.ndarray  # [T, N] bool: False on autoreset steps and where the environment failed
    episode_steps: np.ndarray  # [T, N] int64: steps of the episode so far, this one included
    replaced: np.ndarray  # [T, N] bool: the environment took another action than this one


class Episodes(NamedTuple):
    """Finished episodes, in the order in which they ended."""

    returns: np.ndarray  # [E] sum of shaped rewards
    original_returns: np.ndarray  # [E] sum of the environment's own rewards
    lengths: np.ndarray  # [E] steps


class Batch(NamedTuple):
    """What an update learns from: a trajectory laid flat. `weights` is 0 where a step is not valid."""

    observations: np.ndarray  # [M, S] float32, normalised; of images [M, height, width, channels] uint8
    actions: np.ndarray  # [M, A] float32
    log_probs: np.ndarray  # [M] float32, under the policy that acted
    advantages: np.ndarray  # [M] float32
    value_targets: np.ndarray  # [M] float32
    weights: np.ndarray  # [M] float32, 0 or 1
    heads: np.ndarray  # [M, X] float32, what the actor that acted said; only a KL penalty reads it
    values: np.ndarray  # [M] float32, by the critic as it was; only a clipped value loss reads it
    next_observations: np.ndarray  # [M, S] float32; [M, 0] but where gradients flow through the target
    discounts: np.ndarray  # [M] float32, γ, or 0 where nothing follows; only there, too
    actor_weights: np.ndarray  # [M] float32, as `weights`, but 0 also where the action was not the policy's


class Transitions(NamedTuple):
    """Single steps for off-policy learning, truncated ones with their true final observation."""

    observations: np.ndarray  # [K, S] float32
    actions: np.ndarray  # [K, A] float32 in [−1, 1]
    rewards: np.ndarray  # [K] float32, shaped
    terminated: np.ndarray  # [K] float32, 1 where nothing follows
    next_observations: np.ndarray  # [K, S] float32


@dataclass
class Timing:
    """Seconds of an epoch by stage."""

    environment: float = 0.0  # waiting for environment steps
    policy: float = 0.0  # choosing actions
    update: float = 0.0  # values, advantages, gradients
    validation: float = 0.0  # judging the parameters; no part of training

    def columns(self, steps: int) -> dict[str, float]:
        """The timing columns of an epoch of so many steps."""
        training = self.environment + self.policy + self.update
        return {
            "seconds": training + self.validation,
            "seconds_environment": self.environment,
            "seconds_policy": self.policy,
            "seconds_update": self.update,
            "seconds_validation": self.validation,
            "steps_per_second": steps / training,
        }
