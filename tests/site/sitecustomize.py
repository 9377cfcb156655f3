"""Python imports this when a process starts: XLA is left out there, too; see `conftest.processes_without_xla`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import without_xla

without_xla.install()
sys.path.pop()
