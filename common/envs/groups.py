"""The interface of a group of environments that are stepped together.

There are four: `gymnasium_group` (this process), `process_group` (a process each), `envpool_group` and `ale_group`.
All restart an ended environment on its next step (next-step autoreset): that step ignores its action and returns
the reset observation.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import gymnasium
import numpy as np

from common.envs.seeded_episodes import RestorePoint


class Step(NamedTuple):
    """What a step of n environments returned.

    `terminated | truncated` is not always `ended`. Where a game loses a life, `terminated` is set so that nothing is
    bootstrapped across it, but the game continues, and the next step is an ordinary one.
    """

    observations: np.ndarray  # [n, *shape]
    rewards: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool: the task ended, or a life was lost
    truncated: np.ndarray  # [n] bool: the time was up
    ended: np.ndarray  # [n] bool: the episode is over, the next step restarts it
    failed: np.ndarray | None = None  # [n] bool: the environment raised, so this was no step; None: none did
    replaced: np.ndarray | None = None  # [n] bool: another action was taken than the one sent; None: never
    infos: Mapping[int, Sequence[float]] = {}  # of an environment whose episode is over: what is logged of its info


class Fault(NamedTuple):
    """An environment that failed in the last step."""

    env_index: int  # its index in the group
    error: str  # one line
    details: str  # its traceback; empty if there is none


class Group(Protocol):
    """Environments that are stepped together. `send` starts a step, `recv` waits for its result.

    A method raises UserError if an environment cannot be started, or started again after it failed.

    If an environment fails in a step, that step returns the observation before, reward 0, and an episode that is
    over, but neither terminated nor truncated. The next step begins another episode in a new environment.

    The arrays that `recv` returns are valid until the next `send`.
    """

    num_envs: int  # n
    faults: list[Fault]  # failures are appended here; whoever reads them empties the list
    parts: list[slice]  # of environments that can only be restored together

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode in every environment: observations [n, *shape].

        A seed fixes this episode and all that follow; None begins the next one.
        """

    def restore(self, points: Mapping[int, RestorePoint]) -> np.ndarray:
        """Restore some environments to an earlier point; `reset` with the seed of that time must come before.

        `points` are by the environment's index in the group; of each part all environments or none. Returns their last
        observations [len(points), *shape].
        """

    def send(self, actions: np.ndarray) -> None:
        """Start a step with these actions [n, *action]."""

    def recv(self) -> Step:
        """Wait for the step that `send` started."""

    def close(self) -> None:
        """End processes and threads; `reset` with a seed starts new ones."""


@contextlib.contextmanager
def quiet_gymnasium() -> Iterator[None]:
    """Suppress Gymnasium's log messages within this context: our messages say the same in fewer words."""
    level = gymnasium.logger.min_level
    gymnasium.logger.min_level = gymnasium.logger.ERROR + 1
    try:
        yield
    finally:
        gymnasium.logger.min_level = level
