"""A frozen copy of an actor, evaluated in NumPy, that chooses actions while an epoch is collected.

For a batch of one to a few dozen observations the call into TensorFlow costs many times the
arithmetic (LOG.md has the figures), and it holds a core that the environments could use. The copy
agrees with the Keras actor to rounding; a test holds them together. Training never uses it: values
and log-probabilities come from TensorFlow, in one batch, after collecting.
"""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
from scipy.special import log_ndtr

from common.networks import MAX_STD, MIN_STD, StateIndependentStd

OBSERVATION_CUT = 10.0  # standard deviations; what lies beyond would blow the networks up
Activation = Callable[[np.ndarray], np.ndarray]

_ZERO = np.zeros((), np.float32)  # a Python 0 would be converted at every call, which takes longer than the rest
_ACTIVATIONS: dict[str, Activation] = {
    "linear": lambda x: x,
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, _ZERO, out=x),
    "softplus": lambda x: np.logaddexp(np.float32(0), x),
}


def _dense(layer: keras.layers.Dense) -> tuple[np.ndarray, np.ndarray, Activation]:
    kernel, bias = layer.get_weights()
    return kernel, bias, _ACTIVATIONS[layer.activation.__name__]


def _apply(layer: tuple[np.ndarray, np.ndarray, Activation], features: np.ndarray) -> np.ndarray:
    """A Dense layer, features [n, in] → [n, out]; in place where it can be."""
    kernel, bias, activation = layer
    product = features.dot(kernel)  # [n, out]; `@` costs half as much again on a few numbers
    product += bias
    return activation(product)


@dataclass(frozen=True)
class Normalizer:
    """(observation − shift) · scale, cut to ±10; None for both leaves observations as they are."""

    shift: np.ndarray | None  # [S] float32
    scale: np.ndarray | None  # [S] float32

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Raw observations [..., S] → float32 [..., S]."""
        if self.shift is None:
            return np.asarray(observations, dtype=np.float32)
        scaled = np.subtract(observations, self.shift, dtype=np.float32)  # [..., S]
        scaled *= self.scale
        np.maximum(scaled, -OBSERVATION_CUT, out=scaled)  # np.clip costs four times as much on a few numbers
        return np.minimum(scaled, OBSERVATION_CUT, out=scaled)


Heads = Callable[[np.ndarray], list[np.ndarray]]  # raw observations [n, ...] → what an actor says, each [n, ...]


class DenseHeads:
    """The heads of an actor that is dense layers only, made by `common.networks.policy_actor`.

    Args:
        actor: copied; later training does not change this object.
        normalize: maps raw observations [n, S] to the actor's.
    """

    def __init__(self, actor: keras.Model, normalize: Normalizer) -> None:
        self._normalize = normalize
        self._hidden = [_dense(layer) for layer in actor.layers if layer.name.startswith("hidden_")]
        self._heads = [self._head(actor.get_layer(name)) for name in actor.output_names]

    @staticmethod
    def _head(layer: keras.layers.Layer) -> Callable[[np.ndarray], np.ndarray]:
        if isinstance(layer, StateIndependentStd):
            std = np.clip(np.exp(layer.get_weights()[0]), MIN_STD, MAX_STD)  # [A]
            return lambda _: std
        copy = _dense(layer)
        return lambda features: _apply(copy, features)

    def __call__(self, observations: np.ndarray) -> list[np.ndarray]:
        features = self._normalize(observations)  # [n, S]
        for layer in self._hidden:
            features = _apply(layer, features)  # [n, units]
        return [head(features) for head in self._heads]


class NormalBehaviour:
    """Acts as a Normal policy with these heads: means [n, A]; standard deviations [n, A], or [A] within bounds."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads

    def mean_and_std(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """observations [n, S] → mean [n, A], standard deviation [n, A] or [A]."""
        mean, std = self._heads(observations)
        return mean, std if std.ndim == 1 else np.clip(std, MIN_STD, MAX_STD)

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for observations [n, S]: mean + std·noise, or the mean where noise is None.

        noise: [n, A], standard normal.
        """
        mean, std = self.mean_and_std(observations)
        return mean if noise is None else mean + std * noise


class CategoricalBehaviour:
    """Acts as a Categorical policy with one head, logits [n, Σ choices].

    Args:
        choices: of every number of an action.
    """

    def __init__(self, heads: Heads, choices: tuple[int, ...]) -> None:
        self._heads = heads
        self._cuts = np.cumsum(choices)[:-1]

    def logits(self, observations: np.ndarray) -> np.ndarray:
        """observations [n, S] → [n, Σ choices]."""
        [logits] = self._heads(observations)
        return logits

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A], whole numbers in float32, for observations [n, S]: drawn, or the likeliest without noise.

        noise: [n, Σ choices], standard normal. −log(−log Φ(noise)) is Gumbel noise, with which the largest
        logit is a draw from the softmax (Gumbel 1954).
        """
        scores = self.logits(observations)  # [n, Σ choices]
        if noise is not None:
            scores = scores - np.log(-log_ndtr(noise.astype(np.float64)))  # [n, Σ choices]
        parts = np.split(scores, self._cuts, axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1).astype(np.float32)  # [n, A]


class DeterministicBehaviour:
    """Acts as an actor made by `common.networks.deterministic_actor`, with or without noise.

    Args:
        actor: tells the layers' activations.
        weights: returns kernels and biases, layer by layer; asked now and by `refresh`.
        std: what noise is multiplied by, in units of half the action range.
    """

    def __init__(self, actor: keras.Model, weights: Callable[[], list[np.ndarray]], std: float) -> None:
        self._std, self._weights = std, weights
        layers = [layer for layer in actor.layers if isinstance(layer, keras.layers.Dense)]
        self._activations = [_ACTIVATIONS[layer.activation.__name__] for layer in layers]
        self.refresh()

    def refresh(self) -> None:
        """Copy the actor as it is now."""
        weights = self._weights()
        self._layers = list(zip(weights[::2], weights[1::2], self._activations))

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] in [−1, 1] for observations [n, S]: cut from μ + std·noise, or μ where noise is None."""
        features = np.asarray(observations, dtype=np.float32)  # [n, S]
        for layer in self._layers:
            features = _apply(layer, features)  # [n, units]
        if noise is None:
            return features
        features += self._std * noise
        return np.minimum(np.maximum(features, -1.0), 1.0)
