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


def draw_as_pytorch(network: keras.Model, seed: int) -> None:
    """Draw all kernels and biases again as PyTorch's layers begin: uniform within ±1/√(inputs of a unit)."""
    rng = np.random.default_rng(seed)
    for layer in network.layers:
        if hasattr(layer, "kernel"):
            bound = 1 / np.sqrt(np.prod(layer.kernel.shape[:-1]))
            for variable in (layer.kernel, layer.bias):
                variable.assign(rng.uniform(-bound, bound, variable.shape))
