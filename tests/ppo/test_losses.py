"""The losses against numbers worked by hand, and the clip rule's zero-gradient regions exactly."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from common.records import Batch
from ppo import losses
from ppo.config import PPOConfig

fast = settings(max_examples=100, deadline=None, derandomize=True, database=None)
EPSILON = 0.2


def f32(*numbers: float) -> tf.Tensor:
    return tf.constant(numbers, tf.float32)


def log_ratios(*ratios: float) -> tf.Tensor:
    return tf.math.log(f32(*ratios))


def surrogate_gradients(ratios, advantages, clip_range=EPSILON) -> tf.Tensor:
    """d loss / d log π of each sample, of one batch."""
    log_prob = log_ratios(*ratios)
    with tf.GradientTape() as tape:
        tape.watch(log_prob)
        ones = tf.ones_like(log_prob)
        loss = losses.clipped_surrogate(log_prob, tf.zeros_like(log_prob), f32(*advantages), ones, clip_range)
    return tape.gradient(loss, log_prob)


# -- clipped_surrogate --


def test_clipped_surrogate_worked_by_hand():
    # ε = .2. min(r·Â, clip(r)·Â):
    # r = 1,   Â = 3:  min(3, 3)            = 3
    # r = 1.5, Â = 2:  min(3, 1.2·2)        = 2.4
    # r = 1.5, Â = −2: min(−3, −2.4)        = −3
    # r = .5,  Â = 2:  min(1, .8·2)         = 1
    # r = .5,  Â = −2: min(−1, −1.6)        = −1.6
    # sum 1.8; loss = −1.8 / 5 = −.36
    loss = losses.clipped_surrogate(
        log_ratios(1, 1.5, 1.5, 0.5, 0.5), tf.zeros(5), f32(3, 2, -2, 2, -2), tf.ones(5), EPSILON
    )
    assert float(loss) == pytest.approx(-0.36, abs=1e-6)


def test_clipped_surrogate_uses_the_ratio_of_new_to_old():
    # r = exp(log .9 − log .6) = 1.5, clipped to 1.2, Â = 2: loss = −2.4
    loss = losses.clipped_surrogate(log_ratios(0.9), log_ratios(0.6), f32(2), tf.ones(1), EPSILON)
    assert float(loss) == pytest.approx(-2.4, abs=1e-6)


@pytest.mark.xla
def test_the_clip_rule_holds_under_xla():
    ratios, advantages = [0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 2.0] * 2, [3.0] * 7 + [-3.0] * 7
    compiled = tf.function(lambda: surrogate_gradients(ratios, advantages), jit_compile=True)
    # d loss / d log π = −r·Â / 14; silent: Â > 0 at r = 1.21 and 2, Â < 0 at r = .5 and .79
    expected = -np.array(ratios) * np.array(advantages) / 14
    expected[[5, 6, 7, 8]] = 0
    found = compiled().numpy()
    assert (found[[5, 6, 7, 8]] == 0).all()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@fast
@given(
    st.lists(
        st.tuples(st.floats(0.05, 20), st.one_of(st.floats(0.01, 10), st.floats(-10, -0.01))), min_size=1, max_size=8
    ),
    st.sampled_from([0.05, 0.1, 0.2, 0.5]),
)
def test_within_a_batch_each_sample_follows_the_clip_rule(samples, clip_range):
    ratios, advantages = (np.array(part) for part in zip(*samples))
    # Rounding decides on the very edges of the range.
    assume((np.abs(np.abs(ratios - 1) - clip_range) > 1e-5).all())
    silent = ((advantages > 0) & (ratios > 1 + clip_range)) | ((advantages < 0) & (ratios < 1 - clip_range))
    gradients = surrogate_gradients(ratios, advantages, clip_range).numpy()
    assert (gradients[silent] == 0).all()
    expected = -(ratios * advantages)[~silent] / len(ratios)
    np.testing.assert_allclose(gradients[~silent], expected, rtol=1e-4)


# -- weights --


def test_weighted_mean_worked_by_hand():
    assert float(losses.weighted_mean(f32(1, 2, 100, 6), f32(1, 1, 0, 1))) == 3  # (1 + 2 + 6) / 3
    assert float(losses.weighted_mean(f32(1, 2), f32(0, 0))) == 0


LOG_PROB, OLD_LOG_PROB, X = [-0.3, 0.4, -1.0], [-0.1, 0.0, -1.1], [2.0, -1.0, 0.5]
OF_THREE = {
    "clipped_surrogate": lambda log_prob, old, x, w: losses.clipped_surrogate(log_prob, old, x, w, EPSILON),
    "approximate_kl": lambda log_prob, old, x, w: losses.approximate_kl(log_prob, old, w),
    "clip_fraction": lambda log_prob, old, x, w: losses.clip_fraction(log_prob, old, w, EPSILON),
    "squared_error": lambda log_prob, old, x, w: losses.squared_error(log_prob, x, w),
    "clipped_squared_error": lambda log_prob, old, x, w: losses.clipped_squared_error(log_prob, old, x, w, EPSILON),
    "smooth_l1": lambda log_prob, old, x, w: losses.smooth_l1(log_prob, x, w),
    "standardize": lambda log_prob, old, x, w: losses.standardize(x, w)[:3],
}


@pytest.mark.parametrize("name", OF_THREE)
@pytest.mark.parametrize(("log_prob", "old_log_prob", "x"), [(0.7, -0.2, 9.0), (-30.0, 0.0, -1e3), (100.0, 0.0, 0.0)])
def test_samples_of_weight_0_change_nothing(name, log_prob, old_log_prob, x):
    function = OF_THREE[name]

    def value_and_gradient(extra: bool) -> tuple[np.ndarray, np.ndarray]:
        inputs = [f32(*known, *[more] * extra) for known, more in zip((LOG_PROB, X), (log_prob, x))]
        old = f32(*OLD_LOG_PROB, *[old_log_prob] * extra)
        weights = f32(1, 1, 1, *[0] * extra)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = function(inputs[0], old, inputs[1], weights)
        gradients = tape.gradient(value, inputs, unconnected_gradients="zero")
        if extra:
            np.testing.assert_array_equal([gradient[3] for gradient in gradients], [0, 0])
        return value.numpy(), np.stack([gradient[:3] for gradient in gradients])

    without, with_extra = value_and_gradient(False), value_and_gradient(True)
    np.testing.assert_allclose(with_extra[0], without[0], rtol=1e-6)
    np.testing.assert_allclose(with_extra[1], without[1], rtol=1e-5, atol=1e-6)


def test_standardize_worked_by_hand():
    # of 1, 3, 8 with 8 not counting: mean 2, standard deviation 1
    np.testing.assert_allclose(losses.standardize(f32(1, 3, 8), f32(1, 1, 0))[:2], [-1, 1], rtol=1e-6)
    # of 1, 3, 8: mean 4, variance (9 + 1 + 16) / 3 = 8.6667, standard deviation 2.94392
    np.testing.assert_allclose(
        losses.standardize(f32(1, 3, 8), tf.ones(3)), np.array([-3, -1, 4]) / 2.94392, rtol=1e-5
    )
    np.testing.assert_array_equal(losses.standardize(f32(5, 5, 5), tf.ones(3)), [0, 0, 0])


def test_squared_error_worked_by_hand():
    # (1 − 3)² = 4, (2 − 2)² = 0, (5 − 4)² = 1: mean 5/3
    loss = losses.squared_error(f32(1, 2, 5), f32(3, 2, 4), tf.ones(3))
    assert float(loss) == pytest.approx(5 / 3, rel=1e-6)


# -- approximate_kl, clip_fraction --


def test_approximate_kl_worked_by_hand():
    # (r − 1) − log r: r = 2: 1 − .693147 = .306853; r = .5: −.5 + .693147 = .193147; mean .25
    assert float(losses.approximate_kl(log_ratios(2, 0.5), tf.zeros(2), tf.ones(2))) == pytest.approx(0.25, rel=1e-5)
    # seen from the other side, r = .9 / .6 = 1.5: .5 − .405465 = .094535
    kl = losses.approximate_kl(log_ratios(0.9), log_ratios(0.6), tf.ones(1))
    assert float(kl) == pytest.approx(0.094535, rel=1e-4)


@fast
@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=20))
def test_approximate_kl_is_never_negative(differences):
    log_prob = f32(*differences)
    for one in log_prob:
        assert float(losses.approximate_kl(one[None], tf.zeros(1), tf.ones(1))) >= 0
    assert float(losses.approximate_kl(log_prob, tf.zeros_like(log_prob), tf.ones_like(log_prob))) >= 0


def test_clip_fraction_worked_by_hand():
    ratios = log_ratios(0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 3.0)
    # outside [.8, 1.2]: .5, .79, 1.21, 3: 4 of 7
    assert float(losses.clip_fraction(ratios, tf.zeros(7), tf.ones(7), EPSILON)) == pytest.approx(4 / 7)
    # without .5 and 1.19: .79, 1.21, 3: 3 of 5
    weights = f32(0, 1, 1, 1, 0, 1, 1)
    assert float(losses.clip_fraction(ratios, tf.zeros(7), weights, EPSILON)) == pytest.approx(3 / 5)
    # outside [.5, 1.5] (edge included): 3 only
    assert float(losses.clip_fraction(ratios, tf.zeros(7), tf.ones(7), 0.5)) == pytest.approx(1 / 7)


# -- losses of values --


def test_clipped_squared_error_by_regions():
    # ε = .2, V_old = 1. The larger of (V − T)² and (1 + clip(V − 1, ±.2) − T)²:
    # V = 1.1, T = 2: inside the range, both .81
    # V = 1.5, T = 2: .25 and (1.2 − 2)² = .64 → .64, no gradient: it has moved far enough towards its target
    # V = .5,  T = 2: 2.25 and (.8 − 2)² = 1.44 → 2.25: it moved away, so it is pulled back
    # V = 2.5, T = 1: 2.25 and .04 → 2.25: it shot past
    value = tf.Variable(f32(1.1, 1.5, 0.5, 2.5))
    with tf.GradientTape() as tape:
        loss = losses.clipped_squared_error(value, f32(1, 1, 1, 1), f32(2, 2, 2, 1), tf.ones(4), EPSILON)
    assert float(loss) == pytest.approx((0.81 + 0.64 + 2.25 + 2.25) / 4, rel=1e-6)
    # d/dV (V − T)² / 4 = (V − T) / 2 where it learns
    np.testing.assert_allclose(tape.gradient(loss, value)[1:], [0, -0.75, 0.75], rtol=1e-6)


def test_smooth_l1_is_a_parabola_below_1_and_a_line_above():
    # d = .5: .125; d = 1: .5; d = 3: 2.5; the last sample does not count
    loss = losses.smooth_l1(f32(0.5, -1, 3, 9), f32(0, 0, 0, 0), f32(1, 1, 1, 0))
    assert float(loss) == pytest.approx((0.125 + 0.5 + 2.5) / 3, rel=1e-6)


def test_a_target_that_the_gradient_flows_through_worked_by_hand():
    """(V − (target + γ·V'))² with V = 1, target 0.5, γ 0.9 and V' = 2 is (1 − 2.3)² = 1.69; without V' it is 0.25."""
    ones = np.ones(1, np.float32)
    batch = Batch(**dict.fromkeys(Batch._fields, ones) | {"value_targets": ones / 2, "discounts": 0.9 * ones})
    config = PPOConfig(value_loss="squared")
    one, two = tf.constant([1.0]), tf.constant([2.0])
    scale = float(losses.value_loss(config, one, None, batch, None)) / 0.25  # of (1 − 0.5)²
    assert float(losses.value_loss(config, one, two, batch, None)) == pytest.approx(1.69 * scale)
