"""The settings that every method has: a few small parts, and the config that joins them."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from common.errors import UserError
from common.settings import Needs, Settings, setting

RewardDesignName = Literal[
    "unchanged",
    "lasted_to_limit",
    "outcome_bonus",
    "steps_at_end",
    "steps_added_at_end",
    "scaled",
    "sign",
    "fall_penalty",
    "function",
]
MetricName = Literal["total_reward", "mean_episode_reward", "reward_times_steps", "validation"]


MAY_CHANGE = (
    "epochs",
    "environment_restarts",
    "environment_time_limit",
    "on_not_finite",
    "device",
    "stop_score",
    "confirming_margin",
)
"""The settings that may be changed when a run is resumed; any other change would make it a different run."""

SYMMETRY = Needs("symmetry", bool, "--symmetry")
FALLS = Needs(
    "reward_design", lambda design: design in ("outcome_bonus", "fall_penalty"), "--reward-design outcome_bonus"
)
VALIDATION = Needs("best_metric", lambda name: name == "validation", "--best-metric validation")
STOP_SCORE = Needs("stop_score", lambda score: score is not None, "--stop-score 300")


def costs_by_score(name: str, written: Iterable[str]) -> tuple[tuple[float, float], ...]:
    """Pairs of a training score and the cost from it on, with rising scores: ("1", "10@0") → ((−∞, 1), (0, 10)).

    Raises UserError, which names the setting, if a word is no cost or the scores do not rise.
    """
    pairs = []
    for word in written:
        cost, at, score = word.partition("@")
        try:
            pairs.append((float(score) if at else -math.inf, float(cost)))
        except ValueError:
            pairs.append((math.nan, math.nan))
        if not 0 <= pairs[-1][1] <= 1_000_000 or not (at == "" or math.isfinite(pairs[-1][0])):
            raise UserError(f"{name} is {word!r:.40}: expected a cost of 0 or more, or COST@SCORE, like 10@0")
    scores = [score for score, _ in pairs]
    if not pairs or any(later <= score for score, later in itertools.pairwise(scores)):
        raise UserError(f"{name} {' '.join(written)}: expected costs with rising scores, like 1 10@0 40@150")
    return tuple(pairs)


def info_column(name: str) -> str:
    """The column of a number in info: reward/forward → info_reward_forward."""
    return "info_" + re.sub(r"\W", "_", name)


@dataclass(frozen=True)
class MirrorDescription(Settings):
    """What the setting `mirror` says; empty parts are those of the known mirror."""

    observation: tuple[int, ...] = setting((), at_least=-9999, at_most=9999)
    action: tuple[int, ...] = setting((), at_least=-9999, at_most=9999)
    offset: tuple[float, ...] = setting((), at_least=-1_000_000, at_most=1_000_000)
    weight: float = setting(0.5, at_least=0, at_most=1)
    check: bool = True


@dataclass(frozen=True)
class EnvironmentSettings(Settings):
    """The environment, its reward, and how it is stepped."""

    GROUP = "environment"

    env: str = setting("BipedalWalker-v3", main=True)
    """Gymnasium environment id. Use module:id for an environment that importing the module registers; the module may
    be in the current folder."""
    env_kwargs: dict[str, object] = setting({})  # noqa: RUF009  as with mirror
    """Arguments for the environment's constructor, as a JSON object: '{"gravity": 3.7}'."""
    wrappers: tuple[str, ...] = ()
    """Wrappers of the environment as module:Class, applied in this order, such as
    gymnasium.wrappers:FlattenObservation. Each class is called with the environment, and with arguments in JSON if
    they are given in brackets: 'gymnasium.wrappers:FrameStackObservation(4)'. The module may be in the current folder.
    Scores use the rewards of the wrapped environment."""
    max_episode_steps: int | None = setting(None, at_least=1)
    """Steps after which an episode is truncated. None keeps the environment's own limit."""
    action_repeat: tuple[int, ...] = setting((1,), at_least=1, at_most=1000)
    """Number of environment steps that each action is held for; their rewards are added up. All other settings and
    results then count actions instead of environment steps, except max_episode_steps. Raise it (to 2 or 3) if the
    environment takes small steps: an episode then has fewer decisions and needs fewer updates. A second number holds
    where the agent does not learn: in validations, evaluations, films and exported policies. 3 1 lets an agent that
    learned with held actions react sooner. Not for Atari games, whose actions are held for four frames already."""
    image_size: int = setting(84, at_least=42, at_most=84)
    """Height and width of an Atari game's images, in pixels. Smaller ones compute faster and show less; choose
    convolutions that suit them. Only used with Atari games."""
    reward_design: RewardDesignName = "unchanged"
    """Reward that the agent learns from; scores always use the environment's own. unchanged: the environment's own.
    sign: -1, 0 or +1, the reward's sign, for games. scaled: the reward times reward_factor. function: computed by a
    function that a Python program passes to the trainer. The other designs change an episode's last reward only.
    outcome_bonus: minus fall_cost (-1 by default) after a fall (the episode terminated with a reward of -100 or
    less; -50 or less with action_repeat, which adds earlier rewards), else +1. fall_penalty: minus fall_cost if the
    last reward is that of a fall, else +1, also if the episode was truncated. lasted_to_limit: +1 if the episode
    reached its step limit (2,000 if it has none), else -1. steps_at_end: 0.005 per step of the episode.
    steps_added_at_end: the environment's reward plus 0.005 per step of the episode."""
    reward_factor: float = setting(
        0.1, needs=Needs("reward_design", lambda design: design == "scaled", "--reward-design scaled")
    )
    """Number that every reward is multiplied by. Only used with reward_design scaled."""
    fall_cost: tuple[str, ...] = setting(("1",), needs=FALLS)
    """Cost of a fall: the last reward becomes minus this number. COST@SCORE is a cost from a training score on, like
    1 10@0 40@150, and holds also if the score falls again. The training score is the mean total reward of the last
    score_window training episodes, with the environment's own rewards. Begin with a small cost if the agent avoids
    falls by not moving at all. Only used with reward_design outcome_bonus or fall_penalty."""
    action_cost: tuple[str, ...] = ("0",)
    """Cost of an action: this number times the action's size is subtracted from each reward that the agent learns
    from. The size is the sum of the action's absolute values, each between 0 and 1. Raise it if the agent wastes
    force: start near a tenth of a step's usual reward. COST@SCORE is a cost from a training score on, as of fall_cost,
    if the agent would rather do nothing than learn: 0.01@200. Scores do not contain it. For continuous actions."""
    backend: Literal["auto", "gymnasium", "envpool", "ale", "processes"] = setting("auto", main=True)
    """Library that steps the environments. auto: ale-py for Atari games, EnvPool if it is installed and has the
    environment, else Gymnasium. gymnasium: all environments in this process, one after the other. processes: one
    Gymnasium process per environment, for environments that are slow or that crash."""
    log_info: tuple[str, ...] = ()
    """Numbers that the environment reports in info, such as is_success, by their names. Each becomes a column of
    results.csv and a curve of TensorBoard, info_NAME: the mean of the values in the last step of the episodes that
    finished in the epoch. Episodes without that value do not count. Backend ale reports none."""
    num_envs: int = setting(16, at_least=1, main=True)
    """Number of environments that are stepped in parallel. More of them collect faster, but each contributes fewer
    consecutive steps to an epoch."""
    shards: int | None = setting(None, at_least=1)
    """Number of parts (shards) that the environments are divided into; with --workers, each worker steps whole shards.
    The results depend on the number of shards and not on the number of workers. None with --workers: one shard per
    environment, but at most 16. None without --workers: 4 where backend auto means Gymnasium, unless observations
    are images alone, 2 on EnvPool and with backend processes, else 1; at most one per environment."""
    symmetry: bool = False
    """Whether the networks make use of an environment's mirror symmetry. In a mirrored state the policy then takes the
    mirrored action, and the critic gives the same value. Learning may need fewer steps. Each step needs twice
    the computation. The mirrors of Acrobot, BipedalWalker, BipedalWalkerHardcore, CartPole, LunarLander (both) and
    Pendulum are known, and of MuJoCo's Ant, InvertedDoublePendulum, InvertedPendulum, Reacher, Swimmer and Walker2d
    (v5); describe that of another environment with mirror."""
    mirror: dict[str, object] = setting({}, needs=SYMMETRY)  # noqa: RUF009  the type is mutable, not its default
    """What the networks take as the mirror, as a JSON object with any of these keys. observation: the mirror image of
    an observation, for each of its numbers the position in the observation that it is taken from. Positions count from
    1, and a minus changes the sign: Pendulum's (cos, sin, speed) has [1, -2, -3]. action: that of an action, written
    alike. Discrete actions list the mirror image of each choice: CartPole, where left and right change places, has
    [2, 1]. Actions of several choices list those of the first, then those of the second, and so on. offset: what is
    added to a mirrored observation, in the environment's units; set others than the known ones if both sides start
    exactly alike and do the same all the time: then the policy sees one side a little ahead. weight: the weight of the
    mirror image in the policy, 0.5 if both sides are to act exactly alike. Lower it (to 0.4) if the policy walks with
    sampled actions but falls with deterministic ones. check: false skips the test of a mirror that you describe, 4,096
    random steps before training, which must not contradict it. Skip it if the mirror is right, but episodes always
    start on one side. Known mirrors are tested only with env_kwargs or wrappers. Only used with symmetry."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Device that TensorFlow computes on. auto: a GPU for image observations if there is one, else the CPU, which is
    faster for small networks."""


@dataclass(frozen=True)
class RunSettings(Settings):
    """How long the run is, its seed, what happens when something fails, and which epoch's parameters are kept."""

    GROUP = "run"

    epochs: int = setting(200, at_least=1, main=True)
    """Number of epochs. Each is one row of results.csv; schedules reach their end in the last epoch. Raise it if the
    score is still rising at the end."""
    steps_per_epoch: int = setting(8_000, at_least=1, main=True)
    """Environment steps per epoch, summed over all environments; must be a multiple of num_envs."""
    score_window: int = setting(100, at_least=1)
    """Number of finished training episodes whose mean total reward is the training score (column score). It uses the
    environment's own rewards."""
    seed: int = setting(0, at_least=0, at_most=2**31 - 1, main=True)
    """Random seed of initial weights, environments, actions and minibatches. Runs with different seeds show how much
    a result varies."""
    start_from: str | None = None
    """Trained agent whose weights and normalisation this run begins with: a run's folder, its name in runs, or an
    agent that comes with the project, such as walker. It has the same method, hidden layers and observations; heads
    for other actions are drawn anew, as is the critic of an agent that comes with the project. Its optimiser's state
    is left behind. None draws all weights."""
    environment_restarts: int = setting(3, at_least=0)
    """Number of times that failed environments are replaced before a failure ends the run. The episode that failed is
    not scored."""
    environment_time_limit: float = setting(
        60.0, at_least=1e-3, used_with=(Needs("backend", lambda name: name == "processes", "--backend processes"),)
    )
    """Seconds that building, resetting or stepping an environment may take before it counts as failed. The test of a
    mirror may take five times as long; validations and the evaluation have no such limit. Only used with backend
    processes."""
    on_not_finite: Literal["stop", "skip"] = "stop"
    """Response to NaN or infinity. stop: end the run with an error. skip: collect the epoch again, at most
    environment_restarts times, or undo the update, at most ten times in a row; then end the run."""
    best_metric: MetricName = "validation"
    """How an epoch's parameters are scored; the highest score is kept. validation: the mean unshaped reward of
    separate deterministic episodes, played from validate_from on. The other three use the epoch's training rewards,
    which reward_design has shaped, and count once score_window episodes have finished. total_reward: the sum of the
    epoch's rewards. mean_episode_reward: the mean over the episodes that finished in the epoch, or over the last
    score_window if fewer did. reward_times_steps: that mean times the mean length of the same episodes."""
    validate_every: int = setting(20, at_least=1, used_with=(VALIDATION,))
    """Epochs between validations. Raise it if validation takes too much of the time; lower it to find the best epoch
    more exactly. Only used with best_metric validation."""
    validate_from: tuple[float, ...] = setting((0.5,), used_with=(VALIDATION,))
    """Share of the training after which validations begin. Lower it to see early how the deterministic policy does,
    or to stop early with stop_score. A second number is a training score that validations need too, except the one of
    the last epoch: 0 -30 begins at -30, once score_window episodes have finished. Give one if validations of a policy
    that has learned little take long, for example because it stands still until the time limit. Only used with
    best_metric validation."""
    validation_episodes: int = setting(40, at_least=1, used_with=(VALIDATION,))
    """Number of episodes per validation. Raise it if the score is noisy; lower it if the environment is slow. Only
    used with best_metric validation."""
    average_weights: float = setting(0.0, at_least=0, at_most=0.999, needs=VALIDATION)
    """Weight of the past in a moving average of the networks' weights, which is updated once per epoch: 0.8 averages
    about the last five epochs. The averaged weights are validated, and kept if they are the best. Training itself
    continues with the weights of the last update. A run also ends with these if adopt_best is off. Raise it if the
    score changes much from one validation to the next. 0 averages nothing. Only used with best_metric validation."""
    stop_score: float | None = setting(None)
    """Score at which training ends before its last epoch; best_metric says how an epoch is scored. A validation that
    reaches it is repeated with 100 other episodes, whose mean then counts: first 25 are played, and the
    others if the score of these reaches stop_score. None trains all epochs."""
    confirming_margin: float = setting(0.0, at_least=0, at_most=100, needs=STOP_SCORE, used_with=(VALIDATION,))
    """Number of standard errors by which the mean of the confirming episodes must be above stop_score: the confirmed
    score is their mean minus so many standard errors of 100 episodes. Raise it (to 1) if trained agents score below
    stop_score, because they stopped after lucky episodes. With a margin, a validation also ends as soon as it can
    reach neither stop_score nor the best score so far. For this, each episode that still runs is assumed to reach
    stop_score, or the reward of the best episode of all validations if that is more. It is counted with that reward,
    so the score of such a validation is mostly too high. Only used with stop_score and best_metric validation."""
    adopt_best: bool = True
    """Whether the final agent has the best epoch's parameters. If False it has the last epoch's, as in the 2021
    code."""


MakeNetworks = Callable[..., Any]  # observation space, action space and config → a `keras.Model`


@dataclass(frozen=True)
class OwnNetworkSettings(Settings):
    """Networks of the user's own."""

    GROUP = "network"

    networks: str | None = None
    """Function of your own that makes the hidden layers of actor and critic with Keras, as module:function, such as
    my_networks:make_networks (docs/own-network.md). The module may be in the current folder. hidden_sizes then only
    sets the layers that critics of observations and actions (DDPG, TD3, SAC, TQC) have after the action joins. None
    builds the networks that the other settings describe."""


# A dataclass takes its fields from the last base to the first: this is the order of config.json and of --help.
@dataclass(frozen=True)
class TrainingConfig(OwnNetworkSettings, RunSettings, EnvironmentSettings):
    """The settings of every method, in one flat frozen dataclass; a method's config adds parts of its own."""

    METHOD: ClassVar[str] = ""
    """The method's name in config.json."""
    action_masks = False  # a setting of methods whose actions may be choices

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.mirror_description  # raises what is wrong with it
        for name in ("render_mode", "max_episode_steps", "id", "disable_env_checker"):
            if name in self.env_kwargs:
                advice = "use --max-episode-steps" if name == "max_episode_steps" else "it is set where it is needed"
                raise UserError(f"env_kwargs names {name}: leave it out, {advice}")
        if self.steps_per_epoch % self.num_envs:
            raise UserError(
                f"steps_per_epoch {self.steps_per_epoch} is not divisible by num_envs {self.num_envs}: "
                f"try --steps-per-epoch {max(1, round(self.steps_per_epoch / self.num_envs)) * self.num_envs}"
            )
        if len(self.action_repeat) not in (1, 2):
            raise UserError(f"action_repeat is {self.action_repeat}: expected one number, or two like 3 1")
        if len(self.validate_from) not in (1, 2) or not 0 <= self.validate_from[0] <= 1:
            raise UserError(
                f"validate_from is {self.validate_from}: expected a share of 1 at most, and perhaps a score"
            )
        if len(set(map(info_column, self.log_info))) < len(self.log_info):
            raise UserError(f"log_info {' '.join(self.log_info)} would name a column twice: give each name once")
        for name in ("fall_cost", "action_cost"):
            costs_by_score(name, getattr(self, name))  # raises what is wrong with it
        if self.shards is not None and self.shards > self.num_envs:
            raise UserError(
                f"shards is {self.shards}, but there are only {self.num_envs} environments to divide: "
                f"use --shards {self.num_envs} or less"
            )

    def seeds(self) -> list[int]:
        """Four independent seeds derived from `seed`: of the agent, the environments, the training, the validation."""
        return [int(seed) for seed in np.random.SeedSequence(self.seed).generate_state(4)]

    @property
    def play_action_repeat(self) -> int | None:
        """For how many steps actions are held where the agent does not learn; None: as in training."""
        return self.action_repeat[1] if len(self.action_repeat) > 1 else None

    @property
    def mirror_description(self) -> MirrorDescription:
        """The parts of `mirror`."""
        keys = [field.name for field in dataclasses.fields(MirrorDescription)]
        if unknown := self.mirror.keys() - keys:
            raise UserError(f"mirror names {', '.join(sorted(unknown))}: expected some of {', '.join(keys)}")
        try:
            return MirrorDescription(**self.mirror)  # type: ignore[arg-type]  # checked there
        except UserError as error:
            raise UserError(f"mirror: {error}") from None

    def differences(self, other: "TrainingConfig") -> list[str]:
        """Names of the settings that make this a different run from that of `other`."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in MAY_CHANGE]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def changed_as(self, other: "TrainingConfig") -> Self:
        """The same run with the settings that may change (`MAY_CHANGE`) of `other`; UserError if they do not fit."""
        return self.replace(**{name: getattr(other, name) for name in MAY_CHANGE})
