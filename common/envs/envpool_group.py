"""Environments of EnvPool, stepped in its own threads."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from common.envs.action_repeat import RepeatingPool
from common.envs.environment import Environment
from common.envs.groups import Fault, Step, quiet_gymnasium
from common.envs.history import History
from common.envs.seeded_episodes import Past, episode_seed


class EnvPoolGroup:
    """EnvPool, whose own threads step the environments from `send` on. A reset with a seed builds new pools.

    Stepping calls EnvPool's native `_send` and `_recv`, because its Python layer around them costs 5% of an epoch
    (the log). `tests/rollout/test_collector.py` checks that both give the same results.

    EnvPool seeds environments only when it builds them. An environment that draws random numbers only in resets is
    therefore restored by repeating as many resets and then the actions of its running episode.

    Args:
        environment: what to build; it has a `gymnasium_id` that EnvPool knows.
        num_envs: n, how many.
        num_threads: of each pool.
        num_parts: number of pools; each can be built again alone.
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
        self._repeat = environment.action_repeat
        assert environment.gymnasium_id is not None, "`resolve_backend` makes sure of it"
        self._env_id = environment.gymnasium_id
        self._pools: list[Any] = []
        self._seed = 0
        self._history = History(num_envs, environment.history) if environment.history else None
        self._ended = np.zeros(num_envs, bool)  # [n]: the next observation is the first of an episode
        self._which: np.ndarray | None = None  # [k] that were stepped; None for all

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is not None or not self._pools:
            self.close()
            self._seed = seed or 0
            self._pools = [self._build(part, 0) for part in self.parts]
            keys = self._pools[0]._state_keys
            self._wanted = [keys.index(key) for key in ("obs", "reward", "done", "trunc")]
            self._action_type = self._pools[0].action_space.dtype  # not always the dtype of Gymnasium's space
        with quiet_gymnasium():
            observations = np.concatenate([pool.reset()[0] for pool in self._pools])  # [n, S]
        self._ended[:] = False
        return observations if self._history is None else self._history.add(observations, ~self._ended)

    def _build(self, part: slice, restart: int) -> Any:
        import envpool

        seed = self._seed + part.start if restart == 0 else episode_seed(self._seed, part.start, restart, 0)
        num_envs = part.stop - part.start
        with quiet_gymnasium():  # it warns about a space that is not used here
            pool = envpool.make(self._env_id, num_envs=num_envs, seed=seed % 2**31, **self._options)
        return pool if self._repeat == 1 else RepeatingPool(pool, self._repeat, num_envs)

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        """See `Group.bring_back`; each part gets a new pool."""
        numbers = [number for number, part in enumerate(self.parts) if part.start in pasts]
        members = [[pasts[i] for i in range(part.start, part.stop)] for part in (self.parts[n] for n in numbers)]
        pools = [self._rebuild(number, past[0].restart) for number, past in zip(numbers, members)]
        seen: list[np.ndarray] = [np.zeros(0)] * len(pools)  # of each pool the newest observations, [n, S]

        def take_up(pool: int, ids: np.ndarray, observations: np.ndarray, ended: np.ndarray | None) -> None:
            which = self.parts[numbers[pool]].start + ids  # [k]
            first = np.ones(len(ids), bool) if ended is None else self._ended[which]  # [k]
            self._ended[which] = False if ended is None else ended
            if self._history is not None:
                observations = self._history.add(observations, first, which)
            if not len(seen[pool]):
                seen[pool] = np.array(observations)
            seen[pool][ids] = observations

        _repeat(pools, members, self._wanted, self._action_type, take_up)
        back: dict[int, np.ndarray] = {}  # environment → observation [S]
        for number, observations in zip(numbers, seen):
            part = self.parts[number]
            back |= zip(range(part.start, part.stop), observations)
        return np.stack([back[i] for i in pasts])  # [k, S]

    def _rebuild(self, number: int, restart: int) -> Any:
        """Close a pool and build it again; one `restart` for all its environments."""
        self._pools[number].close()
        self._pools[number] = self._build(self.parts[number], restart)
        return self._pools[number]

    def send(self, actions: np.ndarray, which: np.ndarray | None = None) -> None:
        """See `Group.send`.

        Args:
            actions: [n, *action], or [k, *action] with `which`.
            which: [k] indices of the environments to step, only for a group with a single pool; None steps all.
                `recv` returns the results in this order.
        """
        actions = np.ascontiguousarray(actions, dtype=self._action_type)
        self._which = which
        if which is not None:
            ids = which.astype(np.int32)
            self._pools[0]._send([ids, ids, actions])
            return
        for pool, ids, part in zip(self._pools, self._ids, self.parts):
            pool._send([ids, ids, actions[part]])  # environments, players, actions

    def recv(self) -> Step:
        """See `Group.recv`."""
        states = [pool._recv() for pool in self._pools]
        observations, rewards, done, truncated = (
            states[0][i] if len(states) == 1 else np.concatenate([state[i] for state in states]) for i in self._wanted
        )  # [n, S], [n], [n], [n]
        ended = done | truncated  # [n]
        if self._history is not None:
            which = np.arange(self.num_envs) if self._which is None else self._which
            observations = self._history.add(observations, self._ended[which], which)
            self._ended[which] = ended
        return Step(observations, rewards, done & ~truncated, truncated, ended)

    def close(self) -> None:
        """Close every pool, which ends its threads."""
        for pool in self._pools:
            pool.close()
        self._pools = []


TakeUp = Callable[[int, np.ndarray, np.ndarray, np.ndarray | None], None]


def _repeat(
    pools: list[Any], pasts: list[list[Past]], wanted: list[int], action_type: np.dtype, take_up: TakeUp
) -> None:
    """Repeat in new pools the resets and actions of their environments.

    All pools work at the same time: each gets its call before the first answer is waited for.

    Args:
        pasts: for each pool, those of its environments, in their order.
        wanted: indices of observations, rewards, done and truncated in a pool's answer.
        action_type: dtype of the actions that the pools expect.
        take_up: called after every reset and step with the pool's number, the indices of environments [k], their
            observations [k, S], and whether the step ended their episodes [k]; None in its place after a reset.
    """
    with quiet_gymnasium():
        for p, pool in enumerate(pools):
            take_up(p, np.arange(len(pasts[p])), pool.reset()[0], None)

    def receive(called: list[int], after_step: bool) -> None:
        for p in called:
            answer = pools[p]._recv()
            observations, _, done, truncated = (answer[i] for i in wanted)  # [k, S], [k], [k], [k]
            take_up(p, answer[0], observations, done | truncated if after_step else None)

    resets = [np.array([past.episode for past in of_pool]) for of_pool in pasts]  # [n] each
    for k in range(max(of_pool.max() for of_pool in resets)):
        called = [p for p, of_pool in enumerate(resets) if of_pool.max() > k]
        for p in called:
            pools[p]._reset(np.flatnonzero(resets[p] > k).astype(np.int32))
        receive(called, after_step=False)
    calls = [_calls(of_pool, action_type) for of_pool in pasts]
    for t in range(max(len(of_pool) for of_pool in calls)):
        called = [p for p, of_pool in enumerate(calls) if len(of_pool) > t]
        for p in called:
            pools[p]._send(calls[p][t])
        receive(called, after_step=True)


def _calls(pasts: list[Past], action_type: np.dtype) -> list[list[np.ndarray]]:
    """The calls that repeat a pool's running episodes, one per step: environments [k], players [k], actions [k, A]."""
    steps = np.array([len(past.actions) for past in pasts])  # [n]
    order = np.argsort(-steps, kind="stable").astype(np.int32)  # [n]; the longest first
    longest = pasts[order[0]].actions
    actions = np.zeros((len(longest), len(pasts), *longest.shape[1:]), action_type)  # [T, n, A]
    for column, i in enumerate(order):
        actions[: steps[i], column] = pasts[i].actions
    running = [int((steps > t).sum()) for t in range(len(longest))]
    return [[order[:k], order[:k], row[:k]] for k, row in zip(running, actions)]
