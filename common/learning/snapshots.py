"""Parts of every agent: its best parameters so far, and its Adam optimisers."""

from collections.abc import Callable, Mapping

import keras
import numpy as np

State = dict[str, np.ndarray]
Adams = Mapping[str, keras.optimizers.Adam]


class Best:
    """The parameters that scored best so far, as copies.

    Attributes:
        metric: their score; −∞ before there are any.
        parameters: named arrays; None before there are any.
        replaced: the parameters that `adopt` replaced; empty otherwise.
    """

    def __init__(self) -> None:
        self.metric = -np.inf
        self.parameters: State | None = None
        self.replaced: State = {}

    def offer(self, metric: float, parameters: Callable[[], State]) -> bool:
        """Keep the present parameters if `metric` is at least the best so far; NaN never is."""
        if not metric >= self.metric:
            return False
        self.metric, self.parameters = float(metric), parameters()
        return True

    def adopt(self, present: Callable[[], State], load: Callable[[State], None]) -> None:
        """Load the best parameters in place of the present ones; without any, change nothing."""
        if self.parameters is not None:
            self.replaced = self.replaced or present()
            load(self.parameters)

    def leave(self, load: Callable[[State], None]) -> None:
        """Load what `adopt` replaced, so that training continues from there."""
        if self.replaced:
            load(self.replaced)
            self.replaced = {}

    def state(self) -> State:
        """The score and the parameters, as "best_metric" and "best/name"."""
        kept = self.parameters or {}
        metric = np.array(self.metric, np.float64)
        return {"best_metric": metric} | {f"best/{name}": array for name, array in kept.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; other names are ignored."""
        self.metric = float(state["best_metric"])
        kept = {name.removeprefix("best/"): array for name, array in state.items() if name.startswith("best/")}
        self.parameters = kept or None
        self.replaced = {}


def adams_state(adams: Adams) -> State:
    """Copies of all their variables, as "name/number"."""
    return {
        f"{name}/{i}": np.array(variable) for name, adam in adams.items() for i, variable in enumerate(adam.variables)
    }


def load_adams(adams: Adams, state: Mapping[str, np.ndarray]) -> None:
    """Restore what `adams_state` returned; other names are ignored."""
    for name, adam in adams.items():
        for i, variable in enumerate(adam.variables):
            variable.assign(state[f"{name}/{i}"])
