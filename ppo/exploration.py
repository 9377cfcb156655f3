"""Exploration noise whose steps depend on each other."""

import numpy as np


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
