"""The off-policy loop with a stochastic actor: SAC, TQC and CrossQ by one setting more; and the command line.

    python -m companions.SACAgentTrainer pendulum-sac          a preset
    python -m companions.SACAgentTrainer sac --env Some-v0     any environment with Box observations and actions
    python -m companions.SACAgentTrainer sac --help            the main settings

What differs from DDPG and TD3 is the agent, the columns of the table, and that no noise is added to actions.
"""

if __name__ == "__main__":  # before the imports below, which take a second
    from common.runs import signals

    signals.end_on_ctrl_c()

import math
import sys
from typing import TYPE_CHECKING, Any

from common.envs.environment import Environment
from common.envs.spaces import action_map
from common.errors import UserError
from common.rollout.collector import ShapeNoise
from common.runs.command_line import one_line_errors
from common.runs.session import train_as_typed
from companions.config import SACConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.results import SACResult
from companions.sac_presets import PRESETS, preset_for

if TYPE_CHECKING:  # TensorFlow is imported with an agent; `--help` and wrong settings need not wait for it
    from companions.SACAgent import SACAgent


class SACAgentTrainer(OffPolicyAgentTrainer):
    """Trains a stochastic policy, which explores by itself; for arguments and errors see `TrainerBase`."""

    result_type = SACResult
    default_name = "sac"

    def check_environment(self, environment: Environment, config: SACConfig) -> None:
        """Raises UserError also if no policy has the entropy that is asked for, so that α would grow for ever."""
        super().check_environment(environment, config)
        size, wanted = action_map(environment.action_space).size, config.target_entropy  # A, nats
        most = size * math.log(2.0)  # of uniform actions
        if wanted is not None and wanted >= most:
            raise UserError(
                f"target_entropy is {wanted:g}, and the entropy of {size} action dimensions from -1 to 1 is at most "
                f"{most:.2f}: choose a lower --target-entropy (the default is {-size})"
            )

    @staticmethod
    def make_agent(*arguments: Any) -> "SACAgent":
        """An untrained agent: SAC's, TQC's where critics learn more than one quantile, or CrossQ's."""
        from companions.CrossQAgent import CrossQAgent
        from companions.SACAgent import SACAgent
        from companions.TQCAgent import TQCAgent

        config = arguments[2]
        kind = CrossQAgent if config.crossq else SACAgent if config.quantiles == 1 else TQCAgent
        return kind(*arguments)

    def shape_noise(self, config: SACConfig) -> ShapeNoise | None:
        """None: the noise that actions are sampled with is independent at every step."""
        return None

    def exploring(self, last: int) -> dict[str, float]:
        """Nothing: the policy itself decides how much it explores."""
        return {}


def main() -> None:
    """Train as the command line says."""
    with one_line_errors():
        program = "python -m companions.SACAgentTrainer"
        train_as_typed(SACAgentTrainer, sys.argv[1:], program, PRESETS, "pendulum-sac", preset_for)


if __name__ == "__main__":
    main()
