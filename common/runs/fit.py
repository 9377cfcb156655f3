"""Settings for an environment that is slow: short epochs, and few episodes that only score.

The defaults are made for environments of a thousand steps a second or more. At twenty steps a second an epoch of
theirs would take seven minutes.
"""

import functools
import math
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from common.config import TrainingConfig
from common.envs.action_masks import first_allowed
from common.envs.environment import Environment, environment_of
from common.envs.spaces import action_map, choices
from common.envs.vector_env import resolve_backend
from common.envs.worker_processes import cores, in_background
from common.progress import duration
from common.rollout.playing import STEP_BOUND
from common.runs.options import RunOptions
from common.user_code import closed

LONGEST_EPOCH = 30.0  # seconds; where the defaults take no longer, nothing is changed
LONGEST_SCORING = 900.0  # seconds of the evaluation or of a validation in one process; likewise
EPOCH = 20.0  # seconds of an epoch that is chosen
SHARE = 0.1  # of the training, that validations and the evaluation may take together
MEASURED = 0.5  # seconds in which it shows that an environment is fast
MEASURED_SLOW = 4.0  # seconds in which episodes of a slow one may end


class Pace(NamedTuple):
    """How long an environment takes, with random actions."""

    step: float  # seconds, resets included; 0 if it failed
    episode: float  # steps of the longest episode; NaN where none has ended


def fitted(
    config: Any, options: RunOptions, typed: Collection[str], say: Callable[[str], None]
) -> tuple[Any, RunOptions]:
    """The settings and options of a new run, which are chosen anew for a slow environment.

    Args:
        typed: names of the settings and options that stay.
        say: called with a line that tells what was chosen.

    Raises:
        UserError: the environment cannot be built.
    """
    environment = environment_of(config)
    backend = resolve_backend(config.backend, environment)
    if backend not in ("gymnasium", "processes"):  # compiled ones are fast
        return config, options
    pace = _pace(config, environment, backend, MEASURED)
    at_once = min(config.num_envs, cores()) if backend == "processes" else 1
    longest = LONGEST_EPOCH * at_once / type(config)().steps_per_epoch  # seconds of a step
    if pace.step <= longest and _scoring(config, options, typed, pace, environment) <= LONGEST_SCORING:
        return config, options
    pace = _pace(config, environment, backend, MEASURED_SLOW)
    if not pace.step:  # it failed, which training will tell
        return config, options
    before = config, options
    if pace.step > longest:
        config = config.replace(**_epoch(config, pace.step / at_once, typed))
    training = config.epochs * config.steps_per_epoch * pace.step / at_once
    # Of all validations, and as many of the evaluation.
    episodes = SHARE / 2 * training / (pace.step * _length(pace, environment))
    if "validation_episodes" not in typed:
        number = _round_number(episodes / _validations(config))
        config = config.replace(validation_episodes=min(number, config.validation_episodes))
    if "evaluation_episodes" not in typed:
        options = options.replace(evaluation_episodes=min(_round_number(episodes / 2), options.evaluation_episodes))
    if before != (config, options):
        milliseconds = f"{1000 * pace.step:,.0f}" if pace.step >= 0.001 else f"{1000 * pace.step:.1g}"
        say(
            f"{environment.id} is slow, at {milliseconds} ms a step: epochs have {config.steps_per_epoch:,} "
            f"steps (minibatches {config.minibatch_size}), a validation plays {config.validation_episodes} and the "
            f"evaluation {options.evaluation_episodes} + {options.evaluation_episodes} episodes, and stepping takes "
            f"about {duration(training)} in all; --steps-per-epoch, --minibatch-size, --validation-episodes, "
            "--evaluation-episodes and --epochs set other numbers"
        )
    return config, options


def _length(pace: Pace, environment: Environment) -> float:
    """How many steps an episode may last."""
    longest = environment.most_actions or STEP_BOUND
    return longest if math.isnan(pace.episode) else min(longest, 2 * pace.episode)


def _scoring(
    config: TrainingConfig, options: RunOptions, typed: Collection[str], pace: Pace, environment: Environment
) -> float:
    """Seconds of the evaluation or of a validation, whichever is longer, unless their episodes were typed."""
    episodes = 0 if "evaluation_episodes" in typed else 2 * options.evaluation_episodes
    if "validation_episodes" not in typed and config.best_metric == "validation":
        episodes = max(episodes, config.validation_episodes)
    return episodes * _length(pace, environment) * pace.step


def _epoch(config: Any, step: float, typed: Collection[str]) -> dict[str, int]:
    """How many steps an epoch has, and a minibatch: a quarter of an update's steps at most."""
    chosen: dict[str, int] = {}
    steps, together = config.steps_per_epoch, config.num_envs * config.updates_per_epoch
    if "steps_per_epoch" not in typed:
        least = config.minibatch_size * config.updates_per_epoch if "minibatch_size" in typed else 1
        wanted = math.ceil(max(EPOCH / step / together, least / together)) * together
        steps = chosen["steps_per_epoch"] = min(wanted, steps)
    if "minibatch_size" not in typed:
        chosen["minibatch_size"] = min(config.minibatch_size, max(1, steps // config.updates_per_epoch // 4))
    return chosen


def _validations(config: TrainingConfig) -> int:
    first, every = math.floor(config.validate_from[0] * config.epochs) + 1, config.validate_every
    return max(1, sum(epoch % every == 0 or epoch == config.epochs for epoch in range(first, config.epochs + 1)))


def _round_number(most: float) -> int:
    """The largest of 1, 2, 5, 10, 20, … that is at most `most`; else 1."""
    power = 10 ** math.floor(math.log10(max(1.0, most)))
    return next(power * digit for digit in (5, 2, 1) if digit == 1 or power * digit <= most)


def _pace(config: TrainingConfig, environment: Environment, backend: str, seconds: float) -> Pace:
    """`measured_pace`, for the backend of processes in one of its own, since the environment's code may crash it."""
    try:
        if backend == "gymnasium":
            return measured_pace(environment, seconds)
        work = functools.partial(measured_pace, environment, seconds)
        with in_background(work, config.environment_time_limit) as result:
            return result()
    except Exception:  # the environment is the user's code; training will tell
        return Pace(0.0, math.nan)


def measured_pace(environment: Environment, seconds: float) -> Pace:
    """The pace of one environment, from a thousand steps or those of so many seconds."""
    steps, length, longest, over, random = 0, 0, math.nan, False, np.random.default_rng(0)
    with closed(environment.make()) as env:
        observation, _ = env.reset(seed=0)
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds and steps < 1000:
            if over:
                longest, length = np.fmax(length, longest), 0
                observation, _ = env.reset()
            action = env.action_space.sample()
            if environment.action_masks:
                action = _allowed(env.action_space, observation, random)
            observation, _, terminated, truncated, _ = env.step(action)
            steps, length, over = steps + 1, length + 1, terminated or truncated
    return Pace(spent / max(1, steps), float(longest))


def _allowed(space: gymnasium.Space, observation: np.ndarray, random: np.random.Generator) -> Any:
    """A random one of the actions that the mask at the end of an observation [S + Σ choices] allows."""
    mask = observation[-sum(choices(space)) :]
    return action_map(space)(first_allowed(mask * (1 - random.random(len(mask))), space)[None])[0]
