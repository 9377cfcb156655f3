"""Environments on workers, as the training process sees them."""

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from common.envs.seeded_episodes import Past
from common.envs.vector_env import group_seeds
from common.errors import UserError
from common.records import Timing, Trajectory
from common.rollout.policies import Policy, WarmUp
from common.rollout.repeatable import RepeatableEnvs
from common.rollout.workers.shard import STEPPED, Columns, Event, Recipe, Rows, Runner, Snapshot, Task


class EnvsOnWorkers(RepeatableEnvs):
    """`RepeatableEnvs` whose groups are held and stepped by workers, many steps at a time.

    This process keeps the record of their actions, so it can say at any time how to restore a shard.

    Args:
        recipe: how workers build the environments.
        runner: gives the workers their tasks.
        seed, restarts, warn: see `RepeatableEnvs`.
    """

    def __init__(
        self, recipe: Recipe, runner: Runner, seed: int, restarts: int = 0, warn: Callable[[str], None] = print
    ) -> None:
        self._runner, self._numbers = runner, itertools.count()
        envs = recipe.build()  # for its columns and parts; it is never reset
        self._stamps: list[int | None] = [None] * len(envs.groups)
        super().__init__(envs, recipe.action_map, seed, restarts, warn, recipe.way)

    def _reset(self, seed: int | None) -> list[np.ndarray]:
        if seed is None:  # restoring may be repeated, beginning the next episode may not
            return self._perform("bring_back", [(self._pasts(k, columns),) for k, columns in enumerate(self.columns)])
        self._stamps = [None] * len(self.groups)
        return self._perform("reset", [(s,) for s in group_seeds(seed, len(self.groups))])

    def _repeat(self, groups: list[int], pasts: list[dict[int, Past]]) -> list[np.ndarray]:
        return self._perform("bring_back", [(past,) for past in pasts], groups)

    def fill(
        self,
        policy: Policy,
        noise: np.ndarray,
        trajectory: Trajectory,
        failed: np.ndarray,
        timing: Timing,
        rows_per_yield: int | None = None,
        lag: int = 0,
    ) -> Iterator[int]:
        """See `collector.step_through`; workers step all rows of a yield at once.

        Args:
            lag: 1 lets workers step the next rows before these are yielded, with the policy as it is then.

        Raises:
            NotFiniteError: the policy returned NaN or infinity.
            UserError: environments failed more often than they may, or did not repeat on another worker.
        """
        steps = len(noise)
        rows = rows_per_yield or steps
        going = self._begin(policy, noise, 0, min(rows, steps))
        for last in itertools.chain(range(rows, steps, rows), [steps]):
            began = time.perf_counter()
            columns = self._finish(going)
            ahead = self._take(going, columns, trajectory, failed)
            if lag and last < steps:
                going = self._begin(policy, noise, last, min(last + rows, steps), ahead)
            _share_out(time.perf_counter() - began, [part.timing for part in columns], timing)
            yield last
            if not lag and last < steps:
                began = time.perf_counter()
                going = self._begin(policy, noise, last, min(last + rows, steps), ahead)
                timing.environment += time.perf_counter() - began

    def _begin(
        self, policy: Policy, noise: np.ndarray, first: int, last: int, ahead: list[np.ndarray] | None = None
    ) -> "_Going":
        """Let workers step rows `first` to `last`, and choose the actions of row `last` if there is one.

        Args:
            ahead: [n, A] actions of row `first`, by shard; None where it is the epoch's first.
        """
        is_last = last == len(noise)
        chosen = None
        if isinstance(policy, WarmUp):
            policy, chosen = policy.plain(last - first + (not is_last) - (ahead is not None), self.num_envs)
        shared, arguments = self._runner.share(copy.copy(policy)), []  # it may change before they are done
        for k, (seen, columns) in enumerate(zip(self.observations, self.columns)):
            given = [] if ahead is None else [ahead[k][None]]  # [1, n, A]
            given += [] if chosen is None else [chosen[:, columns]]  # [K, n, A]
            part = noise[first : last + 1, columns]  # [K + 1, n, X], or [K, n, X] at the end
            rows = Rows(first, part, not is_last, np.concatenate(given) if given else None)
            arguments.append((shared, seen, rows))
        tasks = self._tasks("collect", arguments, range(len(self.groups)))
        return _Going(tasks, self._runner.begin(tasks), slice(first, last))

    def _finish(self, going: "_Going") -> list[Columns]:
        """What workers collected, after counting the failures among it."""
        collected: list[Columns] = self._values(going.begun)
        self._report([event for columns in collected for event in columns.events])
        return collected

    def _take(
        self, going: "_Going", collected: list[Columns], trajectory: Trajectory, failed: np.ndarray
    ) -> list[np.ndarray]:
        """Put collected rows into the trajectory and record them: actions [n, A] of the row after them, by shard."""
        rows = going.rows
        for columns, part in zip(self.columns, collected):
            for name in STEPPED:
                array = part.stepped[name]  # [K, n, ...], of observations [K + 1, n, *shape]
                getattr(trajectory, name)[rows.start : rows.start + len(array), columns] = array
            failed[rows, columns] = part.failed
        resets = np.concatenate([self.ended[None], trajectory.ended[rows][:-1]])  # [K, N]
        self._record_steps(trajectory.actions[rows], resets, failed[rows])
        self.observations = [trajectory.observations[rows.stop, columns].copy() for columns in self.columns]
        self.ended = trajectory.ended[rows.stop - 1].copy()
        self._stamps = [task.after for task in going.tasks]
        return [part.ahead for part in collected if part.ahead is not None]

    def remember(self, trajectory: Trajectory, resets: np.ndarray, failed: np.ndarray) -> None:
        """See `RepeatableEnvs.remember`; the steps are recorded as they come."""
        self.episode_steps = trajectory.episode_steps[-1].copy()

    def _report(self, events: list[Event]) -> None:
        """Count and raise failures in the order in which they happen in one process."""
        for event in sorted(events, key=lambda event: (event.turn, event.shard)):
            if isinstance(event.failure, UserError):
                raise event.failure
            self._count_fault(event.failure, event.shard, event.turn - 1)

    def _perform(
        self, method: str, arguments: Sequence[tuple[Any, ...]], shards: Sequence[int] | None = None
    ) -> list[np.ndarray]:
        """What a method returns for some shards, all of them by default."""
        tasks = self._tasks(method, arguments, range(len(self.groups)) if shards is None else shards)
        values = self._values(self._runner.begin(tasks))
        for task in tasks:
            self._stamps[task.shard] = task.after
        return [np.array(value) for value in values]  # copies, since what Ray returns cannot be written to

    def _tasks(self, method: str, arguments: Sequence[tuple[Any, ...]], shards: Sequence[int]) -> list[Task]:
        return [
            Task(k, method, given, self._stamps[k], next(self._numbers), self._snapshot_maker(k, method == "collect"))
            for k, given in zip(shards, arguments)
        ]

    def _snapshot_maker(self, shard: int, settled: bool) -> Callable[[], Snapshot]:
        """Makes the snapshot of a shard; `settled`: its observations are the present ones."""
        columns, seen = self.columns[shard], self.observations[shard] if settled else None

        def make() -> Snapshot:
            if settled and self._lost[columns].any():  # only within an epoch of which some rows are learned from
                raise UserError(
                    "a worker was lost after an environment had failed in the same epoch, which cannot be repeated: "
                    "continue from the last checkpoint with --resume, or start again if there is none"
                )
            known = ~(self._lost[columns] | self.ended[columns])  # [n]; of the others the record says nothing
            seed = group_seeds(self._seed, len(self.groups))[shard]
            return Snapshot(seed, self._pasts(shard, columns), seen, known)

        return make

    def _values(self, begun: Any) -> list[Any]:
        """What tasks that were begun return.

        Raises:
            UserError: one of them raised it.
        """
        values = self._runner.finish(begun)
        self.interrupted = self._runner.interrupted
        for value in values:
            if isinstance(value, UserError):
                raise value
        return values

    def close(self) -> None:
        """End the environments, not the workers."""
        self._runner.close()


class _Going(NamedTuple):
    """Rows that workers step."""

    tasks: list[Task]
    begun: Any  # what the runner returned
    rows: slice


def _share_out(seconds: float, timings: list[Timing], total: Timing) -> None:
    """Add seconds to a timing, divided between environments and policy as in the workers."""
    environment, policy = (sum(getattr(timing, name) for timing in timings) for name in ("environment", "policy"))
    share = environment / max(environment + policy, 1e-9)
    total.environment += share * seconds
    total.policy += (1 - share) * seconds
