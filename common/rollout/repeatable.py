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
from typing import TypeVar, get_args

import numpy as np

from common.envs.groups import Fault, quiet_gymnasium
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.seeded_episodes import Past, Way
from common.envs.spaces import ActionMap
from common.envs.vector_env import VectorEnv
from common.errors import StartError, UserError
from common.records import Trajectory
from common.state import State, pack_json, unpack_json

T = TypeVar("T")


class Record:
    """The start of each of N environments and the actions since.

    Args:
        way: see above.
        action_size: A, numbers of an action.
    """

    def __init__(self, num_envs: int, way: Way, action_size: int) -> None:
        self.way, self._num_envs, self._action_size = way, num_envs, action_size
        self.clear()

    def clear(self) -> None:
        """All environments were begun from a seed."""
        self._restarts, self._episodes, self._steps = np.zeros((3, self._num_envs), int)  # [N] each
        self._chunks: list[np.ndarray] = []  # [K, N, A] each; the last `_steps` rows of a column are its own

    def begin_episodes(self) -> None:
        """Every environment begins its next episode."""
        self._episodes += 1
        self._steps[:] = 0

    def restart(self, columns: slice) -> None:
        """Some environments are rebuilt, each from a new seed."""
        self._restarts[columns] += 1
        self._episodes[columns] = self._steps[columns] = 0

    def add(self, actions: np.ndarray, resets: np.ndarray) -> None:
        """Actions [K, N, A] that were sent; in the steps `resets` [K, N] an episode began in place of an action."""
        self._chunks.append(actions)
        self._steps += len(actions)
        if self.way != "history":
            self._episodes += resets.sum(axis=0)
            since = len(resets) - 1 - _last(resets)  # [N]
            self._steps = np.where(resets.any(axis=0), since, self._steps)
        longest, kept = self._steps.max(), sum(map(len, self._chunks))
        while self._chunks and kept - len(self._chunks[0]) >= longest:
            kept -= len(self._chunks.pop(0))

    def past(self, n: int, action_map: ActionMap, ended: bool) -> Past:
        """What is needed to restore an environment; `ended`: its episode has ended."""
        actions = action_map(self._actions(n))  # [L, *action]
        if ended and self.way in ("episodes", "rebuilt"):
            actions = actions[:0]  # they do not matter to the next episode, and the last may have failed
        return Past(int(self._restarts[n]), int(self._episodes[n]), actions, ended and self.way != "history")

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
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: its numbers do not fit each other.
        """
        if min(state["episodes"].min(), state["steps"].min()) < 0 or state["steps"].sum() != len(state["actions"]):
            raise ValueError("the steps of environments do not fit their actions")
        self.way = way_of(state)
        self._restarts, self._episodes, self._steps = (
            np.array(state[name], int) for name in ("restarts", "episodes", "steps")
        )
        actions, longest = state["actions"], int(self._steps.max())  # [ΣL, A]
        chunk = np.zeros((longest, self._num_envs, self._action_size), np.float32)  # [K, N, A]
        for n, own in enumerate(np.split(actions, np.cumsum(self._steps)[:-1])):
            chunk[longest - len(own) :, n] = own
        self._chunks = [chunk] if longest else []


def _last(flags: np.ndarray) -> np.ndarray:
    """The last row [N] in which a column of flags [K, N] is set; any number where none is."""
    return len(flags) - 1 - flags[::-1].argmax(axis=0)


def way_of(state: Mapping[str, np.ndarray]) -> Way:
    """The way that a record's state was written for.

    Raises:
        UserError: there is no such way.
    """
    way = unpack_json(state["way"])
    if way not in get_args(Way):
        raise UserError(f"a checkpoint's environments are brought back by {way!r}: update the code")
    return way


class RepeatableEnvs:
    """Environments whose running episodes can be repeated. It records their actions and counts their failures.

    Args:
        envs: not yet reset.
        action_map: from the policy's actions to the environments'.
        seed: of the environments.
        restarts: how many failing environments may be replaced by new ones.
        warn: called with one line for each failure, and its traceback.
        way: how they are restored.

    Attributes:
        observations: the last of each group, [n, *shape].
        ended: [N] bool, whether the episode has ended; the next step begins a new one.
        episode_steps: [N] int64, steps of the running episodes.
        interrupted: why the run should end, where others step the environments; empty while nothing is wrong.
    """

    interrupted = ""

    def __init__(
        self,
        envs: VectorEnv,
        action_map: ActionMap,
        seed: int,
        restarts: int = 0,
        warn: Callable[[str], None] = print,
        way: Way = "episodes",
    ) -> None:
        self._envs, self.action_map, self._restarts, self._warn = envs, action_map, restarts, warn
        self._record = Record(envs.num_envs, way, action_map.size)
        self._faults = 0  # since training began
        self.num_envs, self.groups = envs.num_envs, envs.groups
        self.columns, self.parts = envs.columns, envs.parts
        self.restart(seed)

    def count_faults(self, group: int, t: int) -> None:
        """Take the failures of a group in step `t` of the epoch from its list.

        Raises:
            UserError: environments failed more often than they may.
        """
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
        self._warn(
            f"warning: {what}; a new one takes its place, its episode does not count "
            f"({self._faults} of {self._restarts})" + ("\n" + details.rstrip() if details else "")
        )

    def remember(self, trajectory: Trajectory, resets: np.ndarray, failed: np.ndarray) -> None:
        """Record an epoch: `resets` [T, N], steps that began an episode; `failed` [T, N], steps that failed."""
        self.observations = [trajectory.observations[-1, columns].copy() for columns in self.columns]
        self.episode_steps = trajectory.episode_steps[-1].copy()
        self.ended = trajectory.ended[-1].copy()
        self._record_steps(trajectory.actions, resets, failed)

    def _record_steps(self, actions: np.ndarray, resets: np.ndarray, failed: np.ndarray) -> None:
        """Record actions [K, N, A]; for `resets` and `failed`, [K, N] each, see `remember`."""
        self._record.add(actions, resets)
        self._lost |= failed.any(axis=0) & (self._record.way == "history")

    # -- restarts --

    def restart(self, seed: int | None = None) -> None:
        """Discard the running episodes and begin new ones; a seed determines all later ones."""
        if seed is None and self._record.way == "history":
            self.restart_parts(range(len(self.parts)))
            return
        if seed is None:
            self._record.begin_episodes()
        else:
            self._seed = seed
            self._record.clear()
        self.ended, self._lost = np.zeros((2, self.num_envs), bool)  # [N] each; see `restart_lost`
        self.episode_steps = np.zeros(self.num_envs, np.int64)  # [N]
        whole = list(range(len(self.groups)))
        starts = [lambda: self._reset(seed)]  # [n, *shape] a group
        if seed is None:  # to begin the next episodes twice would leave one out
            starts.append(lambda: self._repeat(whole, [self._pasts(k, self.columns[k]) for k in whole]))
        self.observations = self._started(starts[0], starts[-1])

    def _started(self, start: Callable[[], T], again: Callable[[], T]) -> T:
        """What `start` returns, or `again` after failures, which count as those of steps do."""
        while True:
            try:
                return start()
            except StartError as error:
                self._faults += 1
                if self._faults > self._restarts:
                    raise
                self._warn(f"warning: {error}; it is started again ({self._faults} of {self._restarts})")
                start = again

    def _reset(self, seed: int | None) -> list[np.ndarray]:
        """See `VectorEnv.reset`."""
        return self._envs.reset(seed)

    def restart_parts(self, numbers: Iterable[int]) -> np.ndarray:
        """Rebuild some of `VectorEnv.parts`, discarding their running episodes. Returns which, [N] bool."""
        which = np.zeros(self.num_envs, bool)  # [N]
        for number in numbers:
            group, columns = self.parts[number]
            self._record.restart(columns)
            which[columns] = True
            self._bring_back([(group, columns)])
        self.ended[which] = self._lost[which] = False
        self.episode_steps[which] = 0
        return which

    def restart_lost(self) -> np.ndarray:
        """Rebuild those whose history holds a failure, which cannot be repeated. Returns which, [N] bool."""
        lost = self._lost
        return self.restart_parts(i for i, (_, columns) in enumerate(self.parts) if lost[columns].any())

    def _bring_back(self, parts: Sequence[tuple[int, slice]]) -> None:
        """Restore some environments of different groups to the recorded step."""
        pasts = [self._pasts(group, columns) for group, columns in parts]
        groups = [group for group, _ in parts]
        repeated = self._started(lambda: self._repeat(groups, pasts), lambda: self._repeat(groups, pasts))
        for group, past, seen in zip(groups, pasts, repeated):
            self.observations[group][list(past)] = seen

    def _pasts(self, group: int, columns: slice) -> dict[int, Past]:
        """How to restore some environments of a group, by their index in the group."""
        first = self.columns[group].start
        numbers = range(columns.start, columns.stop)
        pasts = {n - first: self._record.past(n, self.action_map, bool(self.ended[n])) for n in numbers}
        for n in map(int, np.flatnonzero(self._lost)):  # their actions end with a failure, and they begin again anyway
            if n - first in pasts:
                pasts[n - first] = pasts[n - first]._replace(actions=pasts[n - first].actions[:0])
        return pasts

    def _repeat(self, groups: list[int], pasts: list[dict[int, Past]]) -> list[np.ndarray]:
        """`Group.bring_back` of several groups: observations [k, *shape] of each."""
        with quiet_gymnasium():
            if isinstance(self.groups[0], GymnasiumGroup):  # which may belong to the thread that built them
                return [self.groups[group].bring_back(past) for group, past in zip(groups, pasts)]
            with ThreadPoolExecutor(len(groups)) as threads:  # a core each
                return list(threads.map(lambda group, past: self.groups[group].bring_back(past), groups, pasts))

    # -- state --

    def state(self) -> State:
        """What is needed to restore the environments."""
        state = self._record.state()
        state |= {f"observations/{i}": seen.copy() for i, seen in enumerate(self.observations)}
        return state | {
            "seed": np.array(self._seed, np.int64),
            "ended": self.ended.copy(),
            "lost": self._lost.copy(),
            "episode_steps": self.episode_steps.copy(),
            "faults": np.array(self._faults, np.int64),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the environments by repeating what they did.

        Raises:
            UserError: they did not, so this is not the machine or the version that the run began on.
        """
        self._faults = int(state["faults"])
        self.restart(int(state["seed"]))
        self.ended = state["ended"].copy()
        self._lost = state["lost"].copy()
        self.episode_steps = state["episode_steps"].copy()
        self._record.load_state(state)
        self._bring_back(list(enumerate(self.columns)))
        for i, columns in enumerate(self.columns):
            known = self._lost[columns] | self.ended[columns]  # [n] that the record does not cover
            stored = state[f"observations/{i}"]
            if not np.array_equal(self.observations[i][~known], stored[~known]):
                raise UserError(
                    "the environments did not repeat what they did before the run was cut off: resume it on the kind "
                    "of machine and with the versions that its config.json names; if both are the same, the "
                    "environment draws random numbers that do not come from self.np_random: train again in another "
                    "folder"
                )
            self.observations[i] = stored.copy()

    def close(self) -> None:
        """End the environments."""
        self._envs.close()
