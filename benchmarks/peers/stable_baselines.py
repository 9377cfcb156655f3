"""Trains a contestant of Stable-Baselines3, its contrib or its Jax edition, and scores it on the way."""

import importlib
import math
from typing import Any

import gymnasium
import numpy as np
import torch
from peers.scoring import Act, Curve
from peers.tasks import GAME, Contestant, Linear, Task
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from common.envs.action_masks import WithActionMask


class _MaskApart(gymnasium.ObservationWrapper):
    """Gives by a method what stands behind the observations of `WithActionMask`."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = env.env.observation_space  # type: ignore[attr-defined]
        self._size = self.observation_space.shape[0]

    def observation(self, observation: np.ndarray) -> np.ndarray:
        self._mask = observation[self._size :] > 0
        return observation[: self._size]

    def action_masks(self) -> np.ndarray:
        return self._mask


class _Scored(BaseCallback):
    """Scores the policy before every rollout, so that an update's result is what is scored."""

    def __init__(self, curve: Curve, steps: float) -> None:
        super().__init__()
        self._curve, self._steps = curve, steps

    def _on_rollout_start(self) -> None:
        self._curve.follow(self.num_timesteps, acting(self.model))
        if self.model.use_sde:  # scoring drew another noise
            self.model.policy.reset_noise(self.training_env.num_envs)

    def _on_step(self) -> bool:
        return self.num_timesteps < self._steps


def acting(model: Any) -> Act:
    """How a model acts on the environment's own observations."""
    normalizer, memory = model.get_vec_normalize_env(), None  # of a recurrent policy
    size, steps = model.observation_space.shape[0], 0

    def act(observations: np.ndarray, deterministic: bool, begins: bool) -> np.ndarray:
        nonlocal memory, steps
        steps = 0 if begins else steps + 1
        if getattr(model, "use_sde", False) and steps % _steps_of_noise(model) == 0:
            model.policy.reset_noise(len(observations))  # one for each episode
        if normalizer is not None:
            observations = normalizer.normalize_obs(observations)
        first = np.full(len(observations), begins)
        if observations.ndim == 2 and observations.shape[1] > size:
            observations, masks = np.split(observations, [size], axis=1)
            return model.predict(observations, deterministic=deterministic, action_masks=masks)[0]
        actions, memory = model.predict(observations, None if begins else memory, first, deterministic)
        return actions

    return act


def _steps_of_noise(model: Any) -> int:
    """After how many steps of training gSDE draws another noise: by default with every rollout."""
    rollout = getattr(model, "n_steps", None) or model.train_freq.frequency
    return model.sde_sample_freq if model.sde_sample_freq > 0 else rollout


def train(task: Task, contestant: Contestant, seed: int, steps: int, curve: Curve, threads: int | None = 1) -> Act:
    """Train, scoring into `curve`.

    Args:
        task, contestant: what is trained.
        seed: of everything random.
        steps: of the environment.
        curve: filled on the way.
        threads: PyTorch's; None leaves its default.

    Returns:
        How the trained model acts.
    """
    if contestant.library != "sbx" and threads is not None:
        torch.set_num_threads(threads)

    def make() -> gymnasium.Env:
        env = task.make(contestant)
        return _MaskApart(env) if isinstance(env, WithActionMask) else env

    envs: Any
    if is_game := task.env.startswith("ALE/"):
        envs = VecFrameStack(make_atari_env(GAME.format(task.env[4:-3]), contestant.num_envs, seed), 4)
    else:
        envs = DummyVecEnv([make] * contestant.num_envs)
    if contestant.normalize:
        envs = VecNormalize(envs, gamma=contestant.settings["gamma"])
    settings = {
        name: value.schedule() if isinstance(value, Linear) else value for name, value in contestant.settings.items()
    }
    if contestant.action_noise is not None:
        size = envs.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, contestant.action_noise))
    if name := settings.get("policy_kwargs", {}).get("activation_fn"):
        settings["policy_kwargs"] = settings["policy_kwargs"] | {"activation_fn": getattr(torch.nn, name)}
    if contestant.library != "sbx":
        settings["device"] = "cpu"
    algorithm = getattr(importlib.import_module(contestant.library), contestant.method)
    policy = "MlpLstmPolicy" if contestant.method.startswith("Recurrent") else "CnnPolicy" if is_game else "MlpPolicy"
    model = algorithm(policy, envs, seed=seed, **settings)
    scored = _Scored(curve, steps if task.schedule else math.inf)
    model.learn(task.schedule or steps, callback=scored, log_interval=None)
    curve.follow(model.num_timesteps, acting(model))
    return acting(model)
