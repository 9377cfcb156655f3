"""Networks of the user's own: a function makes the hidden layers of each network, and the project puts heads on them.

    make_networks(observation_space, action_space, config) → keras.Model, observations [B, *shape] → features [B, F]

It is called once for every actor and critic, and once for both if they share their hidden layers. Critics of
observations and actions join the action to the features, and have the dense layers of `hidden_sizes` after them.
"""

import random
from dataclasses import dataclass, field
from typing import Any, NoReturn

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from common.config import MakeNetworks
from common.envs.mirrors import Mirror
from common.envs.registered import import_module
from common.errors import UserError
from common.nets.keras_layers import WithMirrorImage
from common.nets.keras_models import Torso
from common.nets.kernels import Kernels
from common.user_code import cure, explain

PASSED = "function"  # the setting `networks` of a run that a program passed a function to


@dataclass(frozen=True)
class OwnTorso:
    """Hidden layers that a function of the user's makes, new ones in each call; see `keras_models.Torso`."""

    make: MakeNetworks
    name: str  # of the function, for messages
    arguments: tuple[gymnasium.Space, gymnasium.Space, Any]  # observation space, action space and config
    made: list[keras.Model] = field(default_factory=list)  # what it returned, for one network after another

    def hidden(self, kernel: Kernels, mirror: Mirror | None) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """See `Torso.hidden`; raises UserError if the function fails or returns no new model of observations."""
        shape: Any = self.arguments[0].shape
        inputs = keras.Input(shape)
        seen = inputs if mirror is None else WithMirrorImage(mirror.observation)(inputs)
        model, features = self._applied(seen, kernel)
        own = getattr(model, "inputs", None) or []
        if mirror is None and [tensor.shape for tensor in own] == [(None, *shape)]:
            return own[0], model.outputs[0]  # its layers and the heads side by side, which may act in NumPy
        return inputs, features

    def _applied(self, seen: keras.KerasTensor, kernel: Kernels) -> tuple[keras.Model, keras.KerasTensor]:
        """A new model, and its features of observations."""
        state = random.getstate()
        random.seed(kernel(1.0).seed)  # from which layers without a seed draw theirs
        try:
            model = self.make(*self.arguments)
            features = model(seen) if isinstance(model, keras.Model) else None
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{self.name} failed ({explain(error)}): {cure(error, 'fix it')}") from error
        finally:
            random.setstate(state)
        self.made.append(model)
        if features is None or len(getattr(features, "shape", ())) != 2:
            found = f"{model!r:.80}" if features is None else f"a model with outputs {_shapes(features)}"
            raise UserError(
                f"{self.name} returned {found}: expected a keras.Model from observations {seen.shape} to features "
                "(batch, number)"
            )
        if any(model is earlier for earlier in self.made[:-1]):
            raise UserError(f"{self.name} returned the same model twice: expected new layers in each call")
        return model, features


def _shapes(outputs: Any) -> str:
    return ", ".join(str(output.shape) for output in keras.tree.flatten(outputs))


@dataclass(frozen=True)
class OwnCriticTorso:
    """Hidden layers of critics of observations and actions: own ones for the observation, then dense ones for both."""

    own: OwnTorso
    action_size: int
    dense: Torso

    def hidden(self, kernel: Kernels, mirror: Mirror | None) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """A network's inputs, observations and actions side by side [B, S + A], and its features; see `Torso`."""
        size = int(np.prod(self.own.arguments[0].shape or ()))  # S
        inputs = keras.Input((size + self.action_size,))
        both = inputs if mirror is None else WithMirrorImage(mirror.observation)(inputs)
        seen = keras.layers.Reshape(self.own.arguments[0].shape)(both[:, :size])
        _, features = self.own._applied(seen, kernel)  # noqa: SLF001  two halves of one thing
        joined = keras.layers.Concatenate()([features, both[:, size:]])  # [B, F + A]
        return inputs, self.dense(joined, kernel)


def own_torso(
    observation_space: gymnasium.Space, action_space: gymnasium.Space, config: Any, make: MakeNetworks | None
) -> OwnTorso | None:
    """The hidden layers of the function that was passed, or that the setting `networks` names; None without either.

    Raises UserError if there is no such function, or `precision` has nothing to round.
    """
    name = config.networks
    if make is None and name is None:
        return None
    if config.precision != "float32":
        raise UserError(f"precision {config.precision} is not for networks of your own: leave --precision out")
    if make is None and name == PASSED:
        raise UserError("the run's networks were made by a function that a program passed: pass make_networks again")
    if make is None:
        module, _, function = name.partition(":")
        if not module or not function:
            raise UserError(f"networks is {name!r}: expected module:function, like my_networks:make_networks")
        make = getattr(import_module(module, name), function, None)
        if not callable(make):
            raise UserError(f"networks is {name!r}, but {module} has no function {function}")
    name = getattr(make, "__name__", type(make).__name__)
    return OwnTorso(make, name, (observation_space, action_space, config))


def check_own(network: keras.Model) -> None:
    """Compile a network with its gradients; UserError names a layer that fails, or that changes its own weights."""
    before = [np.array(variable) for variable in network.variables]
    fault = _fault(network)
    if fault is not None:
        for layer in network.layers[1:]:
            if _fault(keras.Model(network.inputs[0], layer.output)) is not None:
                _refuse(layer, f"cannot be compiled ({explain(fault)})", "build it of other layers")
        raise UserError(f"the network {network.name} cannot be compiled ({explain(fault)}): build it of other layers")
    for layer in network.layers:
        for variable in layer.weights:
            i = next(i for i, own in enumerate(network.variables) if own is variable)
            if not np.array_equal(before[i], variable):
                cure = "use LayerNormalization" if "Normalization" in type(layer).__name__ else "leave it out"
                _refuse(layer, "changes its own weights, which an update that fails could not undo", cure)
    for variable, value in zip(network.variables, before):
        variable.assign(value)


def _fault(network: keras.Model) -> Exception | None:
    """What goes wrong when the network is compiled and learns from two observations; None if nothing does."""

    def step(rows: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            outputs = keras.tree.flatten(network(rows, training=True))
            loss = tf.add_n([tf.reduce_sum(output) for output in outputs])
        return tape.gradient(loss, network.trainable_variables)

    rows = np.linspace(0, 1, 2 * int(np.prod(network.input_shape[1:])), dtype=np.float32)
    try:
        tf.function(step, jit_compile=True, autograph=False)(rows.reshape(2, *network.input_shape[1:]))
    except Exception as error:
        return error
    return None


def _refuse(layer: Any, what: str, cure: str) -> NoReturn:
    raise UserError(f"the layer {layer.name} ({type(layer).__name__}) of your networks {what}: {cure}")
