"""What a mirror does to observations and actions of an environment that looks the same in it.

Numbers change places or signs. An entry k of a mirror's tuple says where an entry of the mirrored array comes from:
from the |k|-th, counted from 1, with the sign of k.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Entries:
    """A permutation with signs, and what is added afterwards."""

    sources: tuple[int, ...]  # [X] whole numbers, from 1; a negative one changes the sign
    offsets: tuple[float, ...] = ()  # [X] what is added to each number; nothing where empty

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """[..., X] → the mirrored array, [..., X]."""
        moved = array[..., np.abs(self.sources) - 1] * np.sign(self.sources).astype(array.dtype)  # [..., X]
        return moved + self.offset.astype(array.dtype) if self.offsets else moved

    @property
    def matrix(self) -> np.ndarray:
        """[X, X] float32: a row vector is mirrored by this matrix on its right, but for the offset."""
        return self.linear(np.eye(len(self.sources), dtype=np.float32))

    @property
    def offset(self) -> np.ndarray:
        """[X] float32, zeros where nothing is added."""
        return np.array(self.offsets or (0.0,) * len(self.sources), np.float32)

    @property
    def linear(self) -> "Entries":
        """The same without offsets: right for numbers that were shifted by a mean that the mirror leaves as it is."""
        return Entries(self.sources)

    def beside(self, other: "Entries") -> "Entries":
        """Of two arrays side by side."""
        size = len(self.sources)
        shifted = (source + size if source > 0 else source - size for source in other.sources)
        offsets = tuple(float(offset) for offset in (*self.offset, *other.offset))
        return Entries((*self.sources, *shifted), offsets if self.offsets or other.offsets else ())

    @property
    def unsigned(self) -> "Entries":
        """The same places alone, for standard deviations."""
        return Entries(tuple(abs(source) for source in self.sources))


@dataclass(frozen=True)
class Mirror:
    """What a mirror does to observations [..., S] and to actions [..., A], or to the logits of discrete actions."""

    observation: Entries
    action: Entries
    weight: float = 0.5  # of the mirror image in the actor's mean of both

    @property
    def joint(self) -> Entries:
        """Of observations and actions side by side, [..., S + A]."""
        return self.observation.beside(self.action)

    @property
    def normalized(self) -> "Mirror":
        """The mirror of observations that are normalised with statistics which both sides share."""
        return Mirror(self.observation.linear, self.action, self.weight)


class Sides(NamedTuple):
    """What a mirror does to a network's inputs, and to what it says of them."""

    inputs: Entries
    outputs: Entries
    weight: float = 0.5  # of the mirror image in the mean of both


def unmoved(size: int) -> Entries:
    """Of numbers that a mirror does not change."""
    return Entries(tuple(range(1, size + 1)))
