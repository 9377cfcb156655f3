"""Matrix products and nothing else: what an update would cost if all besides its products were free."""

import time
from collections.abc import Callable

import numpy as np

Shape = tuple[int, int, int]  # m, k, n of a product [m, k] × [k, n]


def fastest(shapes: list[Shape], tries: int) -> Callable[[], None]:
    """A function that computes products of these shapes, one by one: by TensorFlow, by XLA or by NumPy.

    Args:
        tries: how often each of the three computes all of them, before the fastest is chosen.
    """
    import common.learning.quiet_start  # noqa: F401  isort: skip
    import tensorflow as tf

    rng = np.random.default_rng(0)
    arrays = [tuple(rng.standard_normal(size, np.float32) for size in ((m, k), (k, n))) for m, k, n in shapes]
    tensors = [(tf.constant(a), tf.constant(b)) for a, b in arrays]
    results = [np.empty((m, n), np.float32) for m, _, n in shapes]

    # One by one, since a compiler would leave out products that nobody reads or that never change.
    def by_tensorflow() -> None:
        for a, b in tensors:
            tf.matmul(a, b)

    def by_numpy() -> None:
        for (a, b), result in zip(arrays, results):
            np.matmul(a, b, out=result)

    compiled = tf.function(lambda pairs: [tf.matmul(a, b) for a, b in pairs], jit_compile=True)

    def seconds(way: Callable[[], None]) -> float:
        way()
        began = time.perf_counter()
        for _ in range(tries):
            way()
        return time.perf_counter() - began

    return min((by_tensorflow, by_numpy, lambda: compiled(tensors)), key=seconds)


def of_a_layer(rows: int, inputs: int, outputs: int, first: bool) -> list[Shape]:
    """The products of a dense layer: its outputs, the gradient of its weights and, unless `first`, that of its inputs.

    A convolution is a dense layer with a row for each of its places in each image.
    """
    forward_and_weights = [(rows, inputs, outputs), (inputs, rows, outputs)]
    return forward_and_weights if first else [*forward_and_weights, (rows, outputs, inputs)]
