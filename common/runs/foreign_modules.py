"""Refuses to import modules from run folders: a run may come from somebody else, and an import runs code."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from common.errors import UserError

_CODE = Path(__file__).resolve().parents[2]  # where this project's own modules are


class _Refusal(importlib.abc.MetaPathFinder):
    """An import finder that comes before all others; it refuses some modules and finds none."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return
        file = Path(spec.origin).resolve()
        folder = next((folder for folder in self.folders if file.is_relative_to(folder)), None)
        if folder is not None:
            raise UserError(
                f"the module {name} lies in {folder}, where runs are kept and nothing is imported from: move its file "
                "beside your own programs if you trust it"
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
