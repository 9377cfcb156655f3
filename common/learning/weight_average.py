"""The mean of the weights of the last epochs, which is steadier than the last epoch's."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from common.state import State

if TYPE_CHECKING:  # TensorFlow is imported with an agent
    from common.learning.agent_base import AgentBase

STATISTICS = "observations/"  # of what is seen: they are a mean already


class WeightAverage:
    """An exponential moving average of an agent's weights, over epochs (Polyak and Juditsky 1992).

    Args:
        agent: whose weights are averaged.
        decay: weight of the past in the average, 0 to below 1; 0 is no average.
    """

    def __init__(self, agent: "AgentBase", decay: float) -> None:
        self._agent, self._decay = agent, decay
        self._mean: State = {}  # float64

    def follow(self) -> None:
        """Let the present weights enter the average; call it after each epoch's updates."""
        if not self._decay:
            return
        for name, weights in self._agent.parameters().items():
            if not name.startswith(STATISTICS):
                before = self._mean.get(name, weights).astype(np.float64)
                self._mean[name] = self._decay * before + (1.0 - self._decay) * weights

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the agent has the averaged weights; without an average, its own."""
        if not self._mean:
            yield
            return
        own = self._agent.parameters()
        self._agent.load_parameters(own | {name: mean.astype(own[name].dtype) for name, mean in self._mean.items()})
        try:
            yield
        finally:
            self._agent.load_parameters(own)

    def state(self) -> State:
        """The averaged weights, by their names; empty without an average, and before the first epoch."""
        return dict(self._mean)

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: the state holds an average, and the config is without one.
        """
        if state and not self._decay:
            raise ValueError("the checkpoint and the settings disagree about average_weights")
        self._mean = dict(state)
