"""The columns of PPO's table."""

from dataclasses import dataclass

from common.nets.network import MAX_STD
from common.results import EpochResult, column


@dataclass(frozen=True, kw_only=True)
class PPOResult(EpochResult):
    """An epoch of proximal policy optimisation."""

    approximate_kl: float = column("policy")  # nats, mean over the last pass
    clip_fraction: float = column("policy")  # share of samples outside the clip range in the last pass
    entropy: float = column("policy")  # nats, closed form
    mean_std: float = column("policy")  # of the policy, in units of half the action range
    explained_variance: float = column("losses")  # of the value targets by the critic, before the update
    kl_coefficient: float = column("policy")  # β of the KL penalty in this epoch; NaN without one
    gradient_norm_actor: float = column("gradients")  # before clipping
    gradient_norm_critic: float = column("gradients")
    learning_rate: float = column("gradients")  # the actor's
    reward_std: float = column("reward")  # what rewards are divided by; 1 without scaling
    hp_learning_rate: float = column("hp")  # what may be changed during a run, before any schedule
    hp_passes: float = column("hp")
    hp_clip_range: float = column("hp")
    hp_value_coefficient: float = column("hp")
    hp_entropy_coefficient: float = column("hp")

    SHOWN = {"KL": ("approximate_kl", ".4f"), "std": ("mean_std", ".2f")}  # noqa: RUF012


UPDATE_METRICS = (
    "loss_actor",
    "loss_critic",
    "approximate_kl",
    "clip_fraction",
    "entropy",
    "mean_std",
    "gradient_norm_actor",
    "gradient_norm_critic",
)
"""What an update returns, in this order."""

RUNAWAY = {
    "mean_std": (
        10.0,
        "the policy's standard deviation runs away, on average it is {:.1f} half action ranges (bounded at "
        f"{MAX_STD:g}): lower --entropy-coefficient",
    ),
    "approximate_kl": (
        10.0,
        "an update changes the policy far too much, its KL divergence is {:.2g} (0.01 is usual): lower "
        "--learning-rate, or give --max-kl 0.02",
    ),
}
"""Metric → the number above which something is wrong, and the words of a warning."""

AVERAGED_METRICS = ("loss_actor", "loss_critic", "gradient_norm_actor", "gradient_norm_critic")
"""Those of them that are means over all passes; the others are of the last pass."""

OF_CRITIC = ("loss_critic", "gradient_norm_critic")
METRICS_OF = {
    "actor": tuple(name for name in UPDATE_METRICS if name not in OF_CRITIC),
    "critic": OF_CRITIC,
    "network": UPDATE_METRICS,
}
"""Which of them come from which network; "network" has the shared layers of actor and critic."""
