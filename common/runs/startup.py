"""What makes a program start sooner."""

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Leaves garbage uncollected while TensorFlow and the like are imported, and never looks through what they made.

    The imports make a million objects, hardly any of which is garbage. Once TensorFlow is there, this does nothing.
    """
    if "tensorflow" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
