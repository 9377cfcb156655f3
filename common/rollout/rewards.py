"""What rewards amount to: the shaped ones that an agent learns from, and the returns of finished episodes."""

import math

import numpy as np

from common.config import TrainingConfig, costs_by_score
from common.env_wrappers import RewardDesign, reward_design
from common.envs.environment import Environment
from common.envs.logged_info import LoggedInfo
from common.envs.spaces import BoxMap, action_map
from common.errors import UserError
from common.records import Episodes, Trajectory
from common.state import State

NAN = float("nan")


class Shaping:
    """Shapes the rewards of trajectories as the config says: a design's, less costs that may grow with the score.

    Raises UserError for a cost of actions that are choices.
    """

    def __init__(self, config: TrainingConfig, environment: Environment, design: RewardDesign | None = None) -> None:
        self._fall = _Cost("fall_cost", config.fall_cost)
        self._action = _Cost("action_cost", config.action_cost)
        if any(self._action.costs) and not isinstance(action_map(environment.action_space), BoxMap):
            raise UserError(
                f"action_cost is a cost of an action's size, and the actions of {environment.id} are choices: give "
                "--action-cost 0"
            )
        self._designs = {
            cost: reward_design(
                config.reward_design, config.reward_factor, environment.most_actions, design, cost,
                environment.action_repeat,
            )
            for cost in self._fall.costs
        }  # fmt: skip

    def follow(self, score: float) -> None:
        """Use the costs from this score on; those of a higher score that was reached stay."""
        self._fall.follow(score)
        self._action.follow(score)

    def __call__(self, trajectory: Trajectory, rows: slice = slice(None)) -> np.ndarray:
        """Shaped rewards [K, N] of K rows of a trajectory, with the present costs; 0 where not valid."""
        shaped = self.shape(
            trajectory.rewards[rows],
            trajectory.terminated[rows],
            trajectory.truncated[rows],
            np.maximum(trajectory.episode_steps[rows], 1),  # 0 where a row only begins an episode: no design sees it
            trajectory.actions[rows],
        )  # [K, N]
        return np.where(trajectory.valid[rows], shaped, 0.0)  # [K, N]

    def shape(
        self,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        episode_steps: np.ndarray,
        actions: np.ndarray,
    ) -> np.ndarray:
        """Shaped rewards [...] of steps [...], with the present costs.

        Args:
            episode_steps: [...], the episode's length so far.
            actions: [..., A] of the policy, before they are mapped to the environment's.
        """
        shaped = self._designs[self._fall.now](rewards, terminated, truncated, episode_steps)  # [...]
        if self._action.now:
            sizes = np.abs(np.clip(actions, -1.0, 1.0)).sum(axis=-1)  # [...]
            shaped = shaped - self._action.now * sizes
        return shaped

    def state(self) -> State:
        """What changes while it follows a score."""
        return self._fall.state() | self._action.state()

    def load_state(self, state: State) -> None:
        """Restore what `state` returned; raises ValueError if there is no such cost."""
        self._fall.load_state(state)
        self._action.load_state(state)


class _Cost:
    """A cost that may change with the training score; 0 before its first score."""

    def __init__(self, name: str, written: tuple[str, ...]) -> None:
        pairs = costs_by_score(name, written)
        if pairs[0][0] > -math.inf:
            pairs = ((-math.inf, 0.0), *pairs)
        self._name = name
        self._scores, self.costs = zip(*pairs)
        self._passed = 0

    @property
    def now(self) -> float:
        return self.costs[self._passed]

    def follow(self, score: float) -> None:
        reached = sum(score >= least for least in self._scores[1:])
        self._passed = max(self._passed, reached)

    def state(self) -> State:
        return {self._name: np.array(self._passed)} if len(self.costs) > 1 else {}

    def load_state(self, state: State) -> None:
        self._passed = int(state.get(self._name, 0))
        if not 0 <= self._passed < len(self.costs):
            raise ValueError(f"{self._name} {self._passed + 1} of {len(self.costs)}")


class EpisodeStatistics:
    """Counts the episodes that ended, an epoch at a time, and the last of them across epochs.

    Args:
        window: episodes that the moving mean is taken over.
        infos: counts what they report in info, where that is logged.
    """

    def __init__(self, num_envs: int, window: int, infos: LoggedInfo | None = None) -> None:
        self._window, self._infos = window, infos
        self.running_returns = np.zeros((2, num_envs))  # [2, N] shaped and unshaped, of unfinished episodes so far
        self._last = Episodes(*np.zeros((3, 0)))  # the last episodes of all epochs, [≤ window] each
        self._total_episodes = 0  # ended since training began
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the episodes of the epoch before."""
        self.of_epoch: list[Episodes] = []  # of each trajectory since then
        if self._infos is not None:
            self._infos.begin_epoch()
        self._total_reward = self._total_reward_orig = 0.0

    def add(self, trajectory: Trajectory, shaped_rewards: np.ndarray, cut_counts: bool = False) -> None:
        """Count a trajectory's episodes; `shaped_rewards` [T, N] are 0 where not valid.

        If `cut_counts`, an episode that the trajectory's end cuts counts as a whole one, a quirk of 2021.
        """
        ended = trajectory.ended.copy()  # [T, N]
        if cut_counts:
            ended[-1] |= trajectory.valid[-1]
        failed = trajectory.ended & ~trajectory.valid  # [T, N]
        episodes, self.running_returns = finished_episodes(
            shaped_rewards, trajectory.rewards, ended, trajectory.episode_steps, self.running_returns, failed
        )
        self.of_epoch.append(episodes)
        if self._infos is not None:
            self._infos.add(trajectory.infos[trajectory.ended & ~failed])  # [E, K]
        self._total_reward += float(shaped_rewards.sum())
        self._total_reward_orig += float(trajectory.rewards[trajectory.valid].sum())
        self._last = Episodes(*(np.append(*columns)[-self._window :] for columns in zip(self._last, episodes)))
        self._total_episodes += len(episodes.lengths)

    def training_metrics(self) -> dict[str, float]:
        """What `best_metric` may name besides validation, of what was collected since `begin_epoch`.

        NaN until `score_window` episodes have finished. Means are over the episodes that finished in the epoch, or
        over the last `score_window` where fewer did; they are NaN where none did.
        """
        names = ("total_reward", "mean_episode_reward", "reward_times_steps")
        if len(self._last.returns) < self._window:
            return dict.fromkeys(names, NAN)
        episodes = self._episodes_of_the_epoch()
        if 0 < len(episodes.returns) < self._window:
            episodes = self._last
        mean, mean_steps = _mean(episodes.returns), _mean(episodes.lengths)
        return dict(zip(names, (self._total_reward, mean, mean * mean_steps)))

    def _episodes_of_the_epoch(self) -> Episodes:
        return Episodes(*(np.concatenate(columns) for columns in zip(*self.of_epoch)))

    def columns(self) -> dict[str, float]:
        """The scores of everything collected since `begin_epoch`, as columns of `EpochResult`."""
        episodes = self._episodes_of_the_epoch()
        return {
            "total_reward": self._total_reward,
            "total_reward_orig": self._total_reward_orig,
            "avg_reward": _mean(episodes.returns),
            "avg_reward_orig": _mean(episodes.original_returns),
            "avg_steps": _mean(episodes.lengths),
            "max_steps": float(episodes.lengths.max()) if len(episodes.lengths) else NAN,
            "episodes": len(episodes.lengths),
            "score": self.moving_mean,
            "score_steps": self._moving(self._last.lengths),
            "total_episodes": self._total_episodes,
        } | ({} if self._infos is None else self._infos.columns())

    @property
    def moving_mean(self) -> float:
        """The score: the mean unshaped return of the last `window` episodes; NaN until there are as many."""
        return self._moving(self._last.original_returns)

    def _moving(self, last: np.ndarray) -> float:
        return float(last.mean()) if len(last) == self._window else NAN

    # -- state --

    def state(self) -> State:
        """What continues across epochs."""
        return {
            "running_returns": self.running_returns.copy(),
            "recent": np.stack(self._last[1:]),  # [2, ≤ window]
            "recent_shaped": self._last.returns,
            "total": np.array(self._total_episodes, np.int64),
        }

    def load_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.running_returns = state["running_returns"].copy()
        recent = np.asarray(state["recent"], float).reshape(2, -1)  # [2, ≤ window]
        self._last = Episodes(np.asarray(state["recent_shaped"], float).reshape(recent.shape[1:]), *recent)
        self._total_episodes = int(state["total"])
        self.begin_epoch()


def _mean(column: np.ndarray) -> float:
    return float(column.mean()) if len(column) else NAN


def finished_episodes(
    rewards: np.ndarray,
    original_rewards: np.ndarray,
    ended: np.ndarray,
    lengths: np.ndarray,
    carry: np.ndarray,
    failed: np.ndarray | None = None,
) -> tuple[Episodes, np.ndarray]:
    """Sums over the episodes that ended, in that order, and what the running ones carry into the next epoch, [2, N].

    Args:
        rewards, original_rewards: [T, N], 0 where not valid.
        ended: [T, N] bool.
        lengths: [T, N] steps of the episode so far.
        carry: [2, N] shaped and original reward gathered before this epoch.
        failed: [T, N] bool; an episode that ended in such a step does not count. None: none did.
    """
    sums = np.cumsum(np.stack([rewards, original_rewards]), axis=1, dtype=np.float64)  # [2, T, N]
    start = -np.array(carry, dtype=np.float64)  # [2, N]: what to subtract from a running sum
    finished = ended if failed is None else ended & ~failed  # [T, N]
    returns = []
    for t, n in np.argwhere(ended):
        if finished[t, n]:
            returns.append(sums[:, t, n] - start[:, n])
        start[:, n] = sums[:, t, n]
    table = np.array(returns, dtype=np.float64).reshape(-1, 2)  # [E, 2]
    return Episodes(table[:, 0], table[:, 1], lengths[finished]), sums[:, -1] - start
