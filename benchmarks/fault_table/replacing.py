"""Functions put in place of the program's, in this process."""

import importlib
import sys
from collections.abc import Callable


def replace(module: str, path: str, make: Callable[[Callable], Callable]) -> None:
    """Put `make(function)` in place of a function, under every name by which it was imported.

    Raises:
        AttributeError: there is no such function; the benchmark must follow the code.
    """
    owner: object = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    made = make(original)
    setattr(owner, name, made)
    for other in list(sys.modules.values()):
        for key, value in list(vars(other).items()) if hasattr(other, "__dict__") else ():
            if value is original:
                setattr(other, key, made)
