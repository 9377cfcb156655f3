"""Everything that makes a run the run it is, in one frozen dataclass; where it leaves its traces, in another."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import UnionType
from typing import ClassVar, Literal, Self, get_args, get_origin, get_type_hints

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

    METHOD: ClassVar[str] = ""
    """What config.json calls the method."""

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

    @classmethod
    def of_run(cls, settings: Mapping[str, object]) -> Self:
        """The config of a run's stored settings, which may be those of an older version."""
        return cls(**settings)

    def replace(self, **changes: object) -> Self:
        """The same settings but for these.

        Raises:
            UserError: a value is out of its range, or does not go with another.
        """
        return dataclasses.replace(self, **changes)


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
    hints = _hints(type(config))
    for name, hint in ((field.name, hints[field.name]) for field in dataclasses.fields(config)):
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
