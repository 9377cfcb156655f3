"""The Normal policy against SciPy, and the 2021 study's stand-ins for log-probability and entropy."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from common.nets import distributions
from common.nets.network import MIN_STD

fast = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def rows(*numbers: list[float]) -> tf.Tensor:
    return tf.constant(numbers, tf.float32)


def random_policy(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """mean, std, actions, each [50, 3] float32."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=(50, 3)), rng.uniform(0.05, 3, size=(50, 3))
    actions = mean + std * rng.normal(size=(50, 3)) * 2
    return tuple(array.astype(np.float32) for array in (mean, std, actions))


def test_log_prob_and_entropy_are_scipys_summed_over_the_action_dimensions():
    mean, std, actions = random_policy()
    policy = distributions.normal_policy(mean, std)
    found = distributions.log_prob(policy, actions)
    np.testing.assert_allclose(found, norm.logpdf(actions, mean, std).sum(axis=1), rtol=1e-4, atol=1e-4)
    entropy = norm.entropy(mean, std).sum(axis=1)
    np.testing.assert_allclose(distributions.entropy(policy), entropy, rtol=1e-5, atol=1e-5)
    near = mean + std  # where densities are ordinary, the saturating one is the true one
    saturating = distributions.log_prob(policy, near, saturating=True)
    np.testing.assert_allclose(saturating, distributions.log_prob(policy, near), atol=1e-5)


def test_a_vanished_std_is_lifted_to_the_floor():
    policy = distributions.normal_policy(rows([0.5]), rows([0.0]))
    # at the mean: −log(1e-6) − .918939 = 13.815511 − .918939 = 12.896572
    assert float(policy.stddev()[0, 0]) == pytest.approx(MIN_STD)
    assert float(distributions.log_prob(policy, rows([0.5]))[0]) == pytest.approx(12.896572, abs=1e-4)


# -- saturating log-probability --


def test_saturating_log_prob_stops_at_log_1e_8_a_dimension():
    policy = distributions.normal_policy(rows([0, 0]), rows([1, 1]))
    far = rows([50, -70])
    # log(0 + 1e-8) = −18.420681 in each of two dimensions
    found = distributions.log_prob(policy, far, saturating=True)
    assert float(found[0]) == pytest.approx(2 * -18.420681, abs=1e-4)
    # the true one goes on: −½(50² + 70²) − 2 · .918939 = −3701.838
    assert float(distributions.log_prob(policy, far)[0]) == pytest.approx(-3701.838, abs=1e-2)


def test_saturating_log_prob_gives_no_gradient_where_it_has_saturated():
    mean = rows([0.0])
    for saturating, expected in ((True, 0.0), (False, 50.0)):  # d/dμ −½(a − μ)² = a − μ = 50
        with tf.GradientTape() as tape:
            tape.watch(mean)
            policy = distributions.normal_policy(mean, rows([1.0]))
            log_prob = distributions.log_prob(policy, rows([50.0]), saturating)
        assert float(tape.gradient(log_prob, mean)[0, 0]) == pytest.approx(expected)


# -- the density surrogate --


def std_of_density(*densities: float) -> tf.Tensor:
    """Standard deviations that give these densities at the mean: p = 1 / (σ √2π)."""
    return rows([1 / (p * np.sqrt(2 * np.pi)) for p in densities])


@pytest.mark.parametrize(
    ("densities", "surrogate"),
    [
        # Σ −p log p at the mean: .367879 + .346574 + 0 − 1.386294 = −.671841
        ((1 / np.e, 0.5, 1, 2), -0.671841),
        # It has no lower bound: −100 · log 100 = −460.517; −10,000 · log 10,000 = −92,103.4
        ((100,), -460.517),
        ((10_000,), -92_103.4),
    ],
)
def test_density_surrogate_worked_by_hand(densities, surrogate):
    mean = tf.zeros((1, len(densities)))
    policy = distributions.normal_policy(mean, std_of_density(*densities))
    assert float(distributions.density_surrogate(policy, mean)[0]) == pytest.approx(surrogate, rel=1e-5)
    # away from the mean: p = N(1; 0, 1) = .241971; −p log p = .241971 · 1.418939 = .343341
    policy = distributions.normal_policy(rows([0.0]), rows([1.0]))
    assert float(distributions.density_surrogate(policy, rows([1.0]))[0]) == pytest.approx(0.343341, abs=1e-5)


@fast
@given(st.floats(-5, 5), st.floats(1e-4, 50), st.floats(-4, 4))
def test_density_surrogate_is_at_most_1_over_e_a_dimension(mean, std, noise):
    policy = distributions.normal_policy(rows([mean, mean]), rows([std, std]))
    action = rows([mean + std * noise] * 2)
    found = float(distributions.density_surrogate(policy, action)[0])
    assert found <= 2 / np.e + 1e-5
    if (policy.prob(action).numpy() <= 1).all():
        assert found >= -1e-6


def pull_on_std(function, std: float) -> float:
    """d E[bonus] / dσ over actions of the policy itself, which are data and carry no gradient."""
    actions = tf.constant(std * np.random.default_rng(0).standard_normal((20_000, 1)), tf.float32)
    std = tf.constant([[std]], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(std)
        policy = distributions.normal_policy(tf.zeros((1, 1)), std)
        bonus = tf.reduce_mean(function(policy, actions))
    return float(tape.gradient(bonus, std)[0, 0])


# With p0 = 1 / (σ √2π) the integral is p0 / (σ √2) · ((log p0 + 1) / 2 + 1/8), so it changes sign where
# log p0 = −1.25, at σ = e^1.25 / √2π = 1.39:
# σ = .05: p0 = 7.9788, 112.84  · (3.0768 / 2 + .125) =  187.7
# σ = .2:  p0 = 1.9947, 7.0524  · (1.6905 / 2 + .125) =    6.843
# σ = 1:   p0 = .39894, .28209  · ( .0811 / 2 + .125) =     .0467
# σ = 10:  p0 = .03989, .002821 · (−2.2215 / 2 + .125) =   −.00278
@pytest.mark.parametrize(("std", "pull"), [(0.05, 187.7), (0.2, 6.843), (1.0, 0.0467), (10.0, -0.00278)])
def test_density_surrogate_widens_only_while_std_is_small(std, pull):
    assert pull_on_std(distributions.density_surrogate, std) == pytest.approx(pull, rel=0.05)


@pytest.mark.parametrize("std", [0.05, 1.0, 10.0])
def test_entropy_always_widens(std):
    # d/dσ log σ = 1/σ
    found = pull_on_std(lambda policy, _: distributions.entropy(policy), std)
    assert found == pytest.approx(1 / std, rel=1e-4)


def test_a_categorical_policy_has_as_many_choices_as_its_largest_number():
    policy = distributions.categorical_policy(tf.zeros((3, 6)), (2, 4))
    assert policy.logits_parameter().shape == (3, 2, 4)
