"""Refuses to import modules from run folders: a run may come from somebody else, and an import runs code."""

import functools
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from common.errors import UserError

_CODE = Path(__file__).resolve().parents[2]  # where this project's own modules are


@functools.cache
def _around(place: str, folders: frozenset[Path]) -> Path | None:
    """The first of the folders that a place lies in; looked up once for the many modules of one place."""
    resolved = Path(place).resolve()
    return next((folder for folder in folders if resolved.is_relative_to(folder)), None)


class _Refusal(importlib.abc.MetaPathFinder):
    """An import finder that comes before all others; it refuses some modules and finds none."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return
        is_link = os.path.islink(spec.origin)
        place = os.path.dirname(os.path.realpath(spec.origin) if is_link else os.path.abspath(spec.origin))
        folder = _around(place, frozenset(self.folders))
        if folder is not None:
            raise UserError(
                f"the module {name} lies in {folder}, beside a run or a preset file, and nothing is imported from "
                "there: move its file beside your own programs if you trust it"
            )


refusal = _Refusal()


def refuse(folder: Path) -> None:
    """From now on this process imports no module whose file lies in a folder.

    A folder that contains this project's own code is not refused.
    """
    folder = folder.resolve()
    if _CODE.is_relative_to(folder):
        return
    refusal.folders.add(folder)
    if refusal not in sys.meta_path:
        sys.meta_path.insert(0, refusal)


def refuse_runs(folder: Path) -> None:
    """`refuse` a folder of runs, unless Python also finds the user's own modules there."""
    own = {Path(entry or ".").resolve() for entry in sys.path} | {Path.cwd()}
    if not any(place.is_relative_to(folder.resolve()) for place in own):
        refuse(folder)
