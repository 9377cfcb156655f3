"""Soft actor-critic: a stochastic actor that is paid for its entropy.

Haarnoja et al. 2018, arXiv:1801.01290, with the learned temperature of arXiv:1812.05905. Networks, minibatches, the
updates of critics and target critics are DDPG's; what differs is here.
"""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import keras
import numpy as np
import tensorflow as tf

from common.envs.mirrors import Mirror
from common.errors import DivergedError
from common.nets.keras_models import DenseHead, actor_network
from common.nets.kernels import glorot
from common.records import Transitions
from common.rollout.policies import SquashedPolicy
from common.state import State
from companions import losses
from companions.config import SACConfig
from companions.DDPGAgent import DDPGAgent, Metrics
from companions.results import SAC_UPDATE_METRICS
from companions.squashed_normal import squashed_normal, temperature_loss


class SACAgent(DDPGAgent):
    """A squashed Normal actor, critics with a target each, and a temperature α; arguments as for `DDPGAgent`."""

    config: SACConfig
    metrics = SAC_UPDATE_METRICS
    has_target_actor = False

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # those of DDPGAgent
        config = self.config
        self.target_entropy = -float(self.action_size) if config.target_entropy is None else config.target_entropy
        self._log_temperature = keras.Variable(np.log([config.temperature]).astype(np.float32))  # [1]
        self.temperature_optimizer = self.new_adam(None, [self._log_temperature])
        self.adams = {**self.adams, "temperature_adam": self.temperature_optimizer}

    # -- networks --

    @property
    def number_of_critics(self) -> int:
        """The setting `critics`."""
        return self.config.critics

    @property
    def update_noise_size(self) -> int:
        """Standard normal numbers that an update takes for each transition: for the next action and the actor's."""
        return 2 * self.action_size

    @property
    def temperature(self) -> float:
        """α, in units of reward."""
        return float(np.exp(self._log_temperature.numpy()[0]))

    def new_actor(self, seed: int) -> keras.Model:
        """An untrained actor, observations [B, S] → μ and log σ side by side, [B, 2A], before tanh and bounds."""
        mirror = self.mirror
        if mirror is not None:
            both = mirror.action.beside(mirror.action.unsigned)  # a standard deviation has no sign
            mirror = Mirror(mirror.observation, both, mirror.weight)
        head = DenseHead("mean_and_log_std", 2 * self.action_size)
        return actor_network(self._actor_torso(), head, glorot(seed), mirror)

    # -- acting --

    def acting_policy(self) -> SquashedPolicy:  # type: ignore[override]  # its exploration is its own
        """A copy of the present policy that maps raw observations to actions."""
        return SquashedPolicy(self.acting_network())

    # -- learning --

    def sample(
        self, stacks: list[tf.Tensor], observations: tf.Tensor, noise: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sampled actions [B, A] in [−1, 1] and their log-probabilities [B] in nats, of standard normal noise [B, A].

        `stacks` are the actor's weights; observations [B, S] are as the networks see them.
        """
        return squashed_normal(self._actor.call(stacks, observations, training)[0], noise)

    def targets(self, batch: Transitions, noise: tf.Tensor) -> tf.Tensor:
        """What the critics learn, [B]: r + γ·(1 − terminated)·(min Q'(s', a') − α·log π(a'|s')).

        Equations 3 of arXiv:1801.01290 and 5 of arXiv:1812.05905; a' is sampled from the actor itself.
        """
        next_actions, entropy_bonus = self.next_actions(batch, noise)  # [B, A], [B]
        next_values = self.target_values(batch.next_observations, next_actions)  # [critics, B, ...]
        return self.soft_target(batch, next_values, entropy_bonus)

    def next_actions(self, batch: Transitions, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sampled actions a' [B, A] in the next states, and their entropy bonus −α·log π(a'|s') [B]."""
        of_target = noise[:, : self.action_size]  # [B, A]
        actions, log_probs = self.sample(self._actor.stacks(), batch.next_observations, of_target)  # [B, A], [B]
        return actions, -tf.exp(self._log_temperature) * log_probs

    def soft_target(self, batch: Transitions, next_values: tf.Tensor, entropy_bonus: tf.Tensor) -> tf.Tensor:
        """r + γ·(1 − terminated)·(min Q' + entropy bonus), [B]; next values Q' [critics, B], entropy bonus [B]."""
        smallest = tf.reduce_min(next_values, axis=0) + entropy_bonus  # [B]
        return losses.temporal_difference_target(batch.rewards, batch.terminated, smallest, self.config.gamma)

    def estimate(self, values: tf.Tensor) -> tf.Tensor:
        """The value [B] that the actor maximises: the smallest of the critics' values [critics, B]."""
        return tf.reduce_min(values, axis=0)

    def _actor_step(self, batch: Transitions, noise: tf.Tensor) -> Metrics:
        """One Adam step of the actor along α·log π − Q, equation 7 of arXiv:1812.05905, and one of the temperature."""
        temperature, critics = tf.exp(self._log_temperature)[0], self._critics.stacks()

        def loss_of(stacks: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            of_actor = noise[:, self.action_size :]  # [B, A]
            actions, log_probs = self.sample(stacks, batch.observations, of_actor, training=True)  # [B, A], [B]
            inputs = tf.concat([batch.observations, actions], axis=1)  # [B, S + A]
            values = self.estimate(self._values(self._critics, critics, inputs))  # [B]
            return tf.reduce_mean(temperature * log_probs - values), log_probs

        loss, log_probs = self.descend(self.actor_optimizer, self._actor, loss_of)
        if self.config.learn_temperature:
            self._temperature_step(log_probs)
        return {"loss_actor": loss, "entropy": -tf.reduce_mean(log_probs), "temperature": temperature}

    def _temperature_step(self, log_probs: tf.Tensor) -> None:
        """One Adam step of log α towards the target entropy."""
        log_temperature = tf.convert_to_tensor(self._log_temperature.value)  # [1]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(log_temperature)
            loss = temperature_loss(log_temperature, log_probs, self.target_entropy)
        self.temperature_optimizer.apply([tape.gradient(loss, log_temperature)], [self._log_temperature])

    def check_finite(self) -> None:
        """Raises DivergedError if a weight or α is NaN or infinite."""
        super().check_finite()
        with np.errstate(over="ignore"):
            temperature = self.temperature
        if not np.isfinite(temperature):
            raise DivergedError("training diverged, the temperature is infinite: lower --learning-rate")

    # -- state --

    def parameters(self) -> State:
        """See `DDPGAgent.parameters`; and log α."""
        return super().parameters() | {"log_temperature": np.array(self._log_temperature)}

    def load_parameters(self, state: State) -> None:
        """Restore what `parameters` returned; other names are ignored."""
        super().load_parameters(state)
        self._log_temperature.assign(state["log_temperature"])
