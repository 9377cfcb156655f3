"""How far a long piece of work is, told between two steps to whoever follows it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("listener", default=None)


def tell(what: str, done: int, total: int) -> None:
    """Tell whoever follows this work that `done` of `total` are done; `what` is their name, such as "steps"."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what, done, total)


def duration(seconds: float) -> str:
    """'40 seconds', '2.5 minutes' or '3.1 hours'."""
    if seconds < 60:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 3600 else f"{seconds / 3600:.1f} hours"


@contextlib.contextmanager
def followed(
    show: Callable[[str], None], check: Callable[[], None] = lambda: None, every: float = 0.5
) -> Iterator[None]:
    """Follows the work of this context: `show` gets a text such as "240 of 400 steps" after `every` seconds or more.

    `check` is called between all steps; what it raises ends the work.
    """
    shown = time.monotonic()

    def listener(what: str, done: int, total: int) -> None:
        nonlocal shown
        check()
        now = time.monotonic()
        if now - shown >= every:
            shown = now
            show(f"{done:,} of {total:,} {what}")

    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
