"""The settings of the off-policy methods: a few small parts, and the configs that join them."""

from dataclasses import dataclass
from typing import Literal

from common.config import TrainingConfig
from common.errors import UserError
from common.settings import SMALLEST, Needs, Settings, setting

ORNSTEIN_UHLENBECK = Needs(
    "exploration", lambda noise: noise == "ornstein_uhlenbeck", "--exploration ornstein_uhlenbeck"
)
SOFT = Needs("hard_update_every", lambda updates: updates == 0, "--hard-update-every 0")
WITH_TARGETS = Needs("crossq", lambda crossq: not crossq, "--no-crossq")
LEARNED = Needs("learn_temperature", bool, "--learn-temperature")
TWO_HIDDEN_LAYERS = Needs("hidden_sizes", lambda sizes: len(sizes) > 1, "--hidden-sizes 256 256")


@dataclass(frozen=True)
class NetworkSettings(Settings):
    """The actor's and the critics' networks."""

    GROUP = "network"

    hidden_sizes: tuple[int, ...] = setting((256, 256), at_least=1, main=True)
    """Number of units in each hidden layer, for actor and critics; one number per layer. Larger layers can learn
    harder tasks and compute more slowly."""
    critic_hidden_sizes: tuple[int, ...] = setting((), at_least=1)
    """Number of units in each hidden layer of the critics; with no number at all they are as of hidden_sizes."""
    layer_norm: bool = False
    """Whether the critics normalise the features of each hidden layer, before its activation, to mean 0 and standard
    deviation 1. Try it if values diverge, or with many updates per step."""
    precision: Literal["float32", "bfloat16"] = setting("float32", needs=TWO_HIDDEN_LAYERS)
    """Numbers that updates multiply between two hidden layers. float32: as they are. bfloat16: rounded to two or
    three digits first; sums stay float32. With layers of 256 units bfloat16 makes updates about 1.6 times as fast on
    processors that have instructions for it, such as AVX-512 BF16; on others it may be slower. Only used with two or
    more hidden_sizes."""
    normalize_observations: bool = False
    """Whether observations are shifted and divided by their running mean and standard deviation, then clipped to ±10.
    Try it if the observation's numbers differ much in size."""


@dataclass(frozen=True)
class ExplorationSettings(Settings):
    """The noise on the actions that training explores with."""

    GROUP = "exploration"

    exploration: Literal["gaussian", "ornstein_uhlenbeck"] = "gaussian"
    """Noise that is added to the actor's actions. gaussian: independent at every step. ornstein_uhlenbeck: drifting
    back to 0, so that it pushes the same way for several steps; try it if independent noise achieves nothing."""
    exploration_std: float = setting(0.1, at_least=0, main=True)
    """Standard deviation of the exploration noise, in units of half the action range; for ornstein_uhlenbeck, its
    sigma: the noise's own standard deviation approaches 1.8 * sigma. Raise it if the agent stays with a poor habit;
    lower it if noise spoils the episodes."""
    final_exploration_std: float | None = setting(None, at_least=0)
    """Value that exploration_std changes to, linearly over the epochs. None keeps exploration_std."""
    ou_dt: float = setting(0.01, at_least=SMALLEST, needs=ORNSTEIN_UHLENBECK)
    """Units of time per environment step of Ornstein-Uhlenbeck noise, which drifts back to 0 at a rate of 0.15 per
    unit. The noise's memory is about 1 / (0.15 * ou_dt) steps: raise it for a shorter one. Only used with exploration
    ornstein_uhlenbeck."""


@dataclass(frozen=True)
class UpdateSettings(Settings):
    """Warm-up, the replay buffer, discounting, gradient steps and target networks."""

    GROUP = "update"

    warmup_steps: int = setting(25_000, at_least=1, main=True)
    """Environment steps before the first update. Raise it if the first updates need more varied experience; lower it
    for short runs."""
    warmup_actions: Literal["random", "policy"] = "random"
    """Actions during the first warmup_steps. random: uniform within the action range. policy: the untrained actor's,
    with exploration noise."""
    replay_size: int = setting(1_000_000, at_least=1)
    """Number of transitions in the replay buffer, which keeps the newest. Lower it if memory is short, or to forget
    the actions of old policies sooner."""
    batch_size: int = setting(256, at_least=1, main=True)
    """Number of transitions per update. Larger batches have less noisy gradients and take longer."""
    train_every: int = setting(1, at_least=1)
    """Environment steps between two calls of the update. Raise it together with updates_per_train to train faster:
    one call of 50 updates takes less time than 50 calls."""
    updates_per_train: int = setting(1, at_least=1)
    """Number of updates every train_every steps, all in one call. Raise it to learn more from each step; lower it to
    save time."""
    gamma: float = setting(0.99, at_least=0, at_most=1, main=True)
    """Discount factor per step; rewards count for about 1/(1 - gamma) steps. Raise it if rewards come late; lower it
    if learning is noisy and each action's effect shows soon."""
    n_step: int = setting(1, at_least=1)
    """Number of rewards that are added up in a critic's target before the critic's own estimate takes over; fewer
    where an episode ends. 1 is the usual one-step target. Raise it (to 3 or 5) if rewards come late: they reach
    earlier states sooner, but the later of these steps were chosen by an older policy."""
    learning_rate: float = setting(3e-4, at_least=0, main=True)
    """Adam's step size, for actor and critics unless critic_learning_rate is set. Lower it if the score swings or
    collapses; raise it if learning is slow but steady."""
    critic_learning_rate: float | None = setting(None, at_least=0)
    """Adam's step size for the critics. None uses learning_rate."""
    adam_beta: float = setting(0.9, at_least=0, at_most=0.9999)
    """Adam's decay rate of the mean gradient (beta 1), for actor and critics. Lower it (to 0.5) if targets change
    quickly, as without target networks."""
    anneal: tuple[Literal["learning_rate"], ...] = ()
    """What falls linearly to 0 over the epochs: learning_rate, which stands for those of actor, critics and
    temperature, or nothing. Try it if the score still swings at the end."""
    tau: float = setting(0.005, at_least=0, at_most=1, main=True, needs=SOFT)
    """Share of the distance to the trained networks that target networks move per update. Lower it if the critics'
    values diverge; raise it if learning is slow but steady. Only used with hard_update_every 0."""
    hard_update_every: int = setting(0, at_least=0)
    """Number of updates between two copies of the trained networks to the target networks. 0: they are not copied, but
    move softly by tau."""
    quirks: tuple[Literal["truncation_is_terminal", "actor_first", "targets_every_update"], ...] = ()
    """Quirks of the published systems that are repeated. truncation_is_terminal: a time limit is a terminal state,
    with no value after it. actor_first: the actor is updated before the critics have learned from the minibatch.
    targets_every_update: the target networks move after every update of the critics, even if the actor's updates are
    delayed by policy_delay; only with hard_update_every 0."""


@dataclass(frozen=True)
class TD3Settings(Settings):
    """TD3's three additions to DDPG; with all of them off it is DDPG."""

    GROUP = "TD3"

    twin_critics: bool = True
    """Whether two critics are trained and targets use the smaller value (clipped double Q-learning), which reduces
    overestimation."""
    target_smoothing: float = setting(0.2, at_least=0)
    """Standard deviation of the noise that is added to the action at which the target is computed, in units of half
    the action range, so that the critics cannot rely on narrow peaks of the value. Noise above 2.5 standard deviations
    is clipped. Raise it for smoother targets. 0 adds no noise."""
    policy_delay: int = setting(2, at_least=1)
    """Number of critic updates per update of the actor and the target networks. Raise it if the critics lag behind
    the actor. 1 is no delay."""


@dataclass(frozen=True)
class SACSettings(Settings):
    """The stochastic actor's entropy, the distribution of values that makes SAC into TQC, and CrossQ."""

    GROUP = "SAC"

    crossq: bool = False
    """Whether networks have batch renormalisation and critics learn without target networks (CrossQ)."""

    critics: int = setting(2, at_least=1)
    """Number of critics. With quantiles 1, targets use the smallest critic's value (clipped double Q-learning, as
    TD3's twin_critics). With more quantiles, targets use those of all critics together. More critics overestimate less
    and take longer."""
    policy_delay: int = setting(1, at_least=1)
    """Number of critic updates per update of the actor, the temperature and the target networks. Raise it if the
    critics lag behind the actor. 1 is no delay."""
    learn_temperature: bool = True
    """Whether the temperature is learned, so that the policy's entropy stays near target_entropy. If False it keeps
    its initial value."""
    temperature: float = setting(1.0, at_least=SMALLEST, main=True)
    """Initial weight of the policy's entropy (alpha), in units of reward. Without learn_temperature it stays the same.
    Raise it for more exploration; lower it if rewards are small."""
    target_entropy: float | None = setting(None, needs=LEARNED)
    """Entropy of the policy, in nats, that the learned temperature aims at; actions are within [-1, 1]. None is minus
    the number of the action's dimensions, and it must be below 0.69 times that number. Raise it for more exploration.
    Only used with learn_temperature."""
    quantiles: int = setting(1, at_least=1, main=True)
    """Number of quantiles of the return that each critic learns (TQC uses 25). 1 is plain SAC, whose critics learn the
    mean return."""
    dropped_quantiles: int = setting(
        2, at_least=0, needs=Needs("quantiles", lambda quantiles: quantiles > 1, "--quantiles 25")
    )
    """Number of target quantiles that are dropped per critic. The quantiles of all critics are sorted together, and
    the largest ones are dropped: in all, this number times the number of critics. Raise it if values are
    overestimated; lower it if they are underestimated. Only used with quantiles above 1."""


# A dataclass takes its fields from the last base to the first: this is the order of config.json and of --help.
@dataclass(frozen=True)
class OffPolicySettings(UpdateSettings, NetworkSettings, TrainingConfig):
    """What all off-policy methods have, with other defaults than TrainingConfig's."""

    # Ranges stay; texts stay unless another is given.
    backend: Literal["auto", "gymnasium", "envpool", "processes"] = "gymnasium"
    """Library that steps the environments. auto: EnvPool if it is installed and has the environment, else Gymnasium.
    gymnasium: all environments in this process, one after the other. processes: one Gymnasium process per
    environment, for environments that are slow or that crash."""
    num_envs: int = 1
    steps_per_epoch: int = 5000
    validate_every: int = 10
    validation_episodes: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps >= self.epochs * self.steps_per_epoch:
            steps = self.epochs * self.steps_per_epoch
            advice = f"use --warmup-steps {steps // 10} or less" if steps >= 10 else "raise --epochs"
            raise UserError(
                f"warmup_steps {self.warmup_steps} leaves nothing to learn in {self.epochs} epochs of "
                f"{self.steps_per_epoch} steps: {advice}"
            )
        if self.batch_size > self.replay_size:
            raise UserError(
                f"batch_size {self.batch_size} is larger than replay_size {self.replay_size}: "
                f"use --batch-size {self.replay_size} or less"
            )
        if self.n_step > 1 and self.warmup_steps < self.n_step * self.num_envs:
            raise UserError(
                f"warmup_steps {self.warmup_steps} is over before one of {self.num_envs} environments took n_step "
                f"{self.n_step} steps: use --warmup-steps {self.n_step * self.num_envs} or more"
            )


@dataclass(frozen=True)
class OffPolicyConfig(TD3Settings, ExplorationSettings, OffPolicySettings):
    """Deep deterministic policy gradient (arXiv:1509.02971) and its twin-delayed successor (TD3, arXiv:1802.09477).

    The defaults are TD3 as its authors publish it; `companions.presets` has the named settings.
    """

    METHOD = "off-policy"


@dataclass(frozen=True)
class SACConfig(SACSettings, OffPolicySettings):
    """Soft actor-critic (arXiv:1801.01290, 1812.05905), TQC (arXiv:2005.04269) and CrossQ (arXiv:1902.05605).

    The defaults are SAC as its authors publish it; `companions.sac_presets` has the named settings.
    """

    METHOD = "sac"

    warmup_steps: int = 10_000
    tau: float = setting(0.005, at_least=0, at_most=1, used_with=(WITH_TARGETS,))
    """Share of the distance to the trained networks that target networks move per update. Lower it if the critics'
    values diverge; raise it if learning is slow but steady. Only used with hard_update_every 0, and without crossq."""
    hard_update_every: int = setting(0, at_least=0, used_with=(WITH_TARGETS,))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crossq and self.quantiles > 1:
            raise UserError(f"quantiles {self.quantiles} does not go with crossq: use --quantiles 1, or --no-crossq")
        if 1 < self.quantiles <= self.dropped_quantiles:
            raise UserError(
                f"dropped_quantiles {self.dropped_quantiles} leaves none of {self.quantiles} quantiles: "
                f"use --dropped-quantiles {self.quantiles - 1} or less"
            )
