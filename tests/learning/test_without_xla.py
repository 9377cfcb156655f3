"""Which tests compile with XLA; see `without_xla`."""

import pytest
import tensorflow as tf


def length_of_a_text():
    """XLA knows no texts."""
    return tf.function(tf.strings.length, jit_compile=True)(tf.constant("four"))


def test_xla_is_left_out():
    assert int(length_of_a_text()) == 4


@pytest.mark.xla
def test_a_marked_test_compiles_with_xla():
    with pytest.raises(tf.errors.OpError):
        length_of_a_text()
