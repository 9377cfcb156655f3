"""The hand-overs between the stages; every array's shape is written here and nowhere else.

T: steps of an epoch in one environment; N: environments side by side; A: action dimensions;
S: observation dimensions; M = T·N: steps of an epoch; B: minibatch; E: finished episodes.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Trajectory(NamedTuple):
    """One epoch of experience as the environments gave it: nothing scaled, nothing bootstrapped.

    Environments restart on the step after an episode's end (next-step autoreset). That step ignores
    its action, so it is not `valid`; its observation is the ended episode's true final one.
    """

    observations: np.ndarray  # [T+1, N, S] float32; row T is where the epoch stopped
    actions: np.ndarray  # [T, N, A] float32, as drawn: before clipping to the environment's bounds
    rewards: np.ndarray  # [T, N] float64, the environment's own
    terminated: np.ndarray  # [T, N] bool: the task ended, nothing follows
    truncated: np.ndarray  # [T, N] bool: the time was up, the task would have gone on
    valid: np.ndarray  # [T, N] bool: False on autoreset steps
    episode_steps: np.ndarray  # [T, N] int64: steps of the episode so far, this one included


class Episodes(NamedTuple):
    """Finished episodes, in the order in which they ended."""

    returns: np.ndarray  # [E] sum of shaped rewards
    original_returns: np.ndarray  # [E] sum of the environment's own rewards
    lengths: np.ndarray  # [E] steps


class Batch(NamedTuple):
    """What an update learns from: a trajectory laid flat. `weights` is 0 where a step is not valid."""

    observations: np.ndarray  # [M, S] float32, normalised
    actions: np.ndarray  # [M, A] float32
    log_probs: np.ndarray  # [M] float32, under the policy that acted
    advantages: np.ndarray  # [M] float32
    value_targets: np.ndarray  # [M] float32
    weights: np.ndarray  # [M] float32, 0 or 1


@dataclass
class Timing:
    """Seconds of an epoch by stage."""

    environment: float = 0.0  # waiting for environment steps
    policy: float = 0.0  # choosing actions
    update: float = 0.0  # values, advantages, gradients
    validation: float = 0.0  # judging the parameters; no part of training

    @property
    def training(self) -> float:
        return self.environment + self.policy + self.update


@dataclass(frozen=True)
class EpochResult:
    """A row of `results.csv`. Means over episodes are NaN in an epoch in which none finished."""

    epoch: int
    steps: int  # environment steps since training began, autoreset steps included
    loss_actor: float
    loss_critic: float
    metric: float  # the one that decides which parameters are best; NaN in an epoch without a validation
    total_reward: float  # of the epoch, shaped
    total_reward_orig: float
    avg_reward: float  # per finished episode, shaped
    avg_reward_orig: float
    avg_steps: float  # per finished episode
    episodes: int  # finished in this epoch
    is_best: bool
    approximate_kl: float  # nats, mean over the last pass
    clip_fraction: float  # share of samples outside the clip range in the last pass
    entropy: float  # nats, closed form
    mean_std: float  # of the policy, in units of half the action range
    explained_variance: float  # of the value targets by the critic, before the update
    gradient_norm_actor: float  # before clipping
    gradient_norm_critic: float
    learning_rate: float  # the actor's
    reward_std: float  # what rewards are divided by; 1 without scaling
    seconds: float = field(metadata={"timing": True})  # of all below
    seconds_environment: float = field(metadata={"timing": True})
    seconds_policy: float = field(metadata={"timing": True})
    seconds_update: float = field(metadata={"timing": True})
    seconds_validation: float = field(metadata={"timing": True})
    steps_per_second: float = field(metadata={"timing": True})  # of training: without validation


COLUMNS = [column.name for column in dataclasses.fields(EpochResult)]
TIMING_COLUMNS = [column.name for column in dataclasses.fields(EpochResult) if column.metadata.get("timing")]


def to_columns(rows: list[EpochResult]) -> dict[str, np.ndarray]:
    """Every column by its name, [epochs] float64."""
    return {name: np.array([getattr(row, name) for row in rows], np.float64) for name in COLUMNS}


def from_columns(columns: Mapping[str, np.ndarray]) -> list[EpochResult]:
    """What `to_columns` took apart. Columns of a later version than the one that wrote them are NaN, 0 or False."""
    fields = dataclasses.fields(EpochResult)
    epochs = len(columns["epoch"])
    missing = {field.name: np.full(epochs, np.nan if field.type is float else 0) for field in fields}
    table = zip(*({**missing, **columns}[field.name] for field in fields))
    return [EpochResult(*(field.type(cell) for field, cell in zip(fields, row))) for row in table]
