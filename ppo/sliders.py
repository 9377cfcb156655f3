"""The settings that may change during a run, as sliders: those of the dashboard and of the notebook."""

import math
from typing import NamedTuple

from ppo.live_settings import LiveHyperparameters


class Slider(NamedTuple):
    """The positions of a slider; those of a learning rate are logarithms to base 10."""

    low: float
    high: float
    step: float
    is_log: bool
    highest: float  # value at the upper end

    def position(self, value: float) -> float:
        """Where a value is shown; one below the lower end is shown there."""
        return value if not self.is_log else max(self.low, math.log10(max(value, 1e-99)))

    def value(self, position: float) -> float:
        """The value of a position, in three significant digits."""
        return min(self.highest, float(f"{10**position if self.is_log else position:.3g}"))


def sliders(live: LiveHyperparameters) -> dict[str, Slider]:
    """Name → slider of each value that has an effect in this run."""
    return {name: _slider(name, *ends) for name, ends in live.ranges.items() if name not in live.without_effect}


def _slider(name: str, low: float, high: float) -> Slider:
    if name == "learning_rate":
        return Slider(math.log10(high) - 4, math.log10(high), 0.01, True, high)
    return Slider(low, high, 1 if name == "passes" else (high - low) / 1000, False, high)
