"""Lets TensorFlow run graphs without XLA, which compiles two seconds for each trainer that a test builds."""

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

wanted = False
"""Whether functions that ask for XLA get it."""


class Patch(importlib.abc.MetaPathFinder):
    """Replaces `tf.function` once TensorFlow is imported; it is not imported for this alone."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """The usual one, with a loader that calls `patch`."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                patch(module)

            spec.loader.exec_module = load_and_patch
        return spec


def patch(tensorflow: ModuleType) -> None:
    """Let `tf.function` ignore `jit_compile` unless it is `wanted`."""
    function = tensorflow.function

    def without_xla(*arguments: object, jit_compile: bool | None = None, **options: object) -> object:
        return function(*arguments, jit_compile=jit_compile if wanted else None, **options)

    tensorflow.function = without_xla


def install() -> None:
    """Patch TensorFlow now, or when it is imported."""
    if "tensorflow" in sys.modules:
        patch(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, Patch())
