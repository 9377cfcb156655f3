"""The loop that steps groups of environments with a policy, and the record of what it did."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

import numpy as np
from threadpoolctl import ThreadpoolController

from common import progress
from common.envs.groups import Group
from common.envs.seeded_episodes import RestoreMethod, RestorePoint
from common.envs.spaces import ActionMap
from common.errors import UserError
from common.records import Timing, Trajectory
from common.rollout.not_finite import not_finite_action
from common.rollout.policies import ActorCriticPolicy, InEpisodes, Policy
from common.state import State, check_array, pack_json, unpack_json

_THREADS = ThreadpoolController()


def one_blas_thread() -> contextlib.AbstractContextManager:
    """A context with one thread for matrix products, which are small; the other cores step environments."""
    return _THREADS.limit(limits=1, user_api="blas")


class Stepped(NamedTuple):
    """Groups of environments as `step_through` steps them."""

    groups: list[Group]
    columns: list[slice]  # of each group
    observations: list[np.ndarray]  # the last of each group, [n, *shape]
    ended: np.ndarray  # [N] bool, whether that is an episode's final one
    memory: np.ndarray  # [N, Z] of the policy, which is written to
    action_map: ActionMap
    count_faults: Callable[[int, int], None]  # takes the failures of a group in a step of the epoch from its list


class Filling(NamedTuple):
    """A trajectory that is being filled."""

    trajectory: Trajectory
    failed: np.ndarray  # [T, N] bool, steps in which an environment failed
    noise: np.ndarray  # [T, N, X] standard normal numbers, which sample the actions
    timing: Timing  # seconds are added to it
    rows_per_yield: int | None = None  # None: all


def step_through(envs: Stepped, policy: Policy, filling: Filling) -> Iterator[int]:
    """Fill what environments return into a trajectory.

    Each group steps while the policy chooses for the other. Yields the number of rows that all groups have stepped, at
    the end and after every `rows_per_yield` rows.

    Raises:
        NotFiniteError: the policy returned NaN or infinity.
        UserError: environments failed more often than they may.
    """
    trajectory, failed, noise, timing, rows_per_yield = filling
    observations, actions, rewards, terminated, truncated, ended, _, _, replaced, outputs, _, infos = trajectory
    acting = InEpisodes(policy, envs.memory)
    steps, clock = len(actions), time.perf_counter
    every = rows_per_yield or steps
    groups = list(zip(range(len(envs.columns)), envs.groups, envs.columns))
    for columns, first in zip(envs.columns, envs.observations):
        observations[0, columns] = first
    with one_blas_thread():
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
                    for i, told in step.infos.items():
                        infos[t - 1, columns.start + i] = told
                    if step.failed is not None:
                        failed[t - 1, columns] = step.failed
                        last = observations[t - 1, columns][step.failed]  # what a restored group does not know
                        observations[t, columns][step.failed] = last
                arrived = clock()
                timing.environment += arrived - began
                if t < steps:
                    chosen = acting.act(observations[t, columns], noise[t, columns], columns)  # [n, A]
                    if not np.isfinite(chosen.sum()):
                        raise not_finite_action(observations[t, columns], columns.start, t)
                    actions[t, columns] = chosen
                    group.send(envs.action_map(chosen))
                    if acting.memory.size:  # these are reset now
                        over = envs.ended[columns] if t == 0 else ended[t - 1, columns]  # [n]
                        acting.forget(columns.start + np.flatnonzero(over))
                elif isinstance(policy, ActorCriticPolicy):  # nothing follows, but the last value is needed
                    policy.act(observations[t, columns])
                if isinstance(policy, ActorCriticPolicy):
                    outputs[t, columns] = policy.outputs
                timing.policy += clock() - arrived
            if t == steps or (t > 0 and t % every == 0):
                yield t


def step_and_record(envs: Any, policy: Policy, filling: Filling) -> Iterator[int]:
    """`step_through` of environments that are in this process, as a method of `RepeatableEnvs`."""
    record = envs.record
    acted_upon = envs.groups, envs.columns, record.observations, record.ended, record.memory
    yield from step_through(Stepped(*acted_upon, envs.action_map, envs.count_faults), policy, filling)
    record.add(filling, slice(0, len(filling.noise)))


class RestoreRecord:
    """Where each of N environments is, and what restores it there: how it began, and the actions since.

    Args:
        columns: of each group of environments.
        way: how they are restored; see `common.rollout.repeatable`.
        action_size: A, action dimensions.
    """

    observations: list[np.ndarray]  # the last of each group, [n, *shape]

    def __init__(self, columns: list[slice], way: RestoreMethod, action_size: int) -> None:
        self.columns, self.way, self._action_size, self._num_envs = columns, way, action_size, columns[-1].stop
        # [N, Z], what the networks remember of the running episodes; Z is 0 until it is said how much that is
        self.memory = np.zeros((self._num_envs, 0), np.float32)
        self.clear()

    def clear(self) -> None:
        """Say that all environments were begun from a seed."""
        self._restarts, self._episodes, self._steps = np.zeros((3, self._num_envs), int)  # [N] each
        self._chunks: list[np.ndarray] = []  # [K, N, A] each; the last `_steps` rows of a column are its own
        # [N] each: the next step begins another episode; the actions hold a failure, which cannot be repeated
        self.ended, self.lost = np.zeros((2, self._num_envs), bool)
        self.episode_steps = np.zeros(self._num_envs, np.int64)  # [N] of the running episodes
        self.memory[:] = 0.0

    def begin_episodes(self) -> None:
        """Every environment begins its next episode."""
        self._episodes += 1
        self._begin(slice(None))

    def restart(self, columns: slice) -> None:
        """Some environments are rebuilt, each from a new seed."""
        self._restarts[columns] += 1
        self._episodes[columns] = 0
        self._begin(columns)

    def _begin(self, columns: slice) -> None:
        self._steps[columns] = self.episode_steps[columns] = 0
        self.memory[columns] = 0.0
        self.ended[columns] = self.lost[columns] = False

    def add(self, filling: Filling, rows: slice) -> None:
        """Add the next K rows of a trajectory."""
        trajectory, failed, *_ = filling
        resets = np.concatenate([self.ended[None], trajectory.ended[rows][:-1]])  # [K, N]
        self.observations = [trajectory.observations[rows.stop, columns].copy() for columns in self.columns]
        self.ended = trajectory.ended[rows.stop - 1].copy()
        self.lost = self.lost | (failed[rows].any(axis=0) & (self.way == "history"))
        self.add_actions(trajectory.actions[rows], resets)

    def add_actions(self, actions: np.ndarray, resets: np.ndarray) -> None:
        """Add actions [K, N, A]; in the steps `resets` [K, N] an episode began in place of an action."""
        self._chunks.append(actions)
        self._steps = self._steps + len(actions)
        if self.way != "history":
            self._episodes = self._episodes + resets.sum(axis=0)
            since = resets[::-1].argmax(axis=0)  # [N]; 0 also where no episode began
            self._steps = np.where(resets.any(axis=0), since, self._steps)
        longest, kept = self._steps.max(), sum(map(len, self._chunks))
        while self._chunks and kept - len(self._chunks[0]) >= longest:
            kept -= len(self._chunks.pop(0))

    def restore_point(self, n: int, action_map: ActionMap) -> RestorePoint:
        """What is needed to restore an environment.

        Where an episode has ended, its actions do not matter to the next one, and the last may have failed.
        """
        ended = bool(self.ended[n])
        actions = action_map(self._actions(n))  # [L, *action]
        if self.lost[n] or (ended and self.way in ("episodes", "rebuilt")):
            actions = actions[:0]
        return RestorePoint(int(self._restarts[n]), int(self._episodes[n]), actions, ended and self.way != "history")

    def _actions(self, n: int) -> np.ndarray:
        """Of one environment, [L, A]."""
        if not self._chunks:
            return np.zeros((0, self._action_size), np.float32)
        column = np.concatenate([chunk[:, n] for chunk in self._chunks])  # [K, A]
        return column[len(column) - self._steps[n] :]

    def state(self) -> State:
        """Everything."""
        return {
            "way": pack_json(self.way),
            "restarts": self._restarts.copy(),
            "episodes": self._episodes.copy(),
            "steps": self._steps.copy(),
            "actions": np.concatenate([self._actions(n) for n in range(self._num_envs)]),  # [ΣL, A]
            "ended": self.ended.copy(),
            "lost": self.lost.copy(),
            "episode_steps": self.episode_steps.copy(),
            **({"memory": self.memory.copy()} if self.memory.size else {}),
        } | {f"observations/{i}": seen.copy() for i, seen in enumerate(self.observations)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned, but the observations, which the environments have to return again.

        Raises ValueError if its numbers do not fit each other.
        """
        if min(state["episodes"].min(), state["steps"].min()) < 0 or state["steps"].sum() != len(state["actions"]):
            raise ValueError("the steps of environments do not fit their actions")
        self.way = restore_method_of(state)
        self._restarts, self._episodes, self._steps = (
            np.array(state[name], int) for name in ("restarts", "episodes", "steps")
        )
        self.ended, self.lost, self.episode_steps = (state[name].copy() for name in ("ended", "lost", "episode_steps"))
        if self.memory.size:
            check_array("memory", state["memory"], self.memory.shape, np.float32)
            self.memory[:] = state["memory"]
        actions, longest = state["actions"], int(self._steps.max())  # [ΣL, A]
        chunk = np.zeros((longest, self._num_envs, self._action_size), np.float32)  # [K, N, A]
        for n, own in enumerate(np.split(actions, np.cumsum(self._steps)[:-1])):
            chunk[longest - len(own) :, n] = own
        self._chunks = [chunk] if longest else []


def restore_method_of(state: Mapping[str, np.ndarray]) -> RestoreMethod:
    """The way that a record's state was written for. Raises UserError if there is no such way."""
    way = unpack_json(state["way"])
    if way not in get_args(RestoreMethod):
        raise UserError(f"a checkpoint's environments are restored by {way!r}: update the code")
    return way
