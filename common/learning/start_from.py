"""Weights and normalisation of a trained agent, a run's or one that comes with the project, as the start of a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from common import arrays_file, files
from common.errors import UserError
from common.nets.network import Constant, Network
from common.rollout import policy_file
from common.state import State

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ("best_agent.npz", "weights.npz", "policy.npz")  # of a run, of one that has not ended, of a shipped agent
ALIKE = (
    "hidden_sizes", "activation", "mean_activation", "shared_torso", "layer_norm", "symmetry",
    "normalize_observations",
)  # fmt: skip
"""Settings without which the same weights are another function."""


def start_from(agent: Any, config: Any) -> str:
    """Give an agent the weights and the normalisation of the one that `config.start_from` names.

    Returns:
        What it took over, and what begins anew, in a line.

    Raises:
        UserError: there is no such agent, or it is of another method or has other networks.
    """
    source = config.start_from
    places = Path(source), ROOT / "agents" / source, Path("runs") / source
    folder = next((place for place in places if (place / "config.json").is_file()), None)
    if folder is None:
        raise UserError(f"start_from is {source!r:.80}: expected a run, like runs/NAME, or an agent, like walker")
    files.check_plain(folder)
    trained = _settings(folder, config)
    path = next((folder / name for name in WEIGHTS if (folder / name).exists()), None)
    if path is None:
        raise UserError(f"{folder} holds no weights yet: train it until its first checkpoint, or name another run")
    state = arrays_file.read_as("weights", path, arrays_file.largest_file(), "a run")
    try:
        if path.name == WEIGHTS[-1]:
            state = _of_policy(state, trained["epochs"] * trained["steps_per_epoch"])
        fresh = agent.start_from(state)
    except (ValueError, TypeError, LookupError) as error:
        raise UserError(f"{path} does not fit this run ({error}): name an agent with the same observations") from None
    return f"the weights begin as those of {folder}" + (f"; drawn anew: {', '.join(fresh)}" if fresh else "")


def _settings(folder: Path, config: Any) -> dict[str, Any]:
    """The settings of a trained agent.

    Raises:
        UserError: it is of another method, or was trained with settings that this run has to share.
    """
    try:
        content: Any = files.read_json(folder / "config.json")
        method, trained = content["method"], dict(content["config"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{folder / 'config.json'} cannot be read ({type(error).__name__}): use another run") from None
    if method != config.METHOD:
        raise UserError(f"{folder} was trained with {method!r:.40}, this run is of {config.METHOD}: use another agent")
    for name in ALIKE:
        if not hasattr(config, name) or name not in trained:
            continue
        theirs, ours, flag = trained[name], getattr(config, name), name.replace("_", "-")
        if theirs != json.loads(json.dumps(ours)):
            typed = f"--{flag} {' '.join(map(str, theirs)) if isinstance(theirs, list) else theirs}"
            typed = f"--{'' if theirs else 'no-'}{flag}" if isinstance(theirs, bool) else typed
            raise UserError(f"{folder} was trained with {name} {theirs}, this run has {ours}: add {typed}")
    return trained


def _of_policy(arrays: State, steps: int) -> State:
    """The file of a shipped policy as an agent names its weights; `steps` of training are what its statistics saw."""
    if policy_file.layout_of(arrays).get("kind") == "actor":  # it sees images, which are not normalised
        return {name: array for name, array in arrays.items() if name != policy_file.LAYOUT}
    network = policy_file.of_arrays(arrays).heads
    assert isinstance(network, Network), "policies of a file are plain"
    weights: list[np.ndarray] = []
    for layer in (*network.hidden, *network.heads):
        weights += [np.log(layer.values)] if isinstance(layer, Constant) else [*layer[:2]]
    state = {f"actor/{i}": array for i, array in enumerate(weights)}
    if network.normalize.shift is None or network.normalize.scale is None:
        return state
    mean, std = (array.astype(np.float64) for array in (network.normalize.shift, 1 / network.normalize.scale))
    statistics = {"count": np.array(float(steps)), "mean": mean, "m2": std**2 * steps}
    return state | {f"observations/{name}": array for name, array in statistics.items()}
