"""A network that acts as an ONNX file, which ONNX Runtime and many other programs run.

The graph is built node by node by `common.nets.network.forward`: a dense layer is a Gemm, a convolution a Conv.
Neither TensorFlow nor Keras has a part in it.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common.envs.mirrors import Entries
from common.envs.spaces import WHOLE, ActionMap, BoxMap
from common.errors import UserError
from common.nets.network import (
    ACTIVATIONS,
    OBSERVATION_CLIP,
    RULED_OUT,
    Convolution,
    Cut,
    Dense,
    LayerNormalization,
    Network,
    Normalizer,
    forward,
)
from common.nets.recurrent import GRU, LSTM
from common.rollout.policies import CategoricalPolicy, SamplingPolicy, SquashedPolicy

OPSET, IR_VERSION = 17, 8  # of 2022: ONNX Runtime reads them from version 1.12 on
INPUT, OUTPUT = "observations", "actions"
MEMORY, NEXT = "memory", "next_memory"  # further inputs and outputs of a policy that remembers
Policy = Callable[..., np.ndarray]
"""Raw observations [B, ...] → environment actions [B, *space.shape]. A policy that remembers also takes the memory
[B, Z], which it replaces by the next one."""


def can_write() -> bool:
    """Whether the packages that writing and checking an ONNX file needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def imported(name: str) -> Any:
    """A package that only ONNX files need. Raises UserError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"ONNX needs the package {name}: pip install -r requirements/export.txt") from None


class _Graph:
    """The nodes and the constants of a graph, and the operations of `forward` that add them; a value is its name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._onnx = imported("onnx")
        self.activations = {name: functools.partial(self, name.capitalize()) for name in ACTIVATIONS}
        self.activations["linear"] = functools.partial(self, "Identity")

    def __call__(self, operation: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or a list of names if there are several."""
        names = [f"{operation.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(self._onnx.helper.make_node(operation, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array: Any) -> str:
        """Add a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def normalized(self, observations: str, normalize: Normalizer) -> str:
        if normalize.shift is None or normalize.scale is None:
            return observations
        scaled = self("Mul", self("Sub", observations, self.constant(normalize.shift)), self.constant(normalize.scale))
        return self("Clip", scaled, *(self.constant(np.float32(end)) for end in (-OBSERVATION_CLIP, OBSERVATION_CLIP)))

    def linear(self, features: str, layer: Dense) -> str:
        return self("Gemm", features, self.constant(layer.kernel), self.constant(layer.bias))

    def convolved(self, features: str, layer: Convolution) -> str:
        kernel = self.constant(layer.kernel.transpose(3, 2, 0, 1))  # [out, in, size, size]
        channels_first = self("Transpose", features, perm=[0, 3, 1, 2])  # as ONNX has it
        strides = [layer.stride, layer.stride]
        result = self("Conv", channels_first, kernel, self.constant(layer.bias), strides=strides)
        return self("Transpose", result, perm=[0, 2, 3, 1])

    def layer_normalized(self, features: str, layer: LayerNormalization) -> str:
        arrays = self.constant(layer.scale), self.constant(layer.shift)
        return self("LayerNormalization", features, *arrays, axis=-1, epsilon=layer.epsilon)

    def scaled(self, features: str, scale: Any, shift: Any) -> str:
        scaled = self("Mul", features, self.constant(np.float32(scale)))
        return self("Add", scaled, self.constant(np.float32(shift)))

    def flattened(self, features: str) -> str:
        return self("Flatten", features, axis=1)

    def chosen(self, features: str, layer: Cut) -> str:
        chosen = self("Gather", features, self.constant(np.asarray(layer.columns, np.int64)), axis=1)
        return self("Reshape", chosen, self.constant(np.array((-1, *layer.shape), np.int64)))

    def beside(self, parts: list[str]) -> str:
        return self("Concat", *parts, axis=1)

    def cut(self, array: str, size: int) -> tuple[str, str]:
        return self.columns(array, 0, -size), self.columns(array, -size, np.iinfo(np.int64).max)

    def masked(self, logits: str, mask: str) -> str:
        allowed = self("Greater", mask, self.constant(np.float32(0)))
        return self("Where", allowed, logits, self.constant(np.float32(RULED_OUT)))

    def joined(self, one: str, other: str) -> str:
        return self("Concat", one, other, axis=0)

    def halves(self, both: str) -> tuple[str, str]:
        one, other = self("Split", both, outputs=2, axis=0)
        return one, other

    def mirrored(self, array: str, entries: Entries) -> str:
        sources = np.array(entries.sources, np.int64)
        moved = self("Gather", array, self.constant(np.abs(sources) - 1), axis=1)
        signed = self("Mul", moved, self.constant(np.sign(sources).astype(np.float32)))
        return self("Add", signed, self.constant(entries.offset)) if entries.offsets else signed

    def mixed(self, one: str, other: str, weight: float) -> str:
        shares = np.float32(1.0 - weight), np.float32(weight)
        return self("Add", *(self("Mul", x, self.constant(share)) for x, share in zip((one, other), shares)))

    def remembered(self, features: str, layer: GRU | LSTM, memory: str) -> str:
        axis, units = self.constant(np.array([0], np.int64)), layer.units  # one step of a sequence
        order = (0, 1, 2) if isinstance(layer, GRU) else (0, 3, 1, 2)  # of the gates in ONNX

        def ordered(array: Any) -> np.ndarray:
            """[..., gates · H]"""
            blocks = np.split(np.asarray(array), len(order), axis=-1)
            return np.concatenate([blocks[i] for i in order], axis=-1)

        other = layer.recurrent_bias if isinstance(layer, GRU) else np.zeros_like(layer.bias)
        parts = [self.columns(memory, first, first + units) for first in range(0, layer.memory_size, units)]
        arrays = ordered(layer.kernel).T, ordered(layer.recurrent_kernel).T, np.r_[ordered(layer.bias), ordered(other)]
        inputs = (
            self("Unsqueeze", features, axis), *(self.constant(array[None]) for array in arrays), "",
            *(self("Unsqueeze", part, axis) for part in parts),
        )  # fmt: skip
        how = {"linear_before_reset": 1} if isinstance(layer, GRU) else {}
        kind = type(layer).__name__
        _, *after = self(kind, *inputs, outputs=1 + len(parts), hidden_size=units, **how)  # [1, B, H] each
        return self("Concat", *(self("Squeeze", part, axis) for part in after), axis=1)

    def columns(self, outputs: str, start: int, end: int) -> str:
        limits = (self.constant(np.array([number], np.int64)) for number in (start, end, 1))  # the last is the axis
        return self("Slice", outputs, *limits)


def write_onnx(
    policy: SamplingPolicy, network: Network, action_map: ActionMap, observed: tuple[int, ...], file: Path
) -> None:
    """Write a deterministic policy: raw observations → environment actions [B, *space.shape].

    Observations are [B, S] float32, or images [B, height, width, channels] uint8. A policy that remembers also maps
    its memory [B, Z] to the next one.

    Args:
        policy: says what the output of the network's only head means.

    Raises:
        UserError: the package onnx is missing.
    """
    graph, onnx = _Graph(), imported("onnx")
    number, described = onnx.TensorProto.FLOAT, onnx.helper.make_tensor_value_info
    are_images, size = len(observed) > 1, network.memory_size
    numbers = graph("Cast", INPUT, to=number) if are_images else INPUT
    first, *memory = forward(graph, network, numbers, MEMORY if size else None)  # [B, X], [B, Z]
    start = first_action(action_map)  # [1, *space.shape]
    kind = onnx.helper.np_dtype_to_tensor_dtype(start.dtype)
    result = graph("Cast", _chosen(graph, first, policy, action_map, start), to=kind)
    graph.nodes.append(onnx.helper.make_node("Identity", [result], [OUTPUT]))
    inputs = [described(INPUT, onnx.TensorProto.UINT8 if are_images else number, ["batch", *observed])]
    outputs = [described(OUTPUT, kind, ["batch", *start.shape[1:]])]
    if size:
        graph.nodes.append(onnx.helper.make_node("Identity", memory, [NEXT]))
        inputs.append(described(MEMORY, number, ["batch", size]))
        outputs.append(described(NEXT, number, ["batch", size]))
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="programs.export",
    )
    onnx.checker.check_model(model, full_check=True)
    file.write_bytes(model.SerializeToString())


def _chosen(graph: _Graph, outputs: str, policy: SamplingPolicy, action_map: ActionMap, start: np.ndarray) -> str:
    """What an actor's first head [B, X] says to do, [B, *space.shape], with the first action [1, *space.shape]."""
    if isinstance(policy, CategoricalPolicy):
        ends = np.cumsum(policy.choices)
        parts = [graph.columns(outputs, int(end - n), int(end)) for end, n in zip(ends, policy.choices)]
        best = [graph("ArgMax", part, axis=1, keepdims=1) for part in parts]  # [B, 1] int64 each
        first = graph.constant(start.astype(np.int64).reshape(1, -1))
        actions = graph("Add", graph("Concat", *best, axis=1), first)  # [B, A]
    else:
        assert isinstance(action_map, BoxMap)
        if isinstance(policy, SquashedPolicy):
            outputs = graph("Tanh", graph.columns(outputs, 0, action_map.size))  # μ stands before log σ
        mapped = graph.scaled(outputs, action_map.scale, action_map.centre)
        rounded = graph("Round", mapped) if is_whole(action_map) else mapped
        low, high = map(graph.constant, float32_bounds(action_map))
        actions = graph("Min", graph("Max", rounded, low), high)  # [B, A]
    return graph("Reshape", actions, graph.constant(np.array((-1, *start.shape[1:]), np.int64)))


def first_action(action_map: ActionMap) -> np.ndarray:
    """A batch of one action, [1, *space.shape]; where choices are counted, counting begins with it."""
    return action_map(np.zeros((1, action_map.size), np.float32))


def is_whole(action_map: BoxMap) -> bool:
    """Whether actions are whole numbers, to which they are rounded."""
    return np.dtype(action_map.dtype).kind in "iub"


def float32_bounds(action_map: BoxMap) -> tuple[np.ndarray, np.ndarray]:
    """The bounds [A] as float32, rounded inwards: LiteRT can clip only this type, and ONNX is given the same."""
    low, high = action_map.low, action_map.high
    if low.dtype.kind in "iu":  # as `BoxMap` does; what rounds to 2⁶³ is no int64
        low, high = (np.clip(bound.astype(np.float64), -WHOLE, WHOLE) for bound in (low, high))
    down, up = low.astype(np.float32), high.astype(np.float32)  # [A], [A]
    inf = np.float32(np.inf)
    return np.where(down < low, np.nextafter(down, inf), down), np.where(up > high, np.nextafter(up, -inf), up)


def read_onnx(file: Path) -> Policy:
    """Load the policy of an ONNX file, as its user would."""
    runtime = imported("onnxruntime")
    session = runtime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return policy_of(lambda inputs: dict(zip(names, session.run(names, inputs))))


def policy_of(run: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Policy:
    """The policy of a function of a file's inputs, by name, that returns its outputs."""

    def act(observations: np.ndarray, memory: np.ndarray | None = None) -> np.ndarray:
        outputs = run({INPUT: observations} | ({} if memory is None else {MEMORY: memory}))
        if memory is not None:
            memory[:] = outputs[NEXT]
        return outputs[OUTPUT]

    return act
