"""Networks whose weights lie side by side in one variable.

A method that updates six small networks and their Adams once a step spends part of every call on taking up and
giving back variables: 60 of them took 0.2 ms more than 12 (LOG.md).
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf


class FlatNetworks:
    """Networks of any shape whose weights, in the order of `network.variables`, are one vector.

    Args:
        networks: give the structure and the first weights; later they hold what `pull` last gave them.

    Attributes:
        weights: [W] float32, all weights of all networks.
    """

    def __init__(self, networks: Sequence[keras.Model]) -> None:
        self.networks = list(networks)
        self._shapes = [[tuple(variable.shape) for variable in network.variables] for network in self.networks]
        self.weights = keras.Variable(self._flatten([network.get_weights() for network in self.networks]))

    @staticmethod
    def _flatten(weights: list[list[np.ndarray]]) -> np.ndarray:
        return np.concatenate([array.ravel() for arrays in weights for array in arrays])

    def split(self, weights: tf.Tensor | np.ndarray | None = None) -> list[list[tf.Tensor]]:
        """The weights of each network in their shapes; of [W] `weights`, by default those of now."""
        flat = tf.convert_to_tensor(self.weights.value) if weights is None else weights
        networks, start = [], 0
        for shapes in self._shapes:
            arrays = []
            for shape in shapes:
                end = start + int(np.prod(shape))
                part = flat[start:end]
                arrays.append(part.reshape(shape) if isinstance(part, np.ndarray) else tf.reshape(part, shape))
                start = end
            networks.append(arrays)
        return networks

    def call(self, i: int, weights: list[tf.Tensor], inputs: tf.Tensor) -> tf.Tensor:
        """Network i on inputs [B, ...] with given weights."""
        outputs, _ = self.networks[i].stateless_call(weights, [], inputs)
        return outputs

    def pull(self) -> list[keras.Model]:
        """The Keras networks, with the weights of now."""
        for network, weights in zip(self.networks, self.split(self.weights.numpy())):
            network.set_weights(weights)
        return self.networks

    def push(self) -> None:
        """Take over the weights of the Keras networks."""
        self.weights.assign(self._flatten([network.get_weights() for network in self.networks]))


def flat(gradients: list[list[tf.Tensor]]) -> tf.Tensor:
    """Gradients by network and weight → [W], in the order of `FlatNetworks.weights`."""
    return tf.concat([tf.reshape(gradient, (-1,)) for network in gradients for gradient in network], axis=0)
