"""What a run needs of its agent and its trainer; `common.learning` has the bases that provide it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from common.envs.environment import Environment
from common.envs.spaces import ActionMap
from common.results import EpochResult
from common.state import State

T = TypeVar("T")


class Agent(Protocol):
    """What a session needs of an agent."""

    @property
    def action_map(self) -> ActionMap:
        """Actions of the policy [n, A] → actions of the environment [n, *space.shape]."""

    def acting_policy(self) -> Any:
        """A frozen copy of the policy: raw observations → actions."""

    def read_weights(self, path: Path) -> None:
        """Restore what `save_weights` wrote.

        Raises:
            UserError: the file is missing, damaged or of another network.
        """

    def save_weights(self, path: Path) -> None:
        """Write all that acting and further training need; the file is replaced atomically."""


class Live(Protocol):
    """Settings that may be changed while a run trains."""

    def watch(self, folder: Path) -> None:
        """Write the settings to a file in the run folder, and read the file before every update."""


class Trainer(Protocol):
    """What a session needs of a trainer."""

    name: str
    config: Any  # the method's own TrainingConfig
    agent: Any  # an Agent
    played_environment: Environment
    epoch: int  # how many are trained
    results: list[Any]  # an EpochResult for each of them
    warn: Callable[[str], None]
    live: Any  # a Live; None where nothing may be changed while training

    @property
    def has_workers(self) -> bool:
        """Whether it was given workers."""

    @property
    def solved(self) -> bool:
        """Whether the last epoch's score has reached `stop_score`."""

    @property
    def result_type(self) -> type[EpochResult]:
        """The columns of its rows."""

    def train(self, epochs: int, on_epoch: Callable[[EpochResult], None]) -> dict[str, Any]:
        """Train for `epochs` more epochs, call `on_epoch` after each, and return the results dictionary."""

    def beside_training(self, play: Callable[[], T]) -> T:
        """What `play` returns, which builds environments."""

    def state(self) -> State:
        """Everything that changes during training; call it between two epochs."""

    def load_state(self, state: State) -> None:
        """Restore what `state` returned.

        Raises:
            LookupError, ValueError: the state is of another trainer.
        """

    def close(self) -> None:
        """Close the environments and end their processes."""


MakeTrainer = Callable[[Any], Trainer]  # from the method's own config
