"""Policies that act: plain arrays and names of activations, without TensorFlow or Keras.

For a batch of one to a few dozen observations, calling TensorFlow takes many times longer than the arithmetic
(figures in the log), and it occupies a core that the environments could use. `common.learning.frozen_policy` copies a
Keras actor into these classes; a test checks that both agree to rounding. Updates do not use them: values and
log-probabilities come from TensorFlow, in one batch, after collecting. A network that sees images is the exception: it
acts in TensorFlow, and `JudgingPolicy` keeps its values. Policies with `DenseHeads` can be pickled, so that worker
processes can act too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from common.envs.mirrors import Sides
from common.running_statistics import RunningStatistics

OBSERVATION_CLIP = 10.0  # standard deviations; larger observations would make the networks diverge
MIN_STD = 1e-6  # keeps log-probabilities finite should softplus or exp underflow
MAX_STD = 100.0  # beyond it actions are coin tosses, and too strong an entropy bonus would drive it to infinity
MIN_LOG_STD, MAX_LOG_STD = -20.0, 2.0  # of a squashed Normal: appendix C of arXiv:1801.01290 and its code

_ZERO = np.zeros((), np.float32)  # a Python 0 would be converted at every call, which takes longer than the rest
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, _ZERO, out=x),
    "softplus": lambda x: np.logaddexp(np.float32(0), x),
}


class Policy(Protocol):
    """Chooses actions for raw observations. Worker processes can use it if its attribute `is_plain` is True."""

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for raw observations [n, *shape].

        Args:
            noise: [n, X] standard normal numbers that sample the action, X of them for each; None takes the
                deterministic action.
        """
        ...


class SamplingPolicy(Policy, Protocol):
    """A policy that can describe how it samples actions."""

    @property
    def noise(self) -> str:
        """How sampled actions are drawn, in words."""
        ...


@dataclass(frozen=True)
class Dense:
    """A layer of a network.

    Attributes:
        kernel: [in, out].
        bias: [out].
        activation: "linear", "tanh", "relu" or "softplus".
    """

    kernel: np.ndarray
    bias: np.ndarray
    activation: str

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """features [n, in] → [n, out]."""
        product = features.dot(self.kernel)  # [n, out]; `@` costs half as much again on a few numbers
        product += self.bias
        return ACTIVATIONS[self.activation](product)  # in place where it can be


@dataclass(frozen=True)
class Convolved:
    """A layer of filters over an image, without padding.

    Attributes:
        kernel: [size, size, in, out].
        bias: [out].
        stride: pixels from one patch to the next, in both directions.
        activation: a key of ACTIVATIONS.
    """

    kernel: np.ndarray
    bias: np.ndarray
    stride: int
    activation: str


@dataclass(frozen=True)
class Constant:
    """A head whose output does not depend on the observation.

    Attributes:
        values: the output, [out].
    """

    values: np.ndarray

    def __call__(self, _: np.ndarray) -> np.ndarray:
        """features [n, in] → [out]."""
        return self.values


@dataclass(frozen=True)
class Normalizer:
    """(observation − shift) · scale, clipped to ±10; None for both leaves observations unchanged.

    Attributes:
        shift: [S] float32, or None.
        scale: [S] float32, or None.
    """

    shift: np.ndarray | None
    scale: np.ndarray | None

    @classmethod
    def of(cls, statistics: RunningStatistics) -> Self:
        """The normaliser that gives the samples seen mean 0 and standard deviation 1; unchanged before the first."""
        if statistics.count == 0:
            return cls(None, None)
        return cls(statistics.mean.astype(np.float32), (1.0 / (statistics.std + 1e-8)).astype(np.float32))

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Raw observations [..., S] → float32 [..., S]."""
        if self.shift is None:
            return np.asarray(observations, dtype=np.float32)
        scaled = np.subtract(observations, self.shift, dtype=np.float32)  # [..., S]
        scaled *= self.scale
        np.maximum(scaled, -OBSERVATION_CLIP, out=scaled)  # np.clip costs four times as much on a few numbers
        return np.minimum(scaled, OBSERVATION_CLIP, out=scaled)


UNCHANGED = Normalizer(None, None)
Heads = Callable[[np.ndarray], list[np.ndarray]]  # raw observations [n, *shape] → outputs [n, out] or [out]


@dataclass(frozen=True)
class DenseHeads:
    """An actor that consists of dense layers; `common.learning.frozen_policy.dense_heads` copies it from Keras.

    Attributes:
        normalize: maps raw observations [n, S] to the actor's.
        hidden: the hidden layers, in their order.
        heads: the output layers.
        sides: how a mirror changes the inputs and outputs of each head; empty without `symmetry`.
    """

    normalize: Normalizer
    hidden: tuple[Dense, ...]
    heads: tuple[Dense | Constant, ...]
    sides: tuple[Sides, ...] = ()

    def __call__(self, observations: np.ndarray) -> list[np.ndarray]:
        """Raw observations [n, S] → the output of each head, [n, out] or [out]."""
        features = self.normalize(observations)  # [n, S]
        if self.sides:
            features = np.concatenate([features, self.sides[0].inputs(features)])  # [2n, S]
        for layer in self.hidden:
            features = layer(features)  # [n, units], or [2n, units]
        outputs = [head(features) for head in self.heads]  # [n, out], [2n, out] or [out]
        return list(map(_mean_of_both, outputs, self.sides)) if self.sides else outputs


@dataclass(frozen=True)
class ImageLayers:
    """The layers of an actor that sees images, for other programs that act with them (`programs.onnx_files`).

    Attributes:
        convolutions: the first layers; they take an image's numbers, 0 to 255, divided by 255.
        dense: the layers after them.
    """

    convolutions: tuple[Convolved, ...]
    dense: DenseHeads


def _mean_of_both(output: np.ndarray, sides: Sides) -> np.ndarray:
    """[2n, out] → [n, out], or [out] → [out]; see `common.learning.mirrored`."""
    one, image = (output, output) if output.ndim == 1 else np.split(output, 2)
    return np.float32(1.0 - sides.weight) * one + np.float32(sides.weight) * sides.outputs(image)


class NormalPolicy:
    """Acts as a Normal policy with two heads: means [n, A], and standard deviations [n, A] or [A]."""

    noise = "drawn from the policy's Normal distribution"

    def __init__(self, heads: Heads) -> None:
        self.heads = heads
        self.is_plain = isinstance(heads, DenseHeads)

    def mean_and_std(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations [n, S] → mean [n, A], standard deviation [n, A] in [MIN_STD, MAX_STD], or [A]."""
        mean, std = self.heads(observations)
        return mean, std if std.ndim == 1 else np.clip(std, MIN_STD, MAX_STD)

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for observations [n, S]: mean + std·noise, or the mean without noise.

        Args:
            noise: [n, A], standard normal.
        """
        mean, std = self.mean_and_std(observations)
        return mean if noise is None else mean + std * noise


class CategoricalPolicy:
    """Acts as a Categorical policy with one head, logits [n, Σ choices].

    Args:
        heads: gives the logits.
        choices: how many values each of the A numbers of an action can take.
    """

    noise = "drawn from the policy's Categorical distribution"

    def __init__(self, heads: Heads, choices: tuple[int, ...]) -> None:
        self.heads = heads
        self.is_plain = isinstance(heads, DenseHeads)
        self.choices = tuple(choices)
        self._cuts = np.cumsum(choices)[:-1]

    def logits(self, observations: np.ndarray) -> np.ndarray:
        """Observations [n, S] → logits [n, Σ choices]."""
        [logits] = self.heads(observations)
        return logits

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for observations [n, S]: whole numbers from 0, as float32; without noise the likeliest.

        Args:
            noise: [n, Σ choices], standard normal. −log(−log Φ(noise)) is Gumbel noise. The choice with the largest
                logit plus Gumbel noise is a sample from the softmax (Gumbel 1954).
        """
        scores = self.logits(observations)  # [n, Σ choices]
        if noise is not None:
            from scipy.special import log_ndtr  # here, because it would double the imports of a worker process

            scores = scores - np.log(-log_ndtr(noise.astype(np.float64)))  # [n, Σ choices]
        parts = np.split(scores, self._cuts, axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1).astype(np.float32)  # [n, A]


class JudgingPolicy:
    """Acts by a network that also returns values, and keeps all that it returned; so none is asked for twice.

    Args:
        network: observations [n, *shape] → the actor's heads, [n, …] each, and then the values [n, 1].
        output_size: all these numbers of an observation, X + 1.
        make_policy: makes a policy of the heads.

    Attributes:
        outputs: [n, X+1] of the last observations acted upon.
    """

    is_plain = False
    outputs: np.ndarray

    def __init__(self, network: Heads, output_size: int, make_policy: Callable[[Heads], Policy]) -> None:
        self.output_size, self._network = output_size, network
        self._policy = make_policy(self._heads)

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """See `Policy.act`."""
        return self._policy.act(observations, noise)

    def _heads(self, observations: np.ndarray) -> list[np.ndarray]:
        *heads, values = self._network(observations)
        self.outputs = np.concatenate([*heads, values], axis=1)  # [n, X+1]
        return heads


class LayersPolicy(ABC):
    """Acts as an actor of dense layers in a row, whose weights can be replaced.

    Args:
        activations: names of the layers' activations; keys of ACTIVATIONS.
        weights: kernels [in, out] and biases [out], layer by layer.
        normalize: maps raw observations [n, S] to the first layer's.
        sides: how a mirror changes the inputs and outputs; None without `symmetry`.
    """

    is_plain = True

    def __init__(
        self,
        activations: Sequence[str],
        weights: Sequence[np.ndarray],
        normalize: Normalizer = UNCHANGED,
        sides: Sides | None = None,
    ) -> None:
        self._activations, self._sides = tuple(activations), sides
        self.refresh(weights, normalize)

    @property
    @abstractmethod
    def noise(self) -> str:
        """How sampled actions are drawn, in words."""

    def refresh(self, weights: Sequence[np.ndarray], normalize: Normalizer = UNCHANGED) -> None:
        """Act with these kernels [in, out] and biases [out] and this normaliser from now on."""
        self._normalize = normalize
        self._layers = tuple(map(Dense, weights[::2], weights[1::2], self._activations))

    @property
    def heads(self) -> DenseHeads:
        """The same layers as `DenseHeads`, with the last one as the only head."""
        sides = () if self._sides is None else (self._sides,)
        return DenseHeads(self._normalize, self._layers[:-1], self._layers[-1:], sides)

    def _output(self, observations: np.ndarray) -> np.ndarray:
        """Observations [n, S] → what the last layer returns, [n, out]."""
        features = self._normalize(observations)  # [n, S]
        if self._sides is not None:
            features = np.concatenate([features, self._sides.inputs(features)])  # [2n, S]
        for layer in self._layers:
            features = layer(features)  # [n, units], or [2n, units]
        return features if self._sides is None else _mean_of_both(features, self._sides)  # [n, out]

    @abstractmethod
    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] in [−1, 1] for observations [n, S].

        Args:
            noise: [n, A] standard normal numbers that sample the action; None takes the deterministic action.
        """


class DeterministicPolicy(LayersPolicy):
    """Acts as an actor made by `companions.architecture.deterministic_actor`, with or without noise.

    Args:
        activations, weights, normalize, sides: see `LayersPolicy`.
        std: standard deviation of the noise, in units of half the action range.
    """

    def __init__(
        self,
        activations: Sequence[str],
        weights: Sequence[np.ndarray],
        std: float,
        normalize: Normalizer = UNCHANGED,
        sides: Sides | None = None,
    ) -> None:
        super().__init__(activations, weights, normalize, sides)
        self.std = std

    @property
    def noise(self) -> str:
        """How sampled actions are drawn, in words."""
        return f"independent Gaussian noise with a standard deviation of {self.std:g} of half the action range"

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] in [−1, 1] for observations [n, S]: μ + std·noise, clipped, or μ without noise."""
        features = self._output(observations)  # [n, A]
        if noise is None:
            return features
        features += self.std * noise
        return np.minimum(np.maximum(features, -1.0), 1.0)


class SquashedPolicy(LayersPolicy):
    """Acts as an actor made by `companions.architecture.squashed_actor`: tanh of a Normal (arXiv:1801.01290)."""

    @property
    def noise(self) -> str:
        """How sampled actions are drawn, in words."""
        return "drawn from the policy's Normal distribution, before tanh"

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] in [−1, 1] for observations [n, S]: tanh(μ + σ·noise), or tanh(μ) without noise."""
        mean, log_std = np.split(self._output(observations), 2, axis=1)  # [n, A], [n, A]
        if noise is not None:
            mean = mean + np.exp(np.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)) * noise  # [n, A]
        return np.tanh(mean)


class WarmUp:
    """Acts by a policy, or at random while `random` is set.

    Args:
        policy: acts while `random` is False.
        random_actions: a function of the number of actions n that returns actions [n, A].
    """

    def __init__(self, policy: Policy, random_actions: Callable[[int], np.ndarray]) -> None:
        self._policy, self._random_actions = policy, random_actions
        self.random = False

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for observations [n, S]."""
        if self.random:
            return self._random_actions(len(observations))  # [n, A]
        return self._policy.act(observations, noise)  # [n, A]

    def plain(self, rows: int, num_envs: int) -> tuple[Policy, np.ndarray | None]:
        """What worker processes can use for the next K rows of N environments.

        Returns:
            The policy, and the actions [K, N, A] that `act` would choose if they are random, else None.
        """
        chosen = None
        if self.random and rows:  # the last row's actions may be chosen already
            chosen = self._random_actions(rows * num_envs).reshape(rows, num_envs, -1)  # [K, N, A]
        return self._policy, chosen
