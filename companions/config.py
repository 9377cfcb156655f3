"""The settings of DDPG and TD3, in one frozen dataclass."""

from dataclasses import dataclass
from typing import Literal

from common.config import MetricName, TrainingConfig
from common.errors import UserError


@dataclass(frozen=True)
class OffPolicyConfig(TrainingConfig):
    """Deep deterministic policy gradient (arXiv:1509.02971) and its twin-delayed successor (TD3, arXiv:1802.09477).

    The defaults are TD3 as its authors publish it; `companions.presets` has the named settings.
    """

    METHOD = "off-policy"

    backend: Literal["auto", "gymnasium", "envpool", "processes"] = "gymnasium"
    num_envs: int = 1
    epochs: int = 200
    steps_per_epoch: int = 5000
    best_metric: MetricName = "validation"
    validate_every: int = 10
    validation_episodes: int = 30

    # -- networks --
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Units of the hidden layers, actor and critics alike."""
    activation: Literal["tanh", "relu"] = "relu"
    """Of the hidden layers."""

    # -- exploration --
    exploration: Literal["gaussian", "ornstein_uhlenbeck"] = "gaussian"
    """Noise on the actions: independent, or drifting back to 0 with a memory."""
    exploration_std: float = 0.1
    """Its standard deviation (of Ornstein-Uhlenbeck: its σ), in units of half the action range."""
    final_exploration_std: float | None = None
    """What exploration_std falls or rises to, linearly over the epochs; None keeps it."""
    ou_theta: float = 0.15
    """How fast Ornstein-Uhlenbeck noise drifts back, per unit of time."""
    ou_dt: float = 0.01
    """Units of time in an environment step, for Ornstein-Uhlenbeck noise."""
    warmup_steps: int = 25_000
    """Steps before the first update."""
    warmup_actions: Literal["random", "policy"] = "random"
    """Until then: uniform in the action range, or the policy's with noise."""

    # -- replay --
    replay_size: int = 1_000_000
    """Newest transitions that are kept."""
    batch_size: int = 256
    """Transitions of an update."""
    train_every: int = 1
    """Environment steps between two times of training."""
    updates_per_train: int = 1
    """Updates each time, all in one compiled call."""

    # -- update --
    gamma: float = 0.99
    """Discount of a step."""
    learning_rate: float = 3e-4
    """Of the actor's Adam."""
    critic_learning_rate: float | None = None
    """Of the critics' Adam; None takes learning_rate for both."""
    adam_epsilon: float = 1e-7
    """Adam's epsilon."""
    target_update: Literal["soft", "hard"] = "soft"
    """Target networks follow by tau each time, or are copied now and then."""
    tau: float = 0.005
    """Share of the way a soft target goes."""
    hard_update_every: int = 200
    """Updates between two hard copies."""
    truncation_is_terminal: bool = False
    """Quirk: give a timeout no future value."""
    actor_first: bool = False
    """Quirk: update the actor before the critic has learned from the minibatch."""
    targets_every_update: bool = False
    """Quirk: with delayed actor updates, let the targets move with every update of the critics."""

    # -- TD3's three parts; with all of them off it is DDPG --
    twin_critics: bool = True
    """Clipped double Q-learning: the smaller of two target critics."""
    target_smoothing: bool = True
    """Noise on the action that the target is taken at."""
    smoothing_std: float = 0.2
    """Its standard deviation, in units of half the action range."""
    smoothing_clip: float = 0.5
    """What it is cut to."""
    policy_delay: int = 2
    """Updates of the critics for each of the actor and the targets; 1 is no delay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps >= self.epochs * self.steps_per_epoch:
            raise UserError(
                f"warmup_steps {self.warmup_steps} leaves nothing to learn in {self.epochs} epochs of "
                f"{self.steps_per_epoch} steps: use --warmup-steps {self.epochs * self.steps_per_epoch // 10} or less"
            )
        if self.batch_size > self.replay_size:
            raise UserError(
                f"batch_size {self.batch_size} is larger than replay_size {self.replay_size}: "
                f"use --batch-size {self.replay_size} or less"
            )
