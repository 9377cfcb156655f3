"""Images and numbers in one observation: learned from, resumed and exported, by every method."""

import numpy as np
import pytest
from same_state import assert_same_state, resumed_and_whole

from companions.config import OffPolicyConfig, SACConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.SACAgentTrainer import SACAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from programs import policy_files

PPO = PPOConfig(
    env="tests/DotAndSign-v0", backend="gymnasium", num_envs=16, epochs=14, steps_per_epoch=576, minibatch_size=96,
    passes=6, learning_rate=3e-3, convolutions=("8x3/3",), hidden_sizes=(32,), gamma=0.0, gae_lambda=0.0,
    best_metric="mean_episode_reward", adopt_best=False,
)  # fmt: skip
OFF_POLICY = {
    "env": "tests/PointAtDot-v0", "epochs": 3, "steps_per_epoch": 18, "warmup_steps": 10, "batch_size": 4,
    "train_every": 4, "hidden_sizes": (8,), "best_metric": "mean_episode_reward", "score_window": 1, "gamma": 0.0,
}  # fmt: skip


def test_ppo_learns_from_both():
    trainer = PPOAgentTrainer(PPO)
    trainer.train()
    trainer.close()
    assert trainer.results[0].avg_reward < 9 < 13 < trainer.results[-1].avg_reward


TRAINERS = {
    "PPO": (PPOAgentTrainer, PPO.replace(num_envs=2, epochs=3, steps_per_epoch=36, minibatch_size=18, passes=2)),
    "TD3": (OffPolicyAgentTrainer, OffPolicyConfig(**OFF_POLICY)),
    "SAC": (SACAgentTrainer, SACConfig(**OFF_POLICY, normalize_observations=True)),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_resumed_run_is_the_same_and_all_files_act_as_the_agent(name, tmp_path):
    trainer, config = TRAINERS[name]
    resumed, whole, _ = resumed_and_whole(lambda: trainer(config), 1, 3)
    assert_same_state(resumed.state(), whole.state())
    written = policy_files.export(whole.agent, tmp_path, onnx=True)
    assert [file.path.name for file in written] == ["saved_model", "policy.tflite", "policy.onnx"]
    images = whole.agent.images[0].columns
    normalize = whole.agent.normalizer()
    assert normalize.shift is None or (normalize.scale[images] == 1).all()


@pytest.mark.xla
def test_ppo_learns_from_both_with_rounded_products():
    trainer = PPOAgentTrainer(TRAINERS["PPO"][1].replace(precision="bfloat16", hidden_sizes=(8, 8)))
    trainer.train(1)
    trainer.close()
    assert np.isfinite(trainer.results[0].loss_actor)


def test_observations_have_images_between_0_and_1():
    trainer = PPOAgentTrainer(TRAINERS["PPO"][1])
    trainer.prepare()
    seen = trainer.collector.trajectory.observations[..., trainer.agent.images[0].columns]
    trainer.close()
    assert set(np.unique(seen)) == {0.0, 1.0}
