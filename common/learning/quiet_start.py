"""Imports TensorFlow without the lines its C++ side writes about graphics cards that are not there.

TF_CPP_MIN_LOG_LEVEL does not reach them: they are written before logging is set up. Whatever was
written is shown after all if the import fails.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def held_back_errors() -> Iterator[None]:
    """Keeps from the error stream what is written to it, unless an exception comes out; C++ code is heard too."""
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
        except BaseException:
            held_back.seek(0)
            os.write(error_stream, held_back.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(error_stream, 2)
            os.close(error_stream)


with held_back_errors():
    import tensorflow_probability  # noqa: F401  isort: skip  (after TensorFlow it would load all of its parts)
    import tensorflow as tf  # noqa: F401
