"""The environments of a run, an epoch at a time: trajectories, their shaped rewards, and the episodes that ended."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from common import funcs
from common.config import TrainingConfig
from common.env_wrappers import RewardDesign
from common.envs.environment import Environment
from common.envs.seeded_episodes import RestoreMethod
from common.envs.spaces import ActionMap, is_image
from common.errors import NotFiniteError, UserError
from common.records import Timing, Trajectory, empty_trajectory
from common.rollout.not_finite import check_finite
from common.rollout.policies import Policy
from common.rollout.probe import find_restore_method
from common.rollout.repeatable import RepeatableEnvs, restore_method_of
from common.rollout.scores import EpisodeScores
from common.rollout.shaping import Shaping
from common.rollout.stepping import step_through
from common.rollout.workers.envs import EnvsOnWorkers
from common.rollout.workers.shard import Recipe, Runner
from common.state import State, check_array, join_parts, load_generator, pack_generator, part_of

ShapeNoise = Callable[[np.ndarray], np.ndarray]


class Collecting(NamedTuple):
    """How a method collects."""

    per_epoch: int = 1  # trajectories that make an epoch
    rows_per_yield: int | None = None  # steps after which the method learns; None waits for the whole trajectory
    shape_noise: ShapeNoise | None = None  # standard normal numbers → exploration noise, both [T, N, X]
    restart_each_epoch: bool = False  # see `quirks` of `PPOConfig`
    output_size: int = 0  # numbers that the policy returns beside an action; see `ActorCriticPolicy`


class Collector:
    """Steps the environments of a run with a policy, a trajectory at a time; episodes continue from one to the next.

    Args:
        action_map: from policy actions to the environments'.
        seed: of the environments and of the exploration noise.
        warn: called with a line about each environment that failed, and if their seeds decide nothing.
        how: how the method collects.
        design: what is rewarded, where the config leaves that to a function.
        make_runner: makes those who step the environments; None steps them in this process.

    Attributes:
        epochs: that a state may be of.
        is_fresh: whether there is a whole trajectory from which nothing was learned yet; the method says so.
        trajectory: the one that is being filled, or was filled last.
        scores: of the episodes that ended.
        shaped: the rewards of trajectories by the config's design.
        shaped_rewards: [T, N] those of the last whole trajectory.
    """

    trajectory: Trajectory
    shaped_rewards: np.ndarray
    _fill: Callable[..., Iterator[int]]

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
        self._config, self._environment, self._action_map, self._seed = config, environment, action_map, seed
        self._warn, self._how, self._make_runner = warn, how, make_runner
        if make_runner is not None and is_image(environment.observation_space):
            raise UserError(
                f"{environment.id} shows images, which are unsupported with --workers: leave --workers out"
            )
        self.epochs = config.epochs
        steps = config.steps_per_epoch // config.num_envs  # of an epoch in each environment
        self._steps = steps // how.per_epoch  # T
        self._restart_every = default_restart_interval(environment, steps)
        self.shaped = Shaping(config, environment, design)  # it may refuse, so before environments are built
        self.scores = EpisodeScores(config.num_envs, config.score_window)
        self._collected = self.is_fresh = False
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
        self.way, self.noise = way, np.random.default_rng(noise_seed)
        if self._make_runner is None:
            self.envs = RepeatableEnvs(
                recipe.build(), self._action_map, seed, config.environment_restarts, self._warn, way
            )
            self._fill = functools.partial(step_through, self.envs)
        else:
            runner = self._make_runner(recipe)
            self.envs = on_workers = EnvsOnWorkers(recipe, runner, seed, config.environment_restarts, self._warn)
            self._fill = on_workers.fill

    def collect(
        self, policy: Policy, epoch: int, timing: Timing, on_rows: Callable[[slice], None] = lambda rows: None
    ) -> Trajectory:
        """The next trajectory, in as many attempts as the config allows.

        Args:
            policy: it may change in `on_rows`.
            epoch: how many epochs are done.
            timing: seconds are added to it.
            on_rows: called with rows of `trajectory` when they are complete. The actions of the row after them are
                chosen and sent already.

        Raises:
            NotFiniteError: an environment or the policy returned NaN or infinity.
            UserError: environments failed more often than they may.
        """
        self._prepare(epoch)
        for attempt in itertools.count(1):
            noise, resets, failed = self._begin(policy)
            trajectory, done = self.trajectory, 0
            try:
                for t in self._fill(policy, noise, trajectory, failed, timing, self._how.rows_per_yield):
                    rows = slice(done, t)
                    self._complete(rows, resets, failed)
                    if t == self._steps:
                        self.envs.remember(trajectory, resets, failed)
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
        self._underway = False
        self._use(trajectory)
        self.scores.add(trajectory, self.shaped_rewards, self._how.restart_each_epoch)
        return trajectory

    def _prepare(self, epoch: int) -> None:
        """Begin the episodes that do not continue, and let costs follow the score."""
        self.shaped.follow(self.scores.moving_mean)
        self.is_fresh = False
        if self._underway:  # the last call was interrupted, as by Jupyter's stop button
            self._restart(epoch)
        elif self._how.restart_each_epoch and (epoch > 0 or self._collected):
            self.envs.restart()
            self.scores.running_returns[:] = 0.0
        elif self.way == "history":
            self._restart_some(epoch)

    def _begin(self, policy: Policy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An empty trajectory; its noise [T, N, X], and which steps begin an episode or fail, [T, N] bool each."""
        steps, count = self._steps, self._config.num_envs
        noise = self.noise.standard_normal((steps, count, self._action_map.noise_size), np.float32)  # [T, N, X]
        if self._how.shape_noise is not None:
            noise = self._how.shape_noise(noise)  # [T, N, X]
        self.trajectory = empty_trajectory(
            steps, count, self.envs.observations[0], self._action_map.size, getattr(policy, "output_size", 0)
        )
        resets, failed = np.zeros((2, steps, count), bool)  # [T, N] each
        resets[0], self._underway = self.envs.ended, True
        return noise, resets, failed

    def _complete(self, rows: slice, resets: np.ndarray, failed: np.ndarray) -> None:
        """Fill in what follows from ends of episodes and failures, [T, N] each; check for NaN and infinity."""
        trajectory = self.trajectory
        before = self.envs.episode_steps if rows.start == 0 else trajectory.episode_steps[rows.start - 1]  # [N]
        resets[rows.start + 1 : rows.stop + 1] = trajectory.ended[rows][: len(resets) - rows.start - 1]
        trajectory.valid[rows] = ~(resets[rows] | failed[rows])  # [K, N]
        trajectory.episode_steps[rows] = funcs.episode_steps(trajectory.valid[rows], before)  # [K, N]
        check_finite(trajectory.observations[rows.start : rows.stop + 1], "observation", first=rows.start - 1)
        check_finite(trajectory.rewards[rows, :, None], "reward", first=rows.start)

    def _use(self, trajectory: Trajectory) -> None:
        """Let the method learn from a whole trajectory."""
        self.trajectory, self.shaped_rewards = trajectory, self.shaped(trajectory)
        self._collected = self.is_fresh = True

    # -- restarts --

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

    # -- state --

    def state(self) -> State:
        """Everything that changes during training; call it between two epochs."""
        trajectory = self.trajectory._asdict() if self.is_fresh else {}
        return join_parts(
            {
                "collector": self.envs.state() | {"noise": pack_generator(self.noise)},
                "trajectory": {name: array for name, array in trajectory.items() if name != "outputs" or array.size},
                "episodes": self.scores.state(),
                "fall": self.shaped.state(),
            }
        )

    def load_state(self, state: State) -> None:
        """Restore what `state` returned.

        Raises:
            UserError: the environments do not repeat what they did.
        """
        collector, trajectory = part_of(state, "collector"), part_of(state, "trajectory")
        most = (self.epochs + 1) * self._config.steps_per_epoch  # a forged number would be counted up to
        if np.max(collector["episodes"]) > most:
            raise ValueError(f"{self._environment.id} cannot have begun more than {most:,} episodes")
        if (way := restore_method_of(collector)) != self.way:
            self.close()
            self._build(way)
        self._underway = False
        load_generator(self.noise, collector["noise"])
        self.envs.load_state(collector)
        self.shaped.load_state(part_of(state, "fall"))
        if trajectory:
            self.check_trajectory(trajectory)
            none = np.empty((*trajectory["observations"].shape[:2], 0), np.float32)  # [T+1, N, 0]
            self._use(Trajectory(**{"outputs": none} | trajectory))
        self.scores.load_state(part_of(state, "episodes"))

    def check_trajectory(self, trajectory: State) -> None:
        """Raises ValueError unless its arrays are what `collect` would make."""
        shape, observation = (self._steps, self._config.num_envs), self._environment.observation_space
        dtype = np.uint8 if is_image(observation) else np.float32
        shapes = {
            "observations": ((self._steps + 1, shape[1], *observation.shape), dtype),
            "actions": ((*shape, self._action_map.size), np.float32),
            "rewards": (shape, np.float64),
            "episode_steps": (shape, np.int64),
        } | {name: (shape, np.bool_) for name in ("terminated", "truncated", "ended", "valid", "replaced")}
        if "outputs" in trajectory:
            if self._how.output_size == 0:
                raise ValueError("outputs are there, but this network returns none when it acts")
            shapes["outputs"] = ((self._steps + 1, shape[1], self._how.output_size), np.float32)
        for name, (expected, kind) in shapes.items():
            check_array(name, trajectory[name], expected, np.dtype(kind))

    def close(self) -> None:
        """End the environments."""
        self.envs.close()


def default_restart_interval(environment: Environment, steps: int) -> int:
    """Epochs that hold ten episodes of full length in each environment, and ten epochs at least.

    Only for environments that are brought back by all actions since they were built: the interval bounds how many
    these are; ten episodes keep the share that is cut small.
    """
    limit = environment.most_actions or 1000
    return max(10, -(-10 * limit // steps))
