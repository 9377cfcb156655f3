"""Products of matrices that are rounded to bfloat16, which some processors multiply about twice as fast.

bfloat16 has the exponent of float32 and 8 of its 24 bits of precision. The sums stay float32, as in mixed precision
(Micikevicius et al. 2018, arXiv:1710.03740; with bfloat16 Kalamkar et al. 2019, arXiv:1905.12322).
"""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from common.errors import UserError


@tf.custom_gradient
def rounded_product(
    left: tf.Tensor, right: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """left [N, B, K] times right [N, K, M], both rounded to bfloat16, with sums in float32: [N, B, M].

    The products of its gradient are rounded in the same way.
    """
    left, right = tf.cast(left, tf.bfloat16), tf.cast(right, tf.bfloat16)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        upstream = tf.cast(upstream, tf.bfloat16)  # [N, B, M]
        of_left = _product(upstream, right, transpose_b=True)  # [N, B, K]
        return of_left, _product(_transposed(left), upstream)  # and [N, K, M]

    return _product(left, right), gradient


def _product(left: tf.Tensor, right: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """The float32 product of bfloat16 numbers."""
    if tf.executing_eagerly():  # TensorFlow has this product in XLA alone
        return tf.matmul(tf.cast(left, tf.float32), tf.cast(right, tf.float32), transpose_b=transpose_b)
    return tf.matmul(left, right, transpose_b=transpose_b, output_type=tf.float32)


def _transposed(matrices: tf.Tensor) -> tf.Tensor:
    """[N, B, K] → [N, K, B], with a row of zeros that is added before and taken away afterwards.

    XLA merges a plain transposition into the product, and then multiplies float32 numbers.
    """
    padded = tf.concat([matrices, tf.zeros_like(matrices[:, :1])], axis=1)  # [N, B + 1, K]
    return tf.transpose(padded, (0, 2, 1))[:, :, :-1]


class RoundedDense(keras.layers.Dense):
    """A dense layer that rounds what it multiplies to bfloat16; its sums are float32."""

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """features [B, in] → [B, units], float32."""
        products = rounded_product(inputs[None], keras.ops.convert_to_tensor(self.kernel)[None])[0]  # [B, units]
        return self.activation(products + self.bias)


def check_precision(precision: str) -> None:
    """Try a product and its gradient where rounded ones are asked for; UserError if TensorFlow has none here."""
    if precision == "float32" or tf.config.functions_run_eagerly():
        return
    ones = np.ones((2, 256, 256), np.float32)
    try:
        with tf.GradientTape() as tape:
            weights = tf.convert_to_tensor(ones)
            tape.watch(weights)
            product = tf.function(rounded_product, jit_compile=True, autograph=False)(ones, weights)
        tape.gradient(product, weights)
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.InternalError):
        raise UserError(
            "TensorFlow cannot make products of bfloat16 on this processor: train a new run with --precision float32"
        ) from None
