"""The agent: an actor and a critic, how they act, what they think of a step, how they learn.

An Agent knows weights and nothing of time: epochs, environments and schedules are the trainer's.
"""

from collections.abc import Mapping
from pathlib import Path

import common.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import gymnasium
import keras
import numpy as np
import tensorflow as tf

from common import arrays_file, distributions, funcs, losses, networks
from common.agent_state import Best, adams_state, load_adams
from common.behaviour import CategoricalBehaviour, NormalBehaviour, Normalizer
from common.config import PPOConfig
from common.errors import DivergedError
from common.funcs import RunningStatistics
from common.records import Batch
from common.spaces import action_map, choices

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
AVERAGED_METRICS = ("loss_actor", "loss_critic", "gradient_norm_actor", "gradient_norm_critic")  # over all passes


class Agent:
    """Separate Keras `actor` and `critic`, a `tfp` policy picked by the action space, two Adams.

    Args:
        observation_space: Box, of one environment.
        action_space: Box for a Normal policy; Discrete, MultiDiscrete or MultiBinary for a Categorical one.
        config: network and update settings; the rest of it is not read here.
        seed: of the initial weights.
    """

    def __init__(
        self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space, config: PPOConfig, seed: int
    ) -> None:
        self.config = config
        self.action_map = action_map(action_space)
        self.observation_size = int(np.prod(observation_space.shape))
        self.action_size = self.action_map.size
        self.choices = None if isinstance(action_space, gymnasium.spaces.Box) else choices(action_space)
        sizes = networks.torso_sizes(config.hidden_sizes, self.observation_size, self.action_size)
        actor_seed, critic_seed = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
        torso = (sizes, config.activation, config.hidden_gain)
        if self.choices is None:
            self.actor = networks.normal_actor(
                self.observation_size,
                self.action_size,
                *torso,
                config.mean_activation,
                config.mean_gain,
                config.std,
                config.initial_std,
                actor_seed,
            )
        else:
            self.actor = networks.categorical_actor(
                self.observation_size, sum(self.choices), *torso, config.mean_gain, actor_seed
            )
        self.critic = networks.value_critic(
            self.observation_size, sizes, config.activation, config.hidden_gain, critic_seed
        )
        self.actor_optimizer = keras.optimizers.Adam(config.learning_rate, epsilon=config.adam_epsilon)
        self.critic_optimizer = keras.optimizers.Adam(config.learning_rate, epsilon=config.adam_epsilon)
        self.actor_optimizer.build(self.actor.trainable_variables)
        self.critic_optimizer.build(self.critic.trainable_variables)
        self._adams = {"actor_adam": self.actor_optimizer, "critic_adam": self.critic_optimizer}
        self.observation_statistics = RunningStatistics((self.observation_size,))
        self.kl_coefficient = config.kl_coefficient  # β of the KL penalty, which adapts
        self.best = Best()
        # XLA: 1.2 to 1.7 times the speed of the plain graph on two cores (LOG.md).
        self._compiled_assess = tf.function(self._assess, jit_compile=True)
        self._compiled_update = tf.function(self._update, jit_compile=True)

    # -- acting --

    def normalizer(self) -> Normalizer:
        """A frozen copy of what `normalize` does at present."""
        statistics = self.observation_statistics
        if not self.config.normalize_observations or statistics.count == 0:
            return Normalizer(None, None)
        return Normalizer(statistics.mean.astype(np.float32), (1.0 / (statistics.std + 1e-8)).astype(np.float32))

    def normalize(self, observations: np.ndarray) -> np.ndarray:
        """Raw observations [..., S] → what the networks read [..., S] float32."""
        return self.normalizer()(observations)

    def observe(self, observations: np.ndarray) -> None:
        """Merge raw observations [K, S] into the statistics that `normalize` uses."""
        if self.config.normalize_observations:
            self.observation_statistics.update(observations)

    def behaviour(self) -> NormalBehaviour | CategoricalBehaviour:
        """A frozen copy of the present policy that maps raw observations to actions."""
        if self.choices is None:
            return NormalBehaviour(self.actor, self.normalizer())
        return CategoricalBehaviour(self.actor, self.normalizer(), self.choices)

    def policy(self, observations: tf.Tensor) -> distributions.tfd.Distribution:
        """The policy at normalised observations [B, S]: a distribution per number of an action, [B, A]."""
        return self._distribution(self._heads(observations))

    def _heads(self, observations: tf.Tensor) -> tf.Tensor:
        """What the actor says, side by side: means and standard deviations [B, 2A], or logits [B, Σ choices]."""
        heads = self.actor(observations)
        return tf.concat(heads, axis=1) if self.choices is None else heads

    def _distribution(self, heads: tf.Tensor) -> distributions.tfd.Distribution:
        if self.choices is None:
            return distributions.normal_policy(*tf.split(heads, 2, axis=1))
        return distributions.categorical_policy(heads, self.choices)

    # -- what the networks think of an epoch --

    def assess(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, log-probabilities and the policy itself over a whole epoch, in one call.

        Args:
            observations: [M + N, S], normalised; the last N only bootstrap.
            actions: [M, A].

        Returns:
            values [M + N], log-probabilities [M], and the actor's heads [M, X] ([M, 0] without a KL
            penalty), all float32.
        """
        values, log_probs, heads = self._compiled_assess(observations, actions)
        return values.numpy(), log_probs.numpy(), heads.numpy()

    def _assess(self, observations: tf.Tensor, actions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        values = self.critic(observations)[:, 0]  # [M + N]
        heads = self._heads(observations[: len(actions)])  # [M, X]
        kept = heads[:, :0] if self.config.objective == "clip" else heads  # only a KL penalty reads them
        return values, self._log_prob(self._distribution(heads), actions), kept

    def _log_prob(self, policy: distributions.tfd.Distribution, actions: tf.Tensor) -> tf.Tensor:
        return distributions.log_prob(policy, actions, self.config.saturating_log_prob)  # [B]

    # -- learning --

    def update(
        self,
        batch: Batch,
        actor_rows: np.ndarray,
        critic_rows: np.ndarray,
        learning_rate: float,
        critic_learning_rate: float | None = None,
    ) -> dict[str, float]:
        """All minibatches of all passes, in one compiled call.

        Args:
            batch: the epoch laid flat.
            actor_rows, critic_rows: [K, B] int32, rows of the batch for each of K gradient steps;
                the two networks learn from shuffles of their own.
            learning_rate: of the actor's Adam.
            critic_learning_rate: of the critic's; None takes the actor's.

        Returns:
            UPDATE_METRICS: losses and gradient norms as means over all minibatches, the rest over
            those of the last pass.

        Raises:
            DivergedError: a loss, a gradient or a weight became NaN or infinite; the agent is as it was before.
        """
        before = self.learned_state()
        self.actor_optimizer.learning_rate = learning_rate
        self.critic_optimizer.learning_rate = learning_rate if critic_learning_rate is None else critic_learning_rate
        table, steps = self._compiled_update(batch, actor_rows, critic_rows, np.float32(self.kl_coefficient))
        table = table.numpy()[: int(steps)]  # [K, metrics]
        fault = self._not_finite(table)
        if fault is not None:
            self.load_learned_state(before)
            raise DivergedError(f"training diverged, {fault} is NaN or infinite: lower the learning rates")
        overall = table.mean(axis=0)  # [metrics]
        last_pass = table[-(len(actor_rows) // self.config.passes) :].mean(axis=0)  # [metrics]
        if self.config.objective != "clip":
            kl = last_pass[UPDATE_METRICS.index("approximate_kl")]
            self.kl_coefficient = funcs.adapted_kl_coefficient(self.kl_coefficient, float(kl), self.config.kl_target)
        return {
            name: float(overall[i] if name in AVERAGED_METRICS else last_pass[i])
            for i, name in enumerate(UPDATE_METRICS)
        }

    def _not_finite(self, table: np.ndarray) -> str | None:
        """What first became NaN or infinite in an update with this table of metrics [K, metrics]."""
        decisive = [UPDATE_METRICS.index(name) for name in AVERAGED_METRICS]
        steps, columns = np.nonzero(~np.isfinite(table[:, decisive]))
        if len(steps):
            return f"{AVERAGED_METRICS[columns[0]]} of minibatch {steps[0] + 1} of {len(table)}"
        for network in (self.actor, self.critic):
            for variable in network.trainable_variables:
                if not np.isfinite(variable.numpy()).all():
                    return f"{variable.path} after the last minibatch"
        return None

    def _update(
        self, batch: Batch, actor_rows: tf.Tensor, critic_rows: tf.Tensor, kl_coefficient: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The metrics of every minibatch [K, metrics], and how many were taken before `max_kl` was passed."""
        batch = Batch(*(tf.convert_to_tensor(column) for column in batch))
        steps = actor_rows.shape[0]
        per_pass, limit = steps // self.config.passes, self.config.max_kl

        def one_step(
            i: tf.Tensor, kl: tf.Tensor, table: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            # The networks share nothing, so this order equals the actor's passes before the critic's.
            actor_metrics = self._actor_step(_take(batch, actor_rows[i]), kl_coefficient)
            critic_metrics = self._critic_step(_take(batch, critic_rows[i]))
            metrics = actor_metrics | critic_metrics
            kl = tf.where(i % per_pass == 0, 0.0, kl) + metrics["approximate_kl"] / per_pass  # mean of the pass
            return i + 1, kl, table.write(i, tf.stack([metrics[name] for name in UPDATE_METRICS]))

        def unfinished(i: tf.Tensor, kl: tf.Tensor, _: tf.TensorArray) -> tf.Tensor:
            if limit is None:
                return i < steps
            return (i < steps) & ((i % per_pass != 0) | (kl <= limit))

        table = tf.TensorArray(tf.float32, size=steps, element_shape=(len(UPDATE_METRICS),))
        start = (0, tf.constant(0.0), table)
        taken, _, table = tf.while_loop(unfinished, one_step, start, parallel_iterations=1)
        return table.stack(), taken

    def _actor_step(self, batch: Batch, kl_coefficient: tf.Tensor) -> dict[str, tf.Tensor]:
        config = self.config
        advantages = batch.advantages  # [B]
        if config.normalize_advantages == "minibatch":
            advantages = losses.standardize(advantages, batch.weights)  # [B]
        with tf.GradientTape() as tape:
            policy = self.policy(batch.observations)
            log_prob = self._log_prob(policy, batch.actions)  # [B]
            entropy = distributions.entropy(policy)  # [B]
            bonus = entropy
            if config.entropy == "density_surrogate":
                bonus = distributions.density_surrogate(policy, batch.actions)  # [B]
            clip_range = np.inf if config.objective == "kl_penalty" else config.clip_range
            surrogate = losses.clipped_surrogate(log_prob, batch.log_probs, advantages, batch.weights, clip_range)
            if config.objective != "clip":
                divergence = distributions.kl_divergence(self._distribution(batch.heads), policy)  # [B]
                surrogate += kl_coefficient * losses.weighted_mean(divergence, batch.weights)
            loss = surrogate - config.entropy_coefficient * losses.weighted_mean(bonus, batch.weights)
        norm = self._descend(tape, loss, self.actor, self.actor_optimizer)
        return {
            "loss_actor": loss,
            "approximate_kl": losses.approximate_kl(log_prob, batch.log_probs, batch.weights),
            "clip_fraction": losses.clip_fraction(log_prob, batch.log_probs, batch.weights, config.clip_range),
            "entropy": losses.weighted_mean(entropy, batch.weights),
            "mean_std": self._mean_std(policy, batch.weights),
            "gradient_norm_actor": norm,
        }

    def _mean_std(self, policy: distributions.tfd.Distribution, weights: tf.Tensor) -> tf.Tensor:
        """NaN where actions are not numbers on a line."""
        if self.choices is not None:
            return tf.constant(np.nan)
        return losses.weighted_mean(tf.reduce_mean(policy.stddev(), axis=-1), weights)

    def _critic_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            values = self.critic(batch.observations)[:, 0]  # [B]
            loss = losses.squared_error(values, batch.value_targets, batch.weights)
        norm = self._descend(tape, loss, self.critic, self.critic_optimizer)
        return {"loss_critic": loss, "gradient_norm_critic": norm}

    def _descend(
        self, tape: tf.GradientTape, loss: tf.Tensor, network: keras.Model, optimizer: keras.optimizers.Optimizer
    ) -> tf.Tensor:
        """One Adam step; returns the gradient's global norm before clipping."""
        gradients = tape.gradient(loss, network.trainable_variables)
        norm = tf.linalg.global_norm(gradients)
        if self.config.max_gradient_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.max_gradient_norm, use_norm=norm)
        optimizer.apply(gradients, network.trainable_variables)
        return norm

    # -- best parameters --

    def keep_best(self, metric: float) -> bool:
        """Copy the present policy if `metric` is at least the best so far; NaN never is."""
        return self.best.offer(metric, self._policy_state)

    def adopt_best(self) -> None:
        """Go back to the copy `keep_best` made; without one, stay."""
        if self.best.parameters is not None:
            self._load_policy_state(self.best.parameters)

    # -- state --

    def _network_state(self) -> dict[str, np.ndarray]:
        state = {f"actor/{i}": w for i, w in enumerate(self.actor.get_weights())}
        return state | {f"critic/{i}": w for i, w in enumerate(self.critic.get_weights())}

    def _load_network_state(self, state: Mapping[str, np.ndarray]) -> None:
        for name, network in (("actor", self.actor), ("critic", self.critic)):
            network.set_weights([state[f"{name}/{i}"] for i in range(len(network.weights))])

    def _policy_state(self) -> dict[str, np.ndarray]:
        statistics = {f"observations/{k}": v for k, v in self.observation_statistics.state().items()}
        return self._network_state() | statistics

    def _load_policy_state(self, state: Mapping[str, np.ndarray]) -> None:
        self._load_network_state(state)
        self.observation_statistics.load_state({k: state[f"observations/{k}"] for k in ("count", "mean", "m2")})

    def learned_state(self) -> dict[str, np.ndarray]:
        """Copies of everything an update changes."""
        return self._network_state() | adams_state(self._adams)

    def load_learned_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `learned_state` returned."""
        self._load_network_state(state)
        load_adams(self._adams, state)

    def state(self) -> dict[str, np.ndarray]:
        """Everything that changes, as named arrays: weights, Adams, statistics, best parameters."""
        coefficient = {"kl_coefficient": np.float64(self.kl_coefficient)}
        return self._policy_state() | adams_state(self._adams) | coefficient | self.best.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` returned for an agent of the same configuration."""
        self._load_policy_state(state)
        load_adams(self._adams, state)
        self.kl_coefficient = float(state["kl_coefficient"])
        self.best.load_state(state)

    def save_weights(self, path: str | Path) -> None:
        """Write `state()` to an .npz file of plain arrays, replacing it whole or not at all."""
        arrays_file.write_weights(Path(path), self.state())

    def read_weights(self, path: str | Path) -> None:
        """Load what `save_weights` wrote.

        Raises:
            UserError: missing, damaged, or of an agent with other networks.
        """
        self.load_state(arrays_file.read_weights(Path(path), self.state(), self._policy_state()))


def _take(batch: Batch, rows: tf.Tensor) -> Batch:
    return Batch(*(tf.gather(column, rows) for column in batch))
