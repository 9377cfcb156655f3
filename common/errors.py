"""Errors that a user can fix. Their one line says what was wrong, what was expected and what to do."""


class UserError(Exception):
    """A mistake that the user can fix. Programs print its one line and exit with code 2."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"error: {self}"]


class StartError(UserError):
    """An environment cannot be built, or its reset failed."""


class NotFiniteError(UserError):
    """An environment or the policy returned NaN or infinity.

    Its line is `fault`, where that was and what to do about it, and `or_else`: what else can be done while the run
    still stops at such a fault.
    """

    def __init__(self, fault: str = "", or_else: str = "") -> None:
        super().__init__(fault + or_else)
        self.fault = fault


class DivergedError(UserError):
    """Training diverged to NaN or infinity. When a trainer raises it, the agent has its last good weights again."""


class StoppedError(Exception):
    """A signal stopped the run after it saved a checkpoint. Programs exit with code 128 + the signal's number."""

    def __init__(self, line: str, signal_number: int) -> None:
        super().__init__(line)
        self.exit_code = 128 + signal_number

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [str(self)]
