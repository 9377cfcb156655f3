"""Action masks: an environment says which choices it allows, and its observations carry that as 0 and 1."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from common.envs.spaces import choices
from common.user_code import WrongReturnError, no_exit


class WithActionMask(gymnasium.Wrapper):
    """An environment whose action mask stands behind each observation, [S] → [S + Σ choices]."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space, size = env.observation_space, sum(choices(env.action_space))
        assert isinstance(space, gymnasium.spaces.Box), "`find_environment` makes sure of it"
        no, yes = np.zeros(size, space.dtype), np.ones(size, space.dtype)
        low, high = np.append(space.low, no), np.append(space.high, yes)
        row: Any = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)
        row.images = getattr(space, "images", ())  # which stand where they stood
        self.observation_space = row

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """As Gymnasium's; errors as of `action_mask`."""
        observation, info = self.env.reset(**options)
        return np.append(observation, action_mask(self.env, info)), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's; errors as of `action_mask`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        mask = action_mask(self.env, info, bool(terminated or truncated))
        return np.append(observation, mask), reward, terminated, truncated, info


def action_mask(env: gymnasium.Env, info: Mapping[str, Any], is_over: bool = False) -> np.ndarray:
    """Which choices are allowed: [Σ choices] bool, first those of the first action dimension.

    Where the episode `is_over`, all choices: no action follows, and the environment is not asked.

    Raises:
        WrongReturnError: there is no mask, it has another shape or other numbers than 0 and 1, or it allows nothing.
    """
    counts, given = choices(env.action_space), info.get("action_mask")
    if is_over:
        return np.ones(sum(counts), bool)
    if given is None and env.has_wrapper_attr("action_masks"):
        with no_exit():
            given = env.get_wrapper_attr("action_masks")()
    if given is None:
        raise WrongReturnError(f"{env.unwrapped} has no info['action_mask'] and no method action_masks(): add one")
    try:
        mask = in_a_row(given)
        is_fit = mask.shape == (sum(counts),) and bool(((mask == 0) | (mask == 1)).all())
    except (TypeError, ValueError):
        is_fit = False
    if not is_fit:
        raise WrongReturnError(
            f"the action mask of {env.unwrapped} is {given!r:.60}: expected {sum(counts)} numbers of 0 or 1"
        )
    allows = np.add.reduceat(mask != 0, np.cumsum((0, *counts[:-1]))) > 0  # [A]
    if not allows.all():
        where = f" in action dimension {int(allows.argmin()) + 1} of {len(counts)}" if len(counts) > 1 else ""
        raise WrongReturnError(f"the action mask of {env.unwrapped} allows nothing{where}: expected a 1 or more")
    return mask != 0


def in_a_row(mask: Any) -> np.ndarray:
    """A mask, an array or a part for each action dimension, as one row [Σ choices]; else TypeError or ValueError."""
    return np.ravel(mask) if isinstance(mask, np.ndarray) else np.hstack([*mask])


def first_allowed(mask: np.ndarray, space: gymnasium.Space) -> np.ndarray:
    """The first allowed choice in each action dimension, [A], by a mask [Σ choices]."""
    return np.array([part.argmax() for part in np.split(mask, np.cumsum(choices(space))[:-1])])
