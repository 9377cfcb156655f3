"""What a worker does with its shards: plain functions of what the training process sends, without Ray."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from common.config import TrainingConfig
from common.envs.environment import Environment
from common.envs.groups import Fault, quiet_gymnasium
from common.envs.seeded_episodes import RestoreMethod, RestorePoint
from common.envs.spaces import ActionMap, is_image
from common.envs.vector_env import VectorEnv, copied_observations, make_vector_env
from common.errors import NotFiniteError, UserError
from common.records import Timing, empty_trajectory
from common.rollout.not_finite import not_finite_action
from common.rollout.policies import Policy
from common.rollout.stepping import Filling, Stepped, step_through

# Shards of a run that does not say how many. A policy is called once per shard and step, so cheap environments would
# notice more than a few; workers gain by many, which share the work evenly.
WITH_WORKERS = 16
WITHOUT = 4
# Of a trajectory, what stepping fills in.
STEPPED = ("observations", "actions", "rewards", "terminated", "truncated", "ended", "replaced", "infos")


def shards_for_workers(config: TrainingConfig) -> int:
    """How many shards a new run with workers has."""
    return config.shards or min(config.num_envs, WITH_WORKERS)


def resolve_shards(config: TrainingConfig, backend: str, environment: Environment) -> int | None:
    """How many any run has: some where `--backend auto` stands for Gymnasium, so that workers may step them later.

    None means as many as the backend's environments come in.
    """
    if config.shards is not None:
        return config.shards
    divides = config.backend == "auto" and backend == "gymnasium" and not is_image(environment.observation_space)
    return min(config.num_envs, WITHOUT) if divides else None


class Recipe(NamedTuple):
    """How the environments of a run are built; a shard is one group of them."""

    environment: Environment
    num_envs: int
    backend: str
    shards: int | None
    way: RestoreMethod
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
    points: Mapping[int, RestorePoint]  # of every environment, by its index in the group
    observations: np.ndarray | None  # [n, *shape] that it must return; None if they are not known
    known: np.ndarray  # [n] bool: of these environments

    @property
    def steps(self) -> int:
        """How many a restore makes."""
        return sum(len(point.actions) for point in self.points.values())


class Task(NamedTuple):
    """Something to do with a shard. It may be done again, by another worker that restores the shard first."""

    shard: int
    method: str  # of `ShardRunner`: "reset", "restore" or "collect"
    arguments: tuple[Any, ...]  # of the method, without shard and policy

    @property
    def steps(self) -> int:
        """How many it makes in all environments."""
        return int(np.prod(self.arguments[1].noise.shape[:2])) if self.method == "collect" else 0


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
    ended: np.ndarray  # [n] bool, whether the last observations are the final ones of their episodes
    memory: np.ndarray  # [n, Z] of the policy
    given: np.ndarray | None = None  # [G, n, A] actions of the first rows; the policy chooses the others


class Columns(NamedTuple):
    """Collected rows of a shard."""

    stepped: dict[str, np.ndarray]  # name in STEPPED → its columns [K, n, ...]
    failed: np.ndarray  # [K, n] bool
    ahead: np.ndarray | None  # [n, A] actions of the row after them
    memory: np.ndarray  # [n, Z] of the policy after them
    events: list[Event]
    timing: Timing

    @property
    def seconds_a_step(self) -> float:
        """Of one environment, that of the policy included."""
        return (self.timing.environment + self.timing.policy) / max(1, self.failed.size)


class ShardRunner:
    """Holds shards and steps them."""

    def __init__(self, recipe: Recipe) -> None:
        self._envs, self._action_map = recipe.build(threads=1), recipe.action_map
        self._info_size = len(recipe.environment.log_info)

    def perform(self, task: Task, snapshot: Snapshot | None, policy: Policy | None) -> Any:
        """What the task's method returns, or the UserError that it raised; a snapshot is restored before."""
        given = () if policy is None else (policy,)
        try:
            with quiet_gymnasium():
                if snapshot is not None:
                    self._restore_snapshot(task.shard, snapshot)
                return getattr(self, task.method)(task.shard, *given, *task.arguments)
        except UserError as error:
            return error

    def _restore_snapshot(self, shard: int, snapshot: Snapshot) -> None:
        self.reset(shard, snapshot.seed)
        seen, known = self.restore(shard, snapshot.points), snapshot.known  # [n, *shape], [n]
        if snapshot.observations is not None and not np.array_equal(seen[known], snapshot.observations[known]):
            raise UserError(
                "the environments did not repeat on another worker what they did before: use the same kind of "
                "machine and the same versions for all workers"
            )

    def reset(self, shard: int, seed: int) -> np.ndarray:
        """Begin a shard's episodes from a seed: observations [n, *shape]."""
        return copied_observations(self._envs.groups[shard].reset(seed))

    def restore(self, shard: int, points: Mapping[int, RestorePoint]) -> np.ndarray:
        """Restore some environments of a shard: their observations [k, *shape]."""
        return copied_observations(self._envs.groups[shard].restore(points))

    def collect(self, shard: int, policy: Policy, observations: np.ndarray, rows: Rows) -> Columns:
        """Step a shard with a policy without TensorFlow, from the last observations [n, *shape] on."""
        steps, count, group = len(rows.noise) - rows.ahead, len(observations), self._envs.groups[shard]  # K, n
        trajectory = empty_trajectory(steps, count, observations, self._action_map.size)
        trajectory = trajectory._replace(infos=np.full((steps, count, self._info_size), np.nan))
        failed, timing = np.zeros((steps, count), bool), Timing()  # [K, n]
        acting, ahead = _CountedPolicy(policy, rows.given), None
        events: list[Event] = []

        def keep_faults(_: int, t: int) -> None:
            events.extend(Event(rows.first + t + 1, shard, fault) for fault in group.faults)
            group.faults.clear()

        memory = np.array(rows.memory)  # what Ray gives cannot be written to
        columns = [slice(0, count)]
        envs = Stepped([group], columns, [observations], rows.ended, memory, self._action_map, keep_faults)
        try:
            for _ in step_through(envs, acting, Filling(trajectory, failed, rows.noise[:steps], timing)):
                pass
            if rows.ahead:
                ahead = acting.act(trajectory.observations[-1], rows.noise[-1])  # [n, A]
                if not np.isfinite(ahead.sum()):
                    raise NotFiniteError
        except NotFiniteError:
            t = acting.turns - 1
            fault = not_finite_action(trajectory.observations[t], self._envs.columns[shard].start, rows.first + t)
            events.append(Event(rows.first + t, shard, fault))
        except UserError as error:
            events.append(Event(rows.first + acting.turns, shard, error))
        return Columns({name: getattr(trajectory, name) for name in STEPPED}, failed, ahead, memory, events, timing)

    def leave(self, shard: int) -> None:
        """End a shard's environments."""
        self._envs.groups[shard].close()


class _CountedPolicy:
    """Acts with given actions [G, n, A], one row after the other, then by a policy; counts the turns."""

    def __init__(self, policy: Policy, given: np.ndarray | None) -> None:
        self._policy, self._given, self.turns = policy, () if given is None else given, 0

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None, *memory: np.ndarray) -> np.ndarray:
        self.turns += 1
        if self.turns <= len(self._given):
            return self._given[self.turns - 1]
        return self._policy.act(observations, noise, *memory)
