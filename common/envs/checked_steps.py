"""A user's own environment, checked in every step: what would be misread without an error is an error here."""

from numbers import Real
from typing import Any

import gymnasium
import numpy as np

from common.envs.environment_check import mismatch
from common.user_code import WrongReturnError


class CheckedSteps(gymnasium.Wrapper):
    """An environment that raises if an observation does not fit its space, or if a reward is no number.

    Without it a shape that changes would be broadcast, and whole numbers beyond their type would wrap around.
    `sys.exit()` in its code is an error of the environment, and not the end of the program.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's.

        Raises:
            WrongReturnError: the observation does not fit the space.
            RuntimeError: the environment's code ended the program.
        """
        with _NoExit():
            observation, info = self.env.reset(**options)
        self._check("reset", observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's.

        Raises:
            WrongReturnError: the observation does not fit the space, or the reward is no number.
            RuntimeError: the environment's code ended the program.
        """
        with _NoExit():
            observation, reward, terminated, truncated, info = self.env.step(action)
        self._check("step", observation)
        if not isinstance(reward, Real | np.bool_ | np.ndarray):
            raise WrongReturnError(f"step returned the reward {reward!r:.80}: expected a number")
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """As Gymnasium's.

        Raises:
            RuntimeError: the environment's code ended the program.
        """
        with _NoExit():
            return self.env.render()

    def _check(self, method: str, observation: Any) -> None:
        wrong = mismatch(self.env.observation_space, observation)
        if wrong is not None:
            raise WrongReturnError(f"{method} returned an observation{wrong}")


class _NoExit:
    """Within this context `sys.exit()` raises a RuntimeError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SystemExit):
            raise RuntimeError("it ended the program with sys.exit()") from error
