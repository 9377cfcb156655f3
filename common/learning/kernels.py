"""What draws the initial kernels of a network's layers."""

from collections.abc import Callable

import keras
import numpy as np

Kernels = Callable[[float], keras.initializers.Initializer]  # gain → initializer


class Orthogonal:
    """Orthogonal kernels, each with a seed of its own drawn from one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, gain: float) -> keras.initializers.Initializer:
        """The next kernel's initializer (Saxe et al. 2014)."""
        return keras.initializers.Orthogonal(gain, seed=int(self._rng.integers(2**31)))


class Glorot:
    """Glorot-uniform kernels (Keras's default), each with a seed of its own drawn from one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, _: float) -> keras.initializers.Initializer:
        """The next kernel's initializer (Glorot & Bengio 2010); it has no gain."""
        return keras.initializers.GlorotUniform(seed=int(self._rng.integers(2**31)))
