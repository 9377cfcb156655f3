"""The mirror that a run's settings name or describe, checked against the environment's spaces."""

import re
from collections.abc import Sequence

import gymnasium
import numpy as np

from common.config import TrainingConfig
from common.envs.known_mirrors import KNOWN
from common.envs.mirrors import Entries, Mirror
from common.envs.spaces import choices, is_image
from common.errors import UserError

EXAMPLE = """'{"observation": [1, -2, -3], "action": [-1]}'"""


def mirror_of(
    config: TrainingConfig, observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> Mirror | None:
    """The mirror that a run's networks obey; None without `symmetry`.

    Raises:
        UserError: none is known, or it does not fit the spaces; the line names the entry.
    """
    if not config.symmetry:
        return None
    if is_image(observation_space):
        raise UserError(f"symmetry is for observations of numbers, {config.env} shows images: give --no-symmetry")
    name = re.sub(r"-v\d+$", "", config.env)
    known = KNOWN.get(config.env, KNOWN.get(name, Mirror(Entries(()), Entries(()))))
    given = config.mirror_description
    observation = Entries(given.observation) if given.observation else known.observation
    action = Entries(given.action) if given.action else known.action
    if not observation.sources or not action.sources:
        raise UserError(
            f"no mirror of {config.env} is known: add --mirror with observation and action, like {EXAMPLE}, or give "
            f"--no-symmetry (known: {', '.join(KNOWN)})"
        )
    size, is_box = gymnasium.spaces.flatdim(observation_space), isinstance(action_space, gymnasium.spaces.Box)
    numbers = gymnasium.spaces.flatdim(action_space) if is_box else sum(choices(action_space))
    _check("mirror observation", observation, observation.sources, size, "" if given.observation else config.env)
    _check("mirror action", action, action.sources, numbers, "" if given.action else config.env)
    if given.offset:
        observation = Entries(observation.sources, given.offset)
        _check("mirror offset", observation, given.offset, size)
    if isinstance(observation_space, gymnasium.spaces.Box):
        _check_bounds("mirror observation", observation, observation_space)
    if isinstance(action_space, gymnasium.spaces.Box):
        _check_bounds("mirror action", action, action_space)
    else:
        _check_choices("mirror action", action, choices(action_space))
    return Mirror(observation, action, given.weight)


def _check(name: str, entries: Entries, described: Sequence[float], size: int, known_of: str = "") -> None:
    """Raises UserError unless each number is described, and a mirror image of a mirror image is the original.

    `described` are the entries as in the settings. A known mirror is that of the environment `known_of`.
    """
    if len(described) != size:
        cure = f"; the known mirror of {known_of} fits no longer, describe one with --mirror or give --no-symmetry"
        raise UserError(
            f"{name} has {len(described)} entries: expected {size}, one for each number" + (cure if known_of else "")
        )
    for i, source in enumerate(entries.sources, start=1):
        if not 1 <= abs(source) <= size:
            raise UserError(f"{name}: entry {i} is {source}: expected 1 to {size}, or -1 to -{size}")
    numbers = np.arange(1.0, size + 1)  # [X]
    for i in map(int, np.flatnonzero(np.abs(entries(entries(numbers)) - numbers) > 1e-6)):
        partner = abs(entries.sources[i]) - 1
        raise UserError(
            f"{name}: entry {i + 1} is {described[i]:g} and entry {partner + 1} is {described[partner]:g}: expected "
            "entries with which a mirror image of a mirror image is the original"
        )


def _check_bounds(name: str, entries: Entries, space: gymnasium.spaces.Box) -> None:
    """Raises UserError unless a mirrored array lies within the space again."""
    lows, highs = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)  # [X], [X]
    mirrored = np.sort(np.stack([entries.linear(lows), entries.linear(highs)]), axis=0) + 0.0  # [2, X], and no −0
    for i, source in enumerate(entries.sources):
        if not np.allclose(mirrored[:, i], (lows[i], highs[i])):
            raise UserError(
                f"{name}: entry {i + 1} is {source}, whose range becomes {mirrored[0, i]:g} to {mirrored[1, i]:g} in "
                f"the mirror: expected {lows[i]:g} to {highs[i]:g}, the range of number {i + 1}"
            )


def _check_choices(name: str, entries: Entries, choices_: tuple[int, ...]) -> None:
    """Raises UserError unless the choices of one number of an action become those of one number."""
    numbers = np.repeat(np.arange(len(choices_)), choices_)  # [Σ choices] which number a choice belongs to
    for i, source in enumerate(entries.sources):
        first = int(np.flatnonzero(numbers == numbers[i])[0])
        if source < 0:
            raise UserError(f"{name}: entry {i + 1} is {source}: a choice has no sign, leave the minus out")
        if numbers[source - 1] != numbers[entries.sources[first] - 1]:
            raise UserError(
                f"{name}: entries {first + 1} and {i + 1} are choices of one number, but their mirror images "
                f"{entries.sources[first]} and {source} are not"
            )
