"""What tests collect and learn from, built as trainers build it."""

from types import SimpleNamespace
from typing import Any

from common.config import TrainingConfig
from common.envs.environment import find_environment
from common.envs.spaces import ActionMap
from common.envs.vector_env import VectorEnv
from common.records import Batch, Timing, Trajectory
from common.rollout import collector
from common.rollout.collector import CollectingPlan, Collector, ShapeNoise
from common.rollout.evaluation import evaluate
from common.rollout.policies import Policy
from common.rollout.workers.shard import Recipe, ShardRunner, Task
from common.state import State, join_parts, part_of
from ppo.batch import flat_batch, scaled_rewards


class WholeEpochs(Collector):
    """A collector of environments that a test has built."""

    def __init__(
        self, envs: VectorEnv, action_map: ActionMap, steps: int, seed: int = 0, shape_noise: ShapeNoise | None = None,
        way: str = "episodes", restarts: int = 0, warn: Any = print,
    ) -> None:  # fmt: skip
        config = TrainingConfig(
            num_envs=envs.num_envs, steps_per_epoch=steps * envs.num_envs, environment_restarts=restarts
        )
        before = collector.find_restore_method, collector.Recipe
        given = SimpleNamespace(build=lambda: envs, way=way, action_map=action_map)  # they are built already
        collector.find_restore_method, collector.Recipe = lambda *_: way, lambda *_: given
        try:
            super().__init__(
                config,
                find_environment("Pendulum-v1"),
                action_map,
                seed,
                warn,
                CollectingPlan(shape_noise=shape_noise),
            )
        finally:
            collector.find_restore_method, collector.Recipe = before
        self.restart = self.envs.restart

    def collect(self, policy: Policy, timing: Timing) -> Trajectory:
        return super().collect(policy, 0, timing)

    def state(self) -> State:
        return part_of(super().state(), "collector")

    def load_state(self, state: State) -> None:
        super().load_state(join_parts({"collector": state, "episodes": self.scores.state()}))


def watched_updates(trainer: Any) -> list[tuple]:
    """Batch, rows of actor and critic, and hyperparameters of every update from now on, in a list that grows."""
    seen, update = [], trainer.agent.update
    trainer.agent.update = lambda *arguments: seen.append(arguments) or update(*arguments)
    return seen


def mean_return(trainer: Any, episodes: int) -> float:
    """Of the agent's deterministic episodes."""
    played = trainer.agent.acting_policy(), trainer.agent.action_map, trainer.environment, episodes
    return evaluate(*played, deterministic=True, workers=1).returns.mean()


def next_trajectory(trainer: Any) -> Trajectory:
    """What a PPO trainer learns from next, collected by its present policy."""
    return trainer.collector.collect(trainer.agent.collecting_policy(), trainer.epoch, Timing())


def batch_of(trainer) -> Batch:
    """What a PPO trainer would learn from next."""
    trained, config = trainer.collector, trainer.config
    rewards, _ = scaled_rewards(
        trained.shaped_rewards, trained.trajectory, config.gamma, config, trainer.reward_statistics
    )
    agent = trainer.agent
    return flat_batch(
        trained.trajectory, rewards, agent.normalize, agent.assess, config.gamma, config,
        trainer.advantage_statistics,
    ).batch  # fmt: skip


class Reliable:
    """Stands for workers that are never lost: performs all tasks in the same environments."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._host = recipe, ShardRunner(recipe)

    def perform(self, tasks: list[Task], snapshot, policy=None) -> list:
        return [self._host.perform(task, None, policy) for task in tasks]

    def close(self):
        for shard in range(len(self._recipe.build().groups)):
            self._host.leave(shard)


class Forgetful(Reliable):
    """Performs every task in environments that are built for it, so each shard is restored from its snapshot."""

    def perform(self, tasks: list[Task], snapshot, policy=None) -> list:
        values = []
        for task in tasks:
            host = ShardRunner(self._recipe)
            values.append(host.perform(task, None if task.method == "reset" else snapshot(task), policy))
            host.leave(task.shard)
        return values
