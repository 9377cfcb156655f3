"""Environments of EnvPool, stepped in its own threads."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from common.envs.environment import Environment
from common.envs.groups import Fault, Step, quiet_gymnasium
from common.envs.seeded_episodes import RestorePoint, episode_seed

KEYS = ("obs", "reward", "done", "trunc")  # what is used of an answer


class EnvPoolGroup:
    """EnvPool, whose own threads step the environments from `send` on. A reset with a seed builds new pools.

    Stepping calls EnvPool's native `_send` and `_recv`, because its Python layer around them costs 5% of an epoch
    (the log). `tests/rollout/test_collector.py` checks that both give the same results.

    EnvPool seeds environments only when it builds them. An environment that draws random numbers only in resets is
    therefore restored by repeating as many resets and then the actions of its running episode. With `num_parts` pools,
    each of `num_threads`, a part of the environments can be built again alone.
    """

    def __init__(self, environment: Environment, num_envs: int, num_threads: int, num_parts: int = 1) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []  # stays empty: compiled environments do not raise
        bounds = np.linspace(0, num_envs, min(num_parts, num_envs) + 1).astype(int).tolist()
        self.parts = [slice(first, last) for first, last in pairwise(bounds)]
        self._ids = [np.arange(part.stop - part.start, dtype=np.int32) for part in self.parts]
        self._options: dict[str, Any] = {"env_type": "gymnasium", "num_threads": num_threads}
        if environment.max_episode_steps is not None:  # EnvPool's own limits are not always Gymnasium's
            self._options["max_episode_steps"] = environment.max_episode_steps
        assert environment.gymnasium_id is not None, "`resolve_backend` makes sure of it"
        self._environment, self._env_id = environment, environment.gymnasium_id
        self._pools: list[Any] = []
        self._seed = 0

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is not None or not self._pools:
            self.close()
            self._seed = seed or 0
            self._pools = [self._build(part, 0) for part in self.parts]
            self._action_type = self._pools[0].action_space.dtype  # not always the dtype of Gymnasium's space
            self._wanted = columns_of(self._pools[0], self._environment.log_info)
        for pool, ids in zip(self._pools, self._ids):
            pool._reset(ids)
        return self._received()[0]

    def _build(self, part: slice, restart: int) -> Any:
        import envpool

        seed = self._seed + part.start if restart == 0 else episode_seed(self._seed, part.start, restart, 0)
        num_envs, repeat = part.stop - part.start, self._environment.action_repeat
        with quiet_gymnasium():  # it warns about a space that is not used here
            pool = envpool.make(self._env_id, num_envs=num_envs, seed=seed % 2**31, **self._options)
        return RepeatingPool(pool, repeat, num_envs, self._environment.log_info) if repeat > 1 else pool

    def restore(self, points: Mapping[int, RestorePoint]) -> np.ndarray:
        """See `Group.restore`; each part gets a new pool."""
        back: dict[int, np.ndarray] = {}  # environment → its newest observation [S]
        for number, part in enumerate(self.parts):
            if part.start in points:
                self._pools[number].close()
                self._pools[number] = self._build(part, points[part.start].restart)
                self._repeat_points(self._pools[number], part, [points[i] for i in range(part.start, part.stop)], back)
        return np.stack([back[i] for i in points])  # [k, S]

    def _repeat_points(self, pool: Any, part: slice, points: list[RestorePoint], back: dict[int, np.ndarray]) -> None:
        """Repeat in a new pool the resets and actions of its environments, whose observations go into `back`."""

        def receive() -> None:
            answer = pool._recv()
            back.update(zip((part.start + answer[0]).tolist(), np.array(answer[self._wanted[0]])))

        resets = np.array([1 + point.episode for point in points])  # [n]
        for k in range(resets.max()):
            pool._reset(np.flatnonzero(resets > k).astype(np.int32))
            receive()
        for t in range(max(len(point.actions) for point in points)):
            ids = np.array([i for i, point in enumerate(points) if t < len(point.actions)], np.int32)  # [k]
            pool._send([ids, ids, np.array([points[i].actions[t] for i in ids], self._action_type)])
            receive()

    def send(self, actions: np.ndarray, which: np.ndarray | None = None) -> None:
        """See `Group.send`; `which`: k environments to step, if the group has one pool. `recv` keeps their order."""
        actions = np.ascontiguousarray(actions, dtype=self._action_type)
        if which is not None:
            ids = which.astype(np.int32)
            self._pools[0]._send([ids, ids, actions])
            return
        for pool, ids, part in zip(self._pools, self._ids, self.parts):
            pool._send([ids, ids, actions[part]])  # environments, players, actions

    def recv(self) -> Step:
        """See `Group.recv`."""
        observations, rewards, done, truncated, *infos = self._received()
        ended = done | truncated
        told = {int(i): [column[i] for column in infos] for i in np.flatnonzero(ended)} if infos else {}
        return Step(observations, rewards, done & ~truncated, truncated, ended, infos=told)

    def _received(self) -> list[np.ndarray]:
        """Observations [n, S], rewards, done, truncated and what is logged of info, [n] each, of all pools."""
        states = [pool._recv() for pool in self._pools]
        if len(states) == 1:
            return [states[0][i] for i in self._wanted]
        return [np.concatenate([state[i] for state in states]) for i in self._wanted]

    def close(self) -> None:
        """Close every pool, which ends its threads."""
        for pool in self._pools:
            pool.close()
        self._pools = []


def columns_of(pool: Any, log_info: Sequence[str]) -> list[int]:
    """Where in a pool's answer KEYS stand, and the numbers of info that are logged. Raises ValueError if one lacks."""
    return [pool._state_keys.index(key) for key in (*KEYS, *(f"info:{name}" for name in log_info))]


class RepeatingPool:
    """An EnvPool pool in which each action is held.

    It has the part of EnvPool's interface that `EnvPoolGroup` uses. The step after an episode's end only begins the
    next episode, so it is not repeated.
    """

    def __init__(self, pool: Any, repeat: int, num_envs: int, log_info: Sequence[str]) -> None:
        self._pool, self._repeat = pool, repeat
        self._state_keys, self.action_space = pool._state_keys, pool.action_space
        self._columns = columns_of(pool, log_info)
        self._begins = np.ones(num_envs, bool)  # [n]: what comes next is the first observation of an episode
        shape = num_envs, *pool.action_space.shape
        self._actions = np.zeros(shape, pool.action_space.dtype)  # [n, *action] that are held

    def _reset(self, ids: np.ndarray) -> None:
        self._begins[ids] = True
        self._pool._reset(ids)

    def _send(self, call: list[np.ndarray]) -> None:
        ids, _, actions = call  # [k], [k], [k, *action]
        self._actions[ids] = actions
        self._pool._send(call)

    def _recv(self) -> Any:
        answer = list(self._pool._recv())
        ids = np.array(answer[0])  # [k] in the order of the answer
        # [k, S], and [k] each
        observations, rewards, done, truncated, *infos = (np.array(answer[i]) for i in self._columns)
        row_of = np.empty(len(self._begins), int)  # [n] where an environment stands in the answer
        row_of[ids] = np.arange(len(ids))
        running = ~(done | truncated | self._begins[ids])  # [k]
        for _ in range(self._repeat - 1):
            if not running.any():
                break
            self._pool._send([ids[running], ids[running], self._actions[ids[running]]])
            more = self._pool._recv()
            rows = row_of[more[0]]  # [r]
            observations[rows], reward, done[rows], truncated[rows], *told = (more[i] for i in self._columns)
            rewards[rows] += reward
            for column, values in zip(infos, told):
                column[rows] = values
            running &= ~(done | truncated)
        self._begins[ids] = done | truncated
        for i, column in zip(self._columns, (observations, rewards, done, truncated, *infos)):
            answer[i] = column
        return answer

    def close(self) -> None:
        """See EnvPool."""
        self._pool.close()
