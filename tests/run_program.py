"""Programs called in this process, as if they were typed; and whether a process runs."""

import os
import sys
from pathlib import Path
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


def is_there(process: int) -> bool:
    """Whether a process runs; one that ended but was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between opening and reading
        pass
    if Path("/proc/self").exists():
        return False
    try:
        os.kill(process, 0)
        return True
    except OSError:
        return False
