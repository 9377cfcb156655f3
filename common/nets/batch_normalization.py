"""Batch normalisation by running statistics, as a layer of a `Network`; without TensorFlow."""

from dataclasses import replace
from typing import Any, NamedTuple


class BatchNormalization(NamedTuple):
    """Features with the running mean 0 and variance 1 (arXiv:1502.03167), then scaled and shifted.

    An update normalises by statistics of its own batch; see `common.nets.batch_renormalization`.
    """

    scale: Any  # [units], or [networks, 1, units]; so are the others
    shift: Any
    mean: Any  # running, as is the variance
    variance: Any
    epsilon: float = 1e-3  # is added to the variance

    def apply(self, operations: Any, features: Any) -> Any:
        """features [n, units] → [n, units]."""
        return operations.scaled(features, *self.factor_and_shift())

    def factor_and_shift(self) -> tuple[Any, Any]:
        """What features are multiplied by, and what is added then."""
        factor = self.scale * (self.variance + self.epsilon) ** -0.5
        return factor, self.shift - self.mean * factor

    def within(self, after: Any) -> Any:
        """One dense layer in place of this one and the dense layer after it."""
        factor, shift = self.factor_and_shift()
        return after._replace(kernel=factor[:, None] * after.kernel, bias=shift.dot(after.kernel) + after.bias)


def folded(network: Any) -> Any:
    """The same `Network` with every batch normalisation within the dense layer, or the heads, after it."""
    hidden: list[Any] = []
    before = None
    for layer in network.hidden:
        if isinstance(layer, BatchNormalization):
            before = layer
            continue
        hidden.append(layer if before is None else before.within(layer))
        before = None
    heads = network.heads if before is None else tuple(before.within(head) for head in network.heads)
    return replace(network, hidden=tuple(hidden), heads=heads)
