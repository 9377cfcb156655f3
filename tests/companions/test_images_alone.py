"""Off-policy methods on images alone: they learn, resume to the byte, are exported and shipped, and play."""

import keras
import numpy as np
import pytest
from gymnasium.spaces import Box
from same_state import assert_same_state, resumed_and_whole

from common.rollout import policy_file
from companions.config import OffPolicyConfig, SACConfig
from companions.DDPGAgent import DDPGAgent
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.SACAgentTrainer import SACAgentTrainer
from programs import policy_files, ship, shipped

SMALL = {
    "env": "tests/PointAtDotAlone-v0", "num_envs": 4, "epochs": 5, "steps_per_epoch": 144, "warmup_steps": 128,
    "batch_size": 32, "train_every": 16, "updates_per_train": 16, "hidden_sizes": (32,), "gamma": 0.0,
    "learning_rate": 3e-3, "best_metric": "mean_episode_reward", "score_window": 1, "adopt_best": False,
}  # fmt: skip
KINDS = {"TD3": (OffPolicyAgentTrainer, OffPolicyConfig), "TQC": (SACAgentTrainer, SACConfig)}
SETTINGS = {
    "TD3": {"n_step": 2, "normalize_observations": True},
    "TQC": {"quantiles": 5, "anneal": ("learning_rate",)},
}


@pytest.mark.compiled
def test_it_learns_where_the_dot_is():
    """No action that ignores the image scores above −4.4 in eight steps, and knowing 0."""
    trainer, said = OffPolicyAgentTrainer(OffPolicyConfig(**SMALL)), []
    trainer.warn = said.append
    trainer.train()
    trainer.close()
    assert said == ["the replay buffer takes up to 0.2 GiB of memory (--replay-size)"]
    assert trainer.results[0].avg_reward < -4 < -3 < trainer.results[-1].avg_reward


def trained(kind):
    trainer, config = KINDS[kind]
    small = SMALL | SETTINGS[kind] | {"train_every": 48, "updates_per_train": 1, "batch_size": 4, "replay_size": 300}
    return resumed_and_whole(lambda: trainer(config(**small)), 2, 4)


def test_a_resumed_run_is_the_same():
    resumed, whole, state = trained("TQC")
    assert_same_state(resumed.state(), whole.state())
    assert len(state["replay/observations"]) < whole.replay.capacity == len(whole.state()["replay/observations"])


def test_a_resumed_run_is_the_same_and_what_is_written_of_it_acts_as_the_agent(tmp_path):
    resumed, whole, _ = trained("TD3")
    assert_same_state(resumed.state(), whole.state())
    written = policy_files.export(whole.agent, tmp_path, onnx=True)
    assert [file.path.name for file in written] == ["saved_model", "policy.tflite", "policy.onnx"]
    ship.write_policy(tmp_path / "policy.npz", whole.agent)
    other = type(whole)(whole.config.replace(seed=1)).agent
    shipped.set_actor(other, policy_file.read_arrays(tmp_path / "policy.npz"))
    seen = np.random.default_rng(0).integers(256, size=(5, 12, 12, 1)).astype(np.uint8)
    np.testing.assert_array_equal(other.acting_policy().act(seen), whole.agent.acting_policy().act(seen))
    assert whole.agent.values(seen).shape == (5,)


def test_networks_of_the_users_own_see_the_image():
    def make_networks(space, *_):
        image = keras.Input(space.shape)
        seen = keras.layers.Conv2D(2, 3, 2, activation="relu")(keras.layers.Rescaling(1 / 255)(image))
        return keras.Model(image, keras.layers.Flatten()(seen))

    image, config = Box(0, 255, (12, 12, 1), np.uint8), OffPolicyConfig(hidden_sizes=(4,))
    agent = DDPGAgent(image, Box(-1.0, 1.0, (1,)), config, 0, make_networks)
    rows = np.full((2, 3, 2 * 144 + 12), 200, np.uint8)
    rows[..., 144:-144] = np.array([0, 1, 0], np.float32).view(np.uint8)  # action, reward, terminated
    before = agent.values(np.full((2, 12, 12, 1), 200, np.uint8))
    agent.update(rows, np.zeros((2, 3, agent.update_noise_size), np.float32))
    assert (agent.values(np.full((2, 12, 12, 1), 200, np.uint8)) != before).all()
