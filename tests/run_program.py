"""Programs called in this process, as if they were typed."""

import sys
from types import ModuleType

import pytest


def call(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *arguments: object) -> int:
    """The exit code of `module.main()` with these arguments."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    try:
        module.main()
    except SystemExit as stop:
        return stop.code
    return 0
