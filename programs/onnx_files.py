"""A policy that acts with plain arrays as an ONNX file, which ONNX Runtime and many other programs run.

The graph is built node by node from the policy's arrays: a dense layer is a Gemm, a convolution a Conv. Neither
TensorFlow nor Keras has a part in it.
"""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common.envs.mirrors import Entries, Sides
from common.envs.spaces import WHOLE, ActionMap, BoxMap
from common.errors import UserError
from common.rollout.policies import (
    OBSERVATION_CLIP,
    CategoricalPolicy,
    Constant,
    Convolved,
    Dense,
    DenseHeads,
    ImageLayers,
    Normalizer,
    SamplingPolicy,
    SquashedPolicy,
)

OPSET, IR_VERSION = 17, 8  # of 2022: ONNX Runtime reads them from version 1.12 on
ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "softplus": "Softplus"}
INPUT, OUTPUT = "observations", "actions"


def can_write() -> bool:
    """Whether the packages that writing and checking an ONNX file needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def imported(name: str) -> Any:
    """A package that only ONNX files need.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"ONNX needs the package {name}: pip install -r requirements/export.txt") from None


class Graph:
    """The nodes and the constants of a graph; each method adds one operation and returns its result's name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._onnx = imported("onnx")

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

    def model(self, result: str, observed: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """The whole model.

        Args:
            result: name of the actions.
            observed: shape of one observation; images are uint8, numbers float32.
            shape, dtype: of one action.
        """
        helper, proto = self._onnx.helper, self._onnx.TensorProto
        self.nodes.append(helper.make_node("Identity", [result], [OUTPUT]))
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        seen = proto.FLOAT if len(observed) == 1 else proto.UINT8
        graph = helper.make_graph(
            self.nodes,
            "policy",
            [helper.make_tensor_value_info(INPUT, seen, ["batch", *observed])],
            [helper.make_tensor_value_info(OUTPUT, kind, ["batch", *shape])],
            self.constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="programs.export",
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model


def write_onnx(
    policy: SamplingPolicy,
    heads: DenseHeads | ImageLayers,
    action_map: ActionMap,
    observed: tuple[int, ...],
    file: Path,
) -> None:
    """Write a deterministic policy: raw observations → environment actions [B, *space.shape].

    Observations are [B, S] float32, or images [B, height, width, channels] uint8.

    Args:
        policy: says what its heads mean.
        heads: of the policy.
        action_map: to the environment's actions.
        observed: shape of one observation.
        file: to write.

    Raises:
        UserError: the package onnx is missing.
    """
    graph = Graph()
    first = _first_head(graph, INPUT, heads) if isinstance(heads, DenseHeads) else _of_images(graph, heads)
    # [B, A], [B, 2A] or [B, Σ choices]
    some_action = action_map(np.zeros((1, action_map.size), np.float32))  # [1, *space.shape]
    if isinstance(policy, CategoricalPolicy):
        result = _likeliest(graph, first, policy.choices, some_action)
    else:
        if isinstance(policy, SquashedPolicy):
            first = graph("Tanh", _columns(graph, first, 0, action_map.size))  # μ stands before log σ
        assert isinstance(action_map, BoxMap)
        result = _mapped(graph, first, action_map)
    model = graph.model(result, observed, some_action.shape[1:], some_action.dtype)
    file.write_bytes(model.SerializeToString())


def _of_images(graph: Graph, layers: ImageLayers) -> str:
    """The first head of an actor that sees images [B, height, width, channels]; ONNX has channels first."""
    numbers = graph("Cast", INPUT, to=imported("onnx").TensorProto.FLOAT)
    features = graph("Transpose", graph("Mul", numbers, graph.constant(np.float32(1 / 255))), perm=[0, 3, 1, 2])
    for layer in layers.convolutions:
        features = _convolved(graph, features, layer)  # [B, filters, h, w]
    flat = graph("Flatten", graph("Transpose", features, perm=[0, 2, 3, 1]), axis=1)  # [B, h · w · filters]
    return _first_head(graph, flat, layers.dense)


def _convolved(graph: Graph, name: str, layer: Convolved) -> str:
    kernel = graph.constant(layer.kernel.transpose(3, 2, 0, 1))  # [out, in, size, size]
    result = graph("Conv", name, kernel, graph.constant(layer.bias), strides=[layer.stride, layer.stride])
    return _activated(graph, result, layer.activation)


def _first_head(graph: Graph, name: str, heads: DenseHeads) -> str:
    """What `DenseHeads` returns first."""
    features = _normalized(graph, name, heads.normalize)
    sides = heads.sides[0] if heads.sides else None
    if sides is not None:
        features = graph("Concat", features, _mirrored(graph, features, sides.inputs), axis=0)  # [2B, S]
    for layer in heads.hidden:
        features = _dense(graph, features, layer)
    head = heads.heads[0]
    assert not isinstance(head, Constant), "a policy's first head depends on the observation"
    output = _dense(graph, features, head)
    return output if sides is None else _mean_of_both(graph, output, sides)


def _normalized(graph: Graph, name: str, normalize: Normalizer) -> str:
    if normalize.shift is None or normalize.scale is None:
        return name
    shifted = graph("Sub", name, graph.constant(normalize.shift))
    scaled = graph("Mul", shifted, graph.constant(normalize.scale))
    least, most = (graph.constant(np.float32(bound)) for bound in (-OBSERVATION_CLIP, OBSERVATION_CLIP))
    return graph("Clip", scaled, least, most)


def _dense(graph: Graph, name: str, layer: Dense) -> str:
    product = graph("Gemm", name, graph.constant(layer.kernel), graph.constant(layer.bias))
    return _activated(graph, product, layer.activation)


def _activated(graph: Graph, name: str, activation: str) -> str:
    return name if activation == "linear" else graph(ACTIVATIONS[activation], name)


def _mirrored(graph: Graph, name: str, entries: Entries) -> str:
    """`Entries` as ONNX, [B, X] → [B, X]."""
    sources = np.array(entries.sources, np.int64)
    moved = graph("Gather", name, graph.constant(np.abs(sources) - 1), axis=1)
    signed = graph("Mul", moved, graph.constant(np.sign(sources).astype(np.float32)))
    return graph("Add", signed, graph.constant(entries.offset)) if entries.offsets else signed


def _mean_of_both(graph: Graph, name: str, sides: Sides) -> str:
    """[2B, X] → [B, X]; see `common.learning.mirrored`."""
    one, image = graph("Split", name, outputs=2, axis=0)
    own = graph("Mul", one, graph.constant(np.float32(1.0 - sides.weight)))
    other = graph("Mul", _mirrored(graph, image, sides.outputs), graph.constant(np.float32(sides.weight)))
    return graph("Add", own, other)


def _columns(graph: Graph, name: str, start: int, end: int) -> str:
    """[B, X] → [B, end − start]."""
    limits = (graph.constant(np.array([number], np.int64)) for number in (start, end, 1))  # the last is the axis
    return graph("Slice", name, *limits)


def _mapped(graph: Graph, name: str, action_map: BoxMap) -> str:
    """`BoxMap` as ONNX, [B, A] → [B, *space.shape]."""
    scaled = graph("Mul", name, graph.constant(action_map.scale.astype(np.float32)))
    mapped = graph("Add", scaled, graph.constant(action_map.centre.astype(np.float32)))
    if np.dtype(action_map.dtype).kind in "iub":
        mapped = graph("Round", mapped)
    low, high = float32_bounds(action_map.low, action_map.high)  # [A], [A]
    cut = graph("Min", graph("Max", mapped, graph.constant(low)), graph.constant(high))
    return _shaped(graph, cut, action_map.shape, np.dtype(action_map.dtype))


def float32_bounds(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds [A] as float32, rounded inwards: LiteRT can clip only this type, and ONNX is given the same."""
    if low.dtype.kind in "iu":  # as `BoxMap` does; what rounds to 2⁶³ is no int64
        low, high = (np.clip(bound.astype(np.float64), -WHOLE, WHOLE) for bound in (low, high))
    down, up = low.astype(np.float32), high.astype(np.float32)  # [A], [A]
    inf = np.float32(np.inf)
    return np.where(down < low, np.nextafter(down, inf), down), np.where(up > high, np.nextafter(up, -inf), up)


def _likeliest(graph: Graph, logits: str, choices: tuple[int, ...], some_action: np.ndarray) -> str:
    """Logits [B, Σ choices] → [B, *space.shape]; `some_action` [1, *space.shape] is where counting begins."""
    ends = np.cumsum(choices)
    values = [
        graph("ArgMax", _columns(graph, logits, int(end) - count, int(end)), axis=1, keepdims=1)
        for end, count in zip(ends, choices)
    ]  # [B, 1] int64 each
    joined = graph("Concat", *values, axis=1)  # [B, A]
    counted = graph("Add", joined, graph.constant(some_action.astype(np.int64).reshape(1, -1)))
    return _shaped(graph, counted, some_action.shape[1:], some_action.dtype)


def _shaped(graph: Graph, name: str, shape: tuple[int, ...], dtype: np.dtype) -> str:
    reshaped = graph("Reshape", name, graph.constant(np.array((-1, *shape), np.int64)))
    return graph("Cast", reshaped, to=imported("onnx").helper.np_dtype_to_tensor_dtype(dtype))


def read_onnx(file: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Load the policy of an ONNX file, as its user would; raw observations [B, ...] → actions."""
    runtime = imported("onnxruntime")
    session = runtime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda observations: session.run([OUTPUT], {INPUT: observations})[0]
