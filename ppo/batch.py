"""From a trajectory to what an update learns from: scaled rewards, advantages, targets, a flat batch, minibatches."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from common import funcs
from common.funcs import RunningStatistics
from common.records import Batch, Trajectory
from common.state import State, check_array, join_parts, part_of
from ppo.config import PPOConfig

LARGEST_WEIGHT = 1.5  # of an earlier step, so that none of them outweighs the new ones
EPSILON = 1e-4  # added to a cumulative standard deviation before something is divided by it

Assess = Callable[..., tuple[np.ndarray, ...]]
"""Normalised observations [M+N, ...], actions [M, A] and the network's outputs [M+N, X+1] when it acted, or None
→ values [M+N], log-probabilities [M], heads [M, X]. Of networks that remember, also the memory [N, Z] before row 0 and
`valid` [T, N] → also the memory [M+N, Z] before each row."""


class PreparedBatch(NamedTuple):
    """What `flat_batch` returns: `batch`, `explained_variance`, new `advantage_statistics`, and the last memory."""

    batch: Batch
    explained_variance: float  # of the value targets by the critic as it was
    advantage_statistics: RunningStatistics  # with this trajectory's advantages, where they are divided by their std
    memory: np.ndarray  # [N, Z] after the last row; [N, 0] where networks remember nothing


def scaled_rewards(
    rewards: np.ndarray, trajectory: Trajectory, gamma: float, config: PPOConfig, statistics: RunningStatistics
) -> tuple[np.ndarray, RunningStatistics]:
    """Rewards divided by a standard deviation, by default of all returns so far; see `reward_scaling` of the config.

    Args:
        rewards: [T, N], shaped; 0 where not valid.
        statistics: of the trajectories before.

    Returns:
        The scaled rewards [T, N], and the statistics that this trajectory is part of.
    """
    if config.reward_scaling != "none":
        measured = rewards  # [T, N]
        if config.reward_scaling == "returns":
            ended = trajectory.terminated, trajectory.truncated  # [T, N] each
            measured = funcs.rewards_to_go(rewards, *ended, trajectory.valid, gamma)  # [T, N]
        before = RunningStatistics() if config.reward_scaling == "epoch_rewards" else statistics
        statistics = before.merged(measured[trajectory.valid])
    return divided_rewards(rewards, config, statistics), statistics  # [T, N]


def divided_rewards(rewards: np.ndarray, config: PPOConfig, statistics: RunningStatistics) -> np.ndarray:
    """Rewards [T, N] divided by the standard deviation of `statistics`, if the config scales rewards."""
    if config.reward_scaling == "none":
        return rewards
    mean = statistics.mean if config.reward_scaling == "standardized_rewards" else 0.0
    return (rewards - mean) / (statistics.std + EPSILON)  # [T, N]


def flat_batch(
    trajectory: Trajectory,
    rewards: np.ndarray,
    normalize: Callable[[np.ndarray], np.ndarray],
    assess: Assess,
    gamma: float,
    config: PPOConfig,
    advantage_statistics: RunningStatistics,
) -> PreparedBatch:
    """A trajectory as a flat batch: normalised observations, advantages, value targets and padding.

    The batch has M = T·N rows; `padded_rows` says whether a row of weight 0 follows.

    Args:
        rewards: [T, N], scaled; see `scaled_rewards`.
        normalize: raw observations [..., S] → what the networks read; images stay as they are.
        advantage_statistics: of all advantages before; only read if `normalize_advantages` is "running_std".
    """
    steps, num_envs = rewards.shape
    terminated, truncated, valid = trajectory.terminated, trajectory.truncated, trajectory.valid  # [T, N]
    terminated = terminated | (truncated & ("truncation_is_terminal" in config.quirks))  # [T, N]
    terminated[-1] |= "terminal_at_epoch_end" in config.quirks
    observations = normalize(trajectory.observations)  # [T+1, N, ...]
    values, log_probs, heads, memory = _assessed(trajectory, observations, assess)  # [M+N], [M], [M, X], [M+N, Z]
    values = values.reshape(steps + 1, num_envs)  # [T+1, N]
    advantages = funcs.generalized_advantages(
        rewards, values, terminated, truncated, valid, gamma, config.gae_lambda
    )  # [T, N]
    normalized, advantage_statistics = _normalized(advantages, valid, config, advantage_statistics)  # [T, N]
    discounts = gamma * ~terminated  # [T, N]
    targets = {
        "advantage": advantages + values[:-1],
        "normalized_advantage": normalized + values[:-1],
        "one_step": rewards + discounts * values[1:],
    }[config.value_target.removesuffix("_gradient")]  # [T, N]
    explained_variance = funcs.explained_variance(values[:-1][valid], targets[valid])
    following = observations[1:].reshape(steps, num_envs, -1)[:, :, :0]  # [T, N, 0]
    if config.value_target == "one_step_gradient":  # the update adds the next state's value itself
        targets, following = rewards, observations[1:]  # [T, N], [T, N, S]
    columns = Batch(
        observations=observations[:-1],
        actions=trajectory.actions,
        log_probs=log_probs.reshape(steps, num_envs),
        advantages=normalized,
        value_targets=targets,
        weights=valid,
        heads=heads.reshape(steps, num_envs, -1),
        values=values[:-1],
        next_observations=following,
        discounts=discounts,
        actor_weights=valid & ~trajectory.replaced,
        memory=memory[:-num_envs].reshape(steps, num_envs, -1),
    )
    padding = 1 if memory.size else padded_rows(steps * num_envs, config.minibatch_size)
    batch = Batch(*(_flat(column, padding) for column in columns))
    return PreparedBatch(batch, explained_variance, advantage_statistics, memory[-num_envs:])


def _assessed(trajectory: Trajectory, observations: np.ndarray, assess: Assess) -> tuple[np.ndarray, ...]:
    """Values [M+N], log-probabilities [M], heads [M, X], memory [M+N, Z] of normalised observations [T+1, N, ...]."""
    samples, rows = trajectory.valid.size, trajectory.valid.size + trajectory.valid.shape[1]  # M, M+N
    values, log_probs, heads, *memory = assess(
        observations.reshape(rows, *observations.shape[2:]),
        trajectory.actions.reshape(samples, -1),
        trajectory.outputs.reshape(rows, -1) if trajectory.outputs.size else None,
        *((trajectory.memory, trajectory.valid) if trajectory.memory.size else ()),
    )
    return values, log_probs, heads, memory[0] if memory else np.empty((rows, 0), np.float32)


def _normalized(
    advantages: np.ndarray, valid: np.ndarray, config: PPOConfig, statistics: RunningStatistics
) -> tuple[np.ndarray, RunningStatistics]:
    """advantages [T, N] as the whole trajectory normalises them; minibatches are normalised by the update."""
    if config.normalize_advantages == "running_std":
        statistics = statistics.merged(advantages[valid])
        return advantages / (statistics.std + EPSILON), statistics  # [T, N]
    if config.normalize_advantages == "epoch":
        return funcs.standardize(advantages, valid), statistics  # [T, N]
    return advantages, statistics


def _flat(column: np.ndarray, padding: int) -> np.ndarray:
    """[T, N, ...] → [M + padding, ...]; images stay uint8, all else becomes float32."""
    kind = column.dtype if column.dtype == np.uint8 else np.float32  # images are scaled by the network
    samples = column.shape[0] * column.shape[1]  # M
    rows = column.astype(kind, copy=False).reshape(samples, *column.shape[2:])  # [M, ...]
    return np.pad(rows, [(0, padding)] + [(0, 0)] * (rows.ndim - 1)) if padding else rows


def minibatch_rows(samples: int, minibatch_size: int, passes: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of a flat batch for every gradient step: each pass visits every sample once, in an order of its own.

    Returns:
        [passes · ceil(samples / minibatch_size), minibatch_size] int32. If minibatch_size does not divide samples,
        the last minibatch of a pass is filled up with the number `samples`: that of the row of weight 0 which
        `flat_batch` appends.
    """
    per_pass = -(-samples // minibatch_size)
    rows = np.full((passes, per_pass * minibatch_size), samples, dtype=np.int32)
    for row in rows:
        row[:samples] = rng.permutation(samples)
    return rows.reshape(passes * per_pass, minibatch_size)


def padded_rows(samples: int, minibatch_size: int) -> int:
    """Rows of weight 0 that a batch needs to fill up minibatches: 0 if minibatch_size divides samples, else 1."""
    return int(samples % minibatch_size > 0)


class Acted(NamedTuple):
    """A trajectory, and the log-probabilities [M] of its actions under the policy that acted."""

    trajectory: Trajectory
    log_probs: np.ndarray


class EarlierTrajectories:
    """The last trajectories that updates learned from, the newest first; the next ones may learn from them too.

    Queeney, Paschalidis and Cassandras (2021, arXiv:2111.00072), "Generalized proximal policy optimization with sample
    reuse". An earlier policy acted then, so each of its steps is weighted by the ratio of the present policy's
    probability of its action to that policy's, and the clip range lies around the present policy.

    Args:
        most: how many are kept; 0 keeps none.
        check: raises ValueError for arrays that are not a trajectory of this run.
    """

    def __init__(self, most: int, check: Callable[[State], None]) -> None:
        self._most, self._check = most, check
        self.kept: deque[Acted] = deque(maxlen=most)  # the newest first

    def add(self, trajectory: Trajectory, log_probs: np.ndarray) -> None:
        """Keep one more, with its actions' log-probabilities [M], and forget the oldest if there are too many."""
        self.kept.appendleft(Acted(trajectory.without_outputs, log_probs))

    def joined(self, newest: Batch, prepare: Callable[[Trajectory], Batch], steps: int, minibatch_size: int) -> Batch:
        """One batch of 1 + `most` trajectories of M = `steps` each. At first the newest one fills the missing places.

        `prepare` makes a flat batch of an earlier one, with values and log-probabilities of the present networks.
        """
        if not self._most:
            return newest
        batches = [newest, *(weighted(prepare(trajectory), log_probs) for trajectory, log_probs in self.kept)]
        batches += [newest] * (1 + self._most - len(batches))
        padding = 1 if newest.memory.size else padded_rows(len(batches) * steps, minibatch_size)
        return Batch(*(_together(columns, steps, padding) for columns in zip(*batches)))

    # -- state --

    def state(self) -> State:
        """Everything that is kept, the newest under the name 0."""
        return join_parts({str(i): _arrays(acted) for i, acted in enumerate(self.kept)})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError for arrays that do not fit the run."""
        self.kept.clear()
        for i in range(self._most):
            arrays = part_of(state, str(i))
            if not arrays:
                break
            log_probs = arrays.pop("log_probs")
            self._check(arrays)
            outputs = np.empty((*arrays["observations"].shape[:2], 0), np.float32)  # [T+1, N, 0]
            check_array("log_probs", log_probs, (arrays["valid"].size,), np.float32)
            self.kept.append(Acted(Trajectory(**arrays, outputs=outputs), log_probs))


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
    arrays = {
        name: array for name, array in acted.trajectory._replace(infos=np.empty(0))._asdict().items() if array.size
    }
    return arrays | {"log_probs": acted.log_probs}


def _together(columns: tuple[np.ndarray, ...], steps: int, padding: int) -> np.ndarray:
    rows = np.concatenate([column[:steps] for column in columns])  # [(1 + most) · M, ...]
    return np.pad(rows, [(0, padding)] + [(0, 0)] * (rows.ndim - 1)) if padding else rows
