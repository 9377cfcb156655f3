"""Faults that change nothing that a test could see, and why."""

EQUIVALENT: dict[str, str] = {}
"""The fault's name → the reason that no test can notice it."""
