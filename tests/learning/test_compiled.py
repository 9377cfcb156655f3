"""Compiled functions: the same results as `tf.function`, one trace for each combination of shapes."""

import numpy as np
import pytest
import tensorflow as tf

from common.learning.compiled import Compiled


@pytest.fixture
def total():
    return tf.Variable(1.0)


@pytest.fixture
def adding(total):
    """Adds a weighted sum of an array to a variable."""

    def add(array, negative, weight):
        found = tf.reduce_sum(array) * (1.0 if weight is None else weight)
        total.assign_add(-found if negative else found)
        return total.read_value(), tf.constant(negative)

    return Compiled(add)


def test_arrays_are_inputs_and_python_values_are_part_of_what_is_compiled(adding, total):
    for array, negative, weight, expected in (
        (np.ones(2, np.float32), False, None, 3.0),
        (np.full(2, 3.0, np.float32), False, None, 9.0),
        (np.ones(2, np.float32), True, None, 7.0),
        (np.ones((2, 2), np.float32), True, np.float32(0.5), 5.0),
        (np.ones((2, 2), np.float32), True, np.float32(2.0), -3.0),
    ):
        found, was_negative = adding(array, negative, weight)
        assert (float(found), bool(was_negative)) == (expected, negative)
        assert float(total) == expected


def test_a_combination_of_shapes_types_and_values_is_traced_once(adding):
    ones = np.ones(2, np.float32)
    for repeated in (False, True):
        for arguments, traces in (
            ((ones, False, None), 1),
            ((2 * ones, False, None), 1),
            ((ones, True, None), 2),
            ((ones[:1], False, None), 3),
            ((ones, False, np.float32(1.0)), 4),
            ((ones, False, np.float32(2.0)), 4),
        ):
            adding(*arguments)
            assert adding.traces == (4 if repeated else traces)
    double = Compiled(lambda array: array + array)
    for kind in (np.float32, np.int64):
        assert double(np.ones(2, kind)).dtype == kind
    assert double.traces == 2


def test_a_variable_that_was_assigned_elsewhere_is_read_anew(adding, total):
    adding(np.ones(1, np.float32), False, None)
    total.assign(10.0)
    assert float(adding(np.ones(1, np.float32), False, None)[0]) == 11.0


@pytest.mark.xla
def test_results_are_those_of_tf_function():
    def product(a, b):
        return tf.linalg.matmul(tf.tanh(a), b, transpose_b=True)

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((5, 7)).astype(np.float32) for _ in range(2))
    expected = tf.function(product, jit_compile=True)(a, b).numpy()
    np.testing.assert_array_equal(Compiled(product)(a, b).numpy(), expected)


def test_nothing_is_traced_where_functions_run_eagerly(adding, eager):
    assert float(adding(np.ones(2, np.float32), False, None)[0]) == 3.0
    assert adding.traces == 0
