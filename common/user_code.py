"""Describes errors raised by a user's own code in one line that names the place in their file; keeps others quiet."""

import contextlib
import os
import re
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import gymnasium

from common.errors import UserError

_HERE = Path(__file__).resolve().parent
_OURS = tuple(str(_HERE.parent / name) + os.sep for name in ("common", "ppo", "companions", "programs"))
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_LONGEST = 300  # characters of an error's message
_BOLD = re.compile("\x1b\\[1m(.+?)\x1b\\[0m", re.DOTALL)  # around what Keras says of an error within a layer
_MISSING = re.compile("ImportError|ModuleNotFoundError|DependencyNotInstalled")


@contextlib.contextmanager
def closed(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """Close an environment at the end of the context; errors of its `close` are ignored."""
    try:
        yield env
    finally:
        with contextlib.suppress(Exception, SystemExit):
            env.close()


@contextlib.contextmanager
def held_back_errors() -> Iterator[None]:
    """Keeps from the error stream what is written to it, unless an exception comes out; includes C++ output."""
    try:
        error_stream = os.dup(2)
    except OSError:  # no error stream, nothing to keep clean
        yield
        return
    with tempfile.TemporaryFile() as held_back:
        sys.stderr.flush()
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        except Exception:
            held_back.seek(0)
            os.write(error_stream, held_back.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(error_stream, 2)
            os.close(error_stream)


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """`sys.exit()` within it is a RuntimeError."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError("it ended the program with sys.exit()") from error


class WrongReturnError(Exception):
    """An environment returned what does not fit. The message tells all, so it is shown without type and traceback."""


class RaisedElsewhere(Exception):
    """An error of another process, as texts: what `describe`, `explain` and `own_traceback` say of it there."""

    def __init__(self, described: str, explained: str, trace: str) -> None:
        super().__init__(described, explained, trace)
        self.described, self.explained, self.trace = described, explained, trace


@contextlib.contextmanager
def told_elsewhere() -> Iterator[None]:
    """Within the context errors are raised as texts, which another process can read; a UserError stays as it is."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise RaisedElsewhere(describe(error), explain(error), own_traceback(error)) from None


def explain(error: BaseException) -> str:
    """'ValueError: message, at rocket.py, line 12, in reset'; without the place if no code is the user's."""
    if isinstance(error, RaisedElsewhere):
        return error.explained
    error, frames = _blamed(error)
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f", at {Path(error.filename).name}, line {error.lineno}"
    elif frames:
        last = frames[-1]
        place = f", at {Path(last.filename).name}, line {last.lineno}"
        place += f", in {last.name}" if last.name.isidentifier() else ""
    return describe(error) + place


def describe(error: BaseException) -> str:
    """'ValueError: message', in one line of at most 300 characters."""
    if isinstance(error, RaisedElsewhere):
        return error.described
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    if keras_says := _BOLD.search(message or ""):
        message = keras_says[1]
    first, *later = [line.strip() for line in (message or "").splitlines() if line.strip()] or [""]
    if first.endswith(":") and later:  # the reason follows
        first = f"{first} {later[0]}"
    shown = first if len(first) <= _LONGEST else first[: _LONGEST - 1] + "…"
    if isinstance(error, WrongReturnError):
        return shown
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


INSTALL = "install the package it needs"


def cure(error: BaseException, otherwise: str) -> str:
    """What to do about an error: install a package if one is missing."""
    return INSTALL if _MISSING.match(describe(error)) else otherwise


def is_users(error: BaseException) -> bool:
    """Whether the user's own code raised an error, directly or through what it called."""
    return bool(_blamed(error)[1])


def own_traceback(error: BaseException) -> str:
    """The part of a traceback that runs through the user's own files, or all of it if none does."""
    if isinstance(error, RaisedElsewhere):
        return error.trace
    if isinstance(error, WrongReturnError):
        return ""
    blamed, frames = _blamed(error)
    if not frames:
        return "".join(traceback.format_exception(error))
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join(lines + traceback.format_exception_only(blamed))


def _blamed(error: BaseException) -> tuple[BaseException, list[traceback.FrameSummary]]:
    """The first error of a chain with frames in the user's files, and those frames; else the error and no frames."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        frames = [frame for frame in traceback.extract_tb(link.__traceback__) if _is_users(frame.filename)]
        if frames or isinstance(link, SyntaxError):
            return link, frames
        link = link.__cause__ or link.__context__
    return error, []


def _is_users(filename: str) -> bool:
    """Whether a file belongs neither to this project, nor to Python, nor to an installed package."""
    return not filename.startswith((*_OURS, *_INSTALLED, "<frozen"))
