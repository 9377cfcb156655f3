"""Twin delayed deep deterministic policy gradient: DDPG with three changes, each of them a switch.

Fujimoto, van Hoof & Meger 2018, arXiv:1802.09477. The delayed updates of actor and targets are a number in
`DDPGAgent.update`; the two changes of the target are here.
"""

import tensorflow as tf

from common.records import Transitions
from companions import losses
from companions.DDPGAgent import DDPGAgent

CLIP = 2.5  # standard deviations of the noise of target smoothing, which is 0.5 half ranges as published


class TD3Agent(DDPGAgent):
    """DDPG with clipped double Q-learning (`twin_critics`) and target policy smoothing (`target_smoothing`).

    Arguments and errors are those of `DDPGAgent`.
    """

    @property
    def number_of_critics(self) -> int:
        """Two with `twin_critics`, for clipped double Q-learning; else one."""
        return 2 if self.config.twin_critics else 1

    def targets(self, batch: Transitions, noise: tf.Tensor) -> tf.Tensor:
        """What the critics learn, [B]: r + γ·(1 − terminated)·min Q'(s', μ'(s') + noise).

        Equations 10 and 14 of arXiv:1802.09477. The noise is clipped and scaled by the settings of target smoothing.
        """
        config = self.config
        next_actions = self.target_action(batch.next_observations)  # [B, A]
        if std := config.target_smoothing:
            next_actions = losses.smoothed_actions(next_actions, noise, std, CLIP * std)
        smallest = tf.reduce_min(self.target_values(batch.next_observations, next_actions), axis=0)  # [B]
        return losses.temporal_difference_target(batch.rewards, batch.terminated, smallest, config.gamma)
