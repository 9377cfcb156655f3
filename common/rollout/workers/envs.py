"""Environments on workers, as the training process sees them."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from common.envs.seeded_episodes import Past
from common.envs.vector_env import group_seeds
from common.errors import UserError
from common.records import Timing, Trajectory
from common.rollout.policies import Policy
from common.rollout.repeatable import RepeatableEnvs
from common.rollout.workers.shard import STEPPED, Columns, Event, Recipe, Runner, Snapshot, Task


class EnvsOnWorkers(RepeatableEnvs):
    """`RepeatableEnvs` whose groups are held and stepped by workers, an epoch at a time.

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
        self, policy: Policy, noise: np.ndarray, trajectory: Trajectory, failed: np.ndarray, timing: Timing
    ) -> Iterator[int]:
        """All rows at once; see `collector.step_through`.

        Raises:
            NotFiniteError: the policy returned NaN or infinity.
            UserError: environments failed more often than they may, or did not repeat on another worker.
        """
        began, shared = time.perf_counter(), self._runner.share(policy)
        arguments = [(shared, seen, noise[:, columns]) for seen, columns in zip(self.observations, self.columns)]
        tasks = self._tasks("collect", arguments, range(len(self.groups)))
        collected: list[Columns] = self._values(tasks)
        self._report([event for columns in collected for event in columns.events])
        for columns, part in zip(self.columns, collected):
            for name in STEPPED:
                getattr(trajectory, name)[:, columns] = part.stepped[name]
            failed[:, columns] = part.failed
        self.ended = trajectory.ended[-1].copy()
        self._stamps = [task.after for task in tasks]
        _share_out(time.perf_counter() - began, [part.timing for part in collected], timing)
        yield len(noise)

    def _report(self, events: list[Event]) -> None:
        """Count and raise failures in the order in which they happen in one process."""
        for event in sorted(events, key=lambda event: event[:3]):
            if isinstance(event.failure, UserError):
                raise event.failure
            self._count_fault(event.failure, event.shard, event.turn - 1)

    def _perform(
        self, method: str, arguments: Sequence[tuple[Any, ...]], shards: Sequence[int] | None = None
    ) -> list[np.ndarray]:
        """What a method returns for some shards, all of them by default."""
        tasks = self._tasks(method, arguments, range(len(self.groups)) if shards is None else shards)
        values = self._values(tasks)
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
            known = ~(self._lost[columns] | self.ended[columns])  # [n]; of the others the record says nothing
            seed = group_seeds(self._seed, len(self.groups))[shard]
            return Snapshot(seed, self._pasts(shard, columns), seen, known)

        return make

    def _values(self, tasks: list[Task]) -> list[Any]:
        """What tasks return.

        Raises:
            UserError: one of them raised it.
        """
        values = self._runner.run(tasks)
        self.interrupted = self._runner.interrupted
        for value in values:
            if isinstance(value, UserError):
                raise value
        return values

    def close(self) -> None:
        """End the environments, not the workers."""
        self._runner.close()


def _share_out(seconds: float, timings: list[Timing], total: Timing) -> None:
    """Add seconds to a timing, divided between environments and policy as in the workers."""
    environment, policy = (sum(getattr(timing, name) for timing in timings) for name in ("environment", "policy"))
    share = environment / max(environment + policy, 1e-9)
    total.environment += share * seconds
    total.policy += (1 - share) * seconds
