"""CrossQ: SAC whose networks normalise batches, so that its critics need no target networks.

Bhatt, Palenicek et al. 2024, arXiv:1902.05605. One pass through the critics computes values now and in the next state
together, so that both are normalised by the same statistics.
"""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from common.errors import UserError
from common.nets.batch_renormalization import RenormalizedNetworks
from common.nets.keras_models import HiddenLayers, Torso
from common.records import Transitions
from common.state import State
from companions.DDPGAgent import Metrics
from companions.SACAgent import SACAgent


class CrossQAgent(SACAgent):
    """SAC with batch renormalisation and without target networks, for numbers alone; arguments as for `DDPGAgent`."""

    has_target_critics = False
    networks_type = RenormalizedNetworks
    _actor: RenormalizedNetworks
    _critics: RenormalizedNetworks

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._actor.updates = self.actor_optimizer.iterations
        self._critics.updates = self.critic_optimizer.iterations

    def _torso(self, *arguments: Any) -> Torso:
        return replace(super()._torso(*arguments), batch_norm=True)

    def _actor_torso(self) -> HiddenLayers:
        if self.own_torso is not None or self.images or self.sees_images:
            other = "images" if self.own_torso is None else "networks of your own"
            raise UserError(f"crossq does not go with {other}: use --no-crossq")
        return super()._actor_torso()

    def targets(self, batch: Transitions, noise: tf.Tensor) -> tf.Tensor:
        """What the critics' pass needs, [B, A + 1]: the next actions, and their entropy bonus."""
        next_actions, entropy_bonus = self.next_actions(batch, noise)
        return tf.concat([next_actions, entropy_bonus[:, None]], axis=1)

    def _critic_step(self, batch: Transitions, target: tf.Tensor) -> Metrics:
        """One Adam step of the critics towards r + γ·(1 − terminated)·(min Q(s', a') − α·log π(a'|s')).

        Q(s, a) and Q(s', a') come from one pass over both batches; no gradient goes through Q(s', a').
        """
        now, then = (batch.observations, batch.actions), (batch.next_observations, target[:, :-1])
        inputs = tf.concat([tf.concat(pair, axis=1) for pair in (now, then)], axis=0)  # [2B, S + A]

        def loss_of(stacks: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            both = self._values(self._critics, stacks, inputs, training=True)  # [critics, 2B]
            values, next_values = tf.split(both, 2, axis=1)  # [critics, B] each
            learned = self.soft_target(batch, tf.stop_gradient(next_values), target[:, -1])  # [B]
            return self.critic_loss(values, learned), tf.stack([values[0], learned])

        loss, means = self.descend(self.critic_optimizer, self._critics, loss_of)
        return {"loss_critic": loss, "mean_value": tf.reduce_mean(means[0]), "mean_target": tf.reduce_mean(means[1])}

    # -- state --

    def parameters(self) -> State:
        """See `SACAgent.parameters`; and the running statistics."""
        groups = {"statistics/actor": self._actor, "statistics/critics": self._critics}
        return super().parameters() | {name: np.array(group.statistics) for name, group in groups.items()}

    def load_parameters(self, state: State) -> None:
        """Restore what `parameters` returned; other names are ignored."""
        super().load_parameters(state)
        self._actor.statistics.assign(state["statistics/actor"])
        self._critics.statistics.assign(state["statistics/critics"])
