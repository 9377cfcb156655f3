"""An epoch in the environments: its trajectory, its shaped rewards, and the episodes that ended in it."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from common.config import TrainingConfig
from common.env_wrappers import RewardDesign
from common.envs.environment import Environment
from common.envs.seeded_episodes import Way
from common.envs.spaces import ActionMap, is_image
from common.errors import NotFiniteError, UserError
from common.records import Timing, Trajectory
from common.rollout.collector import Collector, ShapeNoise
from common.rollout.policies import Policy
from common.rollout.probe import find_way
from common.rollout.repeatable import RepeatableEnvs, way_of
from common.rollout.scores import EpisodeScores
from common.rollout.shaping import Shaping
from common.rollout.workers.envs import EnvsOnWorkers
from common.rollout.workers.shard import Here, Recipe, Runner
from common.state import State, check_array, join_parts, part_of


class Collecting(NamedTuple):
    """How a method collects."""

    per_epoch: int = 1  # trajectories that make an epoch
    rows_per_yield: int | None = None  # steps after which the method learns; None waits for the whole trajectory
    shape_noise: ShapeNoise | None = None  # see `Collector`
    restart_each_epoch: bool = False  # see `epoch_end` of `PPOConfig`
    policy_lag: int = 0  # 1: the next rows are stepped while the method learns; see `OffPolicyConfig`
    output_size: int = 0  # numbers that the policy returns beside an action; see `JudgingPolicy`


class Experience:
    """The environments of a run, stepped an epoch at a time, and the episodes that ended in them.

    Args:
        action_map: from policy actions to the environments'.
        seed: of the environments and of the exploration noise.
        warn: called with a line about each environment that failed, and if their seeds decide nothing.
        how: how the method collects.
        design: what is rewarded, where the config leaves that to a function.
        make_runner: makes those who step the environments; None steps them in this process, one step after another.

    Attributes:
        epochs: that a state may be of.
        collected: whether there is a trajectory.
        is_fresh: whether there is one from which nothing was learned yet; a method that learns from it says so.
        trajectory: the last whole one.
        scores: of the episodes that ended.
        shaped: the rewards of trajectories by the config's design.
        shaped_rewards: [T, N] those of the last trajectory.
    """

    trajectory: Trajectory
    shaped_rewards: np.ndarray

    def __init__(
        self,
        config: TrainingConfig,
        environment: Environment,
        action_map: ActionMap,
        seed: int,
        warn: Callable[[str], None] = print,
        how: Collecting = Collecting(),  # noqa: B008  (it is immutable)
        design: RewardDesign | None = None,
        make_runner: Callable[[Recipe], Runner] | None = None,
    ) -> None:
        self._config, self._warn, self._how = config, warn, how
        self.epochs = config.epochs
        self._make_runner = Here if make_runner is None and how.policy_lag else make_runner
        self._environment, self._action_map, self._seed = environment, action_map, seed
        if make_runner is not None:
            _check_spreads(environment)
        steps = config.steps_per_epoch // config.num_envs  # of an epoch in each environment
        self._steps = steps // how.per_epoch
        self.shaped = Shaping(config, environment, design)  # it may refuse, so before environments are built
        self._build(
            find_way(
                environment, config.backend, action_map, config.environment_time_limit, self._warn, config.num_envs
            )
        )
        self._restart_every = default_restart_interval(environment, steps)
        self.scores = EpisodeScores(config.num_envs, config.score_window)
        self.collected = self.is_fresh = False

    def _build(self, way: Way) -> None:
        """Build environments that can be restored in this way, and their collector."""
        config, action_map = self._config, self._action_map
        self.way = way
        recipe = Recipe(
            self._environment, config.num_envs, config.backend, config.shards, way, config.environment_time_limit,
            action_map,
        )  # fmt: skip
        seed, noise_seed = (int(s) for s in np.random.SeedSequence(self._seed).generate_state(2))
        fill = None
        if self._make_runner is None:
            self.envs = RepeatableEnvs(recipe.build(), action_map, seed, config.environment_restarts, self._warn, way)
        else:
            runner = self._make_runner(recipe)
            self.envs = on_workers = EnvsOnWorkers(recipe, runner, seed, config.environment_restarts, self._warn)
            fill = functools.partial(on_workers.fill, lag=self._how.policy_lag)
        self.collector = Collector(
            self.envs, self._steps, action_map.size, action_map.noise_size, noise_seed, self._how.shape_noise, fill
        )

    def collect(self, policy: Policy, epoch: int, timing: Timing) -> Iterator[slice]:
        """The next trajectory, in as many attempts as the config allows.

        Args:
            epoch: how many epochs are done.

        Yields:
            Rows that are complete in `collector.trajectory`; see `Collector.collect`.

        Raises:
            NotFiniteError: an environment or the policy returned NaN or infinity.
            UserError: environments failed more often than they may.
        """
        self.shaped.follow(self.scores.moving_mean)
        self.is_fresh = False
        if self.collector.underway:  # the last call was interrupted, as by Jupyter's stop button
            self._restart(epoch)
        elif self._how.restart_each_epoch and (epoch > 0 or self.collected):
            self.envs.restart()
            self.scores.running_returns[:] = 0.0
        elif self.way == "history":
            self._restart_some(epoch)
        for attempt in itertools.count(1):
            try:
                yield from self.collector.collect(policy, timing, self._how.rows_per_yield)
                break
            except NotFiniteError as error:
                if self._config.on_not_finite == "stop":
                    raise
                if attempt > self._config.environment_restarts:
                    raise NotFiniteError(f"{error.fault}; attempts at this epoch that failed: {attempt}") from None
                self._warn(f"warning: {error.fault}; the epoch is collected again")
                self._restart(epoch, attempt)
        self._take_up(self.collector.trajectory)
        self.scores.add(self.trajectory, self.shaped_rewards, self._how.restart_each_epoch)

    def collect_whole(self, policy: Policy, epoch: int, timing: Timing) -> Trajectory:
        """`collect`, for methods that learn between trajectories only."""
        for _ in self.collect(policy, epoch, timing):
            pass
        return self.trajectory

    def _restart_some(self, epoch: int) -> None:
        """Build those environments again whose turn it is at this epoch, or whose history cannot be repeated."""
        restarted = self.envs.restart_lost()  # [N]
        if not self.scores.of_epoch and epoch > 0:  # before the epoch's first trajectory
            every, count = self._restart_every, len(self.envs.parts)
            turns = (every * (i + 1) // count for i in range(count))
            due = [i for i, turn in enumerate(turns) if (epoch - turn) % every == 0 and epoch >= turn]
            restarted |= self.envs.restart_parts(due)
        self.scores.running_returns[:, restarted] = 0.0

    def _restart(self, epoch: int, attempt: int = 0) -> None:
        when = [epoch, attempt, len(self.scores.of_epoch)]  # zeros at the end do not count
        seed = np.random.SeedSequence([self._config.seed, *when]).generate_state(1)[0]
        self.envs.restart(int(seed))
        self.scores.running_returns[:] = 0.0

    @contextlib.contextmanager
    def aside(self, epoch: int) -> Iterator[None]:
        """Within the context the environments are closed; then their next episodes begin."""
        self.envs.close()
        try:
            yield
        finally:
            self._restart(epoch)

    def check_trajectory(self, trajectory: State) -> None:
        """Raises ValueError unless its arrays are what `collect` would make."""
        steps, count = self._steps, self._config.num_envs
        observation, bits = (
            self._environment.observation_space,
            ("terminated", "truncated", "ended", "valid", "replaced"),
        )
        images = is_image(observation)
        shapes = {
            "observations": ((steps + 1, count, *observation.shape), np.uint8 if images else np.float32),
            "actions": ((steps, count, self._action_map.size), np.float32),
            "rewards": ((steps, count), np.float64),
            "episode_steps": ((steps, count), np.int64),
        } | {name: ((steps, count), np.bool_) for name in bits}
        if "outputs" in trajectory:
            if self._how.output_size == 0:
                raise ValueError("outputs are there, but this network returns none when it acts")
            shapes["outputs"] = ((steps + 1, count, self._how.output_size), np.float32)
        for name, (shape, dtype) in shapes.items():
            check_array(name, trajectory[name], shape, np.dtype(dtype))

    def _take_up(self, trajectory: Trajectory) -> None:
        """Store a trajectory as the last one, with its shaped rewards."""
        self.trajectory, self.shaped_rewards = trajectory, self.shaped(trajectory)
        self.collected = self.is_fresh = True

    # -- state --

    def state(self) -> State:
        """Everything that changes during training; call it between two epochs."""
        return join_parts(
            {
                "collector": self.collector.state(),
                "trajectory": self._trajectory_state() if self.is_fresh else {},
                "episodes": self.scores.state(),
                "fall": self.shaped.state(),
            }
        )

    def _trajectory_state(self) -> State:
        """The last trajectory's arrays; `outputs` only where there are some."""
        return {name: array for name, array in self.trajectory._asdict().items() if name != "outputs" or array.size}

    def load_state(self, state: State) -> None:
        """Restore what `state` returned.

        Raises:
            UserError: the environments do not repeat what they did.
        """
        collector = part_of(state, "collector")
        most = (self.epochs + 1) * self._config.steps_per_epoch  # a forged number would be counted up to
        if np.max(collector.get("episodes", 0)) > most:
            raise ValueError(f"{self._environment.id} cannot have begun more than {most:,} episodes")
        way = way_of(collector) if "way" in collector else "history"  # of format 1, for as long as its episodes last
        if way != self.way:
            self.close()
            self._build(way)
        self.collector.load_state(collector)
        self.shaped.load_state(part_of(state, "fall"))
        trajectory = part_of(state, "trajectory")
        if trajectory:
            if "ended" not in trajectory:  # older versions did not distinguish lives from episodes
                trajectory["ended"] = trajectory["terminated"] | trajectory["truncated"]  # [T, N]
            if "replaced" not in trajectory:  # older versions did not record replaced actions
                trajectory["replaced"] = np.zeros_like(trajectory["valid"])  # [T, N]
            self.check_trajectory(trajectory)
            if "outputs" not in trajectory:  # there are none, or an older version asked the network again
                trajectory["outputs"] = np.empty((*trajectory["observations"].shape[:2], 0), np.float32)  # [T+1, N, 0]
            self._take_up(Trajectory(**trajectory))
        self.scores.load_state(part_of(state, "episodes"))

    @property
    def interrupted(self) -> str:
        """Why the run should end after this epoch; empty while nothing is wrong."""
        return self.envs.interrupted

    def close(self) -> None:
        """End the environments."""
        self.envs.close()


def _check_spreads(environment: Environment) -> None:
    """Raises UserError for what workers cannot collect."""
    if is_image(environment.observation_space):
        raise UserError(
            f"{environment.id} shows images, for which the policy acts in TensorFlow, and workers have none: "
            "leave --workers out"
        )


def default_restart_interval(environment: Environment, steps: int) -> int:
    """Epochs that hold ten episodes of full length in each environment, and ten epochs at least.

    Only for environments that are brought back by all actions since they were built: the interval bounds how many
    these are; ten episodes keep the share that is cut small.
    """
    limit = environment.most_actions or 1000
    return max(10, -(-10 * limit // steps))
