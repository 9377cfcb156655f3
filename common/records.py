"""The records that one stage of training hands to the next, with the shapes of their arrays.

T: steps of an epoch in one environment; N: parallel environments; A: action dimensions; S: numbers in an
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

    Attributes:
        observations: [T+1, N, S] float32 or uint8; row T follows the last step.
        actions: [T, N, A] float32, as drawn: before clipping to the environment's bounds.
        rewards: [T, N] float64, the environment's own.
        terminated: [T, N] bool; the task ended, or a life was lost: no later reward counts.
        truncated: [T, N] bool; the time was up, but the task itself had not ended.
        ended: [T, N] bool; the episode is over: terminated or truncated, but not a lost life.
        valid: [T, N] bool; False on autoreset steps and where the environment failed.
        episode_steps: [T, N] int64, steps of the episode so far, this one included.
        replaced: [T, N] bool; the environment took another action than this one.
        outputs: [T+1, N, X+1] float32, what the network returned when it acted: the actor's heads, then the value;
            [T+1, N, 0] where the policy returns nothing but actions.
        memory: [N, Z] float32, what the networks remembered before row 0, the actor before the critic; [N, 0] where
            they remember nothing.
        infos: [T, N, K] float64, the numbers of info that are logged, in the last step of an episode; NaN elsewhere.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    ended: np.ndarray
    valid: np.ndarray
    episode_steps: np.ndarray
    replaced: np.ndarray
    outputs: np.ndarray
    memory: np.ndarray = np.empty((0, 0), np.float32)
    infos: np.ndarray = np.empty((0, 0, 0))

    @property
    def without_outputs(self) -> "Trajectory":
        """The same without `outputs`: the network has learned since it acted."""
        return self._replace(outputs=self.outputs[:, :, :0])


class Episodes(NamedTuple):
    """Finished episodes, in the order in which they ended.

    Attributes:
        returns: [E] sums of the shaped rewards, not discounted.
        original_returns: [E] sums of the environment's own rewards.
        lengths: [E] steps.
    """

    returns: np.ndarray
    original_returns: np.ndarray
    lengths: np.ndarray


class Batch(NamedTuple):
    """A flattened trajectory, from which an update learns.

    Attributes:
        observations: [M, S] float32, normalised; images are [M, H, W, C] uint8.
        actions: [M, A] float32.
        log_probs: [M] float32, in nats, under the policy that acted; of a reused trajectory, under the one to update.
        advantages: [M] float32, normalised already unless each minibatch is.
        value_targets: [M] float32; only the rewards if gradients flow through the target.
        weights: [M] float32, 1 for a valid step, else 0.
        heads: [M, X] float32, outputs of the actor of `log_probs`; [M, 0] without a KL penalty.
        values: [M] float32, by the critic before the update; used by the clipped value loss.
        next_observations: [M, S] float32 if gradients flow through the target, else [M, 0].
        discounts: [M] float32, γ, or 0 after a termination; used if gradients flow through the target.
        actor_weights: [M] float32, as `weights`, but also 0 where the action was not the policy's.
        memory: [M, Z] float32, what the networks remembered before each step, the actor before the critic; [M, 0]
            where they remember nothing.
    """

    observations: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    advantages: np.ndarray
    value_targets: np.ndarray
    weights: np.ndarray
    heads: np.ndarray
    values: np.ndarray
    next_observations: np.ndarray
    discounts: np.ndarray
    actor_weights: np.ndarray
    memory: np.ndarray = np.empty((0, 0), np.float32)


class Transitions(NamedTuple):
    """Steps for off-policy learning; a truncated step has its true final observation.

    With `n_step` m above 1, a row covers up to m steps; see `companions.n_step`.

    Attributes:
        observations: [K, S] float32.
        actions: [K, A] float32 in [−1, 1].
        rewards: [K] float32, shaped; over several steps, their discounted sum.
        terminated: [K] float32, 1 after a termination, else 0; over m steps 1 − γ^(m − 1) in place of 0.
        next_observations: [K, S] float32, after the last of the row's steps.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    next_observations: np.ndarray


@dataclass
class Timing:
    """Seconds of an epoch, by stage."""

    environment: float = 0.0  # waiting for environment steps
    policy: float = 0.0  # choosing actions
    update: float = 0.0  # values, advantages and gradients
    validation: float = 0.0  # scoring the parameters; not part of training
    validation_steps: int = 0  # how many environment steps that took

    def columns(self, steps: int) -> dict[str, float]:
        """The timing columns of `common.results.EpochResult` for an epoch of `steps` environment steps."""
        training = self.environment + self.policy + self.update
        return {
            "seconds": training + self.validation,
            "seconds_environment": self.environment,
            "seconds_policy": self.policy,
            "seconds_update": self.update,
            "seconds_validation": self.validation,
            "validation_steps": self.validation_steps,
            "steps_per_second": steps / training,
        }


def empty_trajectory(steps: int, count: int, seen: np.ndarray, action_size: int, output_size: int = 0) -> Trajectory:
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
        outputs=np.empty((steps + 1, count, output_size), np.float32),
    )
