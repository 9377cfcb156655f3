"""What `speed.py` races, each in a process of its own: python contestants.py JOB SEED. Also for `beside_stepping.py`.

JOB is a `Job` as JSON. The last line printed is JSON too: the instants at which epochs ended, in
seconds since this module began to load, and the episodes that ended in each. Peers and ours live in
different environments, so a contestant imports what it needs itself.
"""

import functools
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from gymnasium.vector import VectorEnv

    from ppo.config import PPOConfig
    from PPOAgentTrainer import PPOAgentTrainer

BEGAN = time.perf_counter()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

ENV_ID = "BipedalWalker-v3"
MAX_EPISODE_STEPS = 2000
PACKAGES = (
    "numpy",
    "gymnasium",
    "Box2D",
    "envpool",
    "tensorflow",
    "keras",
    "stable-baselines3",
    "sb3-contrib",
    "torch",
    "sbx-rl",
    "jax",
    "ale-py",
)

Lap = Callable[[int], None]  # to be called at an epoch's end with the number of episodes that ended in it


@dataclass(frozen=True)
class Job:
    """One contestant in one setting."""

    contestant: str  # a key of CONTESTANTS
    backend: str  # who steps the environments: gymnasium or envpool
    num_envs: int
    passes: int  # sweeps over an epoch's steps; 0 where nothing is learned
    warm_up: int  # epochs before the clock counts: compilation, first allocations
    epochs: int  # to be measured
    steps_per_epoch: int = 20_480
    minibatch_size: int = 2048

    def __str__(self) -> str:
        return f"{self.num_envs:2} {self.backend:9}  passes {self.passes:2}  {self.contestant:18}"

    def tiny(self) -> "Job":
        return replace(self, warm_up=1, epochs=1, steps_per_epoch=2048, minibatch_size=512)

    @property
    def all_epochs(self) -> int:
        return self.warm_up + self.epochs

    @property
    def rollout_steps(self) -> int:
        """Steps of an epoch in each environment."""
        return self.steps_per_epoch // self.num_envs


def ours(job: Job, seed: int, lap: Lap) -> None:
    """Our PPO with the network and the settings that `stable_baselines3` has here."""
    _train_ours(our_config(), job, seed, lap)


def our_config() -> "PPOConfig":
    """The network and the settings that `stable_baselines3` has here."""
    from ppo.config import PPOConfig

    return PPOConfig(
        hidden_sizes=(64, 64),
        normalize_observations=False,
        reward_scaling="none",
        normalize_advantages="minibatch",
        gamma=0.99,
        gae_lambda=0.95,
        learning_rate=3e-4,
        anneal=(),
        clip_range=0.2,
        max_gradient_norm=0.5,
        adopt_best=False,
    )


def ours_2021(job: Job, seed: int, lap: Lap) -> None:
    """Our PPO with the corrected preset of the 2021 study."""
    from ppo.presets import BIPEDAL_WALKER_2021_CORRECTED

    _train_ours(BIPEDAL_WALKER_2021_CORRECTED, job, seed, lap)


def _train_ours(config: "PPOConfig", job: Job, seed: int, lap: Lap) -> None:
    trainer = our_trainer(config, job, seed)
    trainer.train(job.all_epochs, on_epoch=lambda result: lap(result.episodes))
    trainer.close()


def our_trainer(config: "PPOConfig", job: Job, seed: int) -> "PPOAgentTrainer":
    """A trainer with the environments and the updates of a job."""
    from PPOAgentTrainer import PPOAgentTrainer

    config = config.replace(
        env=ENV_ID,
        max_episode_steps=MAX_EPISODE_STEPS,
        backend=job.backend,
        num_envs=job.num_envs,
        steps_per_epoch=job.steps_per_epoch,
        minibatch_size=job.minibatch_size,
        passes=job.passes,
        seed=seed,
    )
    return PPOAgentTrainer(config)


def stable_baselines3(job: Job, seed: int, lap: Lap, subprocesses: bool = False, threads: int | None = None) -> None:
    """Its PPO with its defaults for the network (tanh 64-64, state-independent log std) and the advantages.

    threads: PyTorch's; None leaves its default.
    """
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    from common.envs.environment import find_environment

    class Laps(BaseCallback):
        """An epoch ends with its rollout, as ours does."""

        def _on_rollout_end(self) -> None:
            lap(int(self.model.rollout_buffer.episode_starts.sum()))

        def _on_step(self) -> bool:
            return True

    if threads is not None:
        torch.set_num_threads(threads)
    if job.backend == "envpool":
        from sb3_envpool import EnvPoolVecEnv

        envs = EnvPoolVecEnv(ENV_ID, job.num_envs, MAX_EPISODE_STEPS, os.cpu_count(), seed)
    else:
        vector_env = SubprocVecEnv if subprocesses else DummyVecEnv
        envs = vector_env([lambda: find_environment(ENV_ID, MAX_EPISODE_STEPS).make() for _ in range(job.num_envs)])
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=job.rollout_steps,
        batch_size=job.minibatch_size,
        n_epochs=job.passes,
        gamma=0.99,
        gae_lambda=0.95,
        learning_rate=3e-4,
        clip_range=0.2,
        max_grad_norm=0.5,
        seed=seed,
        device="cpu",
    )
    model.learn(job.all_epochs * job.steps_per_epoch, callback=Laps(), log_interval=None)
    envs.close()


def stepping(job: Job, seed: int, lap: Lap) -> None:
    """The environments alone, all in one vector, under random actions drawn ahead."""
    envs = alone(job, seed)
    actions = random_actions(job, seed)  # [T, N, A]
    for _ in range(job.all_epochs):
        lap(step_alone(envs, actions))
    envs.close()


def alone(job: Job, seed: int) -> "VectorEnv":
    """The environments of a job, all in one vector and reset, without anything around them."""
    import gymnasium

    if job.backend == "envpool":
        import envpool

        envs = envpool.make(
            ENV_ID,
            env_type="gymnasium",
            num_envs=job.num_envs,
            num_threads=os.cpu_count(),
            max_episode_steps=MAX_EPISODE_STEPS,
            seed=seed,
        )
        envs.reset()
    else:
        from common.envs.environment import find_environment

        envs = gymnasium.vector.SyncVectorEnv(
            [lambda: find_environment(ENV_ID, MAX_EPISODE_STEPS).make() for _ in range(job.num_envs)], copy=False
        )
        envs.reset(seed=seed)
    return envs


def random_actions(job: Job, seed: int) -> "np.ndarray":
    """An epoch's actions of an untrained policy: normal, cut to the bounds, [T, N, A]."""
    import numpy as np

    noise = np.random.default_rng(seed).standard_normal((job.rollout_steps, job.num_envs, 4), np.float32)
    return np.clip(noise, -1, 1)


def step_alone(envs: "VectorEnv", actions: "np.ndarray") -> int:
    """Take actions [T, N, A]; how many episodes ended."""
    import numpy as np

    episodes = 0
    for chosen in actions:
        _, _, terminated, truncated, _ = envs.step(chosen)
        episodes += np.count_nonzero(terminated) + np.count_nonzero(truncated)
    return episodes


CONTESTANTS: dict[str, Callable[[Job, int, Lap], None]] = {
    "ours": ours,
    "ours, 2021 network": ours_2021,
    "SB3": stable_baselines3,
    "SB3, SubprocVecEnv": functools.partial(stable_baselines3, subprocesses=True),
    "SB3, one thread": functools.partial(stable_baselines3, threads=1),
    "stepping alone": stepping,
}


def versions() -> dict[str, str]:
    """Of Python and of those PACKAGES that are installed where this runs."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    job, seed = Job(**json.loads(sys.argv[1])), int(sys.argv[2])
    instants, episodes = [], []

    def lap(ended: int) -> None:
        instants.append(round(time.perf_counter() - BEGAN, 4))
        episodes.append(int(ended))

    CONTESTANTS[job.contestant](job, seed, lap)
    print(json.dumps({"instants": instants, "episodes": episodes, "versions": versions()}))


if __name__ == "__main__":
    main()
