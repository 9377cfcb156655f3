"""A compiled function for many short calls, and networks that act by one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

ROWS_A_CALL = 8  # when acting, whatever their number


class Compiled:
    """A function of arrays that XLA compiles once for all arrays of the same shapes.

    In each call `tf.function` compares all arguments with those of its earlier traces, and each trace checks them
    again. For small networks this takes longer than the update itself (the log, 27 November). Here a dictionary of
    shapes finds the trace. Gradients through a call are not recorded.

    Args:
        function: takes arrays and Python values, and returns tensors. Python values, such as True, become part of
            what is compiled.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = tf.function(function, jit_compile=True, autograph=False)
        self._traces: dict[tuple[object, ...], Callable[..., Any]] = {}

    @property
    def traces(self) -> int:
        """How many times the function was traced so far."""
        return self._function.experimental_get_tracing_count()

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns for these arrays and Python values."""
        if tf.config.functions_run_eagerly():
            return self._function(*arguments)
        arrays = [argument for argument in arguments if _is_array(argument)]
        key = tuple((argument.shape, argument.dtype) if _is_array(argument) else argument for argument in arguments)
        trace = self._traces.get(key)
        if trace is None:
            trace = self._traces[key] = self._trace(arguments)
        return trace(*map(tf.convert_to_tensor, arrays))

    def _trace(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The function for arguments like these; it takes the arrays alone, as tensors."""
        described = [
            tf.TensorSpec(argument.shape, argument.dtype) if _is_array(argument) else argument
            for argument in arguments
        ]
        concrete = self._function.get_concrete_function(*described)
        variables = concrete.captured_inputs
        call = concrete.inference_fn.call_preflattened  # without checks of its arguments
        return lambda *tensors: call([*tensors, *variables])


def _is_array(argument: object) -> bool:
    return isinstance(argument, np.ndarray | np.generic)


class KerasHeads:
    """The outputs of a network that sees images, or cannot be described; it is the live one, not a copy.

    Args:
        compiled: of the network, inputs [ROWS_A_CALL, ...] → its outputs.
        normalize: raw observations → the network's inputs.
    """

    def __init__(self, compiled: Compiled, normalize: Callable[[np.ndarray], np.ndarray]) -> None:
        self.compiled, self._normalize = compiled, normalize

    def __call__(self, observations: np.ndarray) -> list[np.ndarray]:
        """Raw observations [n, ...] → each of its outputs, [n, ...]; one shape, so one compilation."""
        parts, inputs = [], self._normalize(observations)
        for first in range(0, len(inputs), ROWS_A_CALL):
            part = inputs[first : first + ROWS_A_CALL]
            missing = ROWS_A_CALL - len(part)
            padded = np.pad(part, [(0, missing)] + [(0, 0)] * (part.ndim - 1)) if missing else part
            parts.append([output.numpy()[: len(part)] for output in tf.nest.flatten(self.compiled(padded))])
        return [np.concatenate(outputs) for outputs in zip(*parts)]
