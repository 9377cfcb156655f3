"""Builds environments from Gymnasium's registry, imports users' modules, and suggests names for mistyped ones."""

import contextlib
import difflib
import functools
import importlib
import json
import os
import re
import runpy
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium

from common.envs import atari
from common.envs.supported_spaces import without_texts
from common.errors import UserError
from common.user_code import INSTALL, cure, explain, held_back_errors, is_users

A_WRAPPER = "gymnasium.wrappers:FlattenObservation"
STACKED = "gymnasium.wrappers:FrameStackObservation(4)"


def make_registered(
    env_id: str,
    spec: gymnasium.envs.registration.EnvSpec | None,
    max_episode_steps: int | None,
    render_mode: str | None,
    env_kwargs: Mapping[str, Any],
) -> gymnasium.Env:
    """As `gymnasium.make`, with errors in one line.

    Args:
        env_id: a registered id, or `module:id`: the module, which may be in the current folder, registers the id.
        spec: the entry of the id, if it is known; the registry is not asked then.

    Raises:
        UserError: the module or the id is unknown, a package is missing, or the constructor failed.
    """
    module, colon, name = env_id.rpartition(":")
    if ":" in module or not name or (colon and not module):
        raise UserError(f"unknown environment {env_id!r}: expected an id, or module:id, like my_module:Mine-v0")
    if module:
        import_module(module, env_id)
    rendering = {} if render_mode is None else {"render_mode": render_mode}  # some constructors do not have it
    try:
        # "Out of date" notices are left out, for the user chose the version. So is what a library's environment
        # writes each time it is built, such as MuJoCo's warnings of its own models.
        quiet = contextlib.nullcontext() if module else held_back_errors()
        with warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore")
            return gymnasium.make(
                spec or name, max_episode_steps=max_episode_steps, disable_env_checker=True, **rendering, **env_kwargs
            )
    except gymnasium.error.DependencyNotInstalled as error:
        if "mujoco" in str(error).lower():
            raise UserError(f"{env_id} needs MuJoCo: pip install -r requirements/mujoco.txt") from error
        raise UserError(f"{env_id} needs a package that is missing: {error}") from error
    except (Exception, SystemExit) as error:
        is_registered = any(name in (id, id.rpartition("-v")[0]) for id in gymnasium.registry)
        if isinstance(error, gymnasium.error.Error) and not is_registered:
            raise (_not_registered_by(module, name) if module else unknown_environment(name)) from error
        raise constructor_error(env_id, error, env_kwargs) from error


@functools.cache
def gymnasiums_own() -> dict[str, gymnasium.envs.registration.EnvSpec]:
    """Id → entry of the environments that Gymnasium registers; a module may have replaced some in the registry."""
    registered = dict(gymnasium.registry)
    gymnasium.registry.clear()
    try:
        runpy.run_path(gymnasium.envs.__file__)
        return dict(gymnasium.registry)
    finally:
        gymnasium.registry.update(registered)


def wrapped(env_id: str, env: gymnasium.Env, names: Iterable[str]) -> gymnasium.Env:
    """The environment within wrappers, each named module:Class or module:Class(JSON, …); the last one is outermost.

    Raises UserError if a name is wrong, or a wrapper cannot be built.
    """
    for name in names:
        typed, bracket, inside = name.partition("(")
        module, _, kind = typed.partition(":")
        if not module or not kind or (bracket and not inside.endswith(")")):
            raise UserError(f"wrappers names {name!r}: expected module:Class, like {A_WRAPPER}")
        try:
            arguments = json.loads(f"[{inside[:-1]}]")
        except (ValueError, RecursionError):
            raise UserError(f"wrappers names {name!r}: expected JSON in the brackets, like {STACKED}") from None
        wrapper = getattr(import_module(module, name), kind, None)
        if not callable(wrapper):
            raise UserError(
                f"wrappers names {name!r}, but {module} has no class {kind}: expected one like {A_WRAPPER}"
            )
        try:
            inner = without_texts(env) if module.startswith("gymnasium.") else env  # which knows no texts
            env = wrapper(inner, *arguments)
        except (Exception, SystemExit) as error:
            advice = cure(error, f"expected a class of this environment and of arguments, if any, as in {STACKED}")
            raise UserError(f"{env_id} cannot be wrapped in {name} ({explain(error)}): {advice}") from error
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{name} returned {env!r:.80}: expected a gymnasium.Env")
    return env


def constructor_error(name: str, error: BaseException, env_kwargs: Mapping[str, Any]) -> UserError:
    """The error for an environment that cannot be built."""
    advice = cure(error, "fix it or choose another --env")
    if type(error) is OSError:  # a port or a device
        advice = "fix it or, if only one may exist at a time, use --num-envs 1"
    elif isinstance(error, TypeError) and env_kwargs and "argument" in str(error):
        advice = f"compare --env-kwargs ({', '.join(env_kwargs)}) with what it takes"
    elif isinstance(error, TypeError) and "required" in str(error) and not is_users(error):
        advice = """give what it needs as a JSON object, like --env-kwargs '{"size": 3}'"""
    return UserError(f"{name} cannot be built ({explain(error)}): {advice}")


def import_module(module: str, typed: str) -> ModuleType:
    """Import a module of the user's, which may be in the current folder; messages name it as `typed`, `module:name`.

    Raises UserError if it cannot be found, or its own code fails.
    """
    if module.endswith(".py") or not all(part.isidentifier() for part in module.split(".")):
        file = module.replace("/", ".").replace("\\", ".").removesuffix(".py").strip(".")
        better = re.sub(r"[^\w.]", "_", file)
        rename = f"rename {file}.py to {better}.py, and " if better != file and Path(f"{file}.py").is_file() else ""
        raise UserError(
            f"{typed!r}: a module's name has only letters, digits and underscores, and is typed without folder and "
            f".py: {rename}use {better}:{typed.partition(':')[2]}"
        )
    if os.getcwd() not in sys.path:  # sys.path has the folder of the script, not the current one
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module + ".").startswith(error.name + "."):
            raise UserError(
                f"{typed!r}: there is no module {module}; expected {module.replace('.', '/')}.py in the current "
                "folder, or an installed package"
            ) from error
        raise UserError(f"importing {module} failed ({explain(error)}): {INSTALL}") from error
    except Exception as error:
        raise UserError(f"importing {module} failed ({explain(error)}): {cure(error, 'fix it')}") from error
    except SystemExit as error:
        raise UserError(
            f"importing {module} ended the program: put what it runs below if __name__ == '__main__'"
        ) from error


def unknown_environment(env_id: str) -> UserError:
    """The error for an id that is not registered, with at most three whose names are like this one's or contain it."""

    def plain(id: str) -> str:
        return re.sub(r"-v\d+$", "", id).lower()

    newest = {plain(spec.id): spec.id for spec in sorted(gymnasium.registry.values(), key=lambda s: s.version or 0)}
    near = difflib.get_close_matches(plain(env_id), newest, n=3, cutoff=0.7)
    near += [name for name in newest if len(env_id) > 3 and plain(env_id) in name and name not in near]
    own = " (one of your own is named module:id)"
    if near:
        hint = f"did you mean {', '.join(newest[name] for name in near[:3])}?{own}"
    elif atari.may_be_a_game(env_id):
        hint = f"if it is an Atari game, {atari.INSTALL}"
    else:
        hint = f"see gymnasium.pprint_registry() for the names{own}"
    return UserError(f"unknown environment {env_id!r}: {hint}")


def _not_registered_by(module: str, name: str) -> UserError:
    """The error for an id that a user's module should have registered."""
    imported = getattr(sys.modules[module], "__file__", None)
    meant = Path.cwd().joinpath(*module.split(".")).with_suffix(".py")
    if meant.is_file() and (imported is None or Path(imported).resolve() != meant.resolve()):
        return UserError(
            f"{module} is also the name of another module ({imported or 'of Python'}), which was imported: rename "
            f"your {meant.name}, and use its new name in --env"
        )
    inside = [id for id, spec in gymnasium.registry.items() if (_home(spec) + ".").startswith(module + ".")]
    own = {id.lower(): f"{module}:{id}" for id in inside}
    if near := difflib.get_close_matches(name.lower(), own, n=3, cutoff=0.0):
        return UserError(f"{module} registers no {name!r}: use {' or '.join(own[id] for id in near)}")
    if isinstance(getattr(sys.modules[module], name, None), type):
        return UserError(
            f"{module} has the class {name}, but registers no environment: add the line "
            f'gymnasium.register("{name}-v0", {name}) to it and use --env {module}:{name}-v0'
        )
    return UserError(f'{module} registers no environment: add a line like gymnasium.register("Mine-v0", Mine) to it')


def _home(spec: gymnasium.envs.registration.EnvSpec) -> str:
    """The module in which an environment's class or function is defined."""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
