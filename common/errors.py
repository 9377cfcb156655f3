"""Faults a person can mend: one line that says what was wrong, what was expected and what to do."""


class UserError(Exception):
    """A foreseeable mistake; programs print its one line and exit with code 2."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"error: {self}"]


class NotFiniteError(UserError):
    """NaN or infinity from an environment or from the policy; the line names its place."""


class DivergedError(UserError):
    """Training came to NaN or infinity; the agent is back at its last good weights."""


class StoppedError(Exception):
    """A signal asked the run to stop, and it did so in good order."""

    def __init__(self, line: str, signal_number: int) -> None:
        super().__init__(line)
        self.exit_code = 128 + signal_number

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [str(self)]
