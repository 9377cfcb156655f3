"""The Keras layer of networks that remember: a GRU or LSTM cell along sequences of steps."""

from typing import Any

import keras
import tensorflow as tf

from common.nets.kernels import Kernels
from common.nets.recurrent import GRU, LSTM
from common.nets.tensorflow_operations import TENSORFLOW

CELLS: dict[str, type[keras.layers.Layer]] = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}


class MemoryLayer(keras.layers.Layer):
    """A cell that goes through b sequences of L steps each; B = b·L rows, those of one sequence after another.

    Its weights are those of Keras's cell ("gru" or "lstm"), which returns H = `units` numbers. Both kernels are
    orthogonal, so that what it remembers neither grows nor fades at first (Saxe et al. 2014).
    """

    def __init__(self, kind: str, units: int, kernel: Kernels, **kwargs: object) -> None:
        super().__init__(**kwargs)
        # Nothing uses the seed, since there is no dropout; but Keras would draw another one each time.
        self.cell = CELLS[kind](units, kernel_initializer=kernel(1.0), recurrent_initializer=kernel(1.0), seed=0)
        self._units, self.memory_size = units, units if kind == "gru" else 2 * units

    def build(self, features_shape: tuple[int | None, ...], *_: object, **__: object) -> None:
        """Make the cell's weights."""
        self.cell.build(features_shape)

    def layer(self) -> GRU | LSTM:
        """The cell with its present weights, which are Keras variables."""
        cell = self.cell
        if isinstance(cell, keras.layers.GRUCell):
            return GRU(cell.kernel, cell.bias[0], cell.recurrent_kernel, cell.bias[1])
        return LSTM(cell.kernel, cell.bias, cell.recurrent_kernel)

    def call(self, features: tf.Tensor, memory: tf.Tensor, kept: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Outputs [B, H], and the memory after each step [B, Z].

        Args:
            features: [B, in].
            memory: [b, Z] of each sequence before its first step.
            kept: [B], 0 for a step after which the episode is over and the memory is empty, else 1.
        """
        layer, count, before = self.layer(), memory.shape[0], list[tf.Tensor]()  # b
        length = features.shape[0] // count  # L
        kernel = tf.convert_to_tensor(layer.recurrent_kernel)

        def turned(rows: tf.Tensor) -> tf.Tensor:
            """[B, X] → [L, b, X]."""
            return tf.transpose(tf.reshape(rows, (count, length, rows.shape[1])), (1, 0, 2))

        def each(steps: tf.Tensor) -> tf.TensorArray:
            """[L, b, X] → L times [b, X]."""
            return tf.TensorArray(tf.float32, length, element_shape=steps.shape[1:]).unstack(steps)

        @tf.custom_gradient
        def zeros(kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
            """[L, b, X] to add to the products; so the kernel's gradient is one product, and not a sum over steps."""
            none = tf.zeros((length, count, kernel.shape[1]))
            return none, lambda gradient: tf.einsum("lbh,lbx->hx", *before, gradient)

        keep = turned(kept[:, None])
        sums = each(turned(tf.matmul(features, layer.kernel) + layer.bias))
        zero, keeps, fixed = each(zeros(kernel)), each(keep), tf.stop_gradient(kernel)
        found = tf.TensorArray(tf.float32, length, element_shape=memory.shape)

        def step(t: tf.Tensor, memory: tf.Tensor, found: tf.TensorArray) -> tuple[Any, ...]:
            carried = tf.matmul(memory[:, : self._units], fixed) + zero.read(t)
            after = layer.step(TENSORFLOW, sums.read(t), carried, memory)  # [b, Z]
            return t + 1, after * keeps.read(t), found.write(t, after)

        *_, found = tf.while_loop(lambda t, *_: t < length, step, (0, memory, found), maximum_iterations=length)
        steps = found.stack()  # [L, b, Z]
        before.append(tf.concat([memory[None], (steps * keep)[:-1]], axis=0)[:, :, : self._units])  # [L, b, H]
        after = tf.reshape(tf.transpose(steps, (1, 0, 2)), (count * length, memory.shape[1]))  # [B, Z]
        return after[:, : self._units], after * kept[:, None]

    def compute_output_spec(
        self, features: keras.KerasTensor, memory: keras.KerasTensor, kept: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """What `call` returns; how many rows is not known beforehand."""
        return keras.KerasTensor((None, self._units)), keras.KerasTensor((None, self.memory_size))
