"""Deep deterministic policy gradient, and its twin delayed successor: three changes, each of them a setting.

Lillicrap et al. 2016, arXiv:1509.02971 (DDPG); Fujimoto, van Hoof & Meger 2018, arXiv:1802.09477 (TD3).
"""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from common.config import MakeNetworks
from common.envs.mirrors import Mirror
from common.errors import DivergedError
from common.learning.agent_base import AgentBase
from common.learning.compiled import Compiled, KerasHeads
from common.nets.flat_networks import FlatNetworks, flat
from common.nets.keras_models import DenseHead, HiddenLayers, Torso, actor_network, critic_network, with_convolutions
from common.nets.kernels import glorot
from common.nets.network import Network, Normalizer
from common.nets.own_networks import OwnCriticTorso, check_own
from common.nets.rounded_products import check_precision
from common.nets.tensorflow_operations import TENSORFLOW
from common.records import Transitions
from common.rollout.policies import DeterministicPolicy, SquashedPolicy
from common.state import State, join_parts, part_of
from companions import losses
from companions.config import OffPolicySettings
from companions.image_replay import packed_observations
from companions.packed_minibatch import unpacked
from companions.replay import ReplayBuffer
from companions.results import UPDATE_METRICS

Metrics = dict[str, tf.Tensor]
CLIP = 2.5  # standard deviations of the noise of target smoothing, which is 0.5 half ranges as published


class DDPGAgent(AgentBase):
    """An actor, its critic or critics, and a target network that follows each.

    TD3 has clipped double Q-learning (`twin_critics`), target policy smoothing (`target_smoothing`), and an actor and
    targets that move less often (`policy_delay`). Without these three it is DDPG.

    Args:
        observation_space, action_space: Box, of one environment.
        seed: of the initial weights; for `config` and `make_networks` see `AgentBase`.

    Attributes:
        packed: how observations with images are stored; None for observations of numbers alone.

    Raises:
        UserError: the requested device is missing, or `symmetry` is asked for and no mirror is known or fits.
    """

    choices = None  # continuous actions
    metrics: tuple[str, ...] = UPDATE_METRICS
    """Names of what an update returns; the actor's are NaN where it did not learn."""
    has_target_actor = True
    """Whether the critics' targets use actions of the target actor; if not, of the actor itself."""
    has_target_critics = True
    networks_type = FlatNetworks

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: OffPolicySettings,
        seed: int,
        make_networks: MakeNetworks | None = None,
    ) -> None:
        super().__init__(observation_space, action_space, config, make_networks)
        check_precision(config.precision)  # with images, too
        self.packed = packed_observations(observation_space)
        self.images: Any = self.packed.images if self.packed else ()
        states = np.random.SeedSequence(seed).generate_state(1 + self.number_of_critics)
        actor_seed, *critic_seeds = (int(state) for state in states)
        actors = [[self.new_actor(actor_seed)] for _ in range(1 + self.has_target_actor)]
        critics = [[self.new_critic(seed) for seed in critic_seeds] for _ in range(1 + self.has_target_critics)]
        for network in (actors[0][0], critics[0][0]) if self.own_torso else ():
            check_own(network)
        flat_actors, flat_critics = ([self.networks_type(group) for group in groups] for groups in (actors, critics))
        self._actor, self._target_actor = flat_actors[0], flat_actors[-1]
        self._critics, self._target_critics = flat_critics[0], flat_critics[-1]
        beta = config.adam_beta
        self.actor_optimizer = self.new_adam(config.learning_rate, [self._actor.weights], beta_1=beta)
        self.critic_optimizer = self.new_adam(config.critic_learning_rate, [self._critics.weights], beta_1=beta)
        self.adams = {"actor_adam": self.actor_optimizer, "critic_adam": self.critic_optimizer}
        self.updates = 0
        unchanged = np.repeat(np.array([[0], [1]], np.float32), self.observation_size, axis=1)  # [2, S]
        self._shift_and_scale = keras.Variable(unchanged)  # of the normaliser, at the last update
        of_rows = ReplayBuffer(0, self.observation_size, self.action_size).unpack
        self._unpack = functools.partial(unpacked, self.packed) if self.packed else of_rows
        self.compiled_cycles = Compiled(self._cycles)
        self.compiled_step = Compiled(self._lone_step)
        self._compiled_actor = Compiled(lambda inputs: self._actor.call(self._actor.stacks(), inputs)[0])

    # -- networks --

    @property
    def number_of_critics(self) -> int:
        """Two with `twin_critics`, for clipped double Q-learning; else one."""
        return 2 if self.config.twin_critics else 1

    @property
    def outputs_of_critic(self) -> int:
        """How many numbers a critic gives for a state and an action."""
        return 1

    @property
    def update_noise_size(self) -> int:
        """Standard normal numbers that an update takes for each transition: those of target policy smoothing."""
        return self.action_size if self.config.target_smoothing else 0

    def _torso(self, inputs: tuple[int, ...], sizes: tuple[int, ...], layer_norm: bool = False) -> Torso:
        images = with_convolutions(self.images if self.own_torso is None else ())  # whose layers see them
        return Torso(inputs, sizes, "relu", 1.0, (), layer_norm, self.config.precision, images)

    def _actor_torso(self) -> HiddenLayers:
        inputs = self.images[0].shape if self.sees_images else (self.observation_size,)
        return self.own_torso or self._torso(inputs, self.config.hidden_sizes)

    def new_actor(self, seed: int) -> keras.Model:
        """An untrained actor, observations [B, S] → actions [B, A] in [−1, 1]."""
        head = DenseHead("mean", self.action_size, "tanh")
        return actor_network(self._actor_torso(), head, glorot(seed), self.mirror)

    def new_critic(self, seed: int) -> keras.Model:
        """An untrained critic: observations and actions side by side [B, S + A] → [B, `outputs_of_critic`]."""
        config = self.config
        sizes = config.critic_hidden_sizes or config.hidden_sizes
        torso: Any = self._torso((self.observation_size + self.action_size,), sizes, config.layer_norm)
        if self.own_torso is not None:
            torso = OwnCriticTorso(self.own_torso, self.action_size, torso)
        joint = None if self.mirror is None else Mirror(self.mirror.joint, self.mirror.action)
        return critic_network(torso, glorot(seed), joint, self.outputs_of_critic)

    @property
    def actor(self) -> keras.Model:
        """The actor, with its present weights."""
        return self._actor.pull()[0]

    @property
    def critics(self) -> list[keras.Model]:
        """The critics, with their present weights."""
        return self._critics.pull()

    @property
    def target_actor(self) -> keras.Model:
        """The target actor, with its present weights."""
        return self._target_actor.pull()[0]

    @property
    def target_critics(self) -> list[keras.Model]:
        """The target critics, with their present weights."""
        return self._target_critics.pull()

    # -- acting --

    def acting_policy(self, exploration_std: float | None = None) -> DeterministicPolicy | SquashedPolicy:
        """A copy of the present policy that maps raw observations to actions.

        The noise's standard deviation is in units of half the action range; None takes that of the end of training.
        """
        config, std = self.config, exploration_std
        if std is None:
            std = config.exploration_std if config.final_exploration_std is None else config.final_exploration_std
        return DeterministicPolicy(self.acting_network(), std)

    def values(self, observations: np.ndarray) -> np.ndarray:
        """The first critic's Q [K] of raw observations [K, S] and the policy's deterministic actions there."""
        actions = self.acting_policy().act(observations)  # [K, A]
        seen = self.normalizer()(observations).reshape(len(actions), -1)  # [K, S]
        inputs = np.concatenate([seen, actions], axis=1)  # [K, S + A]
        return np.asarray(self.critics[0](inputs)).mean(axis=1)

    def acting_network(self) -> Network | KerasHeads:
        """A copy of the actor with its present weights, or the live one if Keras acts; it takes raw observations."""
        return self._actor.first(self.normalizer()) or KerasHeads(self._compiled_actor, self.normalizer())

    # -- learning --

    def update(self, rows: np.ndarray, noise: np.ndarray) -> dict[str, np.ndarray]:
        """One update for each minibatch, in as few compiled calls as possible.

        Args:
            rows: [K, B, W] packed transitions; see `ReplayBuffer.sample`.
            noise: [K, B, `update_noise_size`] standard normal.

        Returns:
            Every metric by its name, [K] float32 each.

        Raises:
            DivergedError: a loss became NaN or infinite. The weights may be NaN, too: restore earlier ones with
                `load_learned_state`.
        """
        delay, tables, i = self.config.policy_delay, [], 0
        normalize = self.normalizer()
        if normalize.shift is not None and normalize.scale is not None:
            self._shift_and_scale.assign(np.stack([normalize.shift, normalize.scale]))
        while i < len(rows):
            cycles = (len(rows) - i) // delay if self.updates % delay == 0 else 0
            if cycles:
                shape, taken = (cycles, delay), cycles * delay
                table = self.compiled_cycles(
                    rows[i : i + taken].reshape(*shape, *rows.shape[1:]),
                    noise[i : i + taken].reshape(*shape, *noise.shape[1:]),
                    self._copies_due(taken),
                )
            else:
                taken, last_of_cycle = 1, (self.updates + 1) % delay == 0
                table = self.compiled_step(rows[i], noise[i], last_of_cycle, self._copies_due(1))[None]
            self.updates += taken
            i += taken
            tables.append(table.numpy())
        metrics = dict(zip(self.metrics, np.concatenate(tables).T))
        if not np.isfinite(metrics["loss_critic"].sum()):
            raise _diverged("a loss")
        return metrics

    def actor_is_finite(self) -> bool:
        """Whether no weight of the actor is NaN or infinite."""
        return bool(np.isfinite(np.array(self._actor.weights)).all())

    def check_finite(self) -> None:
        """Raises DivergedError if a weight is NaN or infinite."""
        for name, array in self.parameters().items():
            if not np.isfinite(array).all():
                raise _diverged(f"a weight ({name})")

    def updates_due_now(self, waiting: int) -> int:
        """How many of `waiting` updates to make now, so that the acting policy is up to date.

        Only the last update of a cycle of `policy_delay` changes the actor. The updates of an incomplete cycle wait,
        if need be for the next epoch. To make them later, in one call with the last one, takes less time, and only
        whole cycles are compiled. The result is the same, except that after the end of an epoch the next epoch's
        learning rate holds (`anneal`), and newer statistics (`normalize_observations`).
        """
        delay = self.config.policy_delay
        return max(0, (self.updates + waiting) // delay * delay - self.updates)

    def _copies_due(self, count: int) -> np.ndarray:
        """Which of the next updates end with a hard copy of the targets, [count] bool; soft targets ignore it."""
        return (self.updates + 1 + np.arange(count)) % max(1, self.config.hard_update_every) == 0

    def _cycles(self, rows: tf.Tensor, noise: tf.Tensor, copies: tf.Tensor) -> tf.Tensor:
        """Whole cycles of `policy_delay` updates, the last of each with the actor; rows [cycles, delay, B, W]."""
        cycles, delay = rows.shape[:2]
        table = tf.TensorArray(tf.float32, size=cycles, element_shape=(delay, len(self.metrics)))
        targets_rest = not self.config.hard_update_every and "targets_every_update" not in self.config.quirks

        def one_cycle(i: tf.Tensor, table: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            together = self._targets_of_cycle(rows[i], noise[i]) if targets_rest else None  # [delay, B, ...]
            metrics = []
            for j in range(delay):
                batch = self.minibatch(rows[i, j])
                target = self.targets(batch, noise[i, j]) if together is None else together[j]  # [B, ...]
                metrics.append(self._step(batch, target, noise[i, j], j == delay - 1, copies[i * delay + j]))
            return i + 1, table.write(i, tf.stack(metrics))

        _, table = tf.while_loop(lambda i, _: i < cycles, one_cycle, (0, table), parallel_iterations=1)
        return tf.reshape(table.stack(), (cycles * delay, len(self.metrics)))  # [K, metrics]

    def _targets_of_cycle(self, rows: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """`targets` of minibatches [delay, B, W] in one go, [delay, B, ...]: half the products for two minibatches."""
        delay, batch_size = rows.shape[:2]
        flat_rows, flat_noise = (tf.reshape(part, (delay * batch_size, part.shape[-1])) for part in (rows, noise))
        targets = self.targets(self.minibatch(flat_rows), flat_noise)  # [delay · B, ...]
        return tf.reshape(targets, (delay, batch_size, *targets.shape[1:]))

    def minibatch(self, rows: tf.Tensor) -> Transitions:
        """The columns of packed rows [B, W], with observations as the networks see them."""
        batch = self._unpack(rows)
        if not self._normalizes:
            return batch
        normalize = Normalizer(*tf.unstack(tf.convert_to_tensor(self._shift_and_scale.value)))  # [S], [S]
        return batch._replace(
            observations=TENSORFLOW.normalized(batch.observations, normalize),
            next_observations=TENSORFLOW.normalized(batch.next_observations, normalize),
        )

    def _lone_step(self, rows: tf.Tensor, noise: tf.Tensor, with_actor: bool, copies: tf.Tensor) -> tf.Tensor:
        """One update from a packed minibatch [B, W]; the metrics, [metrics]."""
        batch = self.minibatch(rows)
        return self._step(batch, self.targets(batch, noise), noise, with_actor, copies[0])

    def _step(
        self, batch: Transitions, target: tf.Tensor, noise: tf.Tensor, with_actor: bool, copy: tf.Tensor
    ) -> tf.Tensor:
        """One update from B transitions and their `targets` [B, ...]. `copy` says whether hard targets move."""
        found = dict.fromkeys(self.metrics, tf.constant(np.nan)) | {"mean_target": tf.reduce_mean(target)}
        if with_actor and "actor_first" in self.config.quirks:
            found |= self._actor_step(batch, noise)
        found |= self._critic_step(batch, target)
        if with_actor and "actor_first" not in self.config.quirks:
            found |= self._actor_step(batch, noise)
        self._move_targets(with_actor, copy)
        return tf.stack([found[name] for name in self.metrics])

    def _critic_step(self, batch: Transitions, target: tf.Tensor) -> Metrics:
        """One Adam step of the critics towards the target [B, ...]."""
        inputs = tf.concat([batch.observations, batch.actions], axis=1)  # [B, S + A]

        def loss_of(stacks: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            values = self._values(self._critics, stacks, inputs, training=True)  # [critics, B, ...]
            return self.critic_loss(values, target), values[0]

        loss, values = self.descend(self.critic_optimizer, self._critics, loss_of)
        return {"loss_critic": loss, "mean_value": tf.reduce_mean(values)}

    @staticmethod
    def descend(
        adam: keras.optimizers.Adam,
        networks: FlatNetworks,
        loss_of: Callable[[list[tf.Tensor]], tuple[tf.Tensor, tf.Tensor]],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """One Adam step of networks; `loss_of` their weights is a loss, and something else that is returned too."""
        stacks = networks.stacks()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(stacks)
            loss, other = loss_of(stacks)
        gradients = tape.gradient(loss, stacks, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        adam.apply([flat(gradients)], [networks.weights])
        return loss, other

    def _values(
        self, critics: FlatNetworks, stacks: list[tf.Tensor], inputs: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """What critics with these weights make of observations and actions [B, S + A]: values [critics, B]."""
        return critics.call(stacks, inputs, training)[..., 0]

    def critic_loss(self, values: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """The mean squared error of values [critics, B] against a target [B], summed over critics."""
        return tf.reduce_sum(tf.reduce_mean(tf.math.squared_difference(values, target), axis=1))

    def target_values(self, observations: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Q'(s, a) of every target critic, [critics, B] or [critics, B, quantiles]."""
        inputs = tf.concat([observations, actions], axis=1)  # [B, S + A]
        return self._values(self._target_critics, self._target_critics.stacks(), inputs)

    def targets(self, batch: Transitions, noise: tf.Tensor) -> tf.Tensor:
        """What the critics learn, [B]: r + γ·(1 − terminated)·min Q'(s', μ'(s') + noise).

        Equation 5 of arXiv:1509.02971 with one critic and no noise, 10 and 14 of arXiv:1802.09477 with both.
        """
        config = self.config
        next_actions = self._target_actor.call(self._target_actor.stacks(), batch.next_observations)[0]  # [B, A]
        if std := config.target_smoothing:
            next_actions = losses.smoothed_actions(next_actions, noise, std, CLIP * std)
        smallest = tf.reduce_min(self.target_values(batch.next_observations, next_actions), axis=0)  # [B]
        return losses.temporal_difference_target(batch.rewards, batch.terminated, smallest, config.gamma)

    def _actor_step(self, batch: Transitions, noise: tf.Tensor) -> Metrics:
        """One Adam step up the critic's slope: the deterministic policy gradient, equation 6 of arXiv:1509.02971."""
        first_critic = [stack[:1] for stack in self._critics.stacks()]

        def loss_of(stacks: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            actions = self._actor.call(stacks, batch.observations, training=True)[0]  # [B, A]
            inputs = tf.concat([batch.observations, actions], axis=1)  # [B, S + A]
            return -tf.reduce_mean(self._critics.call(first_critic, inputs)), actions

        loss, _ = self.descend(self.actor_optimizer, self._actor, loss_of)
        return {"loss_actor": loss}

    def _pairs(self) -> list[tuple[keras.Variable, keras.Variable]]:
        """Every target's weights with those they follow, [W] each."""
        pairs = (self._target_actor, self._actor), (self._target_critics, self._critics)
        return [(target.weights, source.weights) for target, source in pairs if target is not source]

    def _move_targets(self, with_actor: bool, copy: tf.Tensor) -> None:
        """Targets move with the actor, so that both see the same delay (algorithm 1 of arXiv:1802.09477)."""
        if self.config.hard_update_every:
            for target, source in self._pairs():
                target.assign(tf.where(copy, source.value, target.value))
        elif with_actor or "targets_every_update" in self.config.quirks:
            for target, source in self._pairs():
                target.assign(losses.polyak(target.value, source.value, self.config.tau))

    # -- state --

    def flat_networks(self) -> dict[str, FlatNetworks]:
        """The weights of all networks, each group as one vector: actor, critics and their targets."""
        target_actor = {"target_actor": self._target_actor} if self.has_target_actor else {}
        target_critics = {"target_critics": self._target_critics} if self.has_target_critics else {}
        return {"actor": self._actor, **target_actor, "critics": self._critics, **target_critics}

    def parameters(self) -> State:
        """Copies of the weights of all networks, those of the targets included, and what normalises observations."""
        weights = {name: np.array(networks_.weights) for name, networks_ in self.flat_networks().items()}
        if not self._normalizes:
            return weights
        return weights | join_parts({"observations": self.observation_statistics.state()})

    def load_parameters(self, state: State) -> None:
        """Restore what `parameters` returned; other names are ignored."""
        for name, networks_ in self.flat_networks().items():
            networks_.weights.assign(state[name])
        if self._normalizes:
            self.observation_statistics.load_state(part_of(state, "observations"))

    def _seeds(self) -> dict[str, keras.Variable]:
        """The states of layers that draw random numbers in an update, such as Dropout."""
        return {f"{name}/{i}": v for name, group in self.flat_networks().items() for i, v in enumerate(group.seeds)}

    def layers(self, state: State) -> dict[str, list[np.ndarray]]:
        """See `AgentBase.layers`; the arrays are views of the vectors in the state."""
        networks = self.flat_networks().items()
        return super().layers(state) | {name: flat_.layers(state[name]) for name, flat_ in networks if name in state}

    def counters(self) -> State:
        """The number of updates so far, and seeds."""
        seeds = {name: np.array(variable) for name, variable in self._seeds().items()}
        return {"updates": np.array(self.updates, np.int64)} | seeds

    def load_counters(self, state: State) -> None:
        """Restore what `counters` returned; other names are ignored."""
        self.updates = int(state["updates"])
        for name, variable in self._seeds().items():
            variable.assign(state[name])


def _diverged(what: str) -> DivergedError:
    return DivergedError(
        f"training diverged, {what} is NaN or infinite: lower the learning rates, or make very large rewards smaller"
    )
