"""How well the episodes of an epoch went."""

import numpy as np

from common.records import Episodes, Trajectory
from common.state import State


class EpisodeScores:
    """Counts the episodes that ended, an epoch at a time, and the last of them across epochs.

    Args:
        num_envs: N.
        window: episodes that the moving mean is taken over.

    Attributes:
        running_returns: [2, N] shaped and unshaped returns of unfinished episodes, so far.
        of_epoch: the episodes that ended, a record for each trajectory since `begin_epoch`.
        last_returns: [≤ window] shaped returns of the last episodes.
    """

    def __init__(self, num_envs: int, window: int) -> None:
        self._window = window
        self.running_returns = np.zeros((2, num_envs))  # [2, N]
        self.last_returns = np.zeros(0)  # [≤ window]
        self._last = np.zeros((2, 0))  # [2, ≤ window] unshaped returns and steps of the same episodes
        self._total_episodes = 0  # ended since training began
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the episodes of the epoch before."""
        self.of_epoch: list[Episodes] = []
        self._total_reward = self._total_reward_orig = 0.0

    def add(self, trajectory: Trajectory, shaped_rewards: np.ndarray, cut_counts: bool = False) -> None:
        """Count a trajectory's episodes.

        Args:
            shaped_rewards: [T, N]; 0 where not valid.
            cut_counts: an episode that the trajectory's end cuts counts as a whole one, a quirk of 2021.
        """
        ended = trajectory.ended  # [T, N]
        if cut_counts:
            ended = ended.copy()  # [T, N]
            ended[-1] |= trajectory.valid[-1]
        episodes, self.running_returns = finished_episodes(
            shaped_rewards,
            trajectory.rewards,
            ended,
            trajectory.episode_steps,
            self.running_returns,
            trajectory.ended & ~trajectory.valid,
        )
        self.of_epoch.append(episodes)
        self._total_reward += float(shaped_rewards.sum())
        self._total_reward_orig += float(trajectory.rewards[trajectory.valid].sum())
        ended_now = np.stack([episodes.original_returns, episodes.lengths])  # [2, episodes]
        self._last = np.concatenate([self._last, ended_now], axis=1)[:, -self._window :]
        self.last_returns = np.concatenate([self.last_returns, episodes.returns])[-self._window :]
        self._total_episodes += len(episodes.lengths)

    def training_metrics(self) -> dict[str, float]:
        """What `best_metric` may name besides validation, of what was collected since `begin_epoch`.

        NaN until `score_window` episodes have finished. Means are over the episodes that finished in the epoch, or
        over the last `score_window` where fewer did; they are NaN where none did.
        """
        names = ("total_reward", "mean_episode_reward", "reward_times_steps")
        if len(self.last_returns) < self._window:
            return dict.fromkeys(names, float("nan"))
        episodes = self._episodes_of_the_epoch()
        returns, lengths = episodes.returns, episodes.lengths  # [E], [E]
        if 0 < len(returns) < self._window:
            returns, lengths = self.last_returns, self._last[1]  # [window], [window]
        mean, mean_steps = (float(column.mean()) if len(column) else float("nan") for column in (returns, lengths))
        return dict(zip(names, (self._total_reward, mean, mean * mean_steps)))

    def _episodes_of_the_epoch(self) -> Episodes:
        return Episodes(*(np.concatenate(columns) for columns in zip(*self.of_epoch)))

    def columns(self) -> dict[str, float]:
        """The scores of everything collected since `begin_epoch`, as columns of `EpochResult`."""
        episodes = self._episodes_of_the_epoch()
        mean = {
            name: float(column.mean()) if len(column) else float("nan")
            for name, column in zip(Episodes._fields, episodes)
        }
        score, score_steps = self._moving_means()
        return {
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

    def _moving_means(self) -> tuple[float, float]:
        """Unshaped returns and steps, means over the last `window` episodes; NaN until there are as many."""
        enough = self._last.shape[1] == self._window
        score, steps = (float(row.mean()) if enough else float("nan") for row in self._last)
        return score, steps

    @property
    def moving_mean(self) -> float:
        """The score: the mean unshaped return of the last `window` episodes; NaN until there are as many."""
        return self._moving_means()[0]

    # -- state --

    def state(self) -> State:
        """What continues across epochs."""
        return {
            "running_returns": self.running_returns.copy(),
            "recent": self._last,
            "recent_shaped": self.last_returns,
            "total": np.array(self._total_episodes, np.int64),
        }

    def load_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.running_returns = state["running_returns"].copy()
        self._last = np.asarray(state["recent"], float).reshape(2, -1)  # [2, ≤ window]
        self.last_returns = np.asarray(state["recent_shaped"], float).reshape(self._last.shape[1:])  # [≤ window]
        self._total_episodes = int(state["total"])
        self.begin_epoch()


def finished_episodes(
    rewards: np.ndarray,
    original_rewards: np.ndarray,
    ended: np.ndarray,
    lengths: np.ndarray,
    carry: np.ndarray,
    failed: np.ndarray | None = None,
) -> tuple[Episodes, np.ndarray]:
    """Sums over the episodes that ended, and what the running ones carry into the next epoch.

    Args:
        rewards, original_rewards: [T, N], 0 where not valid.
        ended: [T, N] bool.
        lengths: [T, N] steps of the episode so far.
        carry: [2, N] shaped and original reward gathered before this epoch.
        failed: [T, N] bool; an episode that ended in such a step does not count. None: none did.

    Returns:
        The finished episodes in the order in which they ended, and the new carry [2, N].
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
