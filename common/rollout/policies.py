"""Policies that act, as plain arrays and names of activations: nothing here imports TensorFlow or Keras.

For a batch of one to a few dozen observations the call into TensorFlow costs many times the
arithmetic (LOG.md has the figures), and it holds a core that the environments could use. What is
copied from a Keras actor by `common.learning.frozen_policy` agrees with it to rounding; a test holds them
together. Training never uses it: values and log-probabilities come from TensorFlow, in one batch,
after collecting. Everything here can be pickled, so that worker processes can act too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

OBSERVATION_CLIP = 10.0  # standard deviations; what lies beyond would blow the networks up
MIN_STD = 1e-6  # keeps log-probabilities finite should softplus or exp underflow
MAX_STD = 100.0  # beyond, an action is the toss of a coin; a bonus too strong would drive it to infinity

_ZERO = np.zeros((), np.float32)  # a Python 0 would be converted at every call, which takes longer than the rest
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, _ZERO, out=x),
    "softplus": lambda x: np.logaddexp(np.float32(0), x),
}


class Policy(Protocol):
    """Chooses actions for raw observations."""

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for raw observations [n, *shape].

        Args:
            noise: [n, X] standard normal numbers that sample the action; None takes the deterministic action.
        """
        ...


@dataclass(frozen=True)
class Dense:
    """A layer of a network."""

    kernel: np.ndarray  # [in, out]
    bias: np.ndarray  # [out]
    activation: str  # one of ACTIVATIONS

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """features [n, in] → [n, out]."""
        product = features.dot(self.kernel)  # [n, out]; `@` costs half as much again on a few numbers
        product += self.bias
        return ACTIVATIONS[self.activation](product)  # in place where it can be


@dataclass(frozen=True)
class Constant:
    """A head that says the same whatever is observed."""

    values: np.ndarray  # [out]

    def __call__(self, _: np.ndarray) -> np.ndarray:
        """features [n, in] → [out]."""
        return self.values


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
        np.maximum(scaled, -OBSERVATION_CLIP, out=scaled)  # np.clip costs four times as much on a few numbers
        return np.minimum(scaled, OBSERVATION_CLIP, out=scaled)


Heads = Callable[[np.ndarray], list[np.ndarray]]  # raw observations [n, ...] → what an actor says, each [n, ...]


@dataclass(frozen=True)
class DenseHeads:
    """The heads of an actor that is dense layers only; `learning.frozen_policy.dense_heads` copies them from Keras."""

    normalize: Normalizer  # maps raw observations [n, S] to the actor's
    hidden: tuple[Dense, ...]
    heads: tuple[Dense | Constant, ...]

    def __call__(self, observations: np.ndarray) -> list[np.ndarray]:
        """Raw observations [n, S] → what each head says, [n, ...] or [...]."""
        features = self.normalize(observations)  # [n, S]
        for layer in self.hidden:
            features = layer(features)  # [n, units]
        return [head(features) for head in self.heads]


class NormalPolicy:
    """Acts as a Normal policy with these heads: means [n, A]; standard deviations [n, A], or [A] within bounds."""

    noise = "drawn from the policy's Normal distribution"

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self.is_plain = isinstance(heads, DenseHeads)  # arrays alone, which a worker process can take over

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


class CategoricalPolicy:
    """Acts as a Categorical policy with one head, logits [n, Σ choices].

    Args:
        choices: of every number of an action.
    """

    noise = "drawn from the policy's Categorical distribution"

    def __init__(self, heads: Heads, choices: tuple[int, ...]) -> None:
        self._heads = heads
        self.is_plain = isinstance(heads, DenseHeads)
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
            from scipy.special import log_ndtr  # half of what a worker process would import

            scores = scores - np.log(-log_ndtr(noise.astype(np.float64)))  # [n, Σ choices]
        parts = np.split(scores, self._cuts, axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1).astype(np.float32)  # [n, A]


class DeterministicPolicy:
    """Acts as an actor made by `companions.architecture.deterministic_actor`, with or without noise.

    Args:
        activations: names of the layers' activations.
        weights: kernels and biases, layer by layer.
        std: what noise is multiplied by, in units of half the action range.
    """

    is_plain = True

    def __init__(self, activations: Sequence[str], weights: Sequence[np.ndarray], std: float) -> None:
        self._activations, self._std = tuple(activations), std
        self.refresh(weights)

    @property
    def noise(self) -> str:
        """What a sampled action adds, in words."""
        return f"independent Gaussian noise with a standard deviation of {self._std:g} of half the action range"

    def refresh(self, weights: Sequence[np.ndarray]) -> None:
        """Act by these kernels and biases from here on."""
        self._layers = tuple(map(Dense, weights[::2], weights[1::2], self._activations))

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] in [−1, 1] for observations [n, S]: cut from μ + std·noise, or μ where noise is None."""
        features = np.asarray(observations, dtype=np.float32)  # [n, S]
        for layer in self._layers:
            features = layer(features)  # [n, units]
        if noise is None:
            return features
        features += self._std * noise
        return np.minimum(np.maximum(features, -1.0), 1.0)
