"""What tests collect and learn from, built as trainers build it."""

from common.envs.spaces import ActionMap
from common.envs.vector_env import VectorEnv
from common.records import Batch, Timing, Trajectory
from common.rollout.collector import Collector, ShapeNoise
from common.rollout.policies import Policy
from common.rollout.repeatable import RepeatableEnvs
from ppo.batch import flat_batch, scaled_rewards


class WholeEpochs:
    """A collector whose epochs are collected in one call."""

    def __init__(
        self,
        envs: VectorEnv,
        action_map: ActionMap,
        steps: int,
        seed: int = 0,
        shape_noise: ShapeNoise | None = None,
        **of_envs: object,
    ) -> None:
        self.envs = RepeatableEnvs(envs, action_map, seed, **of_envs)
        self.collector = Collector(self.envs, steps, action_map.size, action_map.noise_size, seed, shape_noise)
        self.restart, self.state, self.load_state = self.envs.restart, self.collector.state, self.collector.load_state

    def collect(self, policy: Policy, timing: Timing) -> Trajectory:
        for _ in self.collector.collect(policy, timing):
            pass
        return self.collector.trajectory


def batch_of(trainer) -> Batch:
    """What a PPO trainer would learn from next."""
    experience, config = trainer.experience, trainer.config
    rewards, _ = scaled_rewards(
        experience.shaped_rewards, experience.trajectory, config.gamma, config, trainer.reward_statistics
    )
    agent = trainer.agent
    return flat_batch(
        experience.trajectory, rewards, agent.normalize, agent.assess, config.gamma, config,
        trainer.advantage_statistics,
    ).batch  # fmt: skip
