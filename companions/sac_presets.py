"""Named settings of SAC, TQC and CrossQ, each with its source."""

from companions.config import SACConfig

# SAC as its authors publish it (arXiv:1812.05905, table 1), and TQC (arXiv:2005.04269) by one setting more.
SAC = SACConfig()
TQC = SAC.replace(quantiles=25)

# CrossQ as its authors publish it (arXiv:1902.05605 and their code), with critics of 2,048 units.
CROSSQ = SAC.replace(
    crossq=True,
    critic_hidden_sizes=(2048, 2048),
    warmup_steps=5000,
    learning_rate=1e-3,
    adam_beta=0.5,
    policy_delay=3,
)

# MuJoCo's tasks: a million steps, with the same settings for all of them.
MUJOCO_SAC = SAC.replace(env="HalfCheetah-v5")
MUJOCO_TQC = TQC.replace(env="HalfCheetah-v5")
MUJOCO_CROSSQ = CROSSQ.replace(env="HalfCheetah-v5", critic_hidden_sizes=(256, 256))  # an update as quick as SAC's

# As many updates as environment steps, in calls of fifty.
PENDULUM_SAC = SAC.replace(
    env="Pendulum-v1",
    epochs=20,
    steps_per_epoch=1000,
    hidden_sizes=(64, 64),
    warmup_steps=1000,
    replay_size=20_000,
    batch_size=64,
    train_every=50,
    updates_per_train=50,
    learning_rate=1e-3,
    gamma=0.95,
    tau=0.01,
    validate_every=2,
)

# What the best scores of walker and lander have in common; the log tells what was tried. Networks obey the mirror, so
# that a minibatch of 128 counts twice. Small ones suffice, and more of their updates fit into a minute.
SMALL_SYMMETRIC_TQC = TQC.replace(
    symmetry=True,
    steps_per_epoch=2500,
    hidden_sizes=(128, 128),
    warmup_steps=5000,
    batch_size=128,
    train_every=64,
    updates_per_train=64,
    learning_rate=7.3e-4,
    anneal=("learning_rate",),
    tau=0.01,
    validate_from=(0.3,),
    validation_episodes=50,
    average_weights=0.8,
)

# Once it walks, force costs more, so that it walks with less of it, and a fall costs more, so that it stays upright.
BIPEDAL_WALKER_TQC = SMALL_SYMMETRIC_TQC.replace(
    env="BipedalWalker-v3",
    reward_design="fall_penalty",
    fall_cost=("10", "40@200"),
    action_cost=("0.05@200",),
    score_window=10,
    epochs=108,
    gamma=0.97,
    validate_every=6,
)

# With less entropy and a longer horizon than usual it lands sooner.
LUNAR_LANDER_TQC = SMALL_SYMMETRIC_TQC.replace(
    env="LunarLanderContinuous-v3",
    epochs=120,
    gamma=0.995,
    target_entropy=-5.0,
    validate_every=8,
)

PRESETS: dict[str, SACConfig] = {
    "pendulum-sac": PENDULUM_SAC,
    "bipedal-walker-tqc": BIPEDAL_WALKER_TQC,
    "lunar-lander-tqc": LUNAR_LANDER_TQC,
    "mujoco-sac": MUJOCO_SAC,
    "mujoco-tqc": MUJOCO_TQC,
    "mujoco-crossq": MUJOCO_CROSSQ,
    "sac": SAC,
    "tqc": TQC,
    "crossq": CROSSQ,
}
"""name → config; for other environments start from `sac`, `tqc` or `crossq`: `tqc --env ID`."""


def preset_for(env_id: str) -> str:
    """`sac`, which has the default settings: what `--env ID` starts from for every environment."""
    return "sac"
