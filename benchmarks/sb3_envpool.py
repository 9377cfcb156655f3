"""EnvPool as Stable-Baselines3 wants its environments: an ended one has restarted within the same step."""

from typing import Any

import envpool
import numpy as np
from stable_baselines3.common.vec_env import VecEnv


class EnvPoolVecEnv(VecEnv):
    """One pool, stepped as a whole.

    EnvPool restarts an environment on the step after its end. Here the ended ones are restarted at
    once, all in one call, so that no transition is learned from that the environment did not make.
    """

    def __init__(self, env_id: str, num_envs: int, max_episode_steps: int, num_threads: int, seed: int) -> None:
        self.pool = envpool.make(
            env_id,
            env_type="gymnasium",
            num_envs=num_envs,
            num_threads=num_threads,
            max_episode_steps=max_episode_steps,
            seed=seed,
        )
        super().__init__(num_envs, self.pool.observation_space, self.pool.action_space)

    def reset(self) -> np.ndarray:
        return self.pool.reset()[0]  # [N, S]

    def step_async(self, actions: np.ndarray) -> None:
        self.pool.send(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observations, rewards, terminated, truncated, _ = self.pool.recv()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        ended = terminated | truncated  # [N]
        if ended.any():
            (rows,) = np.nonzero(ended)
            for row, final in zip(rows, observations[rows]):
                infos[row] = {"terminal_observation": final, "TimeLimit.truncated": truncated[row]}
            observations[rows] = self.pool.reset(rows)[0]
        return observations, rewards, ended, infos

    def close(self) -> None:
        self.pool.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.pool, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError("the environments live in one pool and cannot be reached one by one")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        raise AttributeError("the environments live in one pool and cannot be reached one by one")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs
