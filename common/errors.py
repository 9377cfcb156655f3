"""Faults a person can mend: one line that says what was wrong, what was expected and what to do."""


class UserError(Exception):
    """A foreseeable mistake; programs print its one line and exit with code 2."""
