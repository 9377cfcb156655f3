"""What a worker does with its shards: plain functions of what the training process sends, without Ray."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from common.envs.environment import Environment
from common.envs.groups import Fault, Group, quiet_gymnasium
from common.envs.seeded_episodes import Past, Way
from common.envs.spaces import ActionMap
from common.envs.vector_env import VectorEnv, copied_observations, make_vector_env
from common.errors import NotFiniteError, UserError
from common.records import Timing, empty_trajectory
from common.rollout.not_finite import not_finite_action
from common.rollout.policies import Policy
from common.rollout.stepping import step_through

STEPPED = ("observations", "actions", "rewards", "terminated", "truncated", "ended", "replaced")  # of a trajectory


class Recipe(NamedTuple):
    """How the environments of a run are built; a shard is one group of them."""

    environment: Environment
    num_envs: int
    backend: str
    shards: int | None
    way: Way
    time_limit: float  # seconds, of a process of backend "processes"
    action_map: ActionMap

    def build(self, threads: int | None = None) -> VectorEnv:
        """The environments, none of which starts before its group is reset; `threads`: of each group."""
        return make_vector_env(
            self.environment, self.num_envs, self.backend, self.shards, self.way, self.time_limit, threads
        )


class Snapshot(NamedTuple):
    """How to restore a shard."""

    seed: int  # of its group
    pasts: Mapping[int, Past]  # of every environment, by its index in the group
    observations: np.ndarray | None = None  # [n, *shape] that it must return; None if they are not known
    known: np.ndarray | None = None  # [n] bool: of these environments


class Task(NamedTuple):
    """Something to do with a shard. It may be done again, by another worker that restores the shard first."""

    shard: int
    method: str  # of `Host`
    arguments: tuple[Any, ...]
    before: int | None  # stamp of the state that the shard must be in; None: any
    after: int  # stamp of the state that it is in then
    snapshot: Callable[[], Snapshot]  # only called if a worker must restore the shard


class Event(NamedTuple):
    """A failure, with its place in the order in which one process steps all groups."""

    turn: int  # of the loop over steps; it receives step `turn` - 1 and then acts
    shard: int
    failure: Fault | UserError  # an error ends the collection


class Rows(NamedTuple):
    """The steps of a shard to collect: K of them, from row `first` of the epoch on."""

    first: int
    noise: np.ndarray  # [K, n, X] of exploration; [K + 1, n, X] if the actions of the row after them are chosen too
    ahead: bool  # whether they are
    given: np.ndarray | None = None  # [G, n, A] actions of the first rows; the policy chooses the others


class Columns(NamedTuple):
    """Collected rows of a shard."""

    stepped: dict[str, np.ndarray]  # name in STEPPED → its columns [K, n, ...]
    failed: np.ndarray  # [K, n] bool
    ahead: np.ndarray | None  # [n, A] actions of the row after them
    events: list[Event]
    timing: Timing


class Host:
    """Holds shards and steps them."""

    def __init__(self, recipe: Recipe) -> None:
        self._envs, self._action_map = recipe.build(threads=1), recipe.action_map

    def perform(self, shard: int, method: str, snapshot: Snapshot | None, *arguments: Any) -> Any:
        """Call a method of this class by its name, after a restore if there is a snapshot.

        Returns:
            What the method returns, or the UserError that it raised.
        """
        try:
            with quiet_gymnasium():
                if snapshot is not None:
                    self._restore(shard, snapshot)
                return getattr(self, method)(shard, *arguments)
        except UserError as error:
            return error

    def _restore(self, shard: int, snapshot: Snapshot) -> None:
        self.reset(shard, snapshot.seed)
        seen = self.bring_back(shard, snapshot.pasts)  # [n, *shape]
        expected, known = snapshot.observations, snapshot.known
        if expected is not None and not np.array_equal(seen[known], expected[known]):
            raise UserError(
                "the environments did not repeat on another worker what they did before: use the same kind of "
                "machine and the same versions for all workers"
            )

    def reset(self, shard: int, seed: int) -> np.ndarray:
        """Begin a shard's episodes from a seed: observations [n, *shape]."""
        return copied_observations(self._envs.groups[shard].reset(seed))

    def bring_back(self, shard: int, pasts: Mapping[int, Past]) -> np.ndarray:
        """Restore some environments of a shard: their observations [k, *shape]."""
        return copied_observations(self._envs.groups[shard].bring_back(pasts))

    def collect(self, shard: int, policy: Policy, observations: np.ndarray, rows: Rows) -> Columns:
        """Step a shard.

        Args:
            policy: without TensorFlow.
            observations: [n, *shape], the last ones.
        """
        steps, count = len(rows.noise) - rows.ahead, len(observations)  # K, n
        envs = _SteppedShard(shard, self._envs.groups[shard], self._action_map, observations, rows.first)
        trajectory = empty_trajectory(steps, count, observations, self._action_map.size)
        failed, timing = np.zeros((steps, count), bool), Timing()  # [K, n]
        acting, ahead = _CountedPolicy(policy, rows.given), None
        try:
            for _ in step_through(envs, acting, rows.noise[:steps], trajectory, failed, timing):
                pass
            if rows.ahead:
                ahead = acting.act(trajectory.observations[-1], rows.noise[-1])  # [n, A]
                if not np.isfinite(ahead.sum()):
                    raise NotFiniteError
        except NotFiniteError:
            t = acting.turns - 1
            fault = not_finite_action(trajectory.observations[t], self._envs.columns[shard].start, rows.first + t)
            envs.events.append(Event(rows.first + t, shard, fault))
        except UserError as error:
            envs.events.append(Event(rows.first + acting.turns, shard, error))
        return Columns({name: getattr(trajectory, name) for name in STEPPED}, failed, ahead, envs.events, timing)

    def leave(self, shard: int) -> None:
        """End a shard's environments."""
        self._envs.groups[shard].close()


class _CountedPolicy:
    """Acts with given actions [G, n, A], one row after the other, then by a policy; counts the turns."""

    def __init__(self, policy: Policy, given: np.ndarray | None) -> None:
        self._policy, self._given, self.turns = policy, () if given is None else given, 0

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        self.turns += 1
        if self.turns <= len(self._given):
            return self._given[self.turns - 1]
        return self._policy.act(observations, noise)


class _SteppedShard:
    """A shard as `step_through` steps it, from row `first` of the epoch on."""

    def __init__(self, shard: int, group: Group, action_map: ActionMap, observations: np.ndarray, first: int) -> None:
        self.groups, self.columns, self.observations = [group], [slice(0, len(observations))], [observations]
        self.action_map, self._shard, self._first = action_map, shard, first
        self.events: list[Event] = []

    def count_faults(self, group: int, t: int) -> None:
        """Keep them for the training process."""
        faults = self.groups[group].faults
        self.events += [Event(self._first + t + 1, self._shard, fault) for fault in faults]
        faults.clear()


class Runner(Protocol):
    """Who performs tasks.

    Attributes:
        interrupted: why the run should end; empty while nothing is wrong.
    """

    interrupted: str

    def share(self, value: Any) -> Any:
        """What stands for a value among the arguments of several tasks."""

    def perform(self, tasks: list[Task]) -> list[Any]:
        """What each of several tasks of different shards returned, or its UserError."""

    def close(self) -> None:
        """End all environments."""


class Here:
    """Performs tasks in this process, one after the other; see `Runner`."""

    def __init__(self, recipe: Recipe) -> None:
        self._host, self.interrupted = Host(recipe), ""
        self._stamps: dict[int, int] = {}  # of the states that the shards are in

    def share(self, value: Any) -> Any:
        """The value itself."""
        return value

    def perform(self, tasks: list[Task]) -> list[Any]:
        """See `Runner`."""
        return [self._perform(task) for task in tasks]

    def _perform(self, task: Task) -> Any:
        held = self._stamps.pop(task.shard, None)
        snapshot = task.snapshot() if task.before is not None and held != task.before else None
        value = self._host.perform(task.shard, task.method, snapshot, *task.arguments)
        if not isinstance(value, UserError):
            self._stamps[task.shard] = task.after
        return value

    def close(self) -> None:
        """End all environments."""
        for shard in self._stamps:
            self._host.leave(shard)
        self._stamps.clear()
