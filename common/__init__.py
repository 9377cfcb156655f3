"""The pieces every method shares; nothing here knows an Agent or a Trainer by name but `load_agent`, which the
commands `python -m programs plot` and `python -m programs export` open finished runs with.
"""

import os
import tempfile

# Before TensorFlow is first imported: the start-up notices of its C++ side are no news to anyone. Setting a
# variable outside overrides it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # films are drawn in memory, on machines without a screen too
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # SDL complains where there is none
