"""What `atari_speed.py` races, each in a process of its own: python atari_contestants.py JOB SEED.

Prints what `contestants.py` prints.
"""

import functools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stable_baselines3 import PPO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contestants import BEGAN, Lap, versions
from products import Shape, fastest, of_a_layer

GAME = "ale_py:BreakoutNoFrameskip-v4"  # named so, processes that step it import what registers it
NUM_ENVS, STEPS_PER_UPDATE, MINIBATCH = 8, 1024, 256


@dataclass(frozen=True)
class Job:
    """One contestant. An epoch is what is timed together."""

    contestant: str  # a key of CONTESTANTS
    passes: int
    warm_up: int  # epochs before the clock counts
    epochs: int  # to be measured
    steps_per_epoch: int = 4 * STEPS_PER_UPDATE
    preset: str = "breakout"  # of ours, and of the games of stepping alone
    precision: str = "float32"  # of ours

    def __str__(self) -> str:
        return f"{self.preset}  passes {self.passes}  {self.precision}  {self.contestant:22}"

    def tiny(self) -> "Job":
        return replace(self, warm_up=1, epochs=1, steps_per_epoch=4 * STEPS_PER_UPDATE)


def ours(job: Job, seed: int, lap: Lap) -> None:
    """A preset."""
    from ppo.presets import PRESETS
    from PPOAgentTrainer import PPOAgentTrainer

    config = PRESETS[job.preset]
    config = config.replace(
        passes=job.passes,
        steps_per_epoch=job.steps_per_epoch,
        updates_per_epoch=job.steps_per_epoch // config.steps_per_update,
        precision=job.precision,
        seed=seed,
        adopt_best=False,
    )
    trainer = PPOAgentTrainer(config)
    trainer.train(job.warm_up + job.epochs, on_epoch=lambda result: lap(result.episodes))
    trainer.close()


def stable_baselines3_model(passes: int, seed: int, subprocesses: bool = False) -> "PPO":
    """Its PPO with its CNN policy, on its own Atari wrappers, which prepare frames as ours are prepared."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    vector_env = SubprocVecEnv if subprocesses else DummyVecEnv
    return PPO(
        "CnnPolicy",
        VecFrameStack(make_atari_env(GAME, NUM_ENVS, seed=seed, vec_env_cls=vector_env), 4),
        n_steps=STEPS_PER_UPDATE // NUM_ENVS,
        batch_size=MINIBATCH,
        n_epochs=passes,
        learning_rate=2.5e-4,
        clip_range=0.1,
        clip_range_vf=0.1,
        vf_coef=0.5,
        ent_coef=0.01,
        max_grad_norm=0.5,
        seed=seed,
        device="cpu",
    )


def stable_baselines3(job: Job, seed: int, lap: Lap, subprocesses: bool = False) -> None:
    """`stable_baselines3_model`, timed."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Laps(BaseCallback):
        def _on_rollout_end(self) -> None:
            if self.num_timesteps % job.steps_per_epoch == 0:
                lap(0)

        def _on_step(self) -> bool:
            return True

    model = stable_baselines3_model(job.passes, seed, subprocesses)
    model.learn((job.warm_up + job.epochs) * job.steps_per_epoch, callback=Laps(), log_interval=None)
    model.get_env().close()


def stepping(job: Job, seed: int, lap: Lap) -> None:
    """A preset's environments alone, under random actions drawn ahead."""
    import numpy as np

    from common.envs.environment import environment_of
    from common.envs.vector_env import make_vector_env
    from ppo.presets import PRESETS

    config = PRESETS[job.preset]
    envs = make_vector_env(environment_of(config), config.num_envs, "ale", config.shards)
    envs.reset(seed)
    steps = job.steps_per_epoch // config.num_envs  # T
    actions = np.random.default_rng(seed).integers(4, size=(steps, config.num_envs))  # [T, N]
    for _ in range(job.warm_up + job.epochs):
        for chosen in actions:
            for group, columns in zip(envs.groups, envs.columns):
                group.send(chosen[columns])
            for group in envs.groups:
                group.recv()
        lap(0)
    envs.close()


def products(job: Job, _: int, lap: Lap) -> None:
    """The matrix products of acting and of all gradients, and nothing else: no games, patches, activations or Adam."""
    acting = fastest(products_of_acting(NUM_ENVS), tries=20)
    gradient = fastest(products_of_a_gradient(MINIBATCH), tries=5)
    for _ in range(job.warm_up + job.epochs):
        for _ in range(job.steps_per_epoch // NUM_ENVS):
            acting()
        for _ in range(job.passes * job.steps_per_epoch // MINIBATCH):
            gradient()
        lap(0)


# Of each layer (Mnih et al. 2015): places in an image, inputs, outputs; the last is for 4 actions and the value
CONVOLUTIONS = ((20 * 20, 8 * 8 * 4, 32), (9 * 9, 4 * 4 * 32, 64), (7 * 7, 3 * 3 * 64, 64))
LAYERS = (*CONVOLUTIONS, (1, 7 * 7 * 64, 512), (1, 512, 5))


def products_of_acting(images: int) -> list[Shape]:
    """Shapes of the products of one look at some images."""
    return [(images * places, inputs, outputs) for places, inputs, outputs in LAYERS]


def products_of_a_gradient(images: int) -> list[Shape]:
    """Shapes of the products of a gradient from some images; the first layer has none by its inputs."""
    return [
        shape
        for i, (places, inputs, outputs) in enumerate(LAYERS)
        for shape in of_a_layer(images * places, inputs, outputs, first=i == 0)
    ]


CONTESTANTS: dict[str, Callable[[Job, int, Lap], None]] = {
    "ours": ours,
    "SB3": stable_baselines3,
    "SB3, SubprocVecEnv": functools.partial(stable_baselines3, subprocesses=True),
    "stepping alone": stepping,
    "products alone": products,
}


def main() -> None:
    job, seed = Job(**json.loads(sys.argv[1])), int(sys.argv[2])
    instants = []
    CONTESTANTS[job.contestant](job, seed, lambda _: instants.append(round(time.perf_counter() - BEGAN, 4)))
    print(json.dumps({"instants": instants, "versions": versions()}))


if __name__ == "__main__":
    main()
