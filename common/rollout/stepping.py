"""The loop that steps groups of environments with a policy and fills a trajectory."""

import time
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from common import progress
from common.envs.groups import Group
from common.envs.spaces import ActionMap
from common.records import Timing, Trajectory
from common.rollout.not_finite import not_finite_action
from common.rollout.policies import JudgingPolicy, Policy

_THREADS = ThreadpoolController()


class Stepped(Protocol):
    """Groups of environments as `step_through` steps them."""

    groups: list[Group]
    columns: list[slice]  # of each group
    observations: list[np.ndarray]  # the last of each group, [n, *shape]
    action_map: ActionMap

    def count_faults(self, group: int, t: int) -> None:
        """Take the failures of a group in step `t` of the epoch from its list."""


def step_through(
    envs: Stepped, policy: Policy, noise: np.ndarray, trajectory: Trajectory, failed: np.ndarray, timing: Timing,
    rows_per_yield: int | None = None,
) -> Iterator[int]:  # fmt: skip
    """Fill what environments return into a trajectory and `failed` [T, N]; `noise` [T, N, X] samples the actions.

    Each group steps while the policy chooses for the other. Yields the number of rows that all groups have stepped, at
    the end and after every `rows_per_yield` rows.

    Raises:
        NotFiniteError: the policy returned NaN or infinity.
        UserError: environments failed more often than they may.
    """
    observations, actions, rewards, terminated, truncated, ended, _, _, replaced, outputs = trajectory
    steps, clock = len(actions), time.perf_counter
    every = rows_per_yield or steps
    groups = list(zip(range(len(envs.columns)), envs.groups, envs.columns))
    for columns, first in zip(envs.columns, envs.observations):
        observations[0, columns] = first
    with _THREADS.limit(limits=1, user_api="blas"):  # small matrices; environments use the other cores
        for t in range(steps + 1):
            for number, group, columns in groups:
                began = clock()
                if t > 0:
                    progress.tell("steps", rewards[: t - 1].size, rewards.size)
                    step = group.recv()
                    if group.faults:
                        envs.count_faults(number, t - 1)
                    observations[t, columns] = step.observations
                    rewards[t - 1, columns] = step.rewards
                    terminated[t - 1, columns] = step.terminated
                    truncated[t - 1, columns] = step.truncated
                    ended[t - 1, columns] = step.ended
                    if step.replaced is not None:
                        replaced[t - 1, columns] = step.replaced
                    if step.failed is not None:
                        failed[t - 1, columns] = step.failed
                arrived = clock()
                timing.environment += arrived - began
                if t < steps:
                    chosen = policy.act(observations[t, columns], noise[t, columns])  # [n, A]
                    if not np.isfinite(chosen.sum()):
                        raise not_finite_action(observations[t, columns], columns.start, t)
                    actions[t, columns] = chosen
                    group.send(envs.action_map(chosen))
                elif isinstance(policy, JudgingPolicy):  # nothing follows, but the last value is needed
                    policy.act(observations[t, columns])
                if isinstance(policy, JudgingPolicy):
                    outputs[t, columns] = policy.outputs
                timing.policy += clock() - arrived
            if t == steps or (t > 0 and t % every == 0):
                yield t
