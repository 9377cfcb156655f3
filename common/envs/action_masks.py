"""Action masks: an environment says which choices it allows, and its observations carry that as 0 and 1."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from common.envs.spaces import choices
from common.user_code import WrongReturnError


class WithActionMask(gymnasium.Wrapper):
    """An environment whose action mask stands behind each observation, [S] → [S + Σ choices]; `name` is for errors."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        space, size = env.observation_space, sum(choices(env.action_space))
        assert isinstance(space, gymnasium.spaces.Box), "`find_environment` makes sure of it"
        no, yes = np.zeros(size, space.dtype), np.ones(size, space.dtype)
        low, high = np.append(space.low, no), np.append(space.high, yes)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """As Gymnasium's; errors as of `action_mask`."""
        observation, info = self.env.reset(**options)
        return np.append(observation, action_mask(self.env, info)), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's; errors as of `action_mask`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        try:
            mask = action_mask(self.env, info, bool(terminated or truncated))
        except WrongReturnError as error:
            raise WrongReturnError(f"{self._name}: {error}") from None
        return np.append(observation, mask), reward, terminated, truncated, info


def offers_mask(env: gymnasium.Env, info: Mapping[str, Any]) -> bool:
    """Whether an environment says which actions are allowed: in info["action_mask"], or by a method action_masks()."""
    return "action_mask" in info or env.has_wrapper_attr("action_masks")


def action_mask(env: gymnasium.Env, info: Mapping[str, Any], is_over: bool = False) -> np.ndarray:
    """Which choices are allowed: [Σ choices] bool, first those of the first action dimension.

    Args:
        info: that the environment returned last.
        is_over: whether the episode has ended; all choices are then allowed in place of none.

    Raises:
        WrongReturnError: there is no mask, it has another shape or other numbers than 0 and 1, or it allows nothing.
    """
    counts = choices(env.action_space)
    if is_over and not offers_mask(env, info):
        return np.ones(sum(counts), bool)
    if not offers_mask(env, info):
        raise WrongReturnError("there is no action mask: expected info['action_mask'] or a method action_masks()")
    given = info["action_mask"] if "action_mask" in info else env.get_wrapper_attr("action_masks")()
    try:
        mask = np.ravel(given) if isinstance(given, np.ndarray) else np.hstack([*given])
        is_fit = mask.shape == (sum(counts),) and bool(((mask == 0) | (mask == 1)).all())
    except (TypeError, ValueError):
        is_fit = False
    if not is_fit:
        raise WrongReturnError(
            f"the action mask is {given!r:.80}: expected {sum(counts)} numbers of 0 or 1, one for each choice"
        )
    allows = np.add.reduceat(mask != 0, np.cumsum((0, *counts[:-1]))) > 0  # [A]
    if not (is_over or allows.all()):
        where = f" in action dimension {int(allows.argmin()) + 1} of {len(counts)}" if len(counts) > 1 else ""
        raise WrongReturnError(f"the action mask allows nothing{where}: expected one choice or more")
    return (mask != 0) | ~np.repeat(allows, counts)


def nearest_allowed(actions: np.ndarray, masks: np.ndarray, counts: tuple[int, ...]) -> np.ndarray:
    """Actions [n, A], each number that is not allowed replaced by the next one that is; masks [n, Σ choices]."""
    chosen = []
    for number, mask in zip(actions.T.astype(int), np.split(masks, np.cumsum(counts)[:-1], axis=1)):
        following = (number[:, None] + np.arange(mask.shape[1])) % mask.shape[1]  # [n, choices]
        first = np.take_along_axis(mask, following, axis=1).argmax(axis=1)  # [n]
        chosen.append((number + first) % mask.shape[1])
    return np.stack(chosen, axis=1).astype(np.float32)
