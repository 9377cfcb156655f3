"""Groups of environments that are stepped together: in this process, in EnvPool, in ale-py; see also `process_group`.

All restart an ended environment on its next step (next-step autoreset): that step ignores its action
and returns the reset observation.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import gymnasium
import numpy as np

from common.envs.seeded_episodes import Past


class Step(NamedTuple):
    """What a step of n environments returned.

    `terminated | truncated` is not always `ended`: where a game loses a life `terminated` says that nothing may be
    bootstrapped across it, but the game goes on, and the next step is an ordinary one.
    """

    observations: np.ndarray  # [n, *shape]
    rewards: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool: the task ended, or a life of it
    truncated: np.ndarray  # [n] bool: the time was up
    ended: np.ndarray  # [n] bool: the episode is over, the next step restarts it
    failed: np.ndarray | None = None  # [n] bool: the environment failed, so this was no step; None: in none
    replaced: np.ndarray | None = None  # [n] bool: another action was taken than the one sent; None: in none


class Fault(NamedTuple):
    """An environment that failed in the last step."""

    index: int  # in its group
    error: str  # one line
    details: str  # its traceback; empty where there is none


class Group(Protocol):
    """Environments that are stepped together. `send` starts a step, `recv` waits for its result.

    An environment that fails in a step seems to have stood still in it: its observation is the one before, its
    reward 0, its episode over, but neither terminated nor truncated. The next step begins another episode in a new
    environment. `faults` lists the failures of the last step until somebody empties it.

    What `recv` returns is valid until the next `send`.

    Attributes:
        parts: slices of environments that can only be brought back together.
    """

    num_envs: int
    faults: list[Fault]
    parts: list[slice]

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode in every environment; a seed decides it and all that follow. Observations [n, *shape]."""

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        """Bring some environments to where they were; `reset` with the seed of that time must have been before.

        Args:
            pasts: by the environment's index in the group; of a part all or none.

        Returns:
            Their last observations [len(pasts), *shape].

        Raises:
            UserError: an environment cannot be started.
        """

    def send(self, actions: np.ndarray) -> None:
        """Start a step with these actions [n, *action]."""

    def recv(self) -> Step:
        """What came of the step that was started last."""

    def close(self) -> None:
        """End processes and threads; `reset` with a seed begins again."""


@contextlib.contextmanager
def quiet_gymnasium() -> Iterator[None]:
    """Gymnasium's own warnings and errors are kept back: ours say the same in fewer words."""
    level = gymnasium.logger.min_level
    gymnasium.logger.min_level = gymnasium.logger.ERROR + 1
    try:
        yield
    finally:
        gymnasium.logger.min_level = level
