"""When a validation may end early, because the score that it needs is out of its reach."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reach:
    """The mean that a validation has to reach, and how well its episodes may still end.

    Attributes:
        target: the mean reward of an episode that has to be reached.
        hope: reward of an episode that is not over, unless one of this validation has more already.
        episodes: E, how many count in the mean.
        total: sum of the rewards of those that were played before.
        played: how many those are.
    """

    target: float
    hope: float
    episodes: int
    total: float = 0.0
    played: int = 0

    def optimistic_returns(self, returns: np.ndarray, running: np.ndarray) -> np.ndarray:
        """The rewards [n] of these episodes, if those that are running end as well as can be hoped for.

        Args:
            returns: [n] rewards so far.
            running: [n] bool, which episodes are not over.
        """
        return np.where(running, np.maximum(returns, self._highest(returns, running)), returns)  # [n]

    def missed(self, returns: np.ndarray, running: np.ndarray) -> bool:
        """Whether the mean of all E episodes stays below `target` even with the rewards of `optimistic_returns`."""
        to_come = self.episodes - self.played - len(returns)
        total = (
            self.total + self.optimistic_returns(returns, running).sum() + to_come * self._highest(returns, running)
        )
        return bool(total / self.episodes < self.target)

    def _highest(self, returns: np.ndarray, running: np.ndarray) -> float:
        """The highest reward among `hope` and the episodes that are over."""
        return float(np.max(returns, initial=self.hope, where=~running))
