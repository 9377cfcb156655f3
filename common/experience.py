"""What an epoch in the environments came to: its trajectory, its shaped rewards, the episodes that ended in it."""

from collections.abc import Callable

import numpy as np

from common import atari, checkpoint, funcs
from common.config import TrainingConfig
from common.env_wrappers import reward_design
from common.environment import Environment
from common.errors import NotFiniteError
from common.records import Episodes, Timing, Trajectory
from common.reward_designs import RewardDesign
from common.rollout import Behaviour, Collector, OnRows, ShapeNoise
from common.spaces import ActionMap
from common.vector_env import make_vector_env


class Experience:
    """The environments of a run, stepped an epoch at a time.

    Args:
        action_map: from policy actions to the environments'.
        seed: of the environments and of the exploration noise.
        warn: told of environments that failed.
        restart_each_epoch: the quirk of that name; see `PPOConfig`.
        collections_per_epoch: trajectories that make an epoch.
        design: what is rewarded, where the config leaves that to a function.

    Attributes:
        trajectory: of the last epoch; None before the first.
        shaped: [T, N] its rewards by the config's design; 0 where not valid.
    """

    def __init__(
        self,
        config: TrainingConfig,
        environment: Environment,
        action_map: ActionMap,
        seed: int,
        warn: Callable[[str], None] = print,
        restart_each_epoch: bool = False,
        collections_per_epoch: int = 1,
        design: RewardDesign | None = None,
    ) -> None:
        self._config, self._warn, self._restart_each_epoch = config, warn, restart_each_epoch
        steps = config.steps_per_epoch // config.num_envs  # of an epoch in each environment
        self.envs = make_vector_env(environment, config.num_envs, config.backend)
        self.collector = Collector(
            self.envs, action_map, steps // collections_per_epoch, seed, config.environment_restarts, warn
        )
        self._restart_every = config.restart_environments_every or default_restart_interval(environment, steps)
        self._reward_design = reward_design(config, environment, design)
        self._running_returns = np.zeros((2, config.num_envs))  # [2, N] of unfinished episodes
        self._recent = np.zeros((2, 0))  # [2, ≤ score_window] unshaped returns and steps of the last that ended
        self._recent_shaped = np.zeros(0)  # [≤ score_window] shaped returns of the same
        self._total_episodes = 0  # ended since training began
        self._start_epoch()
        self.trajectory: Trajectory | None = None
        self.shaped: np.ndarray | None = None

    def collect(
        self,
        behaviour: Behaviour,
        epoch: int,
        timing: Timing,
        on_rows: OnRows | None = None,
        rows_per_call: int = 1,
        shape_noise: ShapeNoise | None = None,
    ) -> None:
        """The next trajectory; `scores` tells what became of all of an epoch's.

        Args:
            epoch: how many are over; some begin with a restart of all environments.
            on_rows, rows_per_call, shape_noise: see `Collector.collect`.

        Raises:
            NotFiniteError: an environment or the policy returned NaN or infinity.
            UserError: environments failed more often than they may.
        """
        first = not self._episodes  # of the epoch
        if self.collector.must_restart or (first and epoch % self._restart_every == 0 and epoch > 0):
            self._restart(epoch)
        elif self._restart_each_epoch and (epoch > 0 or self.trajectory is not None):
            self.collector.restart()
            self._running_returns[:] = 0.0
        trajectory = self._collect_finite(
            epoch, lambda: self.collector.collect(behaviour, timing, on_rows, rows_per_call, shape_noise)
        )
        self._take_up(trajectory)
        ended = trajectory.ended  # [T, N]
        if self._restart_each_epoch:  # the quirk: what is cut counts as whole
            ended = ended.copy()  # [T, N]
            ended[-1] |= trajectory.valid[-1]
        episodes, self._running_returns = funcs.finished_episodes(
            self.shaped, trajectory.rewards, ended, trajectory.episode_steps, self._running_returns
        )
        self._episodes.append(episodes)
        self._total_reward += float(self.shaped.sum())
        self._total_reward_orig += float(trajectory.rewards[trajectory.valid].sum())
        ended_now = np.stack([episodes.original_returns, episodes.lengths])  # [2, episodes]
        window = self._config.score_window
        self._recent = np.concatenate([self._recent, ended_now], axis=1)[:, -window:]
        self._recent_shaped = np.concatenate([self._recent_shaped, episodes.returns])[-window:]
        self._total_episodes += len(episodes.lengths)

    def _start_epoch(self) -> None:
        """Nothing is collected of it."""
        self._episodes: list[Episodes] = []  # a trajectory each
        self._total_reward = self._total_reward_orig = 0.0

    def _restart(self, epoch: int, attempt: int = 0) -> None:
        when = [epoch, attempt, len(self._episodes)]  # zeros at the end do not count
        seed = np.random.SeedSequence([self._config.seed, *when]).generate_state(1)[0]
        self.collector.restart(int(seed))
        self._running_returns[:] = 0.0

    def _collect_finite(self, epoch: int, collect: Callable[[], Trajectory]) -> Trajectory:
        """A trajectory without NaN or infinity, in as many attempts as the config allows."""
        attempt = 0
        while True:
            try:
                return collect()
            except NotFiniteError as error:
                attempt += 1
                if self._config.on_not_finite == "stop" or attempt > self._config.environment_restarts:
                    raise
                self._warn(f"warning: {error}; the epoch is collected anew")
                self._restart(epoch, attempt)

    def _take_up(self, trajectory: Trajectory) -> None:
        """Make a trajectory the last one."""
        self.trajectory = trajectory
        shaped = self.shape(
            trajectory.rewards, trajectory.terminated, trajectory.truncated, trajectory.episode_steps
        )  # [T, N]
        self.shaped = np.where(trajectory.valid, shaped, 0.0)  # [T, N]

    def shape(
        self, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, episode_steps: np.ndarray
    ) -> np.ndarray:
        """Rewards by the config's design; all arrays of one shape, episodes' steps counted from 1."""
        return self._reward_design(rewards, terminated, truncated, episode_steps)

    def training_metrics(self) -> dict[str, float]:
        """What `best_metric` may name besides validation, of what was collected since the last call of `scores`.

        NaN until `score_window` episodes have finished. Means are over the episodes that finished in the epoch, or
        over the last `score_window` where fewer did; they are NaN where none did.
        """
        names = ("total_reward", "mean_episode_reward", "reward_times_steps")
        if len(self._recent_shaped) < self._config.score_window:
            return dict.fromkeys(names, float("nan"))
        episodes = self._episodes_of_the_epoch()
        returns, lengths = episodes.returns, episodes.lengths  # [E], [E]
        if 0 < len(returns) < self._config.score_window:
            returns, lengths = self._recent_shaped, self._recent[1]  # [score_window], [score_window]
        mean, mean_steps = (float(column.mean()) if len(column) else float("nan") for column in (returns, lengths))
        return dict(zip(names, (self._total_reward, mean, mean * mean_steps)))

    def _episodes_of_the_epoch(self) -> Episodes:
        return Episodes(*(np.concatenate(columns) for columns in zip(*self._episodes)))

    def scores(self) -> dict[str, float]:
        """The columns of `EpochResult` that say how well everything went that was collected since the last call."""
        episodes = self._episodes_of_the_epoch()
        mean = {
            name: float(column.mean()) if len(column) else float("nan")
            for name, column in zip(Episodes._fields, episodes)
        }
        enough = self._recent.shape[1] == self._config.score_window
        score, score_steps = (float(row.mean()) if enough else float("nan") for row in self._recent)
        columns = {
            "total_reward": self._total_reward,
            "total_reward_orig": self._total_reward_orig,
            "avg_reward": mean["returns"],
            "avg_reward_orig": mean["original_returns"],
            "avg_steps": mean["lengths"],
            "max_steps": float(episodes.lengths.max()) if len(episodes.lengths) else float("nan"),
            "episodes": len(episodes.lengths),
            "score": score,
            "score_steps": score_steps,
            "total_episodes": self._total_episodes,
        }
        self._start_epoch()
        return columns

    # -- state --

    def state(self) -> checkpoint.State:
        """Everything that changes, between two epochs: right after `scores`."""
        return checkpoint.join(
            {
                "collector": self.collector.state(),
                "trajectory": {} if self.trajectory is None else self.trajectory._asdict(),
                "episodes": {
                    "running_returns": self._running_returns,
                    "recent": self._recent,
                    "recent_shaped": self._recent_shaped,
                    "total": np.int64(self._total_episodes),
                },
            }
        )

    def load_state(self, state: checkpoint.State) -> None:
        """Take over what `state` returned.

        Raises:
            UserError: the environments do not repeat what they did.
        """
        self.collector.load_state(checkpoint.part(state, "collector"))
        trajectory = checkpoint.part(state, "trajectory")
        if trajectory:
            if "ended" not in trajectory:  # written before lives were told from episodes
                trajectory["ended"] = trajectory["terminated"] | trajectory["truncated"]  # [T, N]
            self._take_up(Trajectory(**trajectory))
        self._running_returns = state["episodes/running_returns"].copy()
        recent = np.array(state.get("episodes/recent", np.zeros((2, 0))), np.float64)  # [2, ≤ score_window]
        # Before their steps were kept, too, it was returns alone; the window fills anew.
        self._recent = recent if recent.ndim == 2 else np.zeros((2, 0))
        self._recent_shaped = np.array(
            state.get("episodes/recent_shaped", np.zeros(0)), np.float64
        )  # [≤ score_window]
        self._total_episodes = int(state.get("episodes/total", 0))
        self._start_epoch()

    def close(self) -> None:
        """End the environments."""
        self.envs.close()


def default_restart_interval(environment: Environment, steps: int) -> int:
    """Epochs that hold ten episodes of full length in each environment, and ten epochs at least.

    A resumed run repeats the steps since the last restart, so the interval bounds the wait; ten
    episodes keep the share that is cut small.
    """
    limit = environment.max_episode_steps or 1000
    if environment.atari_game is not None:
        limit = min(limit, atari.LONG_GAME)
    return max(10, -(-10 * limit // steps))
