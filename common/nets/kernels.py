"""What draws the initial kernels of a network's layers."""

from collections.abc import Callable

import keras
import numpy as np

Kernels = Callable[[float], keras.initializers.Initializer]  # gain → what draws the next kernel


def orthogonal(seed: int) -> Kernels:
    """Orthogonal kernels (Saxe et al. 2014), each with a seed of its own drawn from one."""
    rng = np.random.default_rng(seed)
    return lambda gain: keras.initializers.Orthogonal(gain, seed=int(rng.integers(2**31)))


def glorot(seed: int) -> Kernels:
    """Glorot-uniform kernels (Glorot & Bengio 2010, Keras's default), which have no gain; seeds as of `orthogonal`."""
    rng = np.random.default_rng(seed)
    return lambda _: keras.initializers.GlorotUniform(seed=int(rng.integers(2**31)))


def draw_as_pytorch(network: keras.Model, seed: int) -> None:
    """Draw all kernels and biases again as PyTorch's layers begin: uniform within ±1/√(inputs of a unit)."""
    rng = np.random.default_rng(seed)
    for layer in network.layers:
        if hasattr(layer, "kernel"):
            bound = 1 / np.sqrt(np.prod(layer.kernel.shape[:-1]))
            for variable in (layer.kernel, layer.bias):
                variable.assign(rng.uniform(-bound, bound, variable.shape))
