"""The settings of proximal policy optimisation: a few small parts, and the config that joins them."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from common.config import TrainingConfig
from common.errors import UserError
from common.settings import SMALLEST, Needs, Settings, setting

Quirk = Literal[
    "truncation_is_terminal",
    "restart_at_epoch_end",
    "terminal_at_epoch_end",
    "saturating_log_prob",
    "density_entropy",
]
REMEMBERS = Needs("memory", lambda kind: kind != "none", "--memory gru")
ONE_STD = Needs("initial_std", lambda std: std is not None, "--initial-std 1")
SEPARATE = Needs("shared_torso", lambda shared: not shared, "--no-shared-torso")


@dataclass(frozen=True)
class NetworkSettings(Settings):
    """The actor's and the critic's networks, and the policy's distribution."""

    GROUP = "network"

    shared_torso: bool = False
    """Whether actor and critic share all hidden layers, and one Adam minimises the sum of their losses. If False they
    are separate networks. Share the layers if they are expensive, as they are for images."""
    convolutions: tuple[str, ...] = ("32x8/4", "64x4/2", "64x3/1")
    """Convolutions of image observations, each written FILTERSxSIDE/STRIDE: the number of filters, the side of their
    kernels and their stride, in pixels. The default is the network of Mnih et al. (2015). An image among numbers that
    is too small for them gets 32x3/2 64x3/2. Only used with images."""
    hidden_sizes: tuple[int, ...] = setting((64, 64), at_least=1, main=True)
    """Number of units in each hidden layer, for actor and critic; one number per layer. Larger layers can learn
    harder tasks and compute more slowly. With no number at all there are three layers, of 10*S, ceil(sqrt(10*S*10*A))
    and 10*A units for S observation numbers and A action numbers, as in the 2021 code."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation function of the hidden layers."""
    initial_gains: tuple[float, ...] = setting((math.sqrt(2), 0.01), at_least=0)
    """Gains of the orthogonal matrices that are the initial weights: of the hidden layers, and of the policy's output
    layer, which gives the means, or the logits of discrete actions. Biases begin at 0. A small second gain starts with
    nearly the same policy in every state. With no number at all, weights and biases are uniform within
    ±1/sqrt(inputs of a unit), PyTorch's default, which the published programs of CartPole and Breakout use."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the matrix products of updates, between two hidden layers; with images, in all hidden layers.
    float32: numbers are not rounded. bfloat16: they are rounded to two or three digits before they are multiplied. Try
    bfloat16 for images or layers of 256 units, on processors that have instructions for it, such as AVX-512 BF16; on
    others it may be much slower. Without images it needs two or more hidden_sizes."""
    mean_activation: Literal["linear", "tanh"] = "linear"
    """Activation function of the policy's mean, whose unit is half the action range; tanh keeps it within the range.
    Only used with continuous actions."""
    initial_std: float | None = setting(1.0, at_least=1e-6)
    """Initial standard deviation of the policy, in units of half the action range, from which one number per action
    dimension is learned. Lower it if the first actions are too wild. None: the standard deviation is an output of the
    network, through a softplus, and differs from state to state, as in the 2021 code. Only used with continuous
    actions."""

    memory: Literal["none", "gru", "lstm"] = "none"
    """Layer with which the networks remember earlier steps of an episode, before the hidden layers: a gated recurrent
    unit or a long short-term memory. Set it (to gru) if one observation does not tell enough, because it lacks
    velocities or because something has passed out of sight. An update then takes several times as long. Images have no
    memory."""
    memory_size: int = setting(64, at_least=1, used_with=(REMEMBERS,))
    """Number of units of the memory. Only used with memory gru or lstm."""
    sequence_length: int = setting(32, at_least=1, used_with=(REMEMBERS,))
    """Largest number of steps through which an update follows the memory back. Each sequence begins with the memory
    that was stored with its first step. Raise it if something must be remembered for longer; an update then makes
    fewer steps at the same time, and takes longer. Only used with memory gru or lstm."""
    action_masks: bool = False
    """Whether the policy never chooses what the environment forbids. The environment says which choices are allowed in
    info["action_mask"] of each reset and step, or by a method action_masks(): 0 or 1 for each choice, first those of
    the first action dimension. Set it if many actions are invalid. For discrete actions, and for observations of
    numbers, or of numbers and images in a Dict."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.convolution_layers  # raises what is wrong with them
        if len(self.initial_gains) not in (0, 2):
            raise UserError(f"initial_gains is {self.initial_gains}: expected two numbers, or none")

    @property
    def convolution_layers(self) -> tuple[tuple[int, int, int], ...]:
        """Filters, side and stride of each of the `convolutions`."""
        found = [re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})/([1-9]\d{0,4})", word) for word in self.convolutions]
        if not all(found) or not found:
            raise UserError(
                f"convolutions is {' '.join(self.convolutions)!r}: expected FILTERSxSIDE/STRIDE for each, like 32x8/4"
            )
        return tuple((int(layer[1]), int(layer[2]), int(layer[3])) for layer in found if layer)


@dataclass(frozen=True)
class ExplorationSettings(Settings):
    """The noise of the actions that training explores with."""

    GROUP = "exploration"

    noise_color: float = setting(0.5, at_least=0, at_most=2)
    """Exponent beta of the exploration noise's power spectrum 1/f^beta: 0 is white noise (every step independent), 1
    is pink, 2 is red. Raise it if exploring needs the same push for many steps; use 0 for the usual PPO. Each single
    step's noise stays standard normal (Hollenstein et al. 2024). Only used with continuous actions."""
    min_std: float = setting(0.0, at_least=0, at_most=10, needs=ONE_STD)
    """Smallest standard deviation of the policy, in units of half the action range; after each update smaller ones are
    raised to it. Raise it (to 0.25) if the standard deviation shrinks and the score stops rising long before the task
    is learned. Only used with an initial_std and continuous actions."""


@dataclass(frozen=True)
class UpdateSettings(Settings):
    """How steps become updates: trajectories, rewards, advantages, losses and gradient steps."""

    GROUP = "update"

    updates_per_epoch: int = setting(1, at_least=1)
    """Number of times per epoch that steps are collected and trained on. Each update learns from steps_per_epoch /
    updates_per_epoch steps, which must be a multiple of num_envs; the epoch's row is the mean over its updates. Before
    the first update, PPO collects one more trajectory of that size, or two with normalize_observations."""
    normalize_observations: bool = True
    """Whether observations are shifted and divided by their running mean and standard deviation, then clipped to ±10.
    The first trajectory only fills these statistics. Turn it off if the observation's numbers already have a size of
    about 1."""
    reward_scaling: Literal["none", "rewards", "returns", "standardized_rewards", "epoch_rewards"] = "returns"
    """Quantity whose standard deviation (plus 1e-4) rewards are divided by. rewards: all rewards so far. returns: the
    discounted sums of future rewards; needed if all rewards are equal, such as -1 per step. standardized_rewards: all
    rewards so far, whose mean is subtracted, too. epoch_rewards: the rewards of the same update alone. none: rewards
    are not divided; choose it if they already have a size of about 1."""
    normalize_advantages: Literal["none", "minibatch", "epoch", "running_std"] = "minibatch"
    """How advantages are normalised. none: not at all. minibatch or epoch: to mean 0 and standard deviation 1 within
    each minibatch, or over the epoch. running_std: divided by the standard deviation of all advantages so far."""
    gamma: float = setting(0.995, at_least=0, at_most=1, main=True)
    """Discount factor per step; rewards count for about 1/(1 - gamma) steps. Raise it if rewards come late; lower it
    if learning is noisy and each action's effect shows soon."""
    final_gamma: float | None = setting(None, at_least=0, at_most=1)
    """Discount factor at the end of the training; until then each update multiplies the horizon 1/(1 - gamma) by the
    same factor. A value above gamma learns short-term control first. A value below it favours quicker
    behaviour once the task is learned. None keeps gamma."""
    gae_lambda: float = setting(0.97, at_least=0, at_most=1, main=True)
    """Lambda of generalised advantage estimation. 0: one-step advantages, with low variance but biased by the
    critic's errors. 1: Monte-Carlo advantages, unbiased but noisy. Lower it if learning is noisy; raise it if the
    critic is poor."""
    value_target: Literal["advantage", "normalized_advantage", "one_step", "one_step_gradient"] = "advantage"
    """Target of the critic. advantage: advantage + old value. normalized_advantage: the same with normalised
    advantages, a quirk of the study's later revision. one_step: reward + gamma * old value of the next state.
    one_step_gradient: the same with the present value, through which the gradient flows, too (an ablation)."""
    recompute_targets: bool = False
    """Whether values, advantages and targets are computed again before each pass. Slower, but later passes use the
    improved critic."""
    passes: int = setting(10, at_least=1, main=True)
    """Number of passes over the collected steps in each update. More passes learn more from each step, but move the
    policy further from the one that collected them: lower it if the KL divergence is high."""
    reused_trajectories: int = setting(0, at_least=0, at_most=100)
    """Number of earlier trajectories that each update learns from besides the newest one (Queeney et al. 2021). Every
    pass goes over all of them, so divide passes by 1 + reused_trajectories to keep the time of an update. Try 1 if
    the score falls and rises from update to update. 0 is the usual PPO. It does not go with recompute_targets."""
    minibatch_size: int = setting(250, at_least=1, main=True)
    """Number of samples per gradient step. Smaller minibatches make more and noisier steps; larger ones compute
    faster."""
    learning_rate: float = setting(3e-4, at_least=0, main=True)
    """Adam's step size, for actor and critic unless critic_learning_rate is set. Lower it if the score collapses or
    the KL divergence is high; raise it if learning is slow but steady."""
    critic_learning_rate: float | None = setting(None, at_least=0, needs=SEPARATE)
    """Adam's step size for the critic, annealed like the actor's. None uses learning_rate. It cannot be set with
    shared_torso, which has only one Adam."""
    anneal: tuple[Literal["learning_rate", "clip_range"], ...] = ("learning_rate",)
    """What falls linearly to 0 over the epochs: the learning rates, the clip range, both or nothing."""
    desired_kl: float | None = setting(None, at_least=1e-12)
    """KL divergence between the policies before and after an update, in nats, that training is steered to. Set it (to
    0.01) if learning is slow at first and unsteady later. With objective clip it steers the learning rates: they are
    divided by 1.15 after an update above 1.3 * desired_kl, and multiplied by 1.15 after one below desired_kl / 1.3;
    they stay within a factor of 20 of their schedule, which None leaves as it is. There the divergence is the mean
    over the minibatches of the last pass, with few passes less than that of the whole update. With a KL penalty it
    steers the penalty's weight beta, which begins at 1: beta doubles above 1.5 * desired_kl and halves below
    desired_kl / 1.5, within a factor of 1024; None means 0.01."""
    adam_epsilon: float = setting(1e-8, at_least=SMALLEST)
    """Adam's epsilon, added to the root of the mean squared gradient before dividing by it. Raise it (to 1e-5) if
    parameters with tiny gradients move too much."""
    objective: Literal["clip", "kl_penalty", "clip+kl"] = "clip"
    """What keeps the new policy close to the one that collected the steps. clip: the clipped surrogate. kl_penalty: a
    penalty on the KL divergence. clip+kl: both."""
    clip_range: float = setting(0.2, at_least=0, main=True)
    """Clip range epsilon: the surrogate does not reward probability ratios outside 1 ± clip_range. Lower it for
    smaller, safer updates; raise it for faster ones. The clipped value loss uses it too, in units of the value."""
    value_loss: Literal["squared", "clipped", "smooth_l1"] = "squared"
    """The critic's loss. squared: squared error. clipped: squared error with changes of the value clipped to ±
    clip_range. smooth_l1: squared for errors below 1 and linear above, less sensitive to outliers."""
    value_coefficient: float = setting(0.5, at_least=0, used_with=(Needs("shared_torso", bool, "--shared-torso"),))
    """Weight of the critic's loss in the sum of losses. Lower it if the critic's gradients drown the actor's. Only
    used with shared_torso."""
    max_kl: float | None = setting(None, at_least=0)
    """KL divergence of an update's pass, in nats, averaged over its minibatches, above which the remaining passes are
    skipped. Set it (0.01 to 0.05) if single updates destroy the policy. None always makes all passes."""
    entropy_coefficient: float = setting(0.0, at_least=0)
    """Weight of the entropy bonus. Raise it if the policy becomes deterministic too early; lower it if the policy's
    standard deviation keeps growing. 0 is no bonus."""
    max_gradient_norm: float | None = setting(0.5, at_least=SMALLEST)
    """Largest global norm of each network's gradient; a longer gradient is scaled down to it. Lower it if single
    minibatches upset learning. None does not limit it."""
    quirks: tuple[Quirk, ...] = ()
    """Quirks of published programs that are repeated. truncation_is_terminal: a time limit is a terminal state, with
    no value after it. restart_at_epoch_end: running episodes are abandoned at the end of an epoch and counted as
    complete ones. terminal_at_epoch_end: the same, and no value follows their last state. saturating_log_prob:
    log(p + 1e-8) in place of log(p). density_entropy: the entropy bonus is -p*log(p) of the taken actions' densities,
    at most 1/e per action dimension, in place of the distribution's entropy. The 2021 code has all of them but the
    third, the published CartPole program the first and the third."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.final_gamma is not None and max(self.gamma, self.final_gamma) == 1:
            raise UserError(
                f"gamma {self.gamma} and final_gamma {self.final_gamma}: expected both below 1, since 1/(1 − γ) "
                "goes from one to the other; leave --final-gamma out to keep gamma 1"
            )
        if self.value_target == "normalized_advantage" and self.normalize_advantages not in ("epoch", "running_std"):
            raise UserError(
                f"value_target normalized_advantage needs advantages that are normalized before the update, they are "
                f"{self.normalize_advantages}: add --normalize-advantages running_std or epoch"
            )
        if self.minibatch_size == 1 and self.normalize_advantages == "minibatch":
            raise UserError(
                "minibatch_size 1 teaches the actor nothing, since an advantage alone is normalized to 0: use "
                "--minibatch-size 2 or more, or --normalize-advantages epoch"
            )


# A dataclass takes its fields from the last base to the first: this is the order of config.json and of --help.
@dataclass(frozen=True)
class PPOConfig(UpdateSettings, ExplorationSettings, NetworkSettings, TrainingConfig):
    """Proximal policy optimisation (arXiv:1707.06347); the action space decides the policy's distribution.

    The defaults suit any Gymnasium environment without images; `ppo.presets` has the named settings.
    """

    METHOD = "ppo"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps_per_epoch % (self.num_envs * self.updates_per_epoch):
            raise UserError(
                f"steps_per_epoch {self.steps_per_epoch} is not divisible by num_envs {self.num_envs} times "
                f"updates_per_epoch {self.updates_per_epoch}: choose a multiple of "
                f"{self.num_envs * self.updates_per_epoch}"
            )
        if self.minibatch_size > self.steps_per_update:
            raise UserError(
                f"minibatch_size {self.minibatch_size} is larger than the {self.steps_per_update} steps of an update "
                f"(steps_per_epoch / updates_per_epoch): use --minibatch-size {self.steps_per_update} or less"
            )
        if self.restarts_at_epoch_end and self.updates_per_epoch > 1:
            raise UserError(
                f"updates_per_epoch {self.updates_per_epoch} does not go with quirks {' '.join(self.quirks)}, which "
                "restart the environments after each trajectory: use --updates-per-epoch 1, or other --quirks"
            )
        if self.reused_trajectories and self.recompute_targets:
            raise UserError(
                f"reused_trajectories {self.reused_trajectories} does not go with recompute_targets: leave "
                "--reused-trajectories out, or use --no-recompute-targets"
            )
        if self.action_masks and (self.symmetry or max(self.action_repeat) > 1):
            other = "symmetry" if self.symmetry else f"action_repeat {self.action_repeat}"
            raise UserError(f"action_masks does not go with {other}: leave one of them out")
        self._check_memory()

    def _check_memory(self) -> None:
        """Raises UserError for what does not go with networks that remember."""
        refused = {
            "symmetry": self.symmetry and "use --no-symmetry",
            "action_masks": self.action_masks and "use --no-action-masks",
            "objective": self.objective != "clip" and "use --objective clip",
            "value_target": self.value_target == "one_step_gradient" and "use --value-target one_step",
        }
        for name, advice in refused.items() if self.memory != "none" else ():
            if advice:
                raise UserError(
                    f"{name} {getattr(self, name)} does not go with memory {self.memory}: {advice}, or leave --memory "
                    "out"
                )

    @property
    def restarts_at_epoch_end(self) -> bool:
        """Whether the end of an epoch ends the running episodes."""
        return bool({"restart_at_epoch_end", "terminal_at_epoch_end"} & {*self.quirks})

    @property
    def steps_per_update(self) -> int:
        """M: environment steps that are collected for an update, summed over all environments."""
        return self.steps_per_epoch // self.updates_per_epoch

    @property
    def sequence_steps(self) -> int:
        """L: the steps of each environment in equal parts of at most `sequence_length`."""
        steps = self.steps_per_update // self.num_envs  # T
        return -(-steps // -(-steps // self.sequence_length))

    @property
    def samples_per_update(self) -> int:
        """Steps that an update learns from: those of the newest trajectory and of the ones that are used again."""
        return self.steps_per_update * (1 + self.reused_trajectories)
