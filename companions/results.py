"""The columns of DDPG's and TD3's tables."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.results import EpochResult, column

if TYPE_CHECKING:  # TensorFlow is imported with an agent; `--help` and wrong settings need not wait for it
    pass


@dataclass(frozen=True, kw_only=True)
class OffPolicyResult(EpochResult):
    """An epoch of DDPG or TD3; losses and values are means over its updates, NaN where there was none."""

    mean_value: float = column("losses")  # of the first critic
    mean_target: float = column("losses")  # of what the critics learn
    updates: int = column("policy")  # of the critics, since training began
    exploration_std: float = column("policy")  # in units of half the action range
    replay_filled: int = column("policy")  # transitions

    SHOWN = {"Q": ("mean_value", ".1f"), "noise": ("exploration_std", ".2f")}  # noqa: RUF012


UPDATE_METRICS = ("loss_critic", "loss_actor", "mean_value", "mean_target")
"""What an update returns, in this order."""
