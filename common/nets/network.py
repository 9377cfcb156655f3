"""A network as arrays and names, and what it makes of observations; without TensorFlow or Keras.

`forward` is the one pass through a network. It is computed by NumPy where policies act, by TensorFlow where the
off-policy methods learn and for exports, and as the nodes of an ONNX file. Each of them has the operations of
`NumPyOperations`. Arrays are NumPy's or tensors. Kernels of several networks of one shape may be stacked,
[networks, in, out].

For a batch of one to a few dozen observations, calling TensorFlow takes many times longer than the arithmetic
(figures in experiments/log), and it occupies a core that the environments could use. So policies act in NumPy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from common.envs.mirrors import Entries, Sides
from common.funcs import RunningStatistics
from common.nets.batch_normalization import BatchNormalization
from common.nets.recurrent import GRU, LSTM

OBSERVATION_CLIP = 10.0  # standard deviations; larger observations would make the networks diverge
MIN_STD = 1e-6  # keeps log-probabilities finite should softplus or exp underflow
MAX_STD = 100.0  # beyond it actions are coin tosses, and too strong an entropy bonus would drive it to infinity
RULED_OUT = -1e9  # a logit whose probability is 0 and whose entropy is not NaN
MIN_LOG_STD, MAX_LOG_STD = -20.0, 2.0  # of a squashed Normal: appendix C of arXiv:1801.01290 and its code

# A Python number would be converted at every call, which takes longer than the rest.
_ZERO, _HALF, _LEAST, _MOST = (
    np.array(number, np.float32) for number in (0.0, 0.5, -OBSERVATION_CLIP, OBSERVATION_CLIP)
)
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, _ZERO, out=x),
    "softplus": lambda x: np.logaddexp(np.float32(0), x),
}
"""What layers name as their `activation`."""


@dataclass(frozen=True)
class Normalizer:
    """(observation − shift) · scale, clipped to ±10, with [S] float32 each; None for both changes nothing."""

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
        np.maximum(scaled, _LEAST, out=scaled)  # np.clip costs four times as much on a few numbers
        return np.minimum(scaled, _MOST, out=scaled)


UNCHANGED = Normalizer(None, None)


class Dense(NamedTuple):
    """A dense layer.

    Attributes:
        kernel: [in, out], or [networks, in, out].
        bias: [out], or [networks, 1, out].
        rounded: whether updates round what it multiplies to bfloat16; see `common.nets.rounded_products`.
    """

    kernel: Any
    bias: Any
    activation: str = "linear"
    rounded: bool = False

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, in] → [n, out]."""
        return operations.activations[self.activation](operations.linear(features, self))


class Convolution(NamedTuple):
    """A layer of filters over an image, without padding.

    Attributes:
        kernel: [size, size, in, out].
        bias: [out].
        stride: pixels from one patch to the next, in both directions.
    """

    kernel: Any
    bias: Any
    activation: str = "linear"
    stride: int = 1

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, height, width, in] → [n, h, w, out]."""
        return operations.activations[self.activation](operations.convolved(features, self))


class LayerNormalization(NamedTuple):
    """Rows of features with mean 0 and variance 1 (arXiv:1607.06450), then scaled and shifted.

    Attributes:
        scale, shift: [units], or [networks, 1, units].
        epsilon: is added to the variance.
    """

    scale: Any
    shift: Any
    activation: str = "linear"
    epsilon: float = 1e-3

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, units] → [n, units]."""
        return operations.activations[self.activation](operations.layer_normalized(features, self))


class Rescaling(NamedTuple):
    """features · scale + shift, for images."""

    scale: float
    shift: float

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, ...] → [n, ...]."""
        return operations.scaled(features, self.scale, self.shift)


class Flatten(NamedTuple):
    """All numbers of an image in one row."""

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, ...] → [n, units]."""
        return operations.flattened(features)


class Cut(NamedTuple):
    """Some columns of a row of numbers, as an image or as a shorter row.

    Attributes:
        columns: their positions.
        shape: [height, width, channels], or [units].
    """

    columns: np.ndarray
    shape: tuple[int, ...]

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, S] → [n, *shape]."""
        return operations.chosen(features, self)


class Joined(NamedTuple):
    """Several rows of layers, each from the observations on, whose features stand side by side."""

    paths: tuple[tuple[Any, ...], ...]

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, S] → [n, units]."""
        return operations.beside([through(operations, path, features) for path in self.paths])


def through(operations: Any, layers: Sequence[Any], features: Any) -> Any:
    """What layers in a row make of features."""
    for layer in layers:
        features = layer.apply(operations, features)
    return features


class Constant(NamedTuple):
    """A head whose output does not depend on the observation: `values`, [out] in NumPy."""

    values: np.ndarray

    def apply(self, operations: Any, _: Any) -> Any:
        """features [n, units] → [out]."""
        return operations.constant(self.values)


Layer = Dense | Convolution | LayerNormalization | BatchNormalization | Rescaling | Flatten | Cut | Joined | GRU | LSTM


@dataclass(frozen=True)
class Network:
    """Layers one after the other, then heads in parallel.

    Attributes:
        normalize: maps raw observations to the first layer's.
        hidden: the layers before the heads, in their order.
        heads: the output layers.
        sides: how a mirror changes the inputs and the outputs of each head; empty without `symmetry`.
        mask_size: numbers at the end of an observation that no layer sees: which of the first head's logits are
            allowed, 0 or 1; the others become RULED_OUT.
    """

    normalize: Normalizer
    hidden: tuple[Layer, ...]
    heads: tuple[Dense | Constant, ...]
    sides: tuple[Sides, ...] = ()
    mask_size: int = 0

    def __call__(self, observations: np.ndarray, memory: np.ndarray | None = None) -> list[np.ndarray]:
        """Raw observations [n, *shape] → the output of each head, [n, out] or [out]; in NumPy.

        Args:
            memory: [n, Z or more] of a network that remembers; the next one replaces the first Z columns. None begins
                episodes.
        """
        size = self.memory_size
        if not size:
            return forward(NUMPY, self, observations)
        own = np.zeros((len(observations), size), np.float32) if memory is None else memory[:, :size]  # [n, Z]
        *heads, own[:] = forward(NUMPY, self, observations, own)
        return heads

    @property
    def memory_size(self) -> int:
        """Z, numbers that it remembers of an episode from one step to the next; 0 if it does not remember."""
        return sum(layer.memory_size for layer in self.hidden if isinstance(layer, GRU | LSTM))

    @property
    def arrays(self) -> list[Any]:
        """Kernel and bias, scale and shift, or scale, shift, mean and variance of each layer with weights."""
        layers: tuple[Any, ...] = (*self.hidden, *self.heads)
        return [array for layer in layers for array in layer[: _ARRAYS.get(type(layer), 0)]]

    def with_arrays(self, normalize: Normalizer, arrays: Sequence[Any]) -> "Network":
        """The same layers with another normaliser and with other arrays, in the order of `arrays`."""
        left = iter(arrays)

        def filled(layers: tuple[Any, ...]) -> tuple[Any, ...]:
            sizes = [(layer, _ARRAYS.get(type(layer), 0)) for layer in layers]
            return tuple([type(x)(*[next(left) for _ in range(n)], *x[n:]) if n else x for x, n in sizes])

        return replace(self, normalize=normalize, hidden=filled(self.hidden), heads=filled(self.heads))

    def first_head(self) -> "Network":
        """The same network with its first head alone."""
        return replace(self, heads=self.heads[:1], sides=self.sides[:1])


_ARRAYS = {Dense: 2, Convolution: 2, LayerNormalization: 2, BatchNormalization: 4}  # at the start of each


def forward(operations: Any, network: Network, inputs: Any, memory: Any = None) -> list[Any]:
    """Raw observations [n, *shape] → the output of each head, [n, out]; of a `Constant`, [out].

    A network with one layer that remembers takes the memory [n, Z], and returns the next one after the heads.
    """
    features, sides = operations.normalized(inputs, network.normalize), network.sides
    mask = None
    if network.mask_size:
        features, mask = operations.cut(features, network.mask_size)  # [n, S], [n, X]
    if sides:
        features = with_image(operations, features, sides[0].inputs)  # [2n, S]
    for layer in network.hidden:
        if isinstance(layer, GRU | LSTM):
            memory = operations.remembered(features, layer, memory)  # [n, Z]
            features = operations.columns(memory, 0, layer.units)  # [n, units]
        else:
            features = layer.apply(operations, features)  # [n, units], or [2n, units]
    if not sides:
        outputs = [head.apply(operations, features) for head in network.heads]
        if mask is not None:
            outputs = [operations.masked(outputs[0], mask), *outputs[1:]]
        return outputs if memory is None else [*outputs, memory]
    return [_mirrored_head(operations, head, features, both) for head, both in zip(network.heads, sides)]


def _mirrored_head(operations: Any, head: Dense | Constant, features: Any, sides: Sides) -> Any:
    """features [2n, units] → [n, out]; of a `Constant`, [out]."""
    if isinstance(head, Constant):
        return operations.constant(NUMPY.mixed(head.values, sides.outputs(head.values), sides.weight))
    return mean_of_both(operations, head.apply(operations, features), sides.outputs, sides.weight)


def with_image(operations: Any, observations: Any, entries: Entries) -> Any:
    """Observations [n, S], and below them their mirror images, [2n, S]."""
    return operations.joined(observations, operations.mirrored(observations, entries))


def mean_of_both(operations: Any, outputs: Any, entries: Entries, weight: float) -> Any:
    """What was said of observations, and below it of their mirror images, [2n, X] → [n, X].

    An actor with μ(s) = ½ (f(s) + M_a f(M_s s)) does in mirrored states the mirrored action, whatever f is. A critic
    with V(s) = ½ (v(s) + v(M_s s)) values both states alike. Su et al. 2024 (arXiv:2403.17320) compare such networks
    with mirrored copies of the data. Where the image has another weight than ½ in the actor's mean, the policy may do
    different things on both sides.
    """
    one, image = operations.halves(outputs)  # [n, X] each
    return operations.mixed(one, operations.mirrored(image, entries), weight)


class NumPyOperations:
    """What `forward` computes with, on NumPy arrays, in place where they can be; activations overwrite features."""

    activations: ClassVar[dict[str, Any]] = ACTIVATIONS
    tanh: Any = staticmethod(np.tanh)

    def normalized(self, observations: np.ndarray, normalize: Normalizer) -> np.ndarray:
        """Raw observations [n, *shape] → what the first layer sees, float32."""
        return normalize(observations)

    def linear(self, features: np.ndarray, layer: Dense) -> np.ndarray:
        """The sums of a layer [n, out], before its activation."""
        product = features.dot(layer.kernel)  # [n, out]; `@` costs half as much again on a few numbers
        product += layer.bias
        return product

    def convolved(self, features: np.ndarray, layer: Convolution) -> np.ndarray:
        """The sums of a layer [n, h, w, filters], before its activation."""
        size, step = layer.kernel.shape[:2], slice(None, None, layer.stride)
        patches = np.lib.stride_tricks.sliding_window_view(features, size, (1, 2))[:, step, step]
        return np.tensordot(patches, layer.kernel, ((4, 5, 3), (0, 1, 2))) + layer.bias  # [n, h, w, filters]

    def layer_normalized(self, features: np.ndarray, layer: LayerNormalization) -> np.ndarray:
        """Rows with mean 0 and variance 1, scaled and shifted, before the activation."""
        centred = features - features.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)  # [n, 1]
        return centred / np.sqrt(variance + np.float32(layer.epsilon)) * layer.scale + layer.shift

    def scaled(self, features: np.ndarray, scale: float, shift: float) -> np.ndarray:
        """features · scale + shift."""
        return features * np.float32(scale) + np.float32(shift)

    def flattened(self, features: np.ndarray) -> np.ndarray:
        """[n, ...] → [n, units]."""
        return features.reshape(len(features), -1)

    def chosen(self, features: np.ndarray, layer: Cut) -> np.ndarray:
        """[n, S] → [n, *shape]."""
        return features[:, layer.columns].reshape(-1, *layer.shape)

    def beside(self, parts: list[np.ndarray]) -> np.ndarray:
        """Features side by side, [n, units]."""
        return np.concatenate(parts, axis=1)

    def constant(self, values: np.ndarray) -> np.ndarray:
        """An array that does not depend on observations."""
        return values

    def remembered(self, features: np.ndarray, layer: GRU | LSTM, memory: np.ndarray) -> np.ndarray:
        """The next memory [n, Z] of a layer that remembers."""
        carried = self.product(memory[:, : layer.units], layer.recurrent_kernel)
        return layer.step(self, self.product(features, layer.kernel) + layer.bias, carried, memory)

    def product(self, features: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        """[n, in] times [in, out]."""
        return features.dot(kernel)

    def sigmoid(self, sums: np.ndarray) -> np.ndarray:
        """1 / (1 + exp(−x)) in place, without overflow."""
        sums *= _HALF
        np.tanh(sums, out=sums)
        sums *= _HALF
        return np.add(sums, _HALF, out=sums)

    def columns(self, array: np.ndarray, start: int, end: int) -> np.ndarray:
        """Some columns of an array."""
        return array[:, start:end]

    def cut(self, array: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """[n, X + size] → [n, X] and [n, size]."""
        return array[:, :-size], array[:, -size:]

    def masked(self, logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Logits [n, X], RULED_OUT where the mask [n, X] is 0."""
        return np.where(mask > 0, logits, np.float32(RULED_OUT))

    def joined(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """[n, X] and below it [n, X], so [2n, X]."""
        return np.concatenate([one, other])

    def halves(self, both: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `joined` joined."""
        return both[: len(both) // 2], both[len(both) // 2 :]

    def mirrored(self, array: np.ndarray, entries: Entries) -> np.ndarray:
        """What a mirror makes of [n, X]."""
        return entries(array)

    def mixed(self, one: np.ndarray, other: np.ndarray, weight: float) -> np.ndarray:
        """(1 − weight) · one + weight · other."""
        return np.float32(1.0 - weight) * one + np.float32(weight) * other


NUMPY = NumPyOperations()
