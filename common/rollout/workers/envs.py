"""Environments on workers, as the training process sees them."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from common.envs.seeded_episodes import RestorePoint
from common.envs.vector_env import group_seeds
from common.errors import UserError
from common.records import Timing
from common.rollout.policies import Policy, WarmUp
from common.rollout.repeatable import RepeatableEnvs
from common.rollout.stepping import Filling
from common.rollout.workers.shard import STEPPED, Columns, Recipe, Rows, Snapshot, Task


class EnvsOnWorkers(RepeatableEnvs):
    """`RepeatableEnvs` whose groups are held and stepped by the workers of a `Team`, many steps at a time.

    This process keeps the record of their actions, so it can say at any time how to restore a shard.
    """

    def __init__(self, team: Any, recipe: Recipe, seed: int, restarts: int, warn: Callable[[str], None]) -> None:
        self._team = team
        super().__init__(recipe, seed, restarts, warn)  # the environments that it builds are never reset

    def _reset(self, seed: int | None) -> list[np.ndarray]:
        shards = range(len(self.groups))
        if seed is None:  # restoring may be repeated, beginning the next episode may not
            return self._repeat(shards, self._points(self.columns))
        return self._observed("reset", shards, group_seeds(seed, len(shards)))

    def _repeat(self, groups: Sequence[int], points: Sequence[dict[int, RestorePoint]]) -> list[np.ndarray]:
        return self._observed("restore", groups, points)

    def _observed(self, method: str, shards: Sequence[int], arguments: Sequence[Any]) -> list[np.ndarray]:
        """Copies of the observations that a method returns, since what Ray returns cannot be written to."""
        return [np.array(value) for value in self._perform(method, shards, [(each,) for each in arguments])]

    def fill(self, policy: Policy, filling: Filling) -> Iterator[int]:
        """See `stepping.step_through`; workers step all rows of a yield at once.

        Raises:
            NotFiniteError: the policy returned NaN or infinity.
            UserError: environments failed more often than they may, or did not repeat on another worker.
        """
        steps, shards = len(filling.noise), range(len(self.groups))
        size = filling.rows_per_yield or steps
        ahead = None  # actions of the next row by shard, [n, A] each
        for first in range(0, steps, size):
            rows, began = slice(first, min(first + size, steps)), time.perf_counter()
            acting, tasks = self._tasks(policy, filling.noise, rows, ahead)
            collected: list[Columns] = self._perform("collect", shards, tasks, acting)
            self._report(collected)
            self._store(rows, collected, filling)
            ahead = None if rows.stop == steps else [part.ahead for part in collected]
            _share_out(time.perf_counter() - began, [part.timing for part in collected], filling.timing)
            yield rows.stop

    def _tasks(
        self, policy: Policy, noise: np.ndarray, rows: slice, ahead: list[Any] | None
    ) -> tuple[Policy, list[tuple[Any, ...]]]:
        """The policy with which workers step these rows, and the other arguments of `ShardRunner.collect` by shard.

        `ahead`: [n, A] actions of the first row, by shard; None where it is the epoch's first.
        """
        is_last, chosen = rows.stop == len(noise), None
        if isinstance(policy, WarmUp):
            count = rows.stop - rows.start + (not is_last) - (ahead is not None)
            policy, chosen = policy.plain(count, self.num_envs)
        arguments = []
        for k, (seen, columns) in enumerate(zip(self.record.observations, self.columns)):
            given = [] if ahead is None else [ahead[k][None]]  # [1, n, A]
            given += [] if chosen is None else [chosen[:, columns]]  # [K, n, A]
            part = noise[rows.start : rows.stop + 1, columns]  # [K + 1, n, X], or [K, n, X] at the end
            ended, memory = self.record.ended[columns], self.record.memory[columns]  # [n], [n, Z]
            todo = Rows(rows.start, part, not is_last, ended, memory, np.concatenate(given) if given else None)
            arguments.append((seen, todo))
        return policy, arguments

    def _report(self, collected: list[Columns]) -> None:
        """Count and raise failures in the order in which they happen in one process."""
        events = [event for columns in collected for event in columns.events]
        for event in sorted(events, key=lambda event: (event.turn, event.shard)):
            if isinstance(event.failure, UserError):
                raise event.failure
            self._count_fault(event.failure, event.shard, event.turn - 1)

    def _store(self, rows: slice, collected: list[Columns], filling: Filling) -> None:
        """Put collected rows into the trajectory and record them."""
        for columns, part in zip(self.columns, collected):
            for name in STEPPED:
                array = part.stepped[name]  # [K, n, ...], of observations [K + 1, n, *shape]
                getattr(filling.trajectory, name)[rows.start : rows.start + len(array), columns] = array
            filling.failed[rows, columns] = part.failed
            self.record.memory[columns] = part.memory
        self.record.add(filling, rows)

    def _perform(
        self, method: str, shards: Sequence[int], arguments: Sequence[tuple[Any, ...]], policy: Policy | None = None
    ) -> list[Any]:
        """What a method of `ShardRunner` returns for some shards, or its UserError; `policy`: its first argument."""
        tasks = [Task(k, method, given) for k, given in zip(shards, arguments)]
        values = self._team.perform(tasks, self._snapshot, policy)
        for value in values:
            if isinstance(value, UserError):
                raise value
        return values

    def _snapshot(self, task: Task) -> Snapshot:
        """How to restore a shard before a task; one that collects continues from the present observations."""
        shard, seen, record = task.shard, None, self.record
        columns = self.columns[shard]
        if task.method == "collect":
            seen = record.observations[shard]
            if record.lost[columns].any():  # only within an epoch of which some rows are learned from
                raise UserError(
                    "a worker was lost after an environment had failed in the same epoch, which cannot be repeated: "
                    "continue from the last checkpoint with --resume, or start again if there is none"
                )
        known = ~(record.lost[columns] | record.ended[columns])  # [n]; of the others the record says nothing
        [points] = self._points([columns])
        return Snapshot(group_seeds(self._seed, len(self.groups))[shard], points, seen, known)

    def close(self) -> None:
        """End the environments, not the workers."""
        self._team.close()


def _share_out(seconds: float, timings: list[Timing], total: Timing) -> None:
    """Add seconds to a timing, divided between environments and policy as in the workers."""
    environment, policy = (sum(getattr(timing, name) for timing in timings) for name in ("environment", "policy"))
    share = environment / max(environment + policy, 1e-9)
    total.environment += share * seconds
    total.policy += (1 - share) * seconds
