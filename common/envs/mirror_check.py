"""Whether an environment is as symmetric as its user says: random steps must look alike on both sides of the mirror.

Random actions favour no side. So in a symmetric environment that favours none at the start of its episodes, steps and
their mirror images have the same distribution, and with it the same means and covariances. These are compared. An
action that does nothing but scale the effect of something else is not seen in them.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import gymnasium
import numpy as np

from common.config import TrainingConfig
from common.envs import worker_processes
from common.envs.environment import Environment
from common.envs.groups import Fault, Group
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.mirror_settings import mirror_of
from common.envs.mirrors import Entries, Mirror, unmoved
from common.envs.spaces import action_map, choices
from common.errors import StartError, UserError

SEED = 0
PARTS = 64  # each begins with a reset, so that they are independent
ACTIONS, HELD = 16, 4  # random actions in a part, and for how many steps each is held, so that it has an effect
FEWEST_PARTS, FEWEST_ACTIONS = 32, 4  # that tell something, and in each of them
LARGEST_ERROR = 6.0  # standard errors; a true mirror's largest difference was 4.54 in 104 tries
SMALLEST_DIFFERENCE = 0.1  # of covariances, after division by standard deviations
MOST_NUMBERS = 500  # of an observation; covariances of more take too much memory
PATIENCE = 5  # times the limit of a step, that all steps in another process may take


def check_mirror(config: TrainingConfig, environment: Environment, warn: Callable[[str], None]) -> None:
    """Take random steps if the mirror or the environment's arguments are the user's own, and compare them.

    Raises:
        UserError: the steps contradict the mirror; the line names the entry, or the reward.
    """
    given = config.mirror_description
    own = given.observation or given.action
    if not (config.symmetry and given.check and (own or config.env_kwargs or config.wrappers)):
        return
    mirror = mirror_of(config, environment.observation_space, environment.action_space)
    assert mirror is not None, "`symmetry` is set"
    size = len(mirror.observation.sources)  # S
    if size > MOST_NUMBERS:
        warn(
            f"warning: the mirror of {environment.id} was not tested, because it has more than {MOST_NUMBERS} numbers"
        )
        return
    if config.backend == "processes":
        parts, fault = _steps_apart(environment, size, PATIENCE * config.environment_time_limit)
    else:
        parts, fault = random_steps(environment, size)
    if len(parts) < FEWEST_PARTS:
        why = fault or "random steps soon end its episodes"
        warn(f"warning: the mirror of {environment.id} was not tested: {why}")
    elif wrong := contradicted(parts, mirror):
        raise UserError(
            f"the mirror is contradicted by {sum(map(len, parts)) * HELD:,} random steps of {environment.id}, most in "
            f"{wrong}: "
            + (
                'correct it, or add "check": false to it if it is right but episodes start on one side'
                if own
                else "the known mirror does not hold with these --env-kwargs: give --no-symmetry, or your own --mirror"
            )
        )


# -- steps --


def random_steps(environment: Environment, size: int) -> tuple[list[np.ndarray], str]:
    """Parts of episodes, each [K, S + A + S + 2], and how the environment failed first, if it did.

    A row is an observation, an action, what it changes, its reward, and whether it ended the episode. Then what it
    changes counts as nothing. An action is held for HELD steps, and its rewards are added up. Discrete actions are [A]
    zeros but for a one in the place of each number's choice. Of an observation the newest S = `size` numbers count.
    """
    held = dataclasses.replace(environment, action_repeat=HELD * environment.action_repeat)
    group, generator, parts = GymnasiumGroup(held, 1), np.random.default_rng(SEED), []
    with contextlib.closing(group):
        for part in range(PARTS):
            rows: list[np.ndarray] = []
            try:
                if part == 0:
                    group.reset(SEED)
                for row in _rows(group, environment.action_space, size, generator):
                    rows += [row] if np.isfinite(row).all() else []
            except StartError as error:  # it is started again
                group.faults.append(Fault(0, str(error), ""))
            if sum(row[-1] == 0 for row in rows) >= FEWEST_ACTIONS:
                parts.append(np.array(rows))
    return parts, group.faults[0].error if group.faults else ""


def _rows(group: Group, space: gymnasium.Space, size: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """The rows of a part, [S + A + S + 2] each, until its environment fails."""
    before = group.reset(None)[0, :size].astype(np.float64)  # [S]
    for _ in range(ACTIONS):
        numbers, actions = _random_action(space, generator)  # [A], [1, *action]
        group.send(actions)
        step = group.recv()
        if step.failed is not None and step.failed[0]:
            return
        after, ended = step.observations[0, :size].astype(np.float64), step.ended[0]  # [S]
        yield np.concatenate([before, numbers, np.where(ended, 0.0, after - before), [step.rewards[0], ended]])
        before = group.reset(None)[0, :size].astype(np.float64) if ended else after


def _steps_apart(environment: Environment, size: int, time_limit: float) -> tuple[list[np.ndarray], str]:
    """`random_steps` in another process, because an environment of the backend "processes" may crash its own."""
    try:
        with worker_processes.in_background(lambda: random_steps(environment, size), time_limit) as result:
            return result()
    except (worker_processes.CannotStartError, UserError) as error:
        return [], str(error)


def _random_action(space: gymnasium.Space, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An action as a mirror takes it, [A], and as a group of one environment does, [1, *action]."""
    to_environment = action_map(space)
    if isinstance(space, gymnasium.spaces.Box):
        numbers = generator.uniform(-1, 1, to_environment.size).astype(np.float32)  # [A]
        return numbers, to_environment(numbers[None])
    chosen = generator.integers(0, choices(space))  # one for each number
    ones = [np.eye(count)[value] for count, value in zip(choices(space), chosen)]
    return np.concatenate(ones), to_environment(chosen[None].astype(np.float32))


# -- comparison --


def contradictions(parts: list[np.ndarray], entries: Entries, observed: int) -> np.ndarray:
    """By how much each covariance contradicts a mirror, [D, D] in standard deviations; 0: it does not.

    On the diagonal are also means of observations that differ by more than a standard deviation. Of the D numbers of
    `entries` S are `observed`. Each part, [K, D], is an independent sample of the difference between both sides.
    """
    means = np.array([part.mean(axis=0) for part in parts])  # [P, D]
    mean = means.mean(axis=0)  # [D]
    variance = np.mean([np.square(part - mean).mean(axis=0) for part in parts], axis=0)  # [D]
    spread = np.sqrt((variance + entries.unsigned(variance)) / 2) + 1e-9 * (1 + np.abs(mean))  # [D]
    total, squares = np.zeros((2, len(mean), len(mean)))  # [D, D] each; all parts' at once would be too large
    for part in parts:
        one = (part - mean) / spread  # [K, D]
        image = entries.linear(one)  # [K, D]
        difference = (one.T @ one - image.T @ image) / len(part)  # [D, D]
        total += difference
        squares += np.square(difference)
    found = _not_zero(total / len(parts), squares / len(parts), len(parts), SMALLEST_DIFFERENCE)  # [D, D]
    shifts = ((means - entries(means)) / (spread + 1e-3 * np.abs(mean)))[:, :observed]  # [P, S]
    moved = _not_zero(shifts.mean(axis=0), np.square(shifts).mean(axis=0), len(parts), 1.0)  # [S]
    found[range(observed), range(observed)] += np.minimum(moved, 2.0)
    return found


def _not_zero(mean: np.ndarray, mean_square: np.ndarray, samples: int, smallest: float) -> np.ndarray:
    """The sizes of means that are larger than `smallest` and than their error allows, 0 in place of the others."""
    error = np.sqrt(np.maximum(mean_square - np.square(mean), 0.0) / (samples - 1))
    size = np.abs(mean)
    return np.where((size > smallest) & (size > LARGEST_ERROR * error), size, 0.0)


def contradicted(parts: list[np.ndarray], mirror: Mirror) -> str:
    """At most three numbers in which the steps contradict a mirror most, for a message; empty if they do not."""
    whole = mirror.joint.beside(mirror.observation.linear).beside(unmoved(2))
    found = contradictions(parts, whole, len(mirror.observation.sources))  # [D, D]
    names = [f"observation entry {i} ({source})" for i, source in enumerate(mirror.observation.sources, 1)]
    of_actions = [f"action entry {i} ({source})" for i, source in enumerate(mirror.action.sources, 1)]
    names += [*of_actions, *names, "the reward", "the end of episodes"]  # [D]
    shares = found.sum(axis=0)  # [D]
    return ", ".join(dict.fromkeys(names[k] for k in np.argsort(-shares, kind="stable")[:3] if shares[k] > 0))
