"""Imports TensorFlow quickly, and without the lines its C++ side writes about graphics cards that are not there.

TF_CPP_MIN_LOG_LEVEL does not reach them: they are written before logging is set up. Whatever was
written is shown after all if the import fails.

No garbage is collected meanwhile, nor ever looked for among the objects that exist at the end: TensorFlow and Keras
make half a million when they are imported, hardly any of which is garbage. To look through them again and again takes
two seconds until the first update (the log, 27 November).
"""

import gc

from common.user_code import held_back_errors

collects = gc.isenabled()
gc.disable()
try:
    with held_back_errors():
        # First, because TensorFlow Probability loads all of its parts if TensorFlow is there already.
        import tensorflow_probability  # noqa: F401  isort: skip
        import keras  # noqa: F401
        import tensorflow as tf  # noqa: F401
finally:
    gc.freeze()
    if collects:
        gc.enable()
