"""Checks that a user's environment does what its spaces say: once before training, and then in every step.

Mistakes that would fail in the middle of training, or be misread without an error, are refused here in one line.
"""

from collections.abc import Mapping
from numbers import Integral, Real
from types import UnionType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete, Tuple

from common.envs.action_masks import action_mask, first_allowed
from common.envs.spaces import DISCRETE, action_map
from common.envs.supported_spaces import image_layout
from common.errors import StartError, UserError
from common.user_code import WrongReturnError, cure, describe, explain, is_users, no_exit

RESET = "expected the pair (observation, info), info being a dictionary"
STEP = "expected (observation, reward, terminated, truncated, info)"


class CheckedSteps(gymnasium.Wrapper):
    """An environment that raises if what a reset or a step returns is not what Gymnasium and its space say.

    Without it a shape that changes would be broadcast, and whole numbers beyond their type would wrap around.
    `sys.exit()` in its code is an error of the environment, and not the end of the program.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's; raises WrongReturnError, and RuntimeError if the environment's code ended the program."""
        with no_exit():
            returned: Any = self.env.reset(**options)
        if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Mapping):
            raise WrongReturnError(f"reset returned {_kind(returned)}: {RESET}")
        if wrong := mismatch(self.env.observation_space, returned[0]):
            raise WrongReturnError(f"reset returned an observation{wrong}")
        return returned

    def step(self, action: Any) -> Any:
        """As Gymnasium's, with a plain number as reward; errors as of `reset`."""
        with no_exit():
            returned: Any = self.env.step(action)
        if not isinstance(returned, tuple) or len(returned) != 5:
            raise WrongReturnError(f"step returned {_kind(returned)}: {STEP}")
        observation, reward, terminated, truncated, info = returned
        if wrong := mismatch(self.env.observation_space, observation):
            raise WrongReturnError(f"step returned an observation{wrong}")
        is_number = reward.size == 1 and reward.dtype.kind in "biuf" if isinstance(reward, np.ndarray) else None
        if not (is_number or isinstance(reward, Real | np.bool_)):
            raise WrongReturnError(f"step returned the reward {reward!r:.80}: expected a number")
        for what, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_) and not (isinstance(flag, Integral) and flag in (0, 1)):
                raise WrongReturnError(f"step returned {flag!r:.80} as {what}: expected True or False")
        if not isinstance(info, Mapping):
            raise WrongReturnError(f"step returned {_kind(info)} as info: {STEP}, info being a dictionary")
        return observation, np.asarray(reward).item(), terminated, truncated, info

    def render(self) -> Any:
        """As Gymnasium's; `sys.exit()` in it is a RuntimeError."""
        with no_exit():
            return self.env.render()


def check_environment(name: str, env: gymnasium.Env, action_masks: bool = False, seed: int = 0) -> bool:
    """Reset an environment and step it once with the middle of its action range, or a choice that its mask allows.

    Returns whether it has an action mask; with `action_masks` it must.

    Raises:
        UserError: reset or step fails, or returns a value that Gymnasium's interface or the spaces do not allow.
    """
    env, to_environment = CheckedSteps(env), action_map(env.action_space)
    middle = np.zeros(to_environment.size, np.float32)  # [A]
    try:
        _, info = env.reset(seed=seed)
        has_mask = "action_mask" in info or env.has_wrapper_attr("action_masks")
        if action_masks or (has_mask and isinstance(env.action_space, DISCRETE)):
            try:
                middle = first_allowed(action_mask(env, info), env.action_space)
            except WrongReturnError:
                if action_masks:
                    raise
                has_mask = False  # it means something else by that name
    except WrongReturnError as error:
        raise UserError(f"{name}: {error}; fix its reset") from error
    except Exception as error:
        raise start_error(name, error) from error
    [action] = to_environment(middle[None])  # [*action]
    try:
        env.step(action)
    except WrongReturnError as error:
        raise UserError(f"{name}: {error}; fix its step") from error
    except Exception as error:
        if "unpack" in str(error) and not is_users(error):  # Gymnasium's wrapper unpacks the five values
            raise UserError(f"{name}: step returned another number of values: {STEP}") from error
        what = f"{name}: step failed with the action {action!r} ({explain(error)})"
        raise UserError(f"{what}: {cure(error, 'fix its step')}") from error
    return has_mask


def start_error(name: str, error: BaseException) -> StartError:
    """The error for an environment whose reset failed or that could not be built; a UserError keeps its line."""
    if isinstance(error, UserError):
        return StartError(str(error))
    advice = cure(error, "fix its reset or choose another --env")
    if describe(error).startswith("TypeError") and "unexpected keyword argument" in describe(error):
        advice = "define it as reset(self, seed=None, options=None)"
    return StartError(f"{name} cannot be started, its reset failed ({explain(error)}): {advice}")


def mismatch(space: gymnasium.Space, value: Any) -> str | None:
    """How a value does not fit an observation space, for a message; None if it fits.

    A Box's bounds are not checked. A type of whole numbers must be able to hold the values.
    """
    if isinstance(space, Dict):
        return _mismatch_of_parts(space, value, Mapping, dict(space.spaces))
    if isinstance(space, Tuple):
        return _mismatch_of_parts(space, value, tuple | list, dict(enumerate(space.spaces)))
    if not isinstance(space, Box | MultiDiscrete | MultiBinary):
        return None if space.contains(value) else f" {value!r}, but observation_space says {space}"
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        return f" of unequal parts, but observation_space says shape {space.shape}"
    if array.dtype.kind not in "biuf":
        return f" {value!r:.80}, but observation_space says {space.dtype} of shape {space.shape}"
    if array.shape != space.shape:
        return f" of shape {array.shape}, but observation_space says {space.shape}"
    if array.dtype != space.dtype and np.issubdtype(space.dtype, np.integer):
        if array.dtype.kind == "f" and image_layout(space) is not None:  # from 0 to 1 it would be black
            return f" of {array.dtype}, but observation_space says {space.dtype}, an image from 0 to 255"
        if array.dtype.kind == "f" and (array != np.floor(array)).any():
            return f" of fractions ({array.dtype}), but observation_space says {space.dtype}"
        reach = np.iinfo(space.dtype)
        if array.size and not reach.min <= array.min() <= array.max() <= reach.max:
            return f" from {array.min()} to {array.max()}, which {space.dtype} of observation_space cannot hold"
    if not isinstance(space, Box) and not space.contains(array.astype(space.dtype)):
        return f" {value!r}, but observation_space says {space}"
    return None


def _mismatch_of_parts(
    space: gymnasium.Space, value: Any, kind: type | UnionType, parts: Mapping[Any, gymnasium.Space]
) -> str | None:
    if not isinstance(value, kind):
        return f" of type {type(value).__name__}, but observation_space says {type(space).__name__}"
    listed: Any = value
    named = listed if isinstance(listed, Mapping) else dict(enumerate(listed))
    if isinstance(space, Tuple) and len(named) > len(parts):
        return f" of {len(named)} parts, but observation_space says {len(parts)}"
    for key, part in parts.items():
        if key not in named:
            return f" without {key!r}, which observation_space has"
        if wrong := mismatch(part, named[key]):
            return f"[{key!r}]{wrong}"
    return None


def _kind(value: Any) -> str:
    """'a tuple of 4', 'an ndarray'."""
    name = type(value).__name__
    article = "an" if name[0].lower() in "aeiou" or name == "ndarray" else "a"
    return f"{article} {name}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")
