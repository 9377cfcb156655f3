"""Runs a script of CleanRL unchanged, and scores its agent each time that it reports its speed.

The scripts need Gymnasium 0.29, so this runs in an environment of its own, without this project's packages.
"""

import inspect
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from peers.scoring import Act, Curve
from peers.tasks import Contestant, Task


def acting(script: dict[str, Any]) -> Act:
    """How the agent among a script's global variables acts on the environment's own observations."""
    agent, env = script["agent"], script["envs"].envs[0]
    while not isinstance(env, gymnasium.wrappers.NormalizeObservation) and env is not env.unwrapped:
        env = env.env
    statistics = getattr(env, "obs_rms", None)
    space = env.unwrapped.action_space

    def act(observations: np.ndarray, deterministic: bool, _: bool) -> np.ndarray:
        if statistics is not None:
            observations = (observations - statistics.mean) / np.sqrt(statistics.var + 1e-8)
            observations = np.clip(observations, -10, 10)
        with torch.no_grad():
            seen = torch.tensor(observations, dtype=torch.float32)
            if not deterministic:
                chosen = agent.get_action_and_value(seen)[0]
            elif isinstance(space, gymnasium.spaces.Discrete):
                chosen = agent.actor(seen).argmax(-1)
            else:
                chosen = agent.actor_mean(seen)
        actions = chosen.numpy()
        return actions if isinstance(space, gymnasium.spaces.Discrete) else np.clip(actions, space.low, space.high)

    return act


def train(task: Task, contestant: Contestant, seed: int, steps: int, curve: Curve, clone: Path) -> Act:
    """Run the script from a clone of CleanRL, scoring into `curve`; how the trained agent acts."""
    torch.set_num_threads(1)
    seen: dict[str, Any] = {}

    class Writer:
        """Stands for TensorBoard's writer."""

        def __init__(self, _: str) -> None:
            pass

        def add_text(self, *_: Any) -> None:
            pass

        def add_scalar(self, name: str, _: float, step: int) -> None:
            if name == "charts/SPS":  # the last value that an iteration writes
                seen.update(inspect.currentframe().f_back.f_globals)  # type: ignore[union-attr]
                curve.follow(step, acting(seen))

        def close(self) -> None:
            pass

    tensorboard = types.ModuleType("torch.utils.tensorboard")
    tensorboard.SummaryWriter = Writer  # type: ignore[attr-defined]
    sys.modules["torch.utils.tensorboard"] = tensorboard
    typed = [f"--{name.replace('_', '-')}={value}" for name, value in contestant.settings.items()]
    path = clone / "cleanrl" / f"{contestant.method}.py"
    sys.argv = [
        str(path),
        f"--env-id={contestant.env or task.env}",
        f"--seed={seed}",
        f"--total-timesteps={steps}",
        "--no-cuda",
        *typed,
    ]
    runpy.run_path(str(path), run_name="__main__")
    curve.follow(int(seen["global_step"]), acting(seen), True)
    return acting(seen)
