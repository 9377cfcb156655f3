"""Acting policies as files of plain arrays, which load in a moment and without TensorFlow.

Such a file holds what acting needs and nothing else: no critic, no optimiser. An array of JSON, the layout, says which
kind of policy it is and what the arrays are.
"""

from pathlib import Path
from typing import Any

import numpy as np

from common import arrays_file
from common.envs.mirrors import Entries, Sides
from common.errors import UserError
from common.nets.network import ACTIVATIONS, UNCHANGED, Constant, Dense, Network, Normalizer
from common.rollout.policies import CategoricalPolicy, DeterministicPolicy, NormalPolicy, SquashedPolicy
from common.state import State, pack_json, unpack_json

FORMAT = 1
LAYOUT = "layout"  # name of the array that holds the JSON
LARGEST_FILE = 16 * 2**20  # bytes
PlainPolicy = NormalPolicy | CategoricalPolicy | DeterministicPolicy | SquashedPolicy
KINDS: dict[str, type[PlainPolicy]] = {
    "normal": NormalPolicy,
    "categorical": CategoricalPolicy,
    "deterministic": DeterministicPolicy,
    "squashed": SquashedPolicy,
}


def kind_of(policy: PlainPolicy) -> str:
    """The name of a policy's kind, a key of KINDS."""
    return next(name for name, kind in KINDS.items() if isinstance(policy, kind))


def to_arrays(policy: PlainPolicy) -> State:
    """The arrays of a policy whose layers are dense; `of_arrays` makes the same policy of them."""
    network = policy.heads
    assert isinstance(network, Network), "a policy that sees images has no plain arrays"
    hidden: tuple[Any, ...] = network.hidden  # another layer has no kernel, so it is not lost in silence
    layout = {
        "format": FORMAT,
        "kind": kind_of(policy),
        "hidden": [layer.activation for layer in hidden],
        "heads": [head.activation if isinstance(head, Dense) else None for head in network.heads],
        "sides": [
            {"inputs": _entries(side.inputs), "outputs": _entries(side.outputs), "weight": side.weight}
            for side in network.sides
        ],
    }
    if isinstance(policy, CategoricalPolicy):
        layout["choices"] = list(policy.choices)
    if network.mask_size:
        layout["masks"] = True
    if isinstance(policy, DeterministicPolicy):
        layout["std"] = float(policy.std)
    arrays = {LAYOUT: pack_json(layout)}
    if network.normalize.shift is not None and network.normalize.scale is not None:
        arrays |= {"shift": network.normalize.shift, "scale": network.normalize.scale}
    layers: tuple[Any, ...]
    for name, layers in (("hidden", hidden), ("head", network.heads)):
        for i, layer in enumerate(layers):
            parts = layer._fields if isinstance(layer, Constant) else ("kernel", "bias")
            arrays |= {f"{name}/{i}/{part}": getattr(layer, part) for part in parts}
    return arrays


def _entries(entries: Entries) -> dict[str, list[float]]:
    return {"sources": [int(source) for source in entries.sources], "offsets": list(map(float, entries.offsets))}


def layout_of(arrays: State) -> dict[str, Any]:
    """What the arrays of a file are. Raises ValueError if they are not a policy, or a newer version wrote it."""
    if LAYOUT not in arrays:
        raise ValueError("it holds no policy")
    layout = unpack_json(arrays[LAYOUT])
    if not isinstance(layout, dict) or not isinstance(layout.get("format"), int):
        raise ValueError("it does not say what its arrays are")
    if layout["format"] > FORMAT:
        raise ValueError(f"it has format {layout['format']}, this code reads up to {FORMAT}: update the code")
    return layout


def of_arrays(arrays: State) -> PlainPolicy:
    """The policy that `to_arrays` was called with.

    Raises ValueError if the arrays are not those of a policy, or their shapes do not fit together.
    """
    try:
        policy, inputs = _policy(layout_of(arrays), arrays)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__} in what it says of its arrays") from None
    try:
        policy.act(np.zeros((1, inputs), np.float32))
    except (ValueError, IndexError):
        raise ValueError("its layers do not fit together") from None
    return policy


def _policy(layout: dict[str, Any], arrays: State) -> tuple[PlainPolicy, int]:
    """The policy, and how many numbers an observation has."""
    normalize = Normalizer(arrays["shift"], arrays["scale"]) if "shift" in arrays else UNCHANGED
    hidden = tuple(_dense(arrays, f"hidden/{i}", name) for i, name in enumerate(layout["hidden"]))
    heads = tuple(
        Constant(arrays[f"head/{i}/values"]) if name is None else _dense(arrays, f"head/{i}", name)
        for i, name in enumerate(layout["heads"])
    )
    if not heads:
        raise ValueError("it has no outputs")
    sides = tuple(
        Sides(_entries_of(side["inputs"]), _entries_of(side["outputs"]), float(side["weight"]))
        for side in layout["sides"]
    )
    mask_size = len(arrays["head/0/bias"]) if layout.get("masks") else 0
    kind, network = KINDS[layout["kind"]], Network(normalize, hidden, heads, sides, mask_size)
    [first, *_] = [layer for layer in (*hidden, *heads) if isinstance(layer, Dense)]
    inputs = len(first.kernel) + mask_size
    if kind is CategoricalPolicy:
        return CategoricalPolicy(network, tuple(layout["choices"])), inputs
    if kind is DeterministicPolicy:
        return DeterministicPolicy(network, float(layout["std"])), inputs
    return (NormalPolicy(network) if kind is NormalPolicy else SquashedPolicy(network)), inputs


def _dense(arrays: State, name: str, activation: str) -> Dense:
    if activation not in ACTIVATIONS:
        raise ValueError(f"it has an activation that is unknown here, {activation!r:.40}")
    return Dense(arrays[f"{name}/kernel"], arrays[f"{name}/bias"], activation)


def _entries_of(entries: dict[str, Any]) -> Entries:
    return Entries(tuple(map(int, entries["sources"])), tuple(map(float, entries["offsets"])))


def write(path: Path, policy: PlainPolicy) -> None:
    """Write a policy atomically."""
    arrays_file.write_weights(path, to_arrays(policy))


def read_arrays(path: Path) -> State:
    """The arrays of a file. Raises UserError if it is missing, damaged, or not a file of plain arrays."""
    return arrays_file.read_as("a policy", path, LARGEST_FILE, "python -m programs ship")


def read(path: Path) -> PlainPolicy:
    """The policy that `write` wrote. Raises UserError if the file is missing, damaged, or holds no policy."""
    arrays = read_arrays(path)
    try:
        return of_arrays(arrays)
    except ValueError as error:
        raise UserError(f"{path} cannot be read as a policy ({error}): use another copy") from None
