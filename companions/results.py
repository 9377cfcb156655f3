"""The columns of the off-policy methods' tables."""

from dataclasses import dataclass

from common.results import EpochResult, column


@dataclass(frozen=True, kw_only=True)
class OffPolicyResult(EpochResult):
    """An epoch of DDPG or TD3; losses and values are means over its updates, NaN where there was none."""

    mean_value: float = column("losses")  # of the first critic
    mean_target: float = column("losses")  # of what the critics learn
    updates: int = column("policy")  # of the critics, since training began
    exploration_std: float = column("policy")  # in units of half the action range
    replay_filled: int = column("policy")  # transitions

    SHOWN = {"Q": ("mean_value", ""), "noise": ("exploration_std", ".2f")}  # noqa: RUF012


UPDATE_METRICS = ("loss_critic", "loss_actor", "mean_value", "mean_target")
"""What an update returns, in this order."""


@dataclass(frozen=True, kw_only=True)
class SACResult(EpochResult):
    """An epoch of SAC, TQC or CrossQ; losses, values, entropy and temperature are means over its updates, or NaN."""

    mean_value: float = column("losses")  # of the first critic
    mean_target: float = column("losses")  # of what the critics learn
    updates: int = column("policy")  # of the critics, since training began
    entropy: float = column("policy")  # of an action within [−1, 1], in nats, estimated from samples
    temperature: float = column("policy")  # α, in units of reward
    replay_filled: int = column("policy")  # transitions

    SHOWN = {"Q": ("mean_value", ""), "entropy": ("entropy", ".2f")}  # noqa: RUF012


SAC_UPDATE_METRICS = (*UPDATE_METRICS, "entropy", "temperature")
"""What an update of SAC, TQC or CrossQ returns, in this order."""
