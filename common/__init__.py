"""What every method shares; nothing here knows a method, its agent or its trainer."""

import os
import sys
import tempfile

# Set before TensorFlow is first imported, to hide the start-up messages of its C++ code. Variables that are set
# already are kept.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"  # whatever the shell sets for other programs
if "ipykernel" not in sys.modules:  # which shows its reader's figures; a program only writes files
    os.environ.pop("MPLBACKEND", None)  # Matplotlib, and Keras with it, refuses a backend that is not installed
# Processors differ in whether oneDNN is on by default. With it the gradients of convolutions take two thirds of the
# time (the log), and every process of a run must do the same arithmetic.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
# Windows without OpenGL: many of its libraries bring another LLVM than TensorFlow's, and crash in the same process.
os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
os.environ.setdefault("SDL_RENDER_DRIVER", "software")
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # SDL complains where there is none
