"""Named settings of DDPG and TD3, each with its source."""

from companions.config import OffPolicyConfig

# The published Pendulum system: 500 episodes of 200 steps, an update every ten steps, small networks, all its quirks.
PENDULUM_TD3 = OffPolicyConfig(
    env="Pendulum-v1",
    epochs=50,
    steps_per_epoch=2000,
    hidden_sizes=(32, 32, 32),
    exploration_std=0.2,
    warmup_steps=500,
    warmup_actions="policy",
    replay_size=10_000,
    batch_size=32,
    train_every=10,
    gamma=0.9,
    tau=0.02,
    learning_rate=3e-3,
    quirks=("truncation_is_terminal", "actor_first", "targets_every_update"),
    best_metric="mean_episode_reward",
    adopt_best=False,
)
# Not published: DDPG with these numbers.
PENDULUM_DDPG = PENDULUM_TD3.replace(twin_critics=False, target_smoothing=0.0, policy_delay=1)

# The same numbers without its mistakes, and with the best parameters instead of the last: at this learning rate,
# scores swing until the end.
CORRECTED = dict(
    quirks=(),
    best_metric="validation",
    validate_every=5,
    validation_episodes=100,
    adopt_best=True,
)
PENDULUM_TD3_CORRECTED = PENDULUM_TD3.replace(**CORRECTED)
PENDULUM_DDPG_CORRECTED = PENDULUM_DDPG.replace(**CORRECTED)

# As many updates as environment steps, in calls of fifty.
PENDULUM_TD3_FAST = PENDULUM_TD3_CORRECTED.replace(
    epochs=20,
    steps_per_epoch=1000,
    warmup_steps=1000,
    warmup_actions="random",
    replay_size=20_000,
    batch_size=64,
    train_every=50,
    updates_per_train=50,
    learning_rate=1e-3,
    gamma=0.95,
    tau=0.01,
    validate_every=2,
    validation_episodes=30,
)

# Pendulum in few seconds, most of which start TensorFlow and compile; the log tells what was tried. Networks obey the
# mirror, and targets move quickly. The mean of the last epochs' weights is kept, since the last weights swing. It
# needs a validation, a short one at the end. Cycles of one update compile sooner than TD3's of two.
PENDULUM_TD3_SECONDS = PENDULUM_TD3_FAST.replace(
    symmetry=True,
    num_envs=4,
    epochs=30,
    steps_per_epoch=120,
    hidden_sizes=(64, 64),
    warmup_steps=200,
    batch_size=128,
    train_every=40,
    updates_per_train=40,
    learning_rate=2e-3,
    gamma=0.98,
    tau=0.02,
    policy_delay=1,
    validate_every=1,
    validate_from=(1.0,),
    validation_episodes=10,
    average_weights=0.85,
)

# TD3 as its authors publish it (arXiv:1802.09477 and their code), and DDPG without TD3's additions.
TD3 = OffPolicyConfig()
DDPG = TD3.replace(twin_critics=False, target_smoothing=0.0, policy_delay=1)

# One update per two environment steps, and the reward design of PPO's walker.
BIPEDAL_WALKER_TD3 = TD3.replace(
    env="BipedalWalker-v3",
    reward_design="outcome_bonus",
    epochs=120,
    warmup_steps=10_000,
    batch_size=128,
    train_every=50,
    updates_per_train=25,
    learning_rate=1e-3,
    validate_every=5,
)

# The lander tends to hover until the time limit, since early crashes taught it to avoid the ground. Noise with a
# memory of two thirds of a second brings it down, which independent noise does not. A γ of 0.98, which others use,
# discounts the landing's reward too much (the log).
LUNAR_LANDER_TD3 = TD3.replace(
    env="LunarLanderContinuous-v3",
    epochs=100,
    steps_per_epoch=3000,
    warmup_steps=10_000,
    batch_size=128,
    train_every=50,
    updates_per_train=25,
    learning_rate=1e-3,
    exploration="ornstein_uhlenbeck",
    ou_dt=0.2,
    exploration_std=0.15,
    final_exploration_std=0.02,
    validate_every=5,
    validation_episodes=50,
)

# Rough ground. A fall costs little until the walker gets far, and more the better it is. All steps are actions, of
# three of the environment's steps each. With validations of 50 episodes the parameters that were kept were worse than
# the last ones; the log tells what else was tried.
HARDCORE_TD3 = TD3.replace(
    env="BipedalWalkerHardcore-v3",
    reward_design="fall_penalty",
    fall_cost=("5", "20@150", "50@220"),
    action_cost=("0.05@200",),
    symmetry=True,
    mirror={"weight": 0.4},  # with 0.5 a policy may fall at the start of episodes without noise: its legs do the same
    layer_norm=True,
    backend="auto",
    num_envs=16,
    epochs=120,
    steps_per_epoch=9600,
    warmup_steps=10_000,
    batch_size=128,
    train_every=64,
    updates_per_train=32,
    action_repeat=(3, 1),  # an action's outcome is fewer decisions away; agents that play fall less without
    gamma=0.98,  # 150 of the environment's steps
    n_step=2,
    exploration_std=0.2,
    final_exploration_std=0.1,
    learning_rate=5e-4,
    anneal=("learning_rate",),
    validate_every=6,
    validate_from=(0.7,),
    validation_episodes=200,
    average_weights=0.8,
)

PRESETS: dict[str, OffPolicyConfig] = {
    "pendulum-ddpg": PENDULUM_DDPG,
    "pendulum-td3": PENDULUM_TD3,
    "pendulum-ddpg-corrected": PENDULUM_DDPG_CORRECTED,
    "pendulum-td3-corrected": PENDULUM_TD3_CORRECTED,
    "pendulum-td3-fast": PENDULUM_TD3_FAST,
    "pendulum-td3-seconds": PENDULUM_TD3_SECONDS,
    "bipedal-walker-td3": BIPEDAL_WALKER_TD3,
    "bipedal-walker-hardcore-td3": HARDCORE_TD3,
    "lunar-lander-td3": LUNAR_LANDER_TD3,
    "td3": TD3,
    "ddpg": DDPG,
}
"""name → config; for other environments start from `td3` or `ddpg`: `td3 --env ID`."""


def preset_for(env_id: str) -> str:
    """`td3`, which has the default settings: what `--env ID` starts from for every environment."""
    return "td3"
