"""Named settings of SAC and TQC, each with its source."""

from companions.config import SACConfig

# SAC as its authors publish it (arXiv:1812.05905, table 1), and TQC (arXiv:2005.04269) by one setting more.
SAC = SACConfig()
TQC = SAC.replace(quantiles=25)

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

# The numbers of rl-baselines3-zoo for TQC (hyperparams/tqc.yml), over 500,000 steps. Two things differ: its walker
# explores with noise that depends on the state (arXiv:2005.05719), and its lander's learning rate falls to 0.
ZOO = dict(
    hidden_sizes=(400, 300),
    learning_rate=7.3e-4,
    batch_size=256,
    warmup_steps=10_000,
    epochs=100,
    validate_every=5,
)
BIPEDAL_WALKER_TQC = TQC.replace(
    env="BipedalWalker-v3", replay_size=300_000, gamma=0.98, tau=0.02, train_every=64, updates_per_train=64, **ZOO
)
LUNAR_LANDER_TQC = TQC.replace(env="LunarLanderContinuous-v3", gamma=0.99, tau=0.01, validation_episodes=50, **ZOO)

PRESETS: dict[str, SACConfig] = {
    "pendulum-sac": PENDULUM_SAC,
    "bipedal-walker-tqc": BIPEDAL_WALKER_TQC,
    "lunar-lander-tqc": LUNAR_LANDER_TQC,
    "sac": SAC,
    "tqc": TQC,
}
"""name → config; for other environments start from `sac` or `tqc`: `tqc --env ID`."""


def preset_for(env_id: str) -> str:
    """The name of the preset that `--env ID` starts from: `sac`, which is `SACConfig()`, for every environment.

    Args:
        env_id: an environment's id, as it is typed.
    """
    return "sac"
