"""The mathematics in plain NumPy: no TensorFlow, no environments, no files."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np


def generalized_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Generalised advantage estimate, equations 11 and 16 of Schulman et al. 2016 (arXiv:1506.02438).

    δ_t = r_t + γ·V(s_{t+1})·(1 − terminated_t) − V(s_t);  Â_t = δ_t + γλ·(1 − ended_t)·Â_{t+1}

    ended_t is terminated_t or truncated_t. After a terminated step there is no value; a truncated step bootstraps from
    the value of its true final observation. Both end the recursion.

    Args:
        rewards: [T, N], scaled.
        values: [T+1, N]; under next-step autoreset `values[t+1]` is the value of the true final
            observation wherever step t ended an episode.
        terminated, truncated, valid: [T, N] bool; steps that are not valid get the advantage 0 and end the recursion.
        gamma, gae_lambda: in [0, 1].

    Returns:
        [T, N] float64, 0 where not valid.
    """
    ended = terminated | truncated  # [T, N]
    next_values = np.where(terminated, 0.0, values[1:])  # [T, N]
    delta = np.where(valid, rewards + gamma * next_values - values[:-1], 0.0)  # [T, N]
    carried = np.where(ended | ~valid, 0.0, gamma * gae_lambda)  # [T, N]
    advantages = np.empty_like(delta, dtype=np.float64)  # [T, N]
    following = np.zeros(delta.shape[1])  # [N]
    for t in range(len(delta) - 1, -1, -1):
        following = delta[t] + carried[t] * following
        advantages[t] = following
    return advantages


def rewards_to_go(
    rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray, gamma: float
) -> np.ndarray:
    """Discounted sums of the rewards that follow, without bootstrapping: G_t = r_t + γ·(1 − ended_t)·G_{t+1}.

    This is `generalized_advantages` with λ = 1 and all values 0; arguments and result have the same shapes.
    """
    nothing = np.zeros((len(rewards) + 1, rewards.shape[1]))  # [T+1, N]
    return generalized_advantages(rewards, nothing, terminated, truncated, valid, gamma, 1.0)


def episode_steps(valid: np.ndarray, carry: np.ndarray) -> np.ndarray:
    """Steps of the running episode, the current one included; 0 on an autoreset step.

    Args:
        valid: [T, N] bool; an autoreset step starts the count again.
        carry: [N] steps that the running episodes had taken before the epoch.

    Returns:
        [T, N] int64.
    """
    t = np.arange(len(valid))[:, None]  # [T, 1]
    last_reset = np.maximum.accumulate(np.where(valid, -1, t), axis=0)  # [T, N]
    return t - last_reset + np.where(last_reset < 0, carry, 0)  # [T, N]


def explained_variance(predicted: np.ndarray, target: np.ndarray) -> float:
    """1 − Var(target − predicted) / Var(target): 1 is perfect, 0 as good as a constant; NaN for a constant target."""
    if not len(target) or np.ptp(target) == 0:
        return float("nan")
    return float(1.0 - np.var(target - predicted) / np.var(target))


def linear_schedule(start: float, end: float, fraction: float) -> float:
    """Linear interpolation from `start` to `end` by `fraction`, which is clipped to [0, 1]."""
    return start + (end - start) * min(max(fraction, 0.0), 1.0)


def discount_schedule(start: float, end: float, fraction: float) -> float:
    """Interpolation between two discount factors below 1 by `fraction`, which is clipped to [0, 1].

    The horizon 1 / (1 − γ) changes geometrically: equal steps of `fraction` multiply it by equal factors.
    """
    fraction = min(max(fraction, 0.0), 1.0)
    return 1.0 - (1.0 - start) ** (1.0 - fraction) * (1.0 - end) ** fraction


def adapted_kl_coefficient(coefficient: float, divergence: float, target: float) -> float:
    """The coefficient β of the KL penalty after an update (Schulman et al. 2017, arXiv:1707.06347, section 4).

    It doubles if the update's KL `divergence` is above 1.5 · `target`, and halves if it is below `target` / 1.5.
    """
    if divergence > 1.5 * target:
        return 2.0 * coefficient
    return coefficient / 2.0 if divergence < target / 1.5 else coefficient


def standardize(samples: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Samples shifted and scaled so that the valid ones have mean 0 and standard deviation 1; arrays of one shape."""
    counted = samples[valid]
    return (samples - counted.mean()) / (counted.std() + 1e-8) if len(counted) else samples


def colored_noise(white: np.ndarray, exponent: float) -> np.ndarray:
    """Noise with the power spectrum 1/f^β over the steps of an epoch (Timmer & König 1995), β = `exponent`.

    Every number stays standard normal by itself, as Hollenstein et al. 2024 (arXiv:2312.11091) need it for a policy
    whose log-probabilities must hold; what changes is the correlation between neighbouring steps. The mean over
    the epoch has the power of the lowest frequency.

    Args:
        white: [T, ...] independent standard normal numbers.

    Returns:
        [T, ...] in the same dtype.
    """
    steps = len(white)
    frequencies = np.fft.rfftfreq(steps)  # [F]
    frequencies[0] = 1.0 / steps
    amplitudes = frequencies ** (-exponent / 2)  # [F]
    twice = np.full(len(frequencies), 2.0)  # [F] how many of the T frequencies, ± f, each stands for
    twice[0] = 1.0
    if steps % 2 == 0:
        twice[-1] = 1.0
    amplitudes /= np.sqrt((twice * np.square(amplitudes)).sum() / steps)  # so that the variance stays 1
    spectrum = np.fft.rfft(white, axis=0) * amplitudes.reshape(-1, *(1,) * (white.ndim - 1))  # [F, ...]
    return np.fft.irfft(spectrum, n=steps, axis=0).astype(white.dtype)


class RunningStatistics:
    """Mean and variance of all samples seen, updated batch by batch (Chan, Golub & LeVeque 1979).

    (count, mean, M2) of two sets give those of their union, so the result does not depend on how the samples are split
    into batches. M2 is the sum of squared deviations from the mean.

    Args:
        shape: of a sample.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape)  # [*shape]
        self.m2 = np.zeros(shape)  # [*shape] sum of squared deviations

    def update(self, samples: np.ndarray) -> None:
        """Merge samples [K, *shape]; K may be 0."""
        samples = np.asarray(samples, dtype=np.float64)
        added = len(samples)
        if added == 0:
            return
        mean = samples.mean(axis=0)
        m2 = np.square(samples - mean).sum(axis=0)
        total = self.count + added
        shift = mean - self.mean
        self.mean = self.mean + shift * (added / total)
        self.m2 = self.m2 + m2 + np.square(shift) * (self.count * added / total)
        self.count = total

    def merged(self, samples: np.ndarray) -> "RunningStatistics":
        """A copy with samples [K, *shape] merged into it."""
        merged = copy.copy(self)  # `update` writes into no array
        merged.update(samples)
        return merged

    @property
    def std(self) -> np.ndarray:
        """Population standard deviation [*shape]; 1 before the first sample."""
        return np.sqrt(self.m2 / self.count) if self.count > 0 else np.ones_like(self.m2)

    def state(self) -> dict[str, np.ndarray]:
        """Count [], mean and M2 (each [*shape]), for `load_state`."""
        return {"count": np.array(self.count, np.float64), "mean": self.mean.copy(), "m2": self.m2.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.count = float(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.m2 = np.array(state["m2"], dtype=np.float64)
