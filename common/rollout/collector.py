"""The loop that steps environments with a policy and fills a trajectory."""

import functools
import time
from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import ThreadpoolController

from common import funcs, progress
from common.records import Timing, Trajectory, empty_trajectory
from common.rollout.not_finite import check_finite, not_finite_action
from common.rollout.policies import JudgingPolicy, Policy
from common.rollout.repeatable import RepeatableEnvs, Stepped
from common.state import load_generator, pack_generator

ShapeNoise = Callable[[np.ndarray], np.ndarray]
_THREADS = ThreadpoolController()
Fill = Callable[[Policy, np.ndarray, Trajectory, np.ndarray, Timing, int | None], Iterator[int]]


class Collector:
    """Steps the environments with a policy, an epoch at a time; episodes continue from epoch to epoch.

    Args:
        envs: the environments.
        steps: T, steps of an epoch in each environment.
        action_size, noise_size: A, numbers of an action; X, random numbers that choosing one takes.
        seed: of the exploration noise.
        shape_noise: makes the epoch's exploration noise of standard normal numbers, both [T, N, X]; None keeps these.
        fill: as `step_through` without its first argument; None steps the environments in this process.

    Attributes:
        trajectory: the one that is being filled, or was filled last.
    """

    trajectory: Trajectory

    def __init__(
        self,
        envs: RepeatableEnvs,
        steps: int,
        action_size: int,
        noise_size: int,
        seed: int,
        shape_noise: ShapeNoise | None = None,
        fill: Fill | None = None,
    ) -> None:
        self.envs = envs
        self._steps, self._action_size, self._noise_size = steps, action_size, noise_size
        self._shape_noise, self._fill = shape_noise, fill or functools.partial(step_through, envs)
        self.noise = np.random.default_rng(seed)
        self.underway = False  # a trajectory was begun and is not whole

    def collect(self, policy: Policy, timing: Timing, rows_per_yield: int | None = None) -> Iterator[slice]:
        """One epoch.

        Args:
            policy: the policy; it may change between two yields.
            timing: seconds are added to it.
            rows_per_yield: None yields once, after the last row.

        Yields:
            Rows of `trajectory` that are complete. The actions of the row after them are chosen and sent already.

        Raises:
            NotFiniteError: an environment or the policy returned NaN or infinity.
            UserError: environments failed more often than they may.
        """
        envs, steps = self.envs, self._steps
        noise = self.noise.standard_normal((steps, envs.num_envs, self._noise_size), np.float32)  # [T, N, X]
        if self._shape_noise is not None:
            noise = self._shape_noise(noise)  # [T, N, X]
        trajectory = self.trajectory = empty_trajectory(
            steps, envs.num_envs, envs.observations[0], self._action_size, getattr(policy, "output_size", 0)
        )
        failed, resets = np.zeros((2, steps, envs.num_envs), bool)  # [T, N] each
        resets[0], done, self.underway = envs.ended, 0, True
        for t in self._fill(policy, noise, trajectory, failed, timing, rows_per_yield):
            rows = slice(done, t)
            self._complete(rows, resets, failed)
            if t == steps:
                envs.remember(trajectory, resets, failed)
            yield rows
            done = t
        self.underway = False

    def _complete(self, rows: slice, resets: np.ndarray, failed: np.ndarray) -> None:
        """Fill in what follows from ends of episodes and failures, [T, N] each; check for NaN and infinity."""
        trajectory = self.trajectory
        before = self.envs.episode_steps if rows.start == 0 else trajectory.episode_steps[rows.start - 1]  # [N]
        resets[rows.start + 1 : rows.stop + 1] = trajectory.ended[rows][: len(resets) - rows.start - 1]
        trajectory.valid[rows] = ~(resets[rows] | failed[rows])  # [K, N]
        trajectory.episode_steps[rows] = funcs.episode_steps(trajectory.valid[rows], before)  # [K, N]
        check_finite(trajectory.observations[rows.start : rows.stop + 1], "observation", first=rows.start - 1)
        check_finite(trajectory.rewards[rows, :, None], "reward", first=rows.start)

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        """What is needed to restore the environments, and the state of the noise generator."""
        return self.envs.state() | {"noise": pack_generator(self.noise)}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `state` returned.

        Raises:
            UserError: the environments do not repeat what they did.
        """
        self.underway = False
        load_generator(self.noise, state["noise"])
        self.envs.load_state(state)


def step_through(
    envs: Stepped, policy: Policy, noise: np.ndarray, trajectory: Trajectory, failed: np.ndarray, timing: Timing,
    rows_per_yield: int | None = None,
) -> Iterator[int]:  # fmt: skip
    """Fill what environments return into a trajectory and `failed` [T, N]; `noise` [T, N, X] samples the actions.

    Each group steps while the policy chooses for the other. Yields the number of rows that all groups have stepped, at
    the end and after every `rows_per_yield` rows.
    """
    observations, actions, rewards, terminated, truncated, ended, _, _, replaced, outputs = trajectory
    steps, clock = len(actions), time.perf_counter
    every = rows_per_yield or steps
    groups = list(enumerate(envs.columns))
    for columns, first in zip(envs.columns, envs.observations):
        observations[0, columns] = first
    with _THREADS.limit(limits=1, user_api="blas"):  # small matrices; environments use the other cores
        for t in range(steps + 1):
            for group, columns in groups:
                began = clock()
                if t > 0:
                    progress.tell("steps", rewards[: t - 1].size, rewards.size)
                    step = envs.receive(group, t - 1)
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
                    envs.send(group, chosen)
                    if isinstance(policy, JudgingPolicy):
                        outputs[t, columns] = policy.outputs
                    timing.policy += clock() - arrived
                elif isinstance(policy, JudgingPolicy):  # nothing follows, but the last value is needed
                    policy.act(observations[t, columns])
                    outputs[t, columns] = policy.outputs
                    timing.policy += clock() - arrived
            if t == steps or (t > 0 and t % every == 0):
                yield t
