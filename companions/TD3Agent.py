"""Twin delayed deep deterministic policy gradient: DDPG with three changes, each of them a switch.

Fujimoto, van Hoof & Meger 2018, arXiv:1802.09477. The delayed updates of actor and targets are a number in
`DDPGAgent.update`; the two changes of the target are here.
"""

import tensorflow as tf

from common.records import Transitions
from companions import losses
from companions.DDPGAgent import DDPGAgent


class TD3Agent(DDPGAgent):
    """DDPG with clipped double Q-learning and target policy smoothing, as far as the config wants them."""

    @property
    def number_of_critics(self) -> int:
        """Two for clipped double Q-learning."""
        return 2 if self.config.twin_critics else 1

    def targets(self, batch: Transitions, noise: tf.Tensor) -> tf.Tensor:
        """What the critics learn, [B]: r + γ·(1 − terminated)·min Q'(s', μ'(s') + noise)."""
        config = self.config
        next_actions = self.target_action(batch.next_observations)  # [B, A]
        if config.target_smoothing:
            next_actions = losses.smoothed_actions(next_actions, noise, config.smoothing_std, config.smoothing_clip)
        smallest = tf.reduce_min(self.target_values(batch.next_observations, next_actions), axis=0)  # [B]
        return losses.temporal_difference_target(batch.rewards, batch.terminated, smallest, config.gamma)
