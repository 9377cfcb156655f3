"""What brings environments back to where they are, since they cannot be copied.

There are four ways, of which a run takes one that a probe finds to work:

- "episodes": every episode begins with a seed of its own, so that seed and the actions since are enough.
- "rebuilt": the same, but every episode has a new environment: what a Box2D world does depends, by a rounding, on
  the bodies it held before.
- "resets": seeded once, and random numbers are drawn in resets alone, so as many resets as there were episodes and the
  actions of the running one are enough.
- "history": all actions since the environment was built. They become many, so it is built again now and then.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import get_args

import gymnasium
import numpy as np

from common.envs.environment import Environment
from common.envs.groups import Group, Step
from common.envs.seeded_episodes import AS_IN_FORMAT_1, Past, Way
from common.envs.spaces import ActionMap, choices
from common.envs.vector_env import make_vector_env
from common.errors import UserError
from common.state import State, pack_json, unpack_json
from common.user_code import closed


class Record:
    """The start of each of N environments and the actions since.

    Args:
        way: see above.
        action_size: A, numbers of an action.
    """

    def __init__(self, num_envs: int, way: Way, action_size: int) -> None:
        self.way, self._num_envs, self._action_size = way, num_envs, action_size
        self.clear()

    def clear(self) -> None:
        """All environments were begun from a seed."""
        self._restarts, self._episodes, self._steps = np.zeros((3, self._num_envs), int)  # [N] each
        self._chunks: list[np.ndarray] = []  # [K, N, A] each; the last `_steps` rows of a column are its own

    def begin_episodes(self) -> None:
        """Every environment begins its next episode."""
        self._episodes += 1
        self._steps[:] = 0

    def restart(self, columns: slice) -> None:
        """Some environments are built again from a seed of their own."""
        self._restarts[columns] = np.maximum(self._restarts[columns], 0) + 1
        self._episodes[columns] = self._steps[columns] = 0

    def add(self, actions: np.ndarray, resets: np.ndarray) -> None:
        """Actions [K, N, A] that were sent; in the steps `resets` [K, N] an episode began in place of an action."""
        self._chunks.append(actions)
        self._steps += len(actions)
        if self.way != "history":
            self._episodes += resets.sum(axis=0)
            since = len(resets) - 1 - _last(resets)  # [N]
            self._steps = np.where(resets.any(axis=0), since, self._steps)
        longest, kept = self._steps.max(), sum(map(len, self._chunks))
        while self._chunks and kept - len(self._chunks[0]) >= longest:
            kept -= len(self._chunks.pop(0))

    def past(self, n: int, action_map: ActionMap, ended: bool) -> Past:
        """What brings an environment back; `ended`: its episode is over."""
        actions = action_map(self._actions(n))  # [L, *action]
        if ended and self.way in ("episodes", "rebuilt"):
            actions = actions[:0]  # of the one that follows they say nothing, and the last may have failed
        return Past(int(self._restarts[n]), int(self._episodes[n]), actions, ended and self.way != "history")

    def _actions(self, n: int) -> np.ndarray:
        """Of one environment, [L, A]."""
        if not self._chunks:
            return np.zeros((0, self._action_size), np.float32)
        column = np.concatenate([chunk[:, n] for chunk in self._chunks])  # [K, A]
        return column[len(column) - self._steps[n] :]

    def state(self) -> State:
        """Everything."""
        return {
            "way": pack_json(self.way),
            "restarts": self._restarts.copy(),
            "episodes": self._episodes.copy(),
            "steps": self._steps.copy(),
            "actions": np.concatenate([self._actions(n) for n in range(self._num_envs)]),  # [ΣL, A]
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` returned.

        Raises:
            ValueError: its numbers do not fit each other.
        """
        if min(state["episodes"].min(), state["steps"].min()) < 0 or state["steps"].sum() != len(state["actions"]):
            raise ValueError("the steps of environments do not fit their actions")
        self.way = way_of(state)
        self._restarts, self._episodes, self._steps = (
            np.array(state[name], int) for name in ("restarts", "episodes", "steps")
        )
        actions, longest = state["actions"], int(self._steps.max())  # [ΣL, A]
        chunk = np.zeros((longest, self._num_envs, self._action_size), np.float32)  # [K, N, A]
        for n, own in enumerate(np.split(actions, np.cumsum(self._steps)[:-1])):
            chunk[longest - len(own) :, n] = own
        self._chunks = [chunk] if longest else []

    def load_format_1(self, actions: list[np.ndarray]) -> None:
        """Take over every action [T, N, A] since all environments were seeded together."""
        self.clear()
        self.way = "history"
        self._restarts[:] = AS_IN_FORMAT_1
        self._chunks = list(actions)
        self._steps[:] = sum(map(len, actions))


def _last(flags: np.ndarray) -> np.ndarray:
    """The last row [N] in which a column of flags [K, N] is set; any number where none is."""
    return len(flags) - 1 - flags[::-1].argmax(axis=0)


def way_of(state: Mapping[str, np.ndarray]) -> Way:
    """The way that a record's state was written for.

    Raises:
        UserError: there is no such way.
    """
    way = unpack_json(state["way"])
    if way not in get_args(Way):
        raise UserError(f"a checkpoint's environments are brought back by {way!r}: update the code")
    return way


# -- the probe --

BEGINNINGS = (70, 150, 250)  # steps before which all begin an episode, so that long ones are no exception
MIDDLES = (110, 190, 290)  # steps after which episodes are under way
AFTER = 40  # steps in which environments that were brought back must do the same
PATIENCE = 5.0  # seconds for the steps that are to be repeated, without building and resets
PATIENCE_TO_REPEAT = 20.0  # seconds for building environments again and repeating those steps


def proven_way(
    make: Callable[[], Group], way: Way, action_map: ActionMap, space: gymnasium.Space, patient: bool = False
) -> Way:
    """`way` if environments that are brought back so do what they did before, "history" if they do not.

    Nothing is proven where environments are slow or fail. Then the answer is a way that is right by construction, as
    it begins with an environment that was just built. That is "rebuilt", whose episodes are those of "episodes" if the
    proof would have succeeded; but where building environments is what takes so long, it is "history".

    Args:
        make: a group of a few environments for this way.
        action_map: to `space`.
        patient: wait for slow environments, so that the answer depends on no clock.

    Raises:
        UserError: an environment cannot be started.
    """
    with contextlib.closing(make()) as group:
        record, ended = Record(group.num_envs, way, action_map.size), np.zeros(group.num_envs, bool)  # [n]
        actions = _held_actions(max(MIDDLES) + AFTER, group.num_envs, action_map, space)  # [T, n, A]
        steps, pasts, seconds = [], {}, 0.0
        group.reset(0)
        for t, action in enumerate(actions):
            if t in BEGINNINGS:
                group.reset(None)
                record.begin_episodes()
                ended = np.zeros(group.num_envs, bool)  # [n]
            if t in BEGINNINGS + MIDDLES:
                pasts[t] = {i: record.past(i, action_map, bool(ended[i])) for i in range(group.num_envs)}
            began = time.monotonic()
            steps.append(_step(group, action_map(action)))
            seconds += time.monotonic() - began
            record.add(action[None], ended[None])
            ended = steps[-1].ended
            if group.faults or (not patient and seconds > PATIENCE):
                return "rebuilt"
    began = time.monotonic()
    with contextlib.closing(make()) as group:
        group.reset(0)
        for cut, past in pasts.items():
            group.bring_back(past)
            for t in range(cut, cut + AFTER):
                step = _step(group, action_map(actions[t]))
                if group.faults:
                    return "rebuilt"
                if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(step[:5], steps[t][:5])):
                    return "history"
                if not patient and time.monotonic() - began > PATIENCE_TO_REPEAT:
                    return "rebuilt" if way == "rebuilt" else "history"
    return way


def _held_actions(steps: int, num_envs: int, action_map: ActionMap, space: gymnasium.Space) -> np.ndarray:
    """Random actions as a policy chooses them, each held for five steps so that bodies move: [T, n, A]."""
    rng, shape = np.random.default_rng(0), (-(-steps // 5), num_envs, action_map.size)
    if isinstance(space, gymnasium.spaces.Box):
        drawn = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
    else:
        drawn = rng.integers(choices(space), size=shape).astype(np.float32)
    return np.repeat(drawn, 5, axis=0)[:steps]


def _step(group: Group, actions: np.ndarray) -> Step:
    """A step's observations, rewards and ends, copied."""
    group.send(actions)
    return Step(*(np.array(column) for column in group.recv()[:5]))


PROBED = 4  # environments


def find_way(environment: Environment, backend: str, action_map: ActionMap, time_limit: float = 60.0) -> Way:
    """How such environments are brought back, found out by doing it with a few of them.

    Raises:
        UserError: an environment cannot be started.
    """
    if backend == "ale":
        return "resets"

    way: Way = "resets" if backend == "envpool" else "rebuilt" if _keeps_a_world(environment) else "episodes"

    def make() -> Group:
        return make_vector_env(environment, PROBED, backend, 1, way, time_limit).groups[0]

    # Compiled environments are fast, and nothing but the probe says which of their ways is right.
    return proven_way(make, way, action_map, environment.action_space, patient=backend == "envpool")


def _keeps_a_world(environment: Environment) -> bool:
    """Whether it has a Box2D world from the start, and so uses it again for every episode, as BipedalWalker does."""
    with closed(environment.make()) as env:
        return any(type(value).__name__ == "b2World" for value in vars(env.unwrapped).values())
