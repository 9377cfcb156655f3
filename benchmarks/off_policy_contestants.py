"""What `off_policy_speed.py` races, each in a process of its own: python off_policy_contestants.py JOB SEED.

Prints what `contestants.py` prints.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contestants import BEGAN, Lap, versions
from products import fastest

WARM_UP_STEPS = 1000  # random ones before the first update


@dataclass(frozen=True)
class Job:
    """One contestant in one setting. An epoch is what is timed together; its steps and updates are as many."""

    contestant: str  # a key of CONTESTANTS
    env: str
    units: tuple[int, ...]  # of the hidden layers
    batch_size: int
    train_every: int  # steps, then as many updates
    warm_up: int  # epochs before the clock counts
    epochs: int  # to be measured
    steps_per_epoch: int
    method: str = "TD3"  # or SAC, TQC, CrossQ
    precision: str = "float32"  # of our own products

    def __str__(self) -> str:
        units = "-".join(map(str, self.units))
        setting = f"{self.method} {self.env:16} {units:8} every {self.train_every:2}"
        return f"{setting}  {self.precision:8}  {self.contestant:16}"

    def tiny(self) -> "Job":
        return replace(self, warm_up=1, epochs=1, steps_per_epoch=100)

    @property
    def steps(self) -> int:
        return (self.warm_up + self.epochs) * self.steps_per_epoch


def ours(job: Job, _: int, lap: Lap) -> None:
    from companions.config import OffPolicyConfig, SACConfig
    from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
    from companions.SACAgentTrainer import SACAgentTrainer

    make_trainer, settings = {
        "TD3": (OffPolicyAgentTrainer, OffPolicyConfig()),
        "SAC": (SACAgentTrainer, SACConfig()),
        "TQC": (SACAgentTrainer, SACConfig(quantiles=25)),
        "CrossQ": (SACAgentTrainer, SACConfig(crossq=True, policy_delay=3, adam_beta=0.5)),  # as SBX's defaults
    }[job.method]
    config = settings.replace(
        env=job.env,
        hidden_sizes=tuple(job.units),
        precision=job.precision,
        batch_size=job.batch_size,
        train_every=job.train_every,
        updates_per_train=job.train_every,
        warmup_steps=WARM_UP_STEPS,
        steps_per_epoch=job.steps_per_epoch,
        epochs=1 + job.steps,
        replay_size=100_000,
        best_metric="total_reward",
        adopt_best=False,
    )
    trainer = make_trainer(config)
    trainer.train(-(-WARM_UP_STEPS // job.steps_per_epoch))
    trainer.train(job.warm_up + job.epochs, on_epoch=lambda result: lap(result.episodes))
    trainer.close()


def ours_updates(job: Job, seed: int, lap: Lap) -> None:
    """Updates alone, in calls of `train_every`, on a buffer full of noise; sampling included."""
    import numpy as np

    from common.envs.environment import find_environment
    from common.records import Transitions
    from companions.config import OffPolicyConfig
    from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
    from companions.replay import ReplayBuffer

    env = find_environment(job.env).make()
    config = OffPolicyConfig(env=job.env, hidden_sizes=tuple(job.units), batch_size=job.batch_size)
    agent = OffPolicyAgentTrainer.make_agent(env.observation_space, env.action_space, config, seed)
    rng = np.random.default_rng(seed)
    replay = ReplayBuffer(100_000, agent.observation_size, agent.action_size)
    sizes = (agent.observation_size, agent.action_size, 0, 0, agent.observation_size)
    columns = [rng.standard_normal((100_000, size) if size else 100_000).astype(np.float32) for size in sizes]
    columns[3][:] = 0.0
    replay.add(Transitions(*columns))
    for _ in range(job.warm_up + job.epochs):
        for _ in range(job.steps_per_epoch // job.train_every):
            rows = replay.sample(job.train_every, job.batch_size, rng)
            noise = rng.standard_normal((*rows.shape[:2], agent.action_size), np.float32)
            agent.update(rows, noise)
        lap(0)


def products(job: Job, _: int, lap: Lap) -> None:
    """The matrix products of as many TD3 updates and nothing else, by the fastest of TensorFlow, XLA and NumPy."""
    from common.envs.environment import find_environment

    env = find_environment(job.env).make()
    observations, actions = env.observation_space.shape[0], env.action_space.shape[0]
    shapes = [
        shape
        for shape, count in products_of_an_update(observations, actions, tuple(job.units), job.batch_size)
        for _ in range(count)
    ]  # of two updates, since the actor learns in every second
    best = fastest(shapes, tries=100)
    for _ in range(job.warm_up + job.epochs):
        for _ in range(job.steps_per_epoch // 2):
            best()
        lap(0)


def products_of_an_update(
    observations: int, actions: int, units: tuple[int, ...], batch: int
) -> list[tuple[tuple[int, int, int], int]]:
    """(m, k, n) of every matrix product [m, k] × [k, n] in two TD3 updates, and how often it occurs."""
    actor = list(zip((observations, *units), (*units, actions)))
    critic = list(zip((observations + actions, *units), (*units, 1)))

    def forward(layers: list[tuple[int, int]], count: int) -> list[tuple[tuple[int, int, int], int]]:
        return [((batch, i, o), count) for i, o in layers]

    def to_inputs(layers: list[tuple[int, int]], count: int) -> list[tuple[tuple[int, int, int], int]]:
        return [((batch, o, i), count) for i, o in layers]

    def to_weights(layers: list[tuple[int, int]], count: int) -> list[tuple[tuple[int, int, int], int]]:
        return [((i, batch, o), count) for i, o in layers]

    critics = forward(actor, 2) + forward(critic, 8) + to_inputs(critic[1:], 4) + to_weights(critic, 4)
    actors = forward(actor, 1) + forward(critic, 1) + to_inputs(critic, 1) + to_inputs(actor[1:], 1)
    return critics + actors + to_weights(actor, 1)


def stable_baselines3(job: Job, seed: int, lap: Lap) -> None:
    import stable_baselines3

    _train_peer(getattr(stable_baselines3, job.method), {"device": "cpu"}, job, seed, lap)


def jax_edition(job: Job, seed: int, lap: Lap) -> None:
    """Stable-Baselines3 in Jax."""
    import sbx

    _train_peer(getattr(sbx, job.method), {}, job, seed, lap)


def _train_peer(algorithm: Callable, options: dict, job: Job, seed: int, lap: Lap) -> None:
    from stable_baselines3.common.callbacks import BaseCallback

    from common.envs.environment import find_environment

    class Laps(BaseCallback):
        def _on_step(self) -> bool:
            learned = self.num_timesteps - WARM_UP_STEPS
            if learned > 0 and learned % job.steps_per_epoch == 0:
                lap(0)
            return True

    model = algorithm(
        "MlpPolicy",
        find_environment(job.env).make(),
        learning_rate=3e-4,
        buffer_size=100_000,
        learning_starts=WARM_UP_STEPS,
        batch_size=job.batch_size,
        train_freq=(job.train_every, "step"),
        gradient_steps=job.train_every,
        policy_kwargs={"net_arch": list(job.units)},
        seed=seed,
        **options,
    )
    model.learn(WARM_UP_STEPS + job.steps, callback=Laps(), log_interval=None)


CONTESTANTS: dict[str, Callable[[Job, int, Lap], None]] = {
    "ours": ours,
    "ours, updates": ours_updates,
    "products alone": products,
    "SB3": stable_baselines3,
    "SB3 in Jax (SBX)": jax_edition,
}


def main() -> None:
    settings = json.loads(sys.argv[1])
    job, seed = Job(**settings | {"units": tuple(settings["units"])}), int(sys.argv[2])
    instants = []
    CONTESTANTS[job.contestant](job, seed, lambda _: instants.append(round(time.perf_counter() - BEGAN, 4)))
    print(json.dumps({"instants": instants, "versions": versions()}))


if __name__ == "__main__":
    main()
