"""What must be typed before settings from a file may run somebody else's code, and the commands that contain it.

Modules in a run folder are never imported: a run may come from somebody else, and an import runs code.
"""

import contextlib
import functools
import importlib.machinery
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from common.config import TrainingConfig
from common.errors import UserError

_CODE = Path(__file__).resolve().parents[2]  # where this project's own modules are
_KNOWN = "common.hidden_speeds", "gymnasium.wrappers"  # modules of wrappers that do nothing but wrap, without a text


class Typed(NamedTuple):
    """What the user typed of a run's environment and networks; None if it was not typed."""

    env: str | None = None
    env_kwargs: str | Mapping[str, object] | None = None  # JSON, or parsed
    wrappers: Sequence[str] | None = None
    networks: str | None = None

    def settings(self) -> dict[str, object]:
        """The same as a config holds it; what is not JSON stays a text."""
        kwargs: object = self.env_kwargs
        if isinstance(kwargs, str):
            with contextlib.suppress(ValueError, RecursionError):
                kwargs = json.loads(kwargs)
        wrappers = None if self.wrappers is None else tuple(self.wrappers)
        return self._asdict() | {"env_kwargs": kwargs, "wrappers": wrappers}


def check_trusted(where: Path, config: TrainingConfig, typed: Typed) -> None:
    """Check that the user typed everything that could run somebody else's code.

    Raises:
        UserError: something has to be typed again.
    """
    needed, settings = _needed(config), typed.settings()
    if any(settings[name] != own for name, own in needed.items()):
        whose = "the networks" if "networks" in needed else "the environment"
        raise UserError(
            f"{whose} of {where} may import modules or read files: if you trust it, type it yourself "
            f"with{flags_again(config)}"
        )


def check_no_other_environment(folder: Path, config: TrainingConfig, typed: Typed) -> None:
    """Raises UserError if the user typed another environment than the run's, which is the one that is played."""
    env = typed.env
    if env is not None and env not in _names_of(config.env) and config.env not in _names_of(env):
        raise UserError(f"{folder} was trained on {config.env}, and plays on it alone: leave out --env {env}")
    for name, again in typed.settings().items():
        own = getattr(config, name)
        if name != "env" and again is not None and again != own:
            whose = folder if name == "networks" else f"the environment of {folder}"
            has, remedy = (f"the {name} {json.dumps(own)}", ", or type these") if own else (f"no {name}", "")
            raise UserError(f"{whose} has {has}: leave {_flag(name)} out{remedy}")


def _are_known(wrappers: Sequence[str]) -> bool:
    """Whether all wrappers are this project's or Gymnasium's, with arguments without texts, if any."""
    return all(name.partition(":")[0] in _KNOWN and '"' not in name for name in wrappers)


def _names_of(env: str) -> set[str]:
    """An environment's id, with and without its namespace and its version: ALE/Pong-v5, Pong-v5, ALE/Pong, Pong."""
    names = {env, env.rpartition("/")[2]}
    return names | {re.sub(r"-v\d+$", "", name) for name in names}


def _needed(config: TrainingConfig) -> dict[str, Any]:
    """Those settings of a config that must be typed again; empty for most environments."""
    texts = holds_text(config.env_kwargs)
    may_run_code = {
        "env": texts or ":" in config.env,
        "env_kwargs": texts,
        "wrappers": not _are_known(config.wrappers),
        "networks": ":" in (config.networks or ""),
    }
    return {name: getattr(config, name) for name, may in may_run_code.items() if may}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def flags_again(config: TrainingConfig) -> str:
    """The flags that `check_trusted` asks for, each after a space; empty for most environments."""
    words: list[str] = []
    for name, value in _needed(config).items():
        values = value if isinstance(value, tuple) else [json.dumps(value) if isinstance(value, dict) else value]
        words += [_flag(name), *values]
    # A name from somebody else may hold lines of its own.
    return f" {shlex.join(word if word.isprintable() else ascii(word) for word in words)}" if words else ""


def command(program: str, folder: PurePath, config: TrainingConfig) -> str:
    """The command that does something to a run, such as `resume`, as it has to be typed."""
    return f"python -m programs {program} {shlex.quote(folder.as_posix())}{flags_again(config)}"


def holds_text(value: object) -> bool:
    """Whether there is a text somewhere in a value, which may name a file or a module."""
    if isinstance(value, Mapping):
        return any(map(holds_text, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_text, value))
    return isinstance(value, str)


# -- modules in folders from somebody else --


@functools.cache
def _around(place: str, folders: frozenset[Path]) -> Path | None:
    """The first of the folders that a place lies in; looked up once for the many modules of one place."""
    resolved = Path(place).resolve()
    return next((folder for folder in folders if resolved.is_relative_to(folder)), None)


class Refusal:
    """An import finder that comes before all others and finds none."""

    folders: ClassVar[set[Path]] = set()

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raises UserError for a module in one of the folders."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return
        is_link = os.path.islink(spec.origin)
        place = os.path.dirname(os.path.realpath(spec.origin) if is_link else os.path.abspath(spec.origin))
        folder = _around(place, frozenset(cls.folders))
        if folder is not None:
            raise UserError(
                f"the module {name} lies in {folder}, beside a run or a preset file, and nothing is imported from "
                "there: move its file beside your own programs if you trust it"
            )


def refuse(folder: Path) -> None:
    """From now on this process imports no module whose file lies in a folder.

    A folder that contains this project's own code is not refused.
    """
    folder = folder.resolve()
    if _CODE.is_relative_to(folder):
        return
    Refusal.folders.add(folder)
    if Refusal not in sys.meta_path:
        sys.meta_path.insert(0, Refusal)


def refuse_runs(folder: Path) -> None:
    """`refuse` a folder of runs, unless Python also finds the user's own modules there."""
    own = {Path(entry or ".").resolve() for entry in sys.path} | {Path.cwd()}
    if not any(place.is_relative_to(folder.resolve()) for place in own):
        refuse(folder)
