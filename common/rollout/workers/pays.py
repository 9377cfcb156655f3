"""Whether workers would save time, from measured steps of the environment."""

import importlib.util
import math
import time
from typing import NamedTuple

import numpy as np

from common.envs import worker_processes
from common.envs.environment import Environment
from common.envs.spaces import is_image
from common.progress import duration
from common.user_code import closed

LONGEST = 0.5  # seconds of measuring
START = 15.0  # seconds in which Ray and its workers start
EACH = 0.05  # seconds an exchange for policies and steps on their way
WORTHWHILE = 0.8  # of the seconds that steps take in one process


class Measured(NamedTuple):
    """How many workers to take, and why."""

    workers: int
    line: str  # empty where there is nothing to say


def measured(environment: Environment, shards: int, epochs: int, steps_per_epoch: int, exchanges: int = 1) -> Measured:
    """How many workers of this machine would save time; 0 where steps are too quick, or where Ray is not installed.

    Args:
        environment: to be stepped.
        shards: into how many its copies are divided.
        epochs, steps_per_epoch: of the training.
        exchanges: how often in an epoch workers send what they have collected.
    """
    workers = min(worker_processes.cores(), shards)
    if workers < 2 or is_image(environment.observation_space):
        return Measured(0, "")
    each = step_seconds(environment)
    alone = each * epochs * steps_per_epoch
    shared = alone / workers + START + EACH * exchanges * epochs
    if shared > WORTHWHILE * alone:
        return Measured(0, "")
    found = f"a step of {environment.id} takes {1000 * each:.2g} ms, {duration(alone)} in this run"
    if importlib.util.find_spec("ray") is None:
        advice = f"would save about {duration(alone - shared)}: pip install -r requirements/cluster.txt"
        return Measured(0, f"{found}; {workers} worker processes {advice}")
    return Measured(
        workers, f"{found}: {workers} worker processes take over, which leaves {duration(shared)} (--workers 0: none)"
    )


def step_seconds(environment: Environment) -> float:
    """Seconds of a step with random actions, resets included; 0 if the environment fails, which training will tell."""
    return measured_pace(environment).step


class Pace(NamedTuple):
    """How long an environment takes, with random actions."""

    step: float  # seconds, resets included; 0 if it failed
    episode: float  # steps of the longest episode; NaN where none has ended


def measured_pace(environment: Environment, seconds: float = LONGEST) -> Pace:
    """The pace of one environment, from a thousand steps or those of so many seconds."""
    steps, length, longest, over = 0, 0, math.nan, False
    try:
        with closed(environment.make()) as env:
            env.reset(seed=0)
            began = time.perf_counter()
            while (spent := time.perf_counter() - began) < seconds and steps < 1000:
                if over:
                    longest, length = np.fmax(length, longest), 0
                    env.reset()
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                steps, length, over = steps + 1, length + 1, terminated or truncated
    except Exception:
        return Pace(0.0, math.nan)
    return Pace(spent / max(1, steps), float(longest))
