"""The base of all agents: it keeps the best parameters, and saves and loads everything learned."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from common import arrays_file
from common.learning.snapshots import Best, adams_state, load_adams
from common.state import State


class AgentBase(ABC):
    """An agent has parameters, optimisers and a few counters; each method defines them.

    Attributes:
        config: the method's settings.
        adams: the optimisers by their names in a checkpoint.
        best: a copy of the best parameters so far.
    """

    adams: Mapping[str, keras.optimizers.Adam]

    def __init__(self, config: Any) -> None:
        self.config = config
        self.best = Best()

    @abstractmethod
    def parameters(self) -> State:
        """Copies of all that acting needs, by name."""

    @abstractmethod
    def load_parameters(self, state: State) -> None:
        """Restore what `parameters` returned; other names are ignored."""

    @abstractmethod
    def counters(self) -> State:
        """Whole numbers that change during training, by name."""

    @abstractmethod
    def load_counters(self, state: State) -> None:
        """Restore what `counters` returned; other names are ignored."""

    # -- best parameters --

    def keep_best(self, metric: float) -> bool:
        """Copy the present parameters if `metric` is at least the best so far; NaN never is."""
        return self.best.offer(metric, self.parameters)

    def adopt_best(self) -> None:
        """Go back to the copy that `keep_best` made; without one, change nothing."""
        self.best.adopt(self.parameters, self.load_parameters)

    def leave_best(self) -> None:
        """Undo `adopt_best`, so that training continues from what it had reached; otherwise change nothing."""
        self.best.leave(self.load_parameters)

    # -- state --

    def learned_state(self) -> State:
        """Copies of everything that an update changes."""
        return self.parameters() | adams_state(self.adams) | self.counters()

    def load_learned_state(self, state: State) -> None:
        """Restore what `learned_state` returned."""
        self.load_parameters(state)
        load_adams(self.adams, state)
        self.load_counters(state)

    def state(self) -> State:
        """`learned_state` and the best parameters."""
        return self.learned_state() | self.best.state()

    def load_state(self, state: State) -> None:
        """Restore what `state` returned for an agent of the same configuration."""
        self.load_learned_state(state)
        self.best.load_state(state)

    def training_state(self) -> State:
        """`state()` without the effect of `adopt_best`: what training continues from."""
        return self.state() | self.best.replaced

    def save_weights(self, path: str | Path) -> None:
        """Write `state()` to an .npz file of plain arrays, replacing it whole or not at all."""
        arrays_file.write_weights(Path(path), self.state())

    def read_weights(self, path: str | Path) -> None:
        """Load what `save_weights` wrote.

        Raises:
            UserError: missing, damaged, or of an agent with other networks.
        """
        self.load_state(arrays_file.read_weights(Path(path), self.state(), self.parameters()))
