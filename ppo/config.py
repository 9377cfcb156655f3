"""The settings of proximal policy optimisation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from common.config import TrainingConfig
from common.errors import UserError


@dataclass(frozen=True)
class PPOConfig(TrainingConfig):
    """Proximal policy optimisation (arXiv:1707.06347), separate networks, the policy picked by the action space.

    The defaults serve any Gymnasium environment but images; `ppo.presets` has the named settings.
    """

    METHOD = "ppo"

    updates_per_epoch: int = 1
    """How often an epoch collects and trains; its steps are divided among them, its row is their mean."""
    restart_each_epoch: bool = False
    """Quirk of 2021: throw running episodes away at an epoch's end and count them as whole ones."""

    # -- networks --
    shared_torso: bool = False
    """One torso under both heads, and one Adam for the sum of the losses; else networks of their own."""
    filters: tuple[int, ...] = (32, 64, 64)
    """Filters of the convolutions; these three settings are for images only (Mnih et al. 2015)."""
    kernel_sizes: tuple[int, ...] = (8, 4, 3)
    """Side of each convolution's kernels, in pixels."""
    strides: tuple[int, ...] = (4, 2, 1)
    """Pixels each convolution moves on by."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of the hidden layers, actor and critic alike; none at all gives 10·S, ceil(sqrt(10·S·10·A)), 10·A."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of the hidden layers."""
    hidden_gain: float = math.sqrt(2)
    """Gain of the hidden layers' orthogonal kernels; the study had 1."""
    mean_activation: Literal["linear", "tanh"] = "linear"
    """Of the policy's mean, in units of half the action range."""
    mean_gain: float = 0.01
    """Gain of the orthogonal kernel of the head of means, or of logits."""
    std: Literal["state_independent", "softplus_head"] = "state_independent"
    """Policy's standard deviation: one learned number per action, or a softplus head per state."""
    initial_std: float = 1.0
    """Standard deviation to start with, in units of half the action range; state_independent only."""

    # -- exploration --
    noise_color: float = 0.5
    """Exponent β of the exploration noise's power spectrum 1/f^β in each environment: 0 is white noise (every step
    independent), 1 pink, 2 red; the larger, the longer it pushes one way. Each step's noise stays standard normal,
    so that log-probabilities are unchanged (Hollenstein et al. 2024). Only for continuous actions."""

    # -- scaling --
    normalize_observations: bool = True
    """Shift and divide by cumulative mean and std, then cut to ±10. The first trajectory only fills these statistics,
    so that no update sees raw observations."""
    scale_rewards: bool = True
    """Divide by a cumulative std (+ 1e-4), without shifting; reward_std_of says by which."""
    reward_std_of: Literal["rewards", "returns"] = "returns"
    """What scale_rewards divides by the std of: all rewards, or the discounted sums of those still to come in their
    trajectory, which serves rewards that are all alike, such as -1 a step: they have no std of their own."""
    normalize_advantages: Literal["none", "minibatch", "epoch", "running_std"] = "minibatch"
    """none; shift and scale within each minibatch, or over the epoch; or divide by the cumulative std of all
    advantages."""

    # -- advantages --
    gamma: float = 0.995
    """Discount of a step."""
    final_gamma: float | None = None
    """Discount at the end of the training; the horizon 1/(1 − γ) goes there by equal factors. None keeps gamma."""
    gae_lambda: float = 0.97
    """0: one-step advantages, 1: Monte-Carlo ones."""
    truncation_is_terminal: bool = False
    """Quirk of 2021: give a timeout no future value."""
    value_target: Literal["advantage", "normalized_advantage", "one_step"] = "advantage"
    """What the critic learns: advantage + old value; the same with advantages as normalize_advantages made them, a
    quirk of the study's later revision; or reward + γ · old value of the next state."""
    recompute_targets: bool = False
    """Take values, targets and advantages anew before each pass."""
    stop_target_gradient: bool = True
    """False lets the critic's gradient flow through its one-step target as well (an ablation)."""

    # -- update --
    passes: int = 10
    """Sweeps over the trajectory an epoch."""
    minibatch_size: int = 250
    """Samples of one gradient step."""
    learning_rate: float = 3e-4
    """Of Adam."""
    critic_learning_rate: float | None = None
    """Adam's step size for the critic, annealed as the actor's; None takes learning_rate for both. Only with networks
    of their own: a shared_torso has one Adam."""
    anneal_learning_rate: bool = True
    """Lower it linearly to 0 over the epochs."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon."""
    objective: Literal["clip", "kl_penalty", "clip+kl"] = "clip"
    """What keeps the policy near the one that acted: the clipped surrogate, a KL penalty, or both."""
    clip_range: float = 0.2
    """ε of the clipped surrogate, and of the clipped value loss."""
    anneal_clip_range: bool = False
    """Lower it linearly to 0 over the epochs."""
    value_loss: Literal["squared", "clipped", "smooth_l1"] = "squared"
    """The critic's: squared error; the same, with values kept within the clip range of the old ones; or smooth L1."""
    value_coefficient: float = 0.5
    """Weight of the critic's loss in the sum; only for a shared torso."""
    kl_coefficient: float = 1.0
    """β of the KL penalty to begin with; it doubles after an update above 1.5 · kl_target and halves after one below
    kl_target / 1.5, within 1/1024 and 1024 times this."""
    kl_target: float = 0.01
    """KL divergence of an update that leaves β as it is, in nats."""
    max_kl: float | None = None
    """An epoch's passes end early after one whose mean KL divergence is above this, in nats; None lets all pass."""
    entropy: Literal["gaussian", "density_surrogate"] = "gaussian"
    """The bonus: closed-form entropy, or the bounded −p·log p of the stored actions' densities of 2021."""
    entropy_coefficient: float = 0.0
    """c: weight of the bonus."""
    max_gradient_norm: float | None = 0.5
    """Gradients are scaled down to this global norm, each network's for itself; None leaves them."""
    saturating_log_prob: bool = False
    """Quirk of 2021: log(p + 1e-8) instead of log p."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.final_gamma is not None and max(self.gamma, self.final_gamma) == 1:
            raise UserError(
                f"gamma {self.gamma} and final_gamma {self.final_gamma}: expected both below 1, since 1/(1 − γ) "
                "goes from one to the other; leave --final-gamma out to keep gamma 1"
            )
        if self.steps_per_epoch % (self.num_envs * self.updates_per_epoch):
            raise UserError(
                f"steps_per_epoch {self.steps_per_epoch} is not divisible by num_envs {self.num_envs} times "
                f"updates_per_epoch {self.updates_per_epoch}: choose a multiple of "
                f"{self.num_envs * self.updates_per_epoch}"
            )
        if self.minibatch_size > self.steps_per_update:
            raise UserError(
                f"minibatch_size {self.minibatch_size} is larger than steps_per_epoch {self.steps_per_update}: "
                f"use --minibatch-size {self.steps_per_update} or less"
                if self.updates_per_epoch == 1
                else f"minibatch_size {self.minibatch_size} is larger than the {self.steps_per_update} steps of an "
                f"update: use --minibatch-size {self.steps_per_update} or less"
            )
        if self.shared_torso and self.critic_learning_rate is not None:
            raise UserError(
                f"critic_learning_rate {self.critic_learning_rate} has no effect with shared_torso, whose one Adam "
                "takes learning_rate: leave --critic-learning-rate out, or use --no-shared-torso"
            )
        if self.value_target == "normalized_advantage" and self.normalize_advantages not in ("epoch", "running_std"):
            raise UserError(
                f"value_target normalized_advantage needs advantages that are normalized before the update, they are "
                f"{self.normalize_advantages}: add --normalize-advantages running_std or epoch"
            )
        if not self.stop_target_gradient and self.value_target != "one_step":
            raise UserError("stop_target_gradient False needs the target inside the loss: add --value-target one_step")
        if not len(self.filters) == len(self.kernel_sizes) == len(self.strides) > 0:
            raise UserError(
                f"filters {self.filters}, kernel_sizes {self.kernel_sizes} and strides {self.strides}: "
                "expected as many of each, one for every convolution"
            )

    @classmethod
    def of_run(cls, settings: Mapping[str, object]) -> Self:
        """The config of a run's stored settings; what older versions had no setting for is what they did."""
        settings = {"reward_std_of": "rewards", "noise_color": 0.0} | dict(settings)
        if settings.get("shared_torso"):  # a rate of the critic's own had no effect, and was not refused
            settings["critic_learning_rate"] = None
        return cls(**settings)

    @property
    def steps_per_update(self) -> int:
        """M: steps of one collection, over all environments."""
        return self.steps_per_epoch // self.updates_per_epoch
