"""Truncated quantile critics: SAC whose critics learn the distribution of the return.

Kuznetsov et al. 2020, arXiv:2005.04269. In place of the smallest of two means, targets are the quantiles of all
critics without the largest, so that overestimation is controlled by a number instead of by the minimum.
"""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import tensorflow as tf

from common.nets.flat_networks import FlatNetworks
from common.records import Transitions
from companions import losses
from companions.quantiles import quantile_huber_loss, smallest_quantiles
from companions.SACAgent import SACAgent


class TQCAgent(SACAgent):
    """SAC whose critics each give `quantiles` quantiles of the return; arguments as for `DDPGAgent`."""

    @property
    def outputs_of_critic(self) -> int:
        """How many numbers a critic gives for a state and an action."""
        return self.config.quantiles

    def _values(
        self, critics: FlatNetworks, stacks: list[tf.Tensor], inputs: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Quantiles [critics, B, quantiles] of observations and actions [B, S + A]."""
        return critics.call(stacks, inputs, training)

    def critic_loss(self, values: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """The quantile Huber loss of quantiles [critics, B, quantiles] against a target [B, T]."""
        return quantile_huber_loss(values, target)

    def soft_target(self, batch: Transitions, next_values: tf.Tensor, entropy_bonus: tf.Tensor) -> tf.Tensor:
        """Samples [B, T] of r + γ·(1 − terminated)·(Z'(s', a') − α·log π): section 4 of arXiv:2005.04269.

        T is critics · (quantiles − dropped_quantiles). Next values Z' are [critics, B, quantiles].
        """
        kept = smallest_quantiles(next_values, self.config.dropped_quantiles) + entropy_bonus[:, None]  # [B, T]
        return losses.temporal_difference_target(
            batch.rewards[:, None], batch.terminated[:, None], kept, self.config.gamma
        )

    def estimate(self, values: tf.Tensor) -> tf.Tensor:
        """The value [B] that the actor maximises: the mean of all quantiles; none is dropped here."""
        return tf.reduce_mean(values, axis=(0, 2))
