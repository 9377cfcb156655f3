"""Everything that makes a run the run it is, in one frozen dataclass; where it leaves its traces, in another."""

import dataclasses
import functools
import json
import math
import os
import re
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

from common.errors import UserError

RewardDesignName = Literal[
    "unchanged",
    "lasted_to_limit",
    "ends_told_apart",
    "steps_at_end",
    "steps_added_at_end",
    "scaled",
    "sign",
    "fall_penalty",
    "function",
]
MetricName = Literal["total_reward", "mean_episode_reward", "reward_times_steps", "validation"]


MAY_CHANGE = ("epochs", "environment_restarts", "environment_time_limit", "on_not_finite", "device")
"""What a resumed run may be given another value of; all else would make it another run."""


@dataclass(frozen=True)
class TrainingConfig:
    """What every method needs to know: where it trains, how long, what it does about faults, what it keeps."""

    # -- environment --
    env: str = "BipedalWalker-v3"
    """Gymnasium environment id; module:id where importing the module registers it, from the current folder too."""
    env_kwargs: dict[str, object] = dataclasses.field(default_factory=dict, hash=False)  # the rest can be hashed
    """Arguments for the environment's constructor, as a JSON object: '{"gravity": 3.7}'."""
    max_episode_steps: int | None = None
    """Steps after which an episode is truncated; None keeps the environment's own limit."""
    reward_design: RewardDesignName = "unchanged"
    """What is rewarded instead of the environment's own reward. ends_told_apart: at an episode's end −1 for a fall,
    else +1. fall_penalty: the same, told by the last reward alone. lasted_to_limit: at the end +1 after the full
    2,000 steps, else −1. steps_at_end: at the end 0.005 a step; steps_added_at_end: that on top of the reward.
    function: one that a Python program gave its trainer."""
    reward_factor: float = 0.1
    """What every reward is multiplied by; only for reward_design scaled."""
    backend: Literal["auto", "gymnasium", "envpool", "ale", "processes"] = "auto"
    """Who steps the environments; auto takes ale-py for Atari and EnvPool where it is installed and has the
    environment, else Gymnasium in this process. Processes serve environments that are slow or crash: one each."""
    num_envs: int = 16
    """Environments side by side."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What TensorFlow computes on; auto takes a graphics card, where there is one, for images alone: networks as
    small as the others are faster on the CPU."""

    # -- epoch --
    epochs: int = 200
    """Rows of the table, over which every schedule runs. PPO collects and trains once in each; before the first it
    collects once more, and with normalize_observations twice, since the first time only fills the statistics."""
    steps_per_epoch: int = 8_000
    """Environment steps of an epoch, over all environments; a multiple of num_envs."""
    score_window: int = 100
    """Finished episodes over which the score, a moving mean of unshaped rewards, is taken."""
    seed: int = 0
    """Fixes weights, environments, actions and minibatches."""
    restart_environments_every: int = 0
    """Epochs after which an environment is built again, a few at a time. Only for environments that a resumed run can
    bring back by no less than all actions since they were built, such as EnvPool's LunarLander; others never are. 0 is
    what holds ten episodes of full length, and ten epochs at least."""

    # -- faults --
    environment_restarts: int = 3
    """How often an environment that fails is replaced by a new one; its episode then does not count. The next failure
    ends the run."""
    environment_time_limit: float = 60.0
    """Seconds that building an environment, a reset or a step may take in a process of its own (--backend processes).
    A process that takes longer has failed; see environment_restarts."""
    on_not_finite: Literal["stop", "skip"] = "stop"
    """NaN or infinity: stop the run, or skip, which collects the epoch again or undoes the update."""

    # -- best parameters --
    best_metric: MetricName = "validation"
    """What an epoch's parameters are judged by. validation: the mean unshaped reward of separate deterministic
    episodes, played in the second half of the training. The others measure the epoch's own shaped rewards and count
    only once score_window episodes have finished: total_reward, their sum; mean_episode_reward, the mean over the
    episodes that finished in the epoch, or over the last score_window where fewer did; reward_times_steps, that
    mean times the mean length of the same episodes."""
    validate_every: int = 20
    """Epochs between validations; only for best_metric validation."""
    validation_episodes: int = 40
    """Episodes of a validation, all of them at once. Where steps are slow, fewer of them or a larger validate_every
    save time: by default it takes an eighth as many steps as training, with episodes of 1,000 steps."""
    adopt_best: bool = True
    """At the end take the best epoch's parameters; the 2021 code meant to, but kept the last."""

    def __post_init__(self) -> None:
        _check_kinds(self)
        _check_values(self)
        if self.steps_per_epoch % self.num_envs:
            raise UserError(
                f"steps_per_epoch {self.steps_per_epoch} is not divisible by num_envs {self.num_envs}: "
                f"try --steps-per-epoch {max(1, round(self.steps_per_epoch / self.num_envs)) * self.num_envs}"
            )

    def seeds(self) -> list[int]:
        """Independent ones, from `seed`: the agent's, the environments', what training draws', the validation's."""
        return [int(seed) for seed in np.random.SeedSequence(self.seed).generate_state(4)]

    def differences(self, other: "TrainingConfig") -> list[str]:
        """Names of the settings that make it another run than that of `other`."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in MAY_CHANGE]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def changed_as(self, other: "TrainingConfig") -> Self:
        """The same run with what may be changed as it is in `other`."""
        return self.replace(**{name: getattr(other, name) for name in MAY_CHANGE})

    def replace(self, **changes: object) -> Self:
        """The same settings but for these.

        Raises:
            UserError: a value is out of its range, or does not go with another.
        """
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class PPOConfig(TrainingConfig):
    """Proximal policy optimisation (arXiv:1707.06347), separate networks, the policy picked by the action space.

    The defaults serve any Gymnasium environment but images; `common.presets` has the named settings.
    """

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

    @property
    def steps_per_update(self) -> int:
        """M: steps of one collection, over all environments."""
        return self.steps_per_epoch // self.updates_per_epoch


@dataclass(frozen=True)
class RunOptions:
    """Where a run leaves its traces and how it is looked at; nothing here changes what is learned."""

    name: str | None = None
    """Folder under --runs-folder; None takes PRESET-seedN, or the next free name after it."""
    runs_folder: str = "runs"
    """Where run folders live."""
    resume: Path | None = None
    """Continue the run of this folder. Of its settings, --epochs, --environment-restarts, --environment-time-limit,
    --on-not-finite and --device may be changed."""
    checkpoint_every: int = 0
    """Epochs between checkpoints; 0 for ten, or more where that would cost over a percent of the time.
    One is also written on Ctrl-C, on SIGTERM and at the end."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints are kept."""
    evaluation_episodes: int = 100
    """Episodes of the evaluation at the end, deterministic and sampled each; 0 for none."""
    evaluate_every: int = 0
    """Epochs between evaluations while training goes on; 0 for none."""
    video: bool = True
    """Film an evaluated episode at the end."""
    gif: bool = False
    """Film it as a GIF of 30 frames a second in place of an MP4."""
    tensorboard: bool = True
    """Write TensorBoard logs."""
    figure: bool = True
    """Redraw the five-panel figure while training goes on."""

    def __post_init__(self) -> None:
        for name, least in (
            ("evaluation_episodes", 0),
            ("evaluate_every", 0),
            ("checkpoint_every", 0),
            ("keep_checkpoints", 1),
        ):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}: expected {least} or more")
        if self.evaluate_every and not self.evaluation_episodes:
            raise UserError("evaluate_every needs episodes: set --evaluation-episodes to 1 or more")
        if self.resume is not None and self.name is not None:
            raise UserError("--name and --resume exclude each other: a resumed run keeps its folder")
        if self.name is not None and not is_folder_name(self.name, windows=os.name == "nt"):
            raise UserError(f"name {self.name!r} is no folder name: use letters, digits, '-', '_' and '.'")


def is_folder_name(name: str, windows: bool) -> bool:
    """Whether a folder can have this name and be found by it again."""
    if not name or name in (".", "..") or set(name) & set("/\\\0"):
        return False
    if not windows:
        return True
    # A colon would begin a stream of a file, dots and spaces at the end are dropped, CON, NUL and others are devices.
    return (
        not set(name) & set('<>:"|?*')
        and min(name) >= " "
        and name[-1] not in ". "
        and not _WINDOWS_DEVICE.fullmatch(name.split(".")[0].rstrip())
    )


_WINDOWS_DEVICE = re.compile(r"(?i)con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]")

_EXAMPLE = '{"gravity": 3.7}'
_RANGES: dict[str, tuple[float, float, str]] = {
    "max_episode_steps": (1, math.inf, "1 or more"),
    "num_envs": (1, math.inf, "1 or more"),
    "epochs": (1, math.inf, "1 or more"),
    "steps_per_epoch": (1, math.inf, "1 or more"),
    "score_window": (1, math.inf, "1 or more"),
    "seed": (0, 2**31 - 1, "0 to 2147483647"),
    "restart_environments_every": (0, math.inf, "0 or more"),
    "hidden_gain": (0, math.inf, "0 or more"),
    "mean_gain": (0, math.inf, "0 or more"),
    "initial_std": (1e-6, math.inf, "above 0"),
    "noise_color": (0, 2, "0 to 2"),
    "reward_factor": (-math.inf, math.inf, "any"),
    "updates_per_epoch": (1, math.inf, "1 or more"),
    "value_coefficient": (0, math.inf, "0 or more"),
    "gamma": (0, 1, "0 to 1"),
    "final_gamma": (0, 1, "0 to 1"),
    "gae_lambda": (0, 1, "0 to 1"),
    "passes": (1, math.inf, "1 or more"),
    "minibatch_size": (1, math.inf, "1 or more"),
    "learning_rate": (0, math.inf, "0 or more"),
    "critic_learning_rate": (0, math.inf, "0 or more"),
    "adam_epsilon": (1e-45, math.inf, "above 0"),
    "kl_coefficient": (1e-12, math.inf, "above 0"),
    "kl_target": (1e-12, math.inf, "above 0"),
    "max_kl": (0, math.inf, "0 or more"),
    "clip_range": (0, math.inf, "0 or more"),
    "entropy_coefficient": (0, math.inf, "0 or more"),
    "max_gradient_norm": (1e-45, math.inf, "above 0"),
    "environment_restarts": (0, math.inf, "0 or more"),
    "environment_time_limit": (1e-3, math.inf, "above 0"),
    "exploration_std": (0, math.inf, "0 or more"),
    "final_exploration_std": (0, math.inf, "0 or more"),
    "ou_theta": (0, math.inf, "0 or more"),
    "ou_dt": (1e-45, math.inf, "above 0"),
    "warmup_steps": (1, math.inf, "1 or more"),
    "replay_size": (1, math.inf, "1 or more"),
    "batch_size": (1, math.inf, "1 or more"),
    "train_every": (1, math.inf, "1 or more"),
    "updates_per_train": (1, math.inf, "1 or more"),
    "tau": (0, 1, "0 to 1"),
    "hard_update_every": (1, math.inf, "1 or more"),
    "smoothing_std": (0, math.inf, "0 or more"),
    "smoothing_clip": (0, math.inf, "0 or more"),
    "policy_delay": (1, math.inf, "1 or more"),
    "validate_every": (1, math.inf, "1 or more"),
    "validation_episodes": (1, math.inf, "1 or more"),
}


@functools.cache
def _hints(kind: type) -> dict[str, object]:
    return get_type_hints(kind)


_KINDS = {  # what a setting may be given as, and what is said of anything else
    bool: ((bool, np.bool_), "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
}


def _check_kinds(config: TrainingConfig) -> None:
    """Raises UserError where a setting is of another kind; makes it what is read back from a run folder."""
    for name, hint in _hints(type(config)).items():
        object.__setattr__(config, name, _plain(name, hint, getattr(config, name)))


def _plain(name: str, hint: object, value: object) -> object:
    """A setting as Python's own number, text or tuple."""
    if get_origin(hint) is UnionType:  # kind | None
        return None if value is None else _plain(name, get_args(hint)[0], value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UserError(f"{name} is {value!r}: expected one of {', '.join(get_args(hint))}")
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{name} is {value!r}: expected a tuple, one number a layer")
        return tuple(_plain(name, get_args(hint)[0], number) for number in value)
    if get_origin(hint) is dict:
        return json_object(name, value)
    kinds, expected = _KINDS[hint]
    if not isinstance(value, kinds) or (hint is not bool and isinstance(value, bool)):
        raise UserError(f"{name} is {value!r:.80}: expected {expected}")
    if isinstance(value, Integral) and abs(value) >= 2**63:  # more than NumPy and TensorFlow can hold
        raise UserError(f"{name} has {len(str(abs(value)))} digits: expected {expected} of 18 at most")
    return hint(value)


def json_object(name: str, value: object) -> dict[str, object]:
    """A setting that is a JSON object, from its text or from a dictionary of what JSON can hold.

    Raises:
        UserError: it is none.
    """
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=_number_of_numpy, allow_nan=False)
        parsed = json.loads(text, parse_constant=_refuse)
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{name} is {value!r:.80}: expected a JSON object like {_EXAMPLE} ({error})") from None
    if not isinstance(parsed, dict):
        raise UserError(f"{name} is {value!r:.80}: expected a JSON object like {_EXAMPLE}")
    return parsed


def _number_of_numpy(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored; give make_env a function that has it")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _check_values(config: TrainingConfig) -> None:
    """Raises UserError where a method's setting is outside its range; see `_RANGES`."""
    for name, (low, high, expected) in _RANGES.items():
        value = getattr(config, name, None)
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            expected = expected if math.isfinite(value) else f"a finite number, {expected}"
            raise UserError(f"{name} is {value}: expected {expected}")
    for name in ("render_mode", "max_episode_steps", "id", "disable_env_checker"):
        if name in config.env_kwargs:
            hint = "use --max-episode-steps" if name == "max_episode_steps" else "it is set here where it is needed"
            raise UserError(f"env_kwargs names {name}: leave it out, {hint}")
    for name in ("hidden_sizes", "filters", "kernel_sizes", "strides"):
        if any(number < 1 for number in getattr(config, name, ())):
            raise UserError(f"{name} is {getattr(config, name)}: expected 1 or more in each layer")
