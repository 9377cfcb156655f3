"""Presets that carry a published program's name have its numbers: each with the line of its source."""

import math

import pytest

from companions import presets as companions
from ppo.presets import PRESETS

# (setting, value, line of the source); a source is a file at the commit that a page of docs/sources links.
STUDY = (  # ppo_continuous_tf 54c22f8 (version 2.0)
    ("env", "BipedalWalker-v3", "README, table of environments; the notebook builds BipedalWalkerHardcore-v3"),
    ("max_episode_steps", 2000, "training.ipynb, max_steps_episode"),
    ("reward_design", "lasted_to_limit", "training.ipynb, EnvWrapper_01"),
    ("num_envs", 1, "PPOAgentTrainer.py 224"),
    ("epochs", 500, "training.ipynb, epochs"),
    ("steps_per_epoch", 20_480, "training.ipynb, trajectory_size"),
    ("hidden_sizes", (), "Agent.py 132-134"),
    ("activation", "tanh", "Agent.py 136"),
    ("initial_gains", (1.0, 1.0), "Agent.py 136, 140"),
    ("mean_activation", "tanh", "Agent.py 140"),
    ("initial_std", None, "Agent.py 142"),
    ("learning_rate", 1e-3, "Agent.py 115, 341"),
    ("critic_learning_rate", None, "Agent.py 341"),
    ("anneal", (), "Agent.py 115"),
    ("adam_epsilon", 1e-8, "Agent.py 115"),
    ("normalize_observations", False, "PPOAgentTrainer.py 299"),
    ("reward_scaling", "rewards", "PPOAgentTrainer.py 301"),
    ("gamma", 0.99, "training.ipynb, gamma"),
    ("gae_lambda", 0.95, "training.ipynb, lamda_GAE"),
    ("normalize_advantages", "none", "PPOAgentTrainer.py 302"),
    ("value_target", "advantage", "README, Vtarg"),
    ("passes", 1, "PPOAgentTrainer.py 330"),
    ("minibatch_size", 2048, "training.ipynb, batch_size"),
    ("clip_range", 0.2, "training.ipynb, clip_range"),
    ("entropy_coefficient", 0.1, "training.ipynb, loss_actor_entropy_coef"),
    (
        "quirks",
        ("truncation_is_terminal", "restart_at_epoch_end", "saturating_log_prob", "density_entropy"),
        "PPOAgentTrainer.py 302, 211; Agent.py 260, 279, 312",
    ),
    ("value_loss", "squared", "Agent.py 423: the mean square, without ½"),
    ("max_gradient_norm", None, "Agent.py, train"),
    ("best_metric", "total_reward", "PPOAgentTrainer.py, max_total_rew"),
    ("adopt_best", False, "Agent.py 174: the variables themselves are kept, not copies"),
)
CARTPOLE = (  # LearnAI 58a702c, RL/PPO_Discrete
    ("env", "CartPole-v1", "demo.py 8"),
    ("max_episode_steps", 1024, "ARG.py 10"),
    ("num_envs", 1, "Env.py 24"),
    ("steps_per_epoch", 2048, "ARG.py 11"),
    ("quirks", ("truncation_is_terminal", "terminal_at_epoch_end"), "Env.py 38, 41, 53-54, 66"),
    ("hidden_sizes", (16,), "PolicyNN.py 6, ValueNN.py 6"),
    ("activation", "relu", "PolicyNN.py 7"),
    ("initial_gains", (), "PolicyNN.py 6: PyTorch's"),
    ("shared_torso", False, "PPO.py 10-11"),
    ("learning_rate", 3e-4, "ARG.py 4"),
    ("critic_learning_rate", None, "ARG.py 6: the same"),
    ("anneal", (), "PPO.py 13"),
    ("adam_epsilon", 1e-8, "PPO.py 13: PyTorch's default"),
    ("normalize_observations", False, "Env.py 83"),
    ("reward_scaling", "none", "Env.py 50"),
    ("reward_design", "unchanged", "Env.py 50"),
    ("normalize_advantages", "epoch", "Env.py 94"),
    ("gamma", 0.99, "ARG.py 1"),
    ("gae_lambda", 1.0, "Env.py 68, 92"),
    ("value_target", "advantage", "Env.py 92, 150: the return"),
    ("passes", 10, "ARG.py 8"),
    ("minibatch_size", 2048 // 64, "Env.py 126"),
    ("clip_range", 0.2, "ARG.py 2"),
    ("objective", "clip", "Env.py 148"),
    ("entropy_coefficient", 0.0, "Env.py 148"),
    ("value_loss", "squared", "Env.py 150: MSELoss, without ½"),
    ("max_gradient_norm", None, "Env.py 152-158"),
    ("adopt_best", False, "demo.py 11"),
)
MINIMAL = (  # minimalRL 17a7f67, ppo.py
    ("env", "CartPole-v1", "84"),
    ("max_episode_steps", None, "84: Gymnasium's 500"),
    ("num_envs", 1, "84"),
    ("minibatch_size", 20, "87"),
    ("shared_torso", True, "17-19"),
    ("hidden_sizes", (256,), "17"),
    ("activation", "relu", "23"),
    ("initial_gains", (), "17: PyTorch's"),
    ("learning_rate", 5e-4, "20"),
    ("anneal", (), "20"),
    ("adam_epsilon", 1e-8, "20: PyTorch's default"),
    ("reward_design", "scaled", "100"),
    ("reward_factor", 0.01, "100"),
    ("reward_scaling", "none", "100"),
    ("normalize_observations", False, "96"),
    ("gamma", 0.98, "12"),
    ("gae_lambda", 0.95, "13"),
    ("quirks", ("truncation_is_terminal",), "46"),
    ("value_target", "one_step", "59"),
    ("recompute_targets", True, "58-59"),
    ("normalize_advantages", "none", "69"),
    ("passes", 2, "15"),
    ("clip_range", 0.1, "14"),
    ("value_loss", "smooth_l1", "77: ½ below 1, as PyTorch's"),
    ("value_coefficient", 1.0, "77"),
    ("entropy_coefficient", 0.0, "77"),
    ("max_gradient_norm", None, "79-81"),
    ("score_window", 20, "89"),
    ("adopt_best", False, "113"),
)
BREAKOUT_OF_BOTH = (
    ("env", "ALE/Breakout-v5", "gym.make of BreakoutNoFrameskip-v4"),
    ("env_kwargs", {"one_life": True}, "Game.step: reset() after a lost life"),
    ("reward_design", "unchanged", "Game.step: reward += r"),
    ("reward_scaling", "none", "Game.step"),
    ("normalize_observations", False, "obs_to_torch: ÷ 255, as our network does"),
    ("num_envs", 8, "n_workers"),
    ("steps_per_epoch", 10 * 8 * 128, "worker_steps, ten updates"),
    ("updates_per_epoch", 10, "10,000 updates in all"),
    ("epochs", 1000, "10,000 updates in all"),
    ("minibatch_size", 8 * 128 // 4, "mini_batch_size"),
    ("shared_torso", True, "Model"),
    ("convolutions", ("32x8/4", "64x4/2", "64x3/1"), "Model"),
    ("hidden_sizes", (512,), "Model"),
    ("activation", "relu", "Model"),
    ("adam_epsilon", 1e-8, "optim.Adam: PyTorch's default"),
    ("gamma", 0.99, "GAE"),
    ("gae_lambda", 0.95, "GAE"),
    ("quirks", ("truncation_is_terminal",), "GAE: mask of done; pi.entropy(), the exact one"),
    ("normalize_advantages", "minibatch", "_normalize"),
    ("clip_range", 0.1, "clip_range"),
    ("value_loss", "clipped", "vf_loss"),
    ("value_coefficient", 0.5 * 0.5, "value_loss_coef 0.5, of 0.5 * vf_loss.mean()"),
    ("entropy_coefficient", 0.01, "entropy_bonus_coef"),
    ("max_gradient_norm", 0.5, "clip_grad_norm_"),
    ("adopt_best", False, "the last weights stay"),
)
BREAKOUT_2021 = (  # annotated_deep_learning_paper_implementations 1b70252, labml_nn/rl
    *BREAKOUT_OF_BOTH,
    ("passes", 8, "ppo/experiment.py 362"),
    ("learning_rate", 1e-3, "ppo/experiment.py 379, set at each minibatch; 2.5e-4 in 146 is overwritten"),
    ("anneal", (), "ppo/experiment.py 376, 379"),
    ("initial_gains", (), "ppo/experiment.py 46-65: PyTorch's"),
)
BREAKOUT_2020 = (  # rl_samples b1fe550, ppo.py
    *BREAKOUT_OF_BOTH,
    ("passes", 4, "547"),
    ("learning_rate", 2.5e-4, "755"),
    ("anneal", ("learning_rate", "clip_range"), "755, 756"),
    ("initial_gains", (math.sqrt(2), math.sqrt(0.01)), "220-245, 250"),
)
PENDULUM = (  # the published numbers of DDPG and TD3 on Pendulum
    ("env", "Pendulum-v1", "environment"),
    ("hidden_sizes", (32, 32, 32), "networks: 3 × Dense 32"),
    ("learning_rate", 3e-3, "Adams"),
    ("replay_size", 10_000, "replay"),
    ("warmup_steps", 500, "warm-up"),
    ("warmup_actions", "policy", "warm-up"),
    ("train_every", 10, "an update every ten steps"),
    ("updates_per_train", 1, "an update every ten steps"),
    ("batch_size", 32, "batch"),
    ("gamma", 0.9, "γ"),
    ("tau", 0.02, "τ"),
    ("exploration_std", 0.2, "N(0, 0.2)"),
    (
        "quirks",
        ("truncation_is_terminal", "actor_first", "targets_every_update"),
        "the end after 200 steps; order of an update",
    ),
    ("adopt_best", False, "the last parameters"),
)
TD3 = (
    *PENDULUM,
    ("twin_critics", True, "the smaller of two"),
    ("target_smoothing", 0.2, "smoothing"),
    ("policy_delay", 2, "every second update"),
)
DDPG = (
    *PENDULUM,
    ("twin_critics", False, "one critic"),
    ("target_smoothing", 0.0, "none"),
    ("policy_delay", 1, "every update"),
)
PUBLISHED = {
    "bipedal-walker-2021": STUDY,
    "cartpole": CARTPOLE,
    "cartpole-minimal": MINIMAL,
    "breakout-2021": BREAKOUT_2021,
    "breakout-2020": BREAKOUT_2020,
    "pendulum-td3": TD3,
    "pendulum-ddpg": DDPG,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_programs_preset_has_its_numbers(name):
    preset = (PRESETS | companions.PRESETS)[name]
    for setting, value, line in PUBLISHED[name]:
        found = getattr(preset, setting)
        assert found == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), (setting, line)


def test_the_studys_later_revision_differs_in_three_settings():
    revised, published = PRESETS["bipedal-walker-2021-revised"], PRESETS["bipedal-walker-2021"]
    switches = ("reward_design", "normalize_advantages", "value_target")
    assert [getattr(revised, name) for name in switches] == ["fall_penalty", "running_std", "normalized_advantage"]
    assert revised.replace(**{name: getattr(published, name) for name in switches}) == published
