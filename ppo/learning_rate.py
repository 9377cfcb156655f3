"""A learning rate that follows how far updates move the policy."""

import math
from collections.abc import Mapping

import numpy as np

STEP = 1.15  # factor by which the rate changes
TOLERANCE = 1.3  # factor by which the divergence may miss the desired one before the rate changes
MAX_RATE_FACTOR = 20.0  # factor by which the rate may leave the one of its schedule


class RateByDivergence:
    """A factor of the learning rates, which keeps the KL divergence of updates near a desired one.

    Rudin et al. (2022, arXiv:2109.11978) adapt the learning rate of PPO in this way, between minibatches; here it
    changes between updates.

    Args:
        desired_kl: the wanted mean KL divergence of an update, in nats; None keeps the factor at 1.

    Attributes:
        factor: of the learning rates of the next update.
    """

    def __init__(self, desired_kl: float | None) -> None:
        self._desired = desired_kl
        self.factor = 1.0

    def follow(self, divergence: float) -> None:
        """Lower the factor after an update that moved the policy too far, raise it after one that did too little.

        Args:
            divergence: of the last update, in nats; NaN, for an update that was undone, changes nothing.
        """
        if self._desired is None or math.isnan(divergence):
            return
        if divergence > TOLERANCE * self._desired:
            self.factor = max(self.factor / STEP, 1 / MAX_RATE_FACTOR)
        elif divergence < self._desired / TOLERANCE:
            self.factor = min(self.factor * STEP, MAX_RATE_FACTOR)

    def state(self) -> dict[str, np.ndarray]:
        """The factor; nothing where it stays 1."""
        return {} if self._desired is None else {"factor": np.array(self.factor, np.float64)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: the factor is out of its range.
        """
        factor = float(state.get("factor", 1.0))
        if not 1 / MAX_RATE_FACTOR <= factor <= MAX_RATE_FACTOR:
            raise ValueError(f"the learning rate's factor is {factor}")
        self.factor = factor
