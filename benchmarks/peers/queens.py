"""Queens on a chessboard: a task in which most actions are invalid most of the time."""

from typing import Any

import gymnasium
import numpy as np

SIZE = 8
_ROWS, _COLUMNS = np.divmod(np.arange(SIZE**2), SIZE)


class Queens(gymnasium.Env):
    """Put queens on a chessboard, the first of which stands somewhere already; none may attack another.

    The observation has 1 for every square with a queen. A queen is worth 1, and an episode is over when no square is
    free. An attacked square is refused: nothing changes, but one of 16 steps passes.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (SIZE**2,))
    action_space = gymnasium.spaces.Discrete(SIZE**2)

    def _put(self, square: int) -> dict[str, Any]:
        self._queens[square] = 1
        rows, columns = _ROWS - _ROWS[square], _COLUMNS - _COLUMNS[square]
        self._free &= (rows != 0) & (columns != 0) & (abs(rows) != abs(columns))
        return {"action_mask": self._free.copy()}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._queens, self._free = np.zeros(SIZE**2, np.float32), np.ones(SIZE**2, bool)
        return self._queens.copy(), self._put(int(self.np_random.integers(SIZE**2)))

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        is_free = bool(self._free[action])
        info = self._put(action) if is_free else {"action_mask": self._free.copy()}
        return self._queens.copy(), float(is_free), not self._free.any(), False, info


gymnasium.register("Queens-v0", Queens, max_episode_steps=16)
