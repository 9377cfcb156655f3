"""N environments at once, in groups that take turns: one steps while the policy thinks for the other.

One interface over Gymnasium's vector environments and EnvPool. Both restart an ended environment on
its next step (next-step autoreset): that step ignores its action and returns the reset observation.
"""

import functools
import os
from typing import Protocol

import gymnasium
import numpy as np

from common.errors import UserError
from common.make_env import make_env, step_limit

Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # observations, rewards, terminated, truncated


class Group(Protocol):
    """Environments that are stepped together. `send` starts a step, `recv` waits for its result."""

    num_envs: int

    def reset(self, seed: int | None) -> np.ndarray: ...  # [n, S]

    def send(self, actions: np.ndarray) -> None: ...  # [n, *action]

    def recv(self) -> Step: ...

    def close(self) -> None: ...


class BoxVectorEnv(gymnasium.vector.SyncVectorEnv):
    """`SyncVectorEnv` for Box spaces and next-step autoreset, without infos.

    Where there is one environment its general `step` takes 12% longer than this one with the walker (LOG.md).
    """

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """As `SyncVectorEnv.step`; the arrays it returns are used again by the next step."""
        for i, env in enumerate(self.envs):
            if self._autoreset_envs[i]:
                self._observations[i], _ = env.reset()
                self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
            else:
                self._observations[i], self._rewards[i], self._terminations[i], self._truncations[i], _ = env.step(
                    actions[i]
                )
        self._autoreset_envs = self._terminations | self._truncations
        return self._observations, self._rewards, self._terminations, self._truncations, {}


class GymnasiumGroup:
    """Gymnasium's vector environment: steps in this thread, when its result is asked for.

    A given seed always builds new environments: what BipedalWalker does after a seeded reset still
    depends on the world it had before.
    """

    def __init__(self, env_id: str, num_envs: int, max_episode_steps: int | None) -> None:
        self.num_envs = num_envs
        self._makers = [functools.partial(make_env, env_id, max_episode_steps)] * num_envs
        self._envs: BoxVectorEnv | None = None
        self._actions: np.ndarray | None = None

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or self._envs is None:
            self.close()
            self._envs = BoxVectorEnv(self._makers, copy=False)
        return self._envs.reset(seed=seed)[0]

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> Step:
        return self._envs.step(self._actions)[:4]

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None


class EnvPoolGroup:
    """EnvPool: steps in threads of its own from `send` on. A given seed always builds a new pool.

    Stepping goes through EnvPool's native `_send` and `_recv`: its Python layer around them costs 5% of
    an epoch (LOG.md). `tests/test_rollout.py` holds both ways together.
    """

    def __init__(self, env_id: str, num_envs: int, max_episode_steps: int | None, num_threads: int) -> None:
        self.num_envs = num_envs
        self._ids = np.arange(num_envs, dtype=np.int32)
        self._options = {"env_type": "gymnasium", "num_envs": num_envs, "num_threads": num_threads}
        if max_episode_steps is not None:
            self._options["max_episode_steps"] = max_episode_steps
        self._env_id = env_id
        self._pool = None

    def reset(self, seed: int | None) -> np.ndarray:
        import envpool

        level = gymnasium.logger.min_level
        gymnasium.logger.min_level = gymnasium.logger.ERROR  # it warns about a space that nobody reads here
        try:
            if seed is not None or self._pool is None:
                self.close()
                self._pool = envpool.make(self._env_id, seed=seed or 0, **self._options)
                keys = self._pool._state_keys
                self._wanted = [keys.index(key) for key in ("obs", "reward", "done", "trunc")]
                self._action_type = self._pool.action_space.dtype  # not always Gymnasium's
            return self._pool.reset()[0]
        finally:
            gymnasium.logger.min_level = level

    def send(self, actions: np.ndarray) -> None:
        actions = np.ascontiguousarray(actions, dtype=self._action_type)
        self._pool._send([self._ids, self._ids, actions])  # environments, players, actions

    def recv(self) -> Step:
        state = self._pool._recv()
        observations, rewards, done, truncated = (state[i] for i in self._wanted)  # [n, S], [n], [n], [n]
        return observations, rewards, done & ~truncated, truncated

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class VectorEnv:
    """Groups of environments side by side: group g owns the columns `columns[g]` of every [T, N] array."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        ends = np.cumsum([group.num_envs for group in groups])
        self.columns = [slice(int(end) - group.num_envs, int(end)) for group, end in zip(groups, ends)]
        self.num_envs = int(ends[-1])

    def reset(self, seed: int | None = None) -> list[np.ndarray]:
        """Restarts every environment; first observations by group, each [n, S]. None keeps the generators."""
        seeds = [None] * len(self.groups)
        if seed is not None:
            seeds = [int(s) % 2**31 for s in np.random.SeedSequence(seed).generate_state(len(self.groups))]
        return [group.reset(s) for group, s in zip(self.groups, seeds)]

    def close(self) -> None:
        for group in self.groups:
            group.close()


def resolve_backend(backend: str, env_id: str) -> str:
    """What "auto" stands for: "envpool" where it is installed and carries the environment, else "gymnasium".

    Raises:
        UserError: EnvPool was asked for by name but is missing, or does not carry the environment.
    """
    if backend == "gymnasium":
        return backend
    try:
        import envpool
    except ImportError:
        if backend == "auto":
            return "gymnasium"
        raise UserError(
            "EnvPool is not installed: run 'pip install -r requirements/fast.txt' or use --backend gymnasium"
        ) from None
    if env_id in envpool.list_all_envs():
        return "envpool"
    if backend == "auto":
        return "gymnasium"
    raise UserError(f"EnvPool does not carry {env_id}: use --backend gymnasium")


def make_vector_env(
    env_id: str, num_envs: int, max_episode_steps: int | None, backend: str, groups: int | None = None
) -> VectorEnv:
    """`num_envs` environments.

    Args:
        backend: as `resolve_backend` returns it.
        groups: how many, of sizes as equal as can be; None makes two that take turns on EnvPool, one on
            Gymnasium, whose environments step in this thread anyway.
    """
    if groups is None:
        groups = 1 if backend == "gymnasium" else 2
    sizes = [len(part) for part in np.array_split(np.arange(num_envs), min(groups, num_envs))]
    if backend == "gymnasium":
        return VectorEnv([GymnasiumGroup(env_id, size, max_episode_steps) for size in sizes])
    max_episode_steps = step_limit(env_id, max_episode_steps)  # EnvPool's own are not always Gymnasium's
    threads = max(1, (os.cpu_count() or 1) // len(sizes))
    return VectorEnv([EnvPoolGroup(env_id, size, max_episode_steps, min(threads, size)) for size in sizes])
