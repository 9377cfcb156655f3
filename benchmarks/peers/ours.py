"""Trains a contestant of this project, and scores it on the way."""

import math
from typing import Any

import numpy as np
from peers.scoring import Act, Curve
from peers.tasks import Contestant, Task

from common.rollout.policies import InEpisodes
from programs.methods import METHODS


def acting(agent: Any) -> Act:
    """How an agent acts on the environment's own observations."""
    policy, action_map, noise = agent.acting_policy(), agent.action_map, np.random.default_rng(0)
    acting: InEpisodes

    def act(observations: np.ndarray, deterministic: bool, begins: bool) -> np.ndarray:
        nonlocal acting
        if begins:
            acting = InEpisodes(policy, len(observations))
        if observations.dtype != np.uint8:  # images stay as they are
            observations = observations.reshape(len(observations), -1).astype(np.float32)  # frames that are stacked
        drawn = None
        if not deterministic:
            drawn = noise.standard_normal((len(observations), action_map.noise_size), np.float32)
        return action_map(acting.act(observations, drawn))

    return act


def train(task: Task, contestant: Contestant, seed: int, steps: int, curve: Curve) -> Act:
    """Train, scoring into `curve`, which also notes the steps of the validations that the training plays for itself.

    Args:
        task, contestant: what is trained; the number of epochs follows from the steps.
        seed: of everything random.
        steps: of the environment.
        curve: filled on the way.

    Returns:
        How the trained agent acts.
    """
    method = next(method for method in METHODS.values() if contestant.method in method.presets)
    wrappers = task.wrappers + contestant.wrappers
    settings = {"env": task.env, "wrappers": wrappers, "seed": seed, **contestant.settings}
    config = method.presets[contestant.method].replace(**settings)
    epochs = math.ceil((task.schedule or steps) / config.steps_per_epoch)
    trainer = method.trainer(config.replace(epochs=epochs))

    def follow(row: Any) -> None:
        curve.validation_steps += row.validation_steps
        curve.follow(row.steps, acting(trainer.agent))

    try:
        trainer.train(math.ceil(steps / config.steps_per_epoch), on_epoch=follow)
        curve.follow(int(trainer.results[-1].steps), acting(trainer.agent), True)
        return acting(trainer.agent)
    finally:
        trainer.close()
