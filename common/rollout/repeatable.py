"""Restores environments to the step they are at. They cannot be copied, so what they did is repeated.

There are four ways; a probe finds one that works for the environment:

- "episodes": every episode begins with a seed of its own, so that seed and the actions since then are enough.
- "rebuilt": the same, but every episode has a new environment: rounding in a Box2D world depends on the
  bodies that it held before.
- "resets": seeded once, and random numbers are drawn in resets alone, so as many resets as there were episodes and the
  actions of the running one are enough.
- "history": all actions since the environment was built. Their number grows, so the environment is rebuilt
  from time to time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from common.envs.groups import Fault, quiet_gymnasium
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.seeded_episodes import RestorePoint
from common.errors import StartError, UserError
from common.rollout.stepping import RestoreRecord, step_and_record
from common.rollout.workers.shard import Recipe
from common.state import State


class RepeatableEnvs:
    """Environments whose running episodes can be repeated. It counts their failures; `record` says where they are.

    Args:
        restarts: how many failing environments may be replaced by new ones.
        warn: called with one line for each failure, and with a traceback that was not shown before.
    """

    fill = step_and_record

    def __init__(self, recipe: Recipe, seed: int, restarts: int, warn: Callable[[str], None]) -> None:
        self._envs, self.action_map, self._restarts, self._warn = recipe.build(), recipe.action_map, restarts, warn
        self.num_envs, self.groups = self._envs.num_envs, self._envs.groups
        self.columns, self.parts = self._envs.columns, self._envs.parts
        self.record = RestoreRecord(self.columns, recipe.way, recipe.action_map.size)
        self._faults = 0  # since training began
        self._told: set[str] = set()  # tracebacks; each is shown once
        self.restart(seed)

    def count_faults(self, group: int, t: int) -> None:
        """Take the failures of a group in step `t` of the epoch; raises UserError if there were more than may be."""
        faults = self.groups[group].faults
        for fault in faults:
            self._count_fault(fault, group, t)
        faults.clear()

    def _count_fault(self, fault: Fault, group: int, t: int) -> None:
        index, error, details = fault
        self._faults += 1
        what = f"environment {self.columns[group].start + index} failed at step {t} of the epoch: {error}"
        if self._faults > self._restarts:
            if details:
                self._warn(details.rstrip())
            raise UserError(
                f"{what}; {self._restarts} were replaced by new ones before: fix it, "
                "or allow more with --environment-restarts"
            )
        trace = "" if details in self._told else f"\n{details}".rstrip()
        self._told.add(details)
        self._warn(
            f"warning: {what}; a new one takes its place, its episode does not count "
            f"({self._faults} of {self._restarts}){trace}"
        )

    # -- restarts --

    def restart(self, seed: int | None = None, keep_seed: bool = False) -> None:
        """Discard the running episodes and begin new ones; a seed determines all later ones.

        If resets fail twice, the seeds after it are tried, unless `keep_seed`: what they draw may be what fails.
        """
        if seed is not None:
            self.record.clear()
            self.record.observations = self._started(
                lambda tries: self._begin(seed if keep_seed else seed + max(0, tries - 1))
            )
        elif self.record.way == "history":
            self.restart_parts(range(len(self.parts)))
        else:
            self.record.begin_episodes()
            self.record.observations = self._started(self._begin_next)

    def _started(self, start: Callable[[int], list[np.ndarray]]) -> list[np.ndarray]:
        """What `start` returns, called with how often it has failed. Failures count as those of steps do."""
        tries = 0
        while True:
            try:
                return start(tries)
            except StartError as error:
                self._faults += 1
                if self._faults > self._restarts:
                    raise
                self._warn(f"warning: {error}; it is started again ({self._faults} of {self._restarts})")
                tries += 1

    def _begin(self, seed: int) -> list[np.ndarray]:
        self._seed = seed
        return self._reset(seed)

    def _begin_next(self, tries: int) -> list[np.ndarray]:
        if not tries:
            return self._reset(None)
        if tries > 1:  # the same episodes failed twice, so the next ones are tried
            self.record.begin_episodes()
        return self._repeat(range(len(self.groups)), self._points(self.columns))

    def _reset(self, seed: int | None) -> list[np.ndarray]:
        return self._envs.reset(seed)

    def restart_parts(self, numbers: Iterable[int]) -> np.ndarray:
        """Rebuild some of `VectorEnv.parts`, discarding their running episodes. Returns which, [N] bool."""
        which = np.zeros(self.num_envs, bool)  # [N]
        for number in numbers:
            group, columns = self.parts[number]
            self.record.restart(columns)
            which[columns] = True
            self._restore([group], [columns], are_new=True)
        return which

    def restart_lost(self) -> np.ndarray:
        """Rebuild those whose history holds a failure, which cannot be repeated. Returns which, [N] bool."""
        lost = self.record.lost.copy()
        return self.restart_parts(i for i, (_, columns) in enumerate(self.parts) if lost[columns].any())

    def _restore(self, groups: Sequence[int], columns: Sequence[slice], are_new: bool = False) -> None:
        """Restore some environments of different groups to the recorded step, which is the first if they `are_new`."""
        points = self._points(columns)

        def repeat(tries: int) -> list[np.ndarray]:
            if are_new and tries > 1:  # their seeds may be what fails
                for part in columns:
                    self.record.restart(part)
                points[:] = self._points(columns)
            return self._repeat(groups, points)

        for group, of_group, observations in zip(groups, points, self._started(repeat)):
            self.record.observations[group][list(of_group)] = observations

    def _points(self, parts: Iterable[slice]) -> list[dict[int, RestorePoint]]:
        """How to restore the environments of some parts: of each part, by an environment's index in its group."""
        found = []
        for part in parts:
            first = next(columns.start for columns in self.columns if part.start < columns.stop)
            numbers = range(part.start, part.stop)
            found.append({n - first: self.record.restore_point(n, self.action_map) for n in numbers})
        return found

    def _repeat(self, groups: Sequence[int], points: Sequence[dict[int, RestorePoint]]) -> list[np.ndarray]:
        """`Group.restore` of several groups: observations [k, *shape] of each."""
        with quiet_gymnasium():
            if isinstance(self.groups[0], GymnasiumGroup):  # which may belong to the thread that built them
                return [self.groups[group].restore(point) for group, point in zip(groups, points)]
            with ThreadPoolExecutor(len(groups)) as threads:  # a core each
                return list(threads.map(lambda group, point: self.groups[group].restore(point), groups, points))

    # -- state --

    def state(self) -> State:
        """What is needed to restore the environments."""
        counters = {"seed": np.array(self._seed, np.int64), "faults": np.array(self._faults, np.int64)}
        return self.record.state() | counters

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the environments by repeating what they did.

        Raises:
            UserError: they did not, so this is not the machine or the version that the run began on.
        """
        self._faults = int(state["faults"])
        self.restart(int(state["seed"]), keep_seed=True)
        self.record.load_state(state)
        self._restore(range(len(self.groups)), self.columns)
        for i, columns in enumerate(self.columns):
            known = self.record.lost[columns] | self.record.ended[columns]  # [n] that the record does not cover
            stored = state[f"observations/{i}"]
            if not np.array_equal(self.record.observations[i][~known], stored[~known]):
                raise UserError(
                    "the environments did not repeat what they did before the run was cut off: resume it on the kind "
                    "of machine and with the versions that its config.json names; if both are the same, the "
                    "environment draws random numbers that do not come from self.np_random, or keeps something from "
                    "one episode to the next: let it do neither, and train again under another --name; --start-from "
                    "keeps the weights"
                )
            self.record.observations[i] = stored.copy()

    def close(self) -> None:
        """End the environments."""
        self._envs.close()
