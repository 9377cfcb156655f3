"""The environments of a run, an epoch at a time: trajectories, their shaped rewards, and the episodes that ended."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from common import funcs
from common.config import TrainingConfig
from common.env_wrappers import RewardDesign
from common.envs.environment import Environment
from common.envs.logged_info import LoggedInfo
from common.envs.seeded_episodes import RestoreMethod
from common.envs.spaces import ActionMap
from common.errors import NotFiniteError
from common.records import Timing, Trajectory, empty_trajectory
from common.rollout.not_finite import not_finite_step
from common.rollout.policies import Policy
from common.rollout.probe import find_restore_method
from common.rollout.repeatable import RepeatableEnvs
from common.rollout.rewards import EpisodeStatistics, Shaping
from common.rollout.stepping import Filling, restore_method_of
from common.rollout.workers.envs import EnvsOnWorkers
from common.rollout.workers.shard import Recipe
from common.state import State, join_parts, load_generator, pack_generator, part_of

ShapeNoise = Callable[[np.ndarray], np.ndarray]


class CollectingPlan(NamedTuple):
    """How a method collects."""

    per_epoch: int = 1  # trajectories that make an epoch
    rows_per_yield: int | None = None  # steps after which the method learns; None waits for the whole trajectory
    shape_noise: ShapeNoise | None = None  # standard normal numbers → exploration noise, both [T, N, X]
    restart_each_epoch: bool = False  # see `quirks` of `PPOConfig`
    output_size: int = 0  # numbers that the policy returns beside an action; see `ActorCriticPolicy`
    memory_size: int = 0  # Z, numbers that the networks remember of an episode, the policy's first


class Collector:
    """Steps the environments of a run with a policy, a trajectory at a time; episodes continue from one to the next.

    Args:
        seed: of the environments and of the exploration noise.
        warn: called with a line about each environment that failed, and if their seeds decide nothing.
        design: what is rewarded, where the config leaves that to a function.
        make_team: makes the workers that step the environments; None steps them in this process.
    """

    trajectory: Trajectory  # that is being filled, or was filled last
    shaped_rewards: np.ndarray  # [T, N], of the last whole trajectory

    def __init__(
        self,
        config: TrainingConfig,
        environment: Environment,
        action_map: ActionMap,
        seed: int,
        warn: Callable[[str], None] = print,
        how: CollectingPlan = CollectingPlan(),  # noqa: B008  (it is immutable)
        design: RewardDesign | None = None,
        make_team: Callable[[Recipe], Any] | None = None,
    ) -> None:
        self._config, self._environment, self._action_map, self._seed = config, environment, action_map, seed
        self._warn, self._how, self._make_team = warn, how, make_team
        self.epochs = config.epochs  # that a state may be of
        steps = config.steps_per_epoch // config.num_envs  # of an epoch in each environment
        self._steps = steps // how.per_epoch  # T
        self._restart_every = default_restart_interval(environment, steps)
        self.shaped = Shaping(config, environment, design)  # it may refuse, so before environments are built
        infos = LoggedInfo(config.log_info, warn) if config.log_info else None
        self.scores = EpisodeStatistics(config.num_envs, config.score_window, infos)
        self._collected = self.is_fresh = False  # there is a whole trajectory; nothing was learned from it yet
        self._underway = False  # a trajectory was begun and is not whole
        self._build(
            find_restore_method(
                environment, config.backend, action_map, config.environment_time_limit, warn, config.num_envs
            )
        )

    def _build(self, way: RestoreMethod) -> None:
        """Build environments that can be restored in this way, and the generator of the exploration noise."""
        config = self._config
        recipe = Recipe(
            self._environment, config.num_envs, config.backend, config.shards, way, config.environment_time_limit,
            self._action_map,
        )  # fmt: skip
        seed, noise_seed = (int(s) for s in np.random.SeedSequence(self._seed).generate_state(2))
        self.noise = np.random.default_rng(noise_seed)
        make: Callable[..., RepeatableEnvs] = RepeatableEnvs
        if self._make_team is not None:
            make = partial(EnvsOnWorkers, self._make_team(recipe))
        self.envs = make(recipe, seed, config.environment_restarts, self._warn)
        self.envs.record.memory = np.zeros((config.num_envs, self._how.memory_size), np.float32)

    def collect(
        self, policy: Policy, epoch: int, timing: Timing, on_rows: Callable[[slice], None] = lambda rows: None
    ) -> Trajectory:
        """The next trajectory, in as many attempts as the config allows, with a policy that may change in `on_rows`.

        Args:
            epoch: how many epochs are done.
            on_rows: called with rows of `trajectory` when they are complete. The actions of the row after them are
                chosen and sent already.

        Raises:
            NotFiniteError: an environment or the policy returned NaN or infinity.
            UserError: environments failed more often than they may.
        """
        self._prepare(epoch)
        for attempt in itertools.count(1):
            filling, record, done = self._begin(policy, timing), self.envs.record, 0
            before = record.ended, record.episode_steps
            try:
                for t in self.envs.fill(policy, filling):
                    rows = slice(done, t)
                    self._complete(rows, filling.failed, *before)
                    on_rows(rows)
                    done = t
                break
            except NotFiniteError as error:
                if self._config.on_not_finite == "stop":
                    raise
                if attempt > self._config.environment_restarts:
                    raise NotFiniteError(f"{error.fault}; attempts at this epoch that failed: {attempt}") from None
                self._warn(f"warning: {error.fault}; the epoch is collected again")
                self._restart(epoch, attempt)
        record.episode_steps = self.trajectory.episode_steps[-1].copy()
        self._underway = False
        self._use(self.trajectory)
        self.scores.add(self.trajectory, self.shaped_rewards, self._how.restart_each_epoch)
        return self.trajectory

    def _prepare(self, epoch: int) -> None:
        """Begin the episodes that do not continue, and let costs follow the score."""
        self.shaped.follow(self.scores.moving_mean)
        self.is_fresh = False
        if self._underway:  # the last call was interrupted, as by Jupyter's stop button
            self._restart(epoch)
        elif self._how.restart_each_epoch and (epoch > 0 or self._collected):
            self.envs.restart()
            self.scores.running_returns[:] = 0.0
        elif self.envs.record.way == "history":
            self._restart_some(epoch)

    def _begin(self, policy: Policy, timing: Timing) -> Filling:
        """An empty trajectory, and the noise that explores in it."""
        shape = self._steps, self._config.num_envs
        noise = self.noise.standard_normal((*shape, self._action_map.noise_size), np.float32)  # [T, N, X]
        if self._how.shape_noise is not None:
            noise = self._how.shape_noise(noise)  # [T, N, X]
        self.trajectory = self._empty_trajectory(getattr(policy, "output_size", 0))
        self._underway = True
        return Filling(self.trajectory, np.zeros(shape, bool), noise, timing, self._how.rows_per_yield)

    def _empty_trajectory(self, output_size: int) -> Trajectory:
        seen, memory = self.envs.record.observations[0], self.envs.record.memory.copy()
        empty = empty_trajectory(self._steps, self._config.num_envs, seen, self._action_map.size, output_size)
        infos = np.full((self._steps, self._config.num_envs, len(self._config.log_info)), np.nan)
        return empty._replace(memory=memory, infos=infos)

    def _complete(self, rows: slice, failed: np.ndarray, ended: np.ndarray, steps: np.ndarray) -> None:
        """Fill in what follows from ends of episodes and from failures in K rows; check for NaN and infinity."""
        trajectory, first = self.trajectory, rows.start
        if first > 0:  # else those of the row before the trajectory
            ended, steps = trajectory.ended[first - 1], trajectory.episode_steps[first - 1]  # [N], [N]
        resets = np.concatenate([ended[None], trajectory.ended[rows][:-1]])  # [K, N]
        trajectory.valid[rows] = ~(resets | failed[rows])  # [K, N]
        trajectory.episode_steps[rows] = funcs.episode_steps(trajectory.valid[rows], steps)  # [K, N]
        seen, rewards = trajectory.observations[first : rows.stop + 1], trajectory.rewards[rows]  # [K + 1, N, ...]
        whole = np.issubdtype(seen.dtype, np.integer)  # as those of images, which are finite
        if not (whole or np.isfinite(seen).all()) or not np.isfinite(rewards).all():
            raise not_finite_step(seen, rewards, first)

    def _use(self, trajectory: Trajectory) -> None:
        self.trajectory, self.shaped_rewards = trajectory, self.shaped(trajectory)
        self._collected = self.is_fresh = True

    # -- restarts --

    def _restart_some(self, epoch: int) -> None:
        """Build those environments again whose turn it is at this epoch, or whose history cannot be repeated."""
        restarted = self.envs.restart_lost()  # [N]
        if not self.scores.of_epoch and epoch > 0:  # before the epoch's first trajectory
            every, count = self._restart_every, len(self.envs.parts)
            turns = (every * (i + 1) // count for i in range(count))
            due = [i for i, turn in enumerate(turns) if (epoch - turn) % every == 0]
            restarted |= self.envs.restart_parts(due)
        self.scores.running_returns[:, restarted] = 0.0

    def _restart(self, epoch: int, attempt: int = 0) -> None:
        when = [epoch, attempt, len(self.scores.of_epoch)]  # zeros at the end do not count
        seed = np.random.SeedSequence([self._config.seed, *when]).generate_state(1)[0]
        self.envs.restart(int(seed))
        self.scores.running_returns[:] = 0.0

    def remember(self, memory: np.ndarray) -> None:
        """Continue the running episodes with this memory [N, Z] of all networks; those that begin anew have none."""
        record = self.envs.record
        record.memory[:] = np.where(record.episode_steps[:, None] > 0, memory, 0.0)

    @contextlib.contextmanager
    def aside(self, epoch: int) -> Iterator[None]:
        """Within the context the environments are closed; then their next episodes begin."""
        self.envs.close()
        try:
            yield
        finally:
            self._restart(epoch)

    # -- state --

    def state(self) -> State:
        """Everything that changes during training; call it between two epochs."""
        trajectory = self.trajectory._replace(infos=np.empty(0))._asdict() if self.is_fresh else {}
        return join_parts(
            {
                "collector": self.envs.state() | {"noise": pack_generator(self.noise)},
                "trajectory": {name: array for name, array in trajectory.items() if array.size},
                "episodes": self.scores.state(),
                "fall": self.shaped.state(),
            }
        )

    def load_state(self, state: State) -> None:
        """Restore what `state` returned. Raises UserError if the environments do not repeat what they did."""
        collector, trajectory = part_of(state, "collector"), part_of(state, "trajectory")
        most = (self.epochs + 1) * self._config.steps_per_epoch  # a forged number would be counted up to
        if np.max(collector["episodes"]) > most:
            raise ValueError(f"{self._environment.id} cannot have begun more than {most:,} episodes")
        if (way := restore_method_of(collector)) != self.envs.record.way:
            self.close()
            self._build(way)
        self._underway = False
        load_generator(self.noise, collector["noise"])
        self.envs.load_state(collector)
        self.shaped.load_state(part_of(state, "fall"))
        if trajectory:
            self.check_trajectory(trajectory)
            empty = self._empty_trajectory(0)
            self._use(Trajectory(**{"outputs": empty.outputs, "memory": empty.memory} | trajectory))
        self.scores.load_state(part_of(state, "episodes"))

    def check_trajectory(self, trajectory: State) -> None:
        """Raises ValueError unless its arrays are those of `collect`; empty ones and `outputs` may be missing."""
        for name, expected in self._empty_trajectory(self._how.output_size)._asdict().items():
            if name not in trajectory and (name in ("outputs", "infos") or not expected.size):
                continue
            array = trajectory[name]
            if (array.shape, array.dtype) != (expected.shape, expected.dtype):
                raise ValueError(f"{name} is {array.dtype} {array.shape}, expected {expected.dtype} {expected.shape}")

    def close(self) -> None:
        """End the environments."""
        self.envs.close()


def default_restart_interval(environment: Environment, steps: int) -> int:
    """Epochs that hold ten episodes of full length in each environment, and ten epochs at least.

    Only for environments that are restored by all actions since they were built: the interval bounds how many
    these are; ten episodes keep the share that is cut small.
    """
    limit = environment.most_actions or 1000
    return max(10, -(-10 * limit // steps))
