"""A user's own environment, checked in every step: what would be misread without an error is an error here."""

from typing import Any

import gymnasium

from common.envs.environment_check import check_reset, check_step


class CheckedSteps(gymnasium.Wrapper):
    """An environment that raises if what a reset or a step returns is not what Gymnasium and its space say.

    Without it a shape that changes would be broadcast, and whole numbers beyond their type would wrap around.
    `sys.exit()` in its code is an error of the environment, and not the end of the program.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's.

        Raises:
            WrongReturnError: a value does not fit the interface or the space.
            RuntimeError: the environment's code ended the program.
        """
        with _NoExit():
            returned = self.env.reset(**options)
        check_reset(self.env.observation_space, returned)
        return returned

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's.

        Raises:
            WrongReturnError: a value does not fit the interface or the space.
            RuntimeError: the environment's code ended the program.
        """
        with _NoExit():
            returned = self.env.step(action)
        check_step(self.env.observation_space, returned)
        return returned

    def render(self) -> Any:
        """As Gymnasium's.

        Raises:
            RuntimeError: the environment's code ended the program.
        """
        with _NoExit():
            return self.env.render()


class _NoExit:
    """Within this context `sys.exit()` raises a RuntimeError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SystemExit):
            raise RuntimeError("it ended the program with sys.exit()") from error
