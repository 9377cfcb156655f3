"""The agent: an actor and a critic, how they act, how they value states, how they learn.

An Agent knows weights and nothing of time: epochs, environments and schedules are the trainer's.
"""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import functools

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from common import funcs
from common.config import MakeNetworks
from common.envs.spaces import choices
from common.errors import DivergedError
from common.learning.agent_base import AgentBase
from common.learning.compiled import Compiled, KerasHeads
from common.nets import distributions, keras_models
from common.nets.from_keras import can_describe, describe
from common.nets.keras_layers import StateIndependentStd
from common.nets.kernels import draw_as_pytorch, orthogonal
from common.nets.network import MAX_STD, MIN_STD
from common.nets.own_networks import check_own
from common.records import Batch
from common.rollout.policies import ActorCriticPolicy, CategoricalPolicy, Heads, NormalPolicy, Policy
from common.state import State, join_parts, part_of
from ppo import architecture, losses
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters
from ppo.results import AVERAGED_METRICS, METRICS_OF

KL_COEFFICIENT_FACTOR = 1024.0  # β stays within this factor of its first value, so that it can recover

Metrics = dict[str, tf.Tensor]
Progress = tuple[tf.Tensor, tf.Tensor, tf.TensorArray]  # minibatches taken, mean KL of the pass so far, metrics


class Agent(AgentBase):
    """A Keras `actor` and `critic`, separate or with shared layers, a `tfp` policy for the action space, and Adam.

    Args:
        observation_space: Box, of one environment; images are [height, width, channels] uint8.
        action_space: Box for a Normal policy; Discrete, MultiDiscrete or MultiBinary for a Categorical one.
        seed: of the initial weights; for `config` and `make_networks` see `AgentBase`.

    Raises:
        UserError: the convolutions do not fit the images, the device is missing, no mirror is known or fits, or
            `precision` has nothing to round.
    """

    def __init__(
        self,
        observation_space: gymnasium.spaces.Box,
        action_space: gymnasium.Space,
        config: PPOConfig,
        seed: int,
        make_networks: MakeNetworks | None = None,
    ) -> None:
        super().__init__(observation_space, action_space, config, make_networks)
        self.choices = None if isinstance(action_space, gymnasium.spaces.Box) else choices(action_space)
        *sides, last = observation_space.shape
        torso = self.own_torso or architecture.torso_for(
            (*sides, last - self.mask_size), self.action_size, config, self.images
        )
        heads = architecture.heads_for(self.action_size, self.choices, config)
        seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(2)]  # of actor and critic
        actor_kernel, critic_kernel = map(orthogonal, seeds)
        if config.shared_torso:
            self.network, self.actor, self.critic = keras_models.actor_and_critic_of_one_torso(
                torso, heads, actor_kernel, self.mirror
            )
            self._networks = {"network": self.network}
        else:
            self.actor = keras_models.actor_network(torso, heads, actor_kernel, self.mirror)
            self.critic = keras_models.critic_network(torso, critic_kernel, self.mirror)
            self._networks = {"actor": self.actor, "critic": self.critic}
        for network, network_seed in zip(self._networks.values(), seeds):
            if self.own_torso is not None:
                check_own(network)
            elif not config.initial_gains:
                draw_as_pytorch(network, network_seed)
        if self.mask_size:  # which the networks do not see
            for name in {"actor", "critic", *self._networks}:
                setattr(self, name, keras_models.WithMask(getattr(self, name), self.mask_size))
            self._networks = {name: getattr(self, name) for name in self._networks}
        self._adam_of = {
            name: self.new_adam(config.learning_rate, network.trainable_variables, config.adam_epsilon)
            for name, network in self._networks.items()
        }
        self.adams = {"adam" if name == "network" else f"{name}_adam": adam for name, adam in self._adam_of.items()}
        self._memory_of = architecture.memory_columns(config, self.own_torso is not None)
        self.memory_size = max([columns.stop for columns in self._memory_of.values()], default=0)  # Z
        self.kl_coefficient = 1.0  # β of the KL penalty, which adapts
        # XLA: 1.2 to 1.7 times the speed of the plain graph, but half of it with convolutions of many images.
        # No AutoGraph: nothing here needs it, and it writes a file that a full disk refuses.
        # Rounded products of numbers beside images exist in XLA alone.
        by_xla = not (self.sees_images or self.images) or (bool(self.images) and config.precision == "bfloat16")
        compiled = functools.partial(tf.function, jit_compile=by_xla, autograph=False)
        self.compiled_assess = compiled(self._assess_in_order if self.memory_size else self._assess)
        self.compiled_passes = compiled(self._passes)
        self.compiled_update = tf.function(self._update, autograph=False)  # XLA would pass one network after the other
        self.compiled_divergence = compiled(self._divergence)
        self.compiled_assess_outputs = tf.function(self._assess_outputs, jit_compile=True, autograph=False)
        self._acts_by_keras = self.sees_images or bool(self.images) or not can_describe(self.actor)
        self._keras_heads = KerasHeads(Compiled(self.actor), self.normalize)
        self.output_size = 0  # numbers that the network returns when it acts; 0 where values are asked for afterwards
        if self._acts_by_keras and config.shared_torso:
            self.output_size = sum(head.shape[1] for head in self.network.outputs)  # X + 1
            self._keras_outputs = KerasHeads(Compiled(self.network), self.normalize)

    # -- acting --

    def normalize(self, observations: np.ndarray) -> np.ndarray:
        """Raw observations [..., S] → the networks' inputs [..., S] float32; images are not changed."""
        return observations if self.sees_images else self.normalizer()(observations)

    @property
    def lacks_statistics(self) -> bool:
        """Whether observations are to be normalised, but no statistics exist yet."""
        return self._normalizes and self.observation_statistics.count == 0

    def acting_policy(self) -> NormalPolicy | CategoricalPolicy:
        """The present policy, mapping raw observations to actions: a frozen copy, or the live one if Keras acts."""
        if self._acts_by_keras:
            return self._policy_of(self._keras_heads)
        return self._policy_of(describe(self.actor, self.normalizer()))

    def collecting_policy(self) -> Policy:
        """The present policy, for collecting what an update learns from.

        If Keras acts with shared layers, one call returns the action's distribution and the value; both are kept.
        """
        if self.output_size:
            return ActorCriticPolicy(self._keras_outputs, self.output_size, self._policy_of)
        return self.acting_policy()

    def _policy_of(self, heads: Heads) -> NormalPolicy | CategoricalPolicy:
        return NormalPolicy(heads) if self.choices is None else CategoricalPolicy(heads, self.choices)

    def policy(self, observations: tf.Tensor) -> distributions.tfd.Distribution:
        """The policy at normalised observations [B, ...]: one distribution for each action dimension, [B, A]."""
        return self._distribution(tf.concat(self._begun(self.actor, observations), axis=1))

    def _distribution(self, heads: tf.Tensor) -> distributions.tfd.Distribution:
        """heads: means and standard deviations side by side [B, 2A], or logits [B, Σ choices]."""
        if self.choices is None:
            return distributions.normal_policy(*tf.split(heads, 2, axis=1))
        return distributions.categorical_policy(heads, self.choices)

    def values(self, observations: np.ndarray) -> np.ndarray:
        """The critic's values V [K] of raw observations [K, ...]; with a memory, as if episodes began with them."""
        return np.asarray(self._begun(self.critic, self.normalize(observations))[0])[:, 0]

    def _begun(self, network: keras.Model, observations: tf.Tensor) -> list[tf.Tensor]:
        """A network's outputs [K, ...] for normalised observations [K, ...], without a memory of earlier ones."""
        if not self.memory_size:
            return tf.nest.flatten(network(observations))
        count, size = len(observations), network.outputs[-1].shape[1]
        return network([tf.convert_to_tensor(observations), tf.zeros((count, size)), tf.ones(count)])[:-1]

    def outputs(self, name: str, batch: Batch) -> list[tf.Tensor]:
        """A network's outputs [B, ...] for a minibatch, which is made of sequences if it remembers."""
        network = self._networks[name]
        if not self.memory_size:
            return tf.nest.flatten(network(batch.observations, training=True))
        memory = batch.memory[:: self.config.sequence_steps, self._memory_of[name]]  # [b, Z]
        return network([batch.observations, memory, batch.weights], training=True)[:-1]

    # -- values and log-probabilities of an epoch --

    def assess(
        self, observations: np.ndarray, actions: np.ndarray, outputs: np.ndarray | None = None,
        memory: np.ndarray | None = None, valid: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """Values, log-probabilities and the actor's outputs for a whole trajectory, in one call.

        Args:
            observations: [M + N, S], normalised; the last N follow the last step and only bootstrap.
            actions: [M, A].
            outputs: [M + N, X + 1], what the network returned for the observations when it acted; None asks it again.
            memory: [N, Z] before the first step, of networks that remember.
            valid: [T, N], False for a step after which nothing is remembered.

        Returns:
            Values [M + N], log-probabilities [M] in nats, and the actor's heads [M, X] ([M, 0] without a KL penalty),
            all float32; of networks that remember, also the memory [M + N, Z] before each step.
        """
        if memory is not None and valid is not None:
            assessed = self.compiled_assess(observations, actions, memory, valid.astype(np.float32))
        elif outputs is None:
            assessed = self.compiled_assess(observations, actions)
        else:
            assessed = self.compiled_assess_outputs(outputs, actions)
        return tuple(column.numpy() for column in assessed)

    def _assess_in_order(
        self, observations: tf.Tensor, actions: tf.Tensor, memory: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """`_assess` of networks that remember: each environment's steps are one sequence."""
        steps, count = valid.shape  # T, N
        kept = tf.reshape(tf.concat([tf.transpose(valid), tf.ones((count, 1))], axis=1), [-1])  # [N·(T+1)]
        seen, outputs, memories = _turned(observations, steps + 1), [], []
        for name, columns in self._memory_of.items():
            *found, after = self._networks[name]([seen, memory[:, columns], kept])
            outputs += found
            memories.append(after)
        *heads, values = (_turned(rows, count) for rows in outputs)  # [M + N, ...]
        heads = tf.concat(heads, axis=1)[: steps * count]  # [M, X]
        before = tf.concat([memory, _turned(tf.concat(memories, axis=1), count)[:-count]], axis=0)  # [M + N, Z]
        return values[:, 0], *self._log_probs_and_heads(heads, actions), before

    def _assess(self, observations: tf.Tensor, actions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        count = actions.shape[0]  # M
        if self.config.shared_torso:
            *heads, values = self.network(observations)  # [M + N, ...], [M + N, 1]
            heads = tf.concat(heads, axis=1)[:count]  # [M, X]
        else:
            values = self.critic(observations)  # [M + N, 1]
            heads = tf.concat(self.actor(observations[:count]), axis=1)  # [M, X]
        return values[:, 0], *self._log_probs_and_heads(heads, actions)

    def _assess_outputs(self, outputs: tf.Tensor, actions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        count = actions.shape[0]  # M
        return outputs[:, -1], *self._log_probs_and_heads(outputs[:count, :-1], actions)

    def _log_probs_and_heads(self, heads: tf.Tensor, actions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        kept = heads[:, :0] if self.config.objective == "clip" else heads  # only a KL penalty reads them
        return losses.log_prob(self.config, self._distribution(heads), actions), kept

    # -- learning --

    def update(
        self, batch: Batch, actor_rows: np.ndarray, critic_rows: np.ndarray, hyperparameters: Hyperparameters
    ) -> dict[str, float]:
        """All minibatches of all passes, in one compiled call.

        Args:
            batch: a flattened trajectory.
            actor_rows, critic_rows: [K, B] int32, rows of the batch for each of K gradient steps. Two networks have
                shuffles of their own; a network with shared layers learns from `actor_rows` alone.
            hyperparameters: of this update; K is a multiple of their `passes`.

        Returns:
            Name → value of every metric in `ppo.results.UPDATE_METRICS`. Losses and gradient norms are means over all
            minibatches that were used, the other metrics over the minibatches of the last pass.

        Raises:
            DivergedError: a loss, a gradient or a weight became NaN or infinite; the agent is as it was before.
        """
        per_pass = len(actor_rows) // hyperparameters.passes
        numbers = np.array([*hyperparameters, self.kl_coefficient], np.float32)
        columns, steps, finite_weights = self.compiled_update(batch, actor_rows, critic_rows, numbers, per_pass)
        metrics = {name: column.numpy()[: int(steps)] for name, column in columns.items()}  # [K] each
        fault = self._not_finite(metrics, finite_weights.numpy())
        if fault is not None:
            raise DivergedError(
                f"training diverged, {fault} is NaN or infinite: lower the learning rates, or make very large rewards "
                "smaller"
            )
        overall, last_pass = _means(metrics), _means({name: column[-per_pass:] for name, column in metrics.items()})
        return last_pass | {name: overall[name] for name in AVERAGED_METRICS}

    def raise_std(self, least: float) -> None:
        """Raise a Normal policy's learned standard deviations to `least` half ranges, and keep them in their bounds.

        At the bounds themselves their gradient is 0, so none would ever come back.
        """
        low, high = np.log(max(least, MIN_STD * 1.00001)), np.log(MAX_STD * 0.99999)
        for layer in self.actor.layers:
            if isinstance(layer, StateIndependentStd):
                layer.log_std.assign(np.clip(layer.log_std.numpy(), np.float32(low), np.float32(high)))

    def adapt_kl_coefficient(self, batch: Batch) -> None:
        """Set the KL penalty's β for the next update, from KL(policy that acted ‖ present policy)."""
        divergence = float(self.compiled_divergence(batch.observations, batch.heads, batch.weights))
        adapted = funcs.adapted_kl_coefficient(self.kl_coefficient, divergence, self.config.desired_kl or 0.01)
        self.kl_coefficient = min(max(adapted, 1 / KL_COEFFICIENT_FACTOR), KL_COEFFICIENT_FACTOR)

    def _divergence(self, observations: tf.Tensor, old_heads: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Mean KL of the present policy from an old one; observations [M, ...], old_heads [M, X], weights [M]."""
        policy = self._distribution(tf.concat(self.actor(observations), axis=1))
        divergence = distributions.kl_divergence(self._distribution(old_heads), policy)  # [M]
        return losses.weighted_mean(divergence, weights)

    def _not_finite(self, metrics: dict[str, np.ndarray], finite_weights: np.ndarray) -> str | None:
        """The first loss or gradient norm [K] or weight that became NaN or infinite; None if all are finite."""
        finite = {name: np.isfinite(metrics[name]) for name in AVERAGED_METRICS}  # [K] each
        faults = [(int(column.argmin()) + 1, name) for name, column in finite.items() if not column.all()]
        if faults:
            minibatch, name = min(faults, key=lambda fault: fault[0])
            return f"{name} of minibatch {minibatch} of {len(metrics[name])}"
        for variable, is_finite in zip(self._weights(), finite_weights):
            if not is_finite:
                return f"{variable.path} after the last minibatch"
        return None

    def _weights(self) -> list[keras.Variable]:
        return [variable for network in self._networks.values() for variable in network.trainable_variables]

    def _update(
        self, batch: Batch, actor_rows: tf.Tensor, critic_rows: tf.Tensor, numbers: tf.Tensor, per_pass: int
    ) -> tuple[Metrics, tf.Tensor, tf.Tensor]:
        """The metrics of every minibatch [K], how many were taken before `max_kl`, and which `_weights` stayed finite.

        `numbers` are the hyperparameters and β. An update that became NaN or infinite is undone before this returns.
        """
        learned = self._weights() + [variable for adam in self.adams.values() for variable in adam.variables]
        before = [tf.identity(variable.value) for variable in learned]
        if self.config.shared_torso:
            metrics, taken = self.compiled_passes("network", batch, actor_rows, numbers, per_pass)
        else:
            # TensorFlow lets both learn at the same time. Only with `max_kl` the critic waits, to take as many steps.
            metrics, taken = self.compiled_passes("actor", batch, actor_rows, numbers, per_pass)
            most = None if self.config.max_kl is None else taken
            metrics |= self.compiled_passes("critic", batch, critic_rows, numbers, per_pass, most)[0]
        finite_weights = tf.stack([tf.reduce_all(tf.math.is_finite(variable.value)) for variable in self._weights()])
        decisive = tf.stack([metrics[name] for name in AVERAGED_METRICS])
        sound = tf.reduce_all(finite_weights) & tf.reduce_all(tf.math.is_finite(decisive))

        def undo() -> tf.Tensor:
            for variable, value in zip(learned, before):
                variable.assign(value)
            return sound

        tf.cond(sound, lambda: sound, undo)
        return metrics, taken, finite_weights

    def _passes(
        self, network: str, batch: Batch, rows: tf.Tensor, numbers: tf.Tensor, per_pass: int, most: tf.Tensor = None
    ) -> tuple[Metrics, tf.Tensor]:
        """Up to `most` minibatches of a network: the metrics of each {name: [K]}, and how many were taken.

        `network` is "actor", "critic", or "network", which has shared layers. The critic alone does not heed `max_kl`.
        """
        *values, kl_coefficient = tf.unstack(numbers)
        hyperparameters, names = Hyperparameters(*values), METRICS_OF[network]
        step = {"network": self._joint_step, "actor": self._actor_step, "critic": self._critic_step}[network]
        rate = hyperparameters.critic_learning_rate if network == "critic" else hyperparameters.learning_rate
        self._adam_of[network].learning_rate = rate
        most = rows.shape[0] if most is None else most
        limit = None if network == "critic" else self.config.max_kl

        def one_step(i: tf.Tensor, kl: tf.Tensor, table: tf.TensorArray) -> Progress:
            metrics = step(_take(batch, rows[i]), hyperparameters, kl_coefficient)
            if limit is not None:
                kl = tf.where(i % per_pass == 0, 0.0, kl) + metrics["approximate_kl"] / per_pass
            return i + 1, kl, table.write(i, tf.stack([metrics[name] for name in names]))

        def unfinished(i: tf.Tensor, kl: tf.Tensor, _: tf.TensorArray) -> tf.Tensor:
            return (i < most) & ((i % per_pass != 0) | (kl <= limit)) if limit is not None else i < most

        table = tf.TensorArray(tf.float32, size=rows.shape[0], element_shape=(len(names),))
        taken, _, table = tf.while_loop(unfinished, one_step, (0, tf.constant(0.0), table), parallel_iterations=1)
        return dict(zip(names, tf.unstack(table.stack(), axis=1))), taken

    def _joint_step(self, batch: Batch, hyperparameters: Hyperparameters, kl_coefficient: tf.Tensor) -> Metrics:
        """Both losses through one torso: equation 9 of arXiv:1707.06347."""
        with tf.GradientTape() as tape:
            *heads, values = self.outputs("network", batch)  # [B, ...], [B, 1]
            loss_policy, metrics = self._policy_loss(tf.concat(heads, axis=1), batch, hyperparameters, kl_coefficient)
            loss_value = self._value_loss(values, batch, hyperparameters)
            loss = loss_policy + hyperparameters.value_coefficient * loss_value
        norm = self._descend(tape, loss, "network")
        return metrics | {"loss_critic": loss_value, "gradient_norm_actor": norm, "gradient_norm_critic": norm}

    def _actor_step(self, batch: Batch, hyperparameters: Hyperparameters, kl_coefficient: tf.Tensor) -> Metrics:
        with tf.GradientTape() as tape:
            heads = tf.concat(self.outputs("actor", batch), axis=1)  # [B, X]
            loss, metrics = self._policy_loss(heads, batch, hyperparameters, kl_coefficient)
        return metrics | {"gradient_norm_actor": self._descend(tape, loss, "actor")}

    def _critic_step(self, batch: Batch, hyperparameters: Hyperparameters, _: tf.Tensor) -> Metrics:
        with tf.GradientTape() as tape:
            [values] = self.outputs("critic", batch)  # [B, 1]
            loss = self._value_loss(values, batch, hyperparameters)
        return {"loss_critic": loss, "gradient_norm_critic": self._descend(tape, loss, "critic")}

    def _policy_loss(
        self, heads: tf.Tensor, batch: Batch, hyperparameters: Hyperparameters, kl_coefficient: tf.Tensor
    ) -> tuple[tf.Tensor, Metrics]:
        policy = self._distribution(heads)
        old = None if self.config.objective == "clip" else self._distribution(batch.heads)
        loss, metrics = losses.policy_loss(self.config, policy, old, batch, hyperparameters, kl_coefficient)
        mean_std = tf.constant(np.nan)
        if self.choices is None:
            mean_std = losses.weighted_mean(tf.reduce_mean(policy.stddev(), axis=-1), batch.actor_weights)
        return loss, metrics | {"mean_std": mean_std}

    def _value_loss(self, values: tf.Tensor, batch: Batch, hyperparameters: Hyperparameters) -> tf.Tensor:
        """values: [B, 1]."""
        next_values = None
        if self.config.value_target == "one_step_gradient":
            next_values = self.critic(batch.next_observations)[:, 0]
        return losses.value_loss(self.config, values[:, 0], next_values, batch, hyperparameters)

    def _descend(self, tape: tf.GradientTape, loss: tf.Tensor, network: str) -> tf.Tensor:
        """One Adam step; returns the gradient's global norm before clipping."""
        variables = self._networks[network].trainable_variables
        values, zero = [variable.value for variable in variables], tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(loss, values, unconnected_gradients=zero)  # where the loss does not depend on one
        gradients = list(map(tf.convert_to_tensor, gradients))  # an Embedding's is sparse
        norm = tf.linalg.global_norm(gradients)
        if self.config.max_gradient_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.max_gradient_norm, use_norm=norm)
        self._adam_of[network].apply(gradients, variables)
        return norm

    # -- state --

    def parameters(self) -> State:
        """Copies of both networks' weights, and the statistics that normalise observations."""
        networks = {name: network.get_weights() for name, network in self._networks.items()}
        weights = {name: {str(i): array for i, array in enumerate(arrays)} for name, arrays in networks.items()}
        return join_parts(weights | {"observations": self.observation_statistics.state()})

    def load_parameters(self, state: State) -> None:
        """Restore what `parameters` returned; other names are ignored."""
        for name, network in self._networks.items():
            network.set_weights([state[f"{name}/{i}"] for i in range(len(network.weights))])
        self.observation_statistics.load_state(part_of(state, "observations"))

    def _seeds(self) -> dict[str, keras.Variable]:
        """The states of layers that draw random numbers in an update, such as Dropout."""
        variables = [variable for network in self._networks.values() for variable in network.variables]
        return {f"seed/{i}": variable for i, variable in enumerate(variables) if variable.dtype != "float32"}

    def counters(self) -> State:
        """The present coefficient β of the KL penalty, and seeds."""
        seeds = {name: np.array(variable) for name, variable in self._seeds().items()}
        return {"kl_coefficient": np.array(self.kl_coefficient, np.float64)} | seeds

    def load_counters(self, state: State) -> None:
        """Restore what `counters` returned; other names are ignored."""
        self.kl_coefficient = float(state["kl_coefficient"])
        for name, variable in self._seeds().items():
            variable.assign(state[name])


def _means(metrics: dict[str, np.ndarray]) -> dict[str, float]:
    """The mean of each metric [K]."""
    return dict(zip(metrics, np.stack([*metrics.values()], axis=1).mean(axis=0).tolist()))


def _take(batch: Batch, rows: tf.Tensor) -> Batch:
    return Batch(*(tf.gather(column, rows) if column.shape[0] else column for column in batch))


def _turned(rows: tf.Tensor, count: int) -> tf.Tensor:
    """Rows of `count` steps of all environments → those of one environment after another, or the other way round."""
    turned = tf.transpose(tf.reshape(rows, (count, -1, rows.shape[1])), (1, 0, 2))
    return tf.reshape(turned, (-1, rows.shape[1]))
