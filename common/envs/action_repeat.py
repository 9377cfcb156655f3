"""Each action held for several steps of the environment, whose rewards are added up (Mnih et al. 2015, "frame skip").

To everything outside this file such a row of steps is one step.
"""

from typing import Any

import gymnasium
import numpy as np

KEYS = ("obs", "reward", "done", "trunc")  # what of an EnvPool answer is made of several steps


class RepeatedActions(gymnasium.Wrapper):
    """An environment in which each action is held for `repeat` steps, or until the episode ends."""

    def __init__(self, env: gymnasium.Env, repeat: int) -> None:
        super().__init__(env)
        self._repeat = repeat

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's; the reward is the sum over the steps, all else is of the last one."""
        total = 0.0
        for _ in range(self._repeat):
            held = action.copy() if isinstance(action, np.ndarray) else action  # it may be changed in place
            observation, reward, terminated, truncated, info = self.env.step(held)
            total += float(np.asarray(reward).item())
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class RepeatingPool:
    """An EnvPool pool in which each action is held for `repeat` steps, or until the episode ends.

    It has the part of EnvPool's interface that `EnvPoolGroup` uses. The step after an episode's end only begins the
    next episode, so it is not repeated.
    """

    def __init__(self, pool: Any, repeat: int, num_envs: int) -> None:
        self._pool, self._repeat = pool, repeat
        self._state_keys, self.action_space = pool._state_keys, pool.action_space
        self._columns = [pool._state_keys.index(key) for key in KEYS]
        self._ended = np.zeros(num_envs, bool)  # [n]: the next step begins an episode
        self._actions: np.ndarray | None = None  # [n, *action] that are held; None after a reset

    def reset(self) -> Any:
        """See EnvPool."""
        self._ended[:] = False
        return self._pool.reset()

    def _reset(self, ids: np.ndarray) -> None:
        self._ended[ids] = False
        self._actions = None
        self._pool._reset(ids)

    def _send(self, call: list[np.ndarray]) -> None:
        ids, _, actions = call  # [k], [k], [k, *action]
        if self._actions is None:
            self._actions = np.zeros((len(self._ended), *actions.shape[1:]), actions.dtype)
        self._actions[ids] = actions
        self._pool._send(call)

    def _recv(self) -> Any:
        answer = list(self._pool._recv())
        if self._actions is None:
            return answer
        ids = np.array(answer[0])  # [k] in the order of the answer
        observations, rewards, done, truncated = (np.array(answer[i]) for i in self._columns)  # [k, S], [k], [k], [k]
        running = ~(done | truncated | self._ended[ids])  # [k]
        for _ in range(self._repeat - 1):
            if not running.any():
                break
            self._pool._send([ids[running], ids[running], self._actions[ids[running]]])
            more = self._pool._recv()
            rows = np.flatnonzero(running)[_order(ids[running], more[0])]  # [r] of the answer
            further, reward, done[rows], truncated[rows] = (more[i] for i in self._columns)
            observations[rows] = further
            rewards[rows] += reward
            running &= ~(done | truncated)
        self._ended[ids] = done | truncated
        for i, column in zip(self._columns, (observations, rewards, done, truncated)):
            answer[i] = column
        return answer

    def close(self) -> None:
        """See EnvPool."""
        self._pool.close()


def _order(asked: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """Where in `asked` [r] each of `answered` [r] stands; both hold the same numbers once."""
    order = np.argsort(asked)
    return order[np.searchsorted(asked, answered, sorter=order)]
