"""Weights and normalisation of a trained agent, a run's or one that comes with the project, as the start of a run."""

import itertools
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
    "hidden_sizes", "activation", "mean_activation", "shared_torso", "layer_norm", "symmetry", "twin_critics",
    "critics", "crossq", "normalize_observations", "action_masks", "memory", "memory_size", "networks", "image_size",
    "convolutions",
)  # fmt: skip
"""Settings without which the same weights are another function."""


def start_from(agent: Any, config: Any) -> str:
    """Give an agent the weights and the normalisation of the one that `config.start_from` names, and say so in a line.

    Raises:
        UserError: there is no such agent, or it is of another method or has other networks.
    """
    source = config.start_from
    folders = Path(source), ROOT / "agents" / source, Path("runs") / source
    found = [folder / name for folder in folders for name in WEIGHTS if (folder / name).is_file()]
    if not found:
        raise UserError(f"start_from is {source!r:.80}: expected a run with weights, like runs/NAME, or walker")
    path, folder = found[0], found[0].parent
    files.check_plain(folder)
    try:
        content: Any = files.read_json(folder / "config.json")
        _check_alike(folder, content, config)
        state = arrays_file.read(path)
        fresh = _take_over(agent, _of_policy(state, content["config"]) if path.name == WEIGHTS[-1] else state)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{path} does not fit this run ({error}): name an agent with the same observations") from None
    return f"the weights begin as those of {folder}" + (f"; drawn anew: {', '.join(fresh)}" if fresh else "")


def _check_alike(folder: Path, content: dict[str, Any], config: Any) -> None:
    """Raises UserError if an agent is of another method, or was trained with settings that this run has to share."""
    if content["method"] != config.METHOD:
        raise UserError(f"{folder} was trained by {content['method']!r:.40}, not {config.METHOD}: name another agent")
    for name in ALIKE:
        before = getattr(type(config), name, None)  # where an older version wrote the settings
        ours, theirs = getattr(config, name, None), content["config"].get(name, before)
        if theirs != (list(ours) if isinstance(ours, tuple) else ours):
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{folder} was trained with {name} {theirs}, this run has {ours}: give it the same {flag}")


def _of_policy(arrays: State, settings: dict[str, Any]) -> State:
    """The file of a shipped policy as an agent names its weights; its statistics saw all steps of its training."""
    if policy_file.layout_of(arrays).get("kind") == "actor":  # it sees images, which are not normalised
        return {name: array for name, array in arrays.items() if name != policy_file.LAYOUT}
    network = policy_file.of_arrays(arrays).heads
    assert isinstance(network, Network), "policies of a file are plain"
    weights = [*network.arrays, *(np.log(head.values) for head in network.heads if isinstance(head, Constant))]
    state = {f"actor/{i}": array for i, array in enumerate(weights)}
    if network.normalize.shift is None or network.normalize.scale is None:
        return state
    count = np.array(float(settings["epochs"] * settings["steps_per_epoch"]))
    m2 = count / network.normalize.scale.astype(np.float64) ** 2
    return state | {"observations/count": count, "observations/mean": network.normalize.shift, "observations/m2": m2}


def _take_over(agent: Any, source: State) -> list[str]:
    """Give an agent what `source` has of its weights and normalisation; the networks and heads that stay as drawn.

    The other agent may have other heads or no critic. ValueError: its networks see other observations.
    """
    own = {name: np.array(array) for name, array in agent.parameters().items()}
    theirs, fresh, hidden = agent.layers(source), [], _hidden_arrays(agent)
    for name, arrays in agent.layers(own).items():
        known = name, name.removeprefix("target_"), "actor" if name == "network" else ""  # a shipped one
        found: list[np.ndarray] = next((theirs[other] for other in known if other in theirs), [])
        found = found if len(found) == len(arrays) else found[:hidden]  # heads of another kind
        fits = [*itertools.takewhile(lambda pair: pair[0].shape == pair[1].shape, zip(arrays, found))]
        if not fits and name in ("actor", "network"):
            raise ValueError("its networks see other observations")
        for array, other in fits:
            array[...] = other
        if len(fits) < len(arrays) and not name.startswith("target_"):
            fresh.append(f"the heads of the {name}" if fits else f"the {name}")
    taken = {n for n in own if n.startswith(("observations/", "statistics/", "log_temperature"))} & source.keys()
    if any(own[name].shape != source[name].shape for name in taken):
        raise ValueError("it normalises other observations, or has other layers that normalise")
    agent.load_parameters(own | {name: source[name] for name in taken})
    return fresh


def _hidden_arrays(agent: Any) -> int:
    """How many arrays an actor's hidden layers have."""
    from common.nets.keras_models import USUAL, Convolution, with_convolutions  # not above: it imports TensorFlow

    if agent.own_torso is not None:
        return len(agent.own_torso.made[0].weights)
    own = getattr(agent.config, "convolution_layers", None)  # other methods choose none
    convolutions = USUAL if own is None else tuple(Convolution(*layer) for layer in own)
    images = with_convolutions(agent.images, convolutions)
    layers = sum(len(of_image) for _, of_image in images) if images else len(convolutions) * agent.sees_images
    if images and sum(len(image.columns) for image in agent.images) < agent.observation_size - agent.mask_size:
        layers += 1  # that of the numbers
    memory = 3 if getattr(agent.config, "memory", "none") != "none" else 0
    return 2 * (layers + (len(agent.config.hidden_sizes) or 3)) + memory
