"""Which way of bringing environments back is right for them, found out by doing it with a few of them."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import gymnasium
import numpy as np

from common.envs.environment import Environment
from common.envs.groups import Group, Step
from common.envs.seeded_episodes import RestoreMethod, RestorePoint
from common.envs.spaces import ActionMap, choices
from common.envs.vector_env import make_vector_env
from common.errors import StartError, UserError
from common.rollout.repeatable import Record
from common.user_code import closed

BEGINNINGS = (70, 150, 250)  # steps before which all begin an episode, so that long ones are no exception
MIDDLES = (110, 190, 290)  # steps after which episodes are under way
AFTER = 40  # steps in which environments that were brought back must do the same
PATIENCE = 5.0  # seconds for the steps that are to be repeated, without building and resets
PATIENCE_TO_REPEAT = 20.0  # seconds for building environments again and repeating those steps


def proven_method(
    make: Callable[[], Group],
    way: RestoreMethod,
    action_map: ActionMap,
    space: gymnasium.Space,
    patient: bool = False,
    unseeded: Callable[[], None] = lambda: None,
) -> RestoreMethod:
    """`way` if environments that are brought back so do what they did before, "history" if they do not.

    Nothing is proven where environments are slow or fail. Then the answer is a way that is right by construction, as
    it begins with an environment that was just built. That is "rebuilt", whose episodes are those of "episodes" if the
    proof would have succeeded; but where building environments is what takes so long, it is "history".

    Args:
        make: a group of a few environments for this way.
        action_map: to `space`.
        patient: wait for slow environments, so that the answer depends on no clock.
        unseeded: called if new environments with the same seed and the same actions differ.

    Raises:
        UserError: an environment cannot be started.
    """
    with contextlib.closing(make()) as group:
        record, ended = Record(group.num_envs, way, action_map.size), np.zeros(group.num_envs, bool)  # [n]
        actions = _held_actions(max(MIDDLES) + AFTER, group.num_envs, action_map, space)  # [T, n, A]
        points: dict[int, dict[int, RestorePoint]] = {}
        steps, seconds = [], 0.0
        group.reset(0)
        for t, action in enumerate(actions):
            if t in BEGINNINGS:
                group.reset(None)
                record.begin_episodes()
                ended = np.zeros(group.num_envs, bool)  # [n]
            if t in BEGINNINGS + MIDDLES:
                points[t] = {i: record.restore_point(i, action_map, bool(ended[i])) for i in range(group.num_envs)}
            began = time.monotonic()
            steps.append(_step(group, action_map(action)))
            seconds += time.monotonic() - began
            record.add(action[None], ended[None])
            ended = steps[-1].ended
            if group.faults or (not patient and seconds > PATIENCE):
                return "rebuilt"
    found = _restored(make, points, lambda t: action_map(actions[t]), steps, patient)
    if found == "different" and not _repeat_themselves(make, [action_map(action) for action in actions], steps):
        unseeded()
    if found == "slow":
        return "rebuilt" if way == "rebuilt" else "history"
    return {"same": way, "different": "history", "failed": "rebuilt"}[found]


def _restored(
    make: Callable[[], Group],
    points: Mapping[int, Mapping[int, RestorePoint]],
    action: Callable[[int], np.ndarray],
    steps: Sequence[Step],
    patient: bool,
) -> Literal["same", "different", "failed", "slow"]:
    """What environments do that are brought back to each of several steps, beside what they did before."""
    began = time.monotonic()
    with contextlib.closing(make()) as group:
        group.reset(0)
        for cut, point in points.items():
            group.restore(point)
            for t in range(cut, cut + AFTER):
                step = _step(group, action(t))
                if group.faults:
                    return "failed"
                if not _same(step, steps[t]):
                    return "different"
                if not patient and time.monotonic() - began > PATIENCE_TO_REPEAT:
                    return "slow"
    return "same"


def _repeat_themselves(make: Callable[[], Group], actions: Sequence[np.ndarray], steps: Sequence[Step]) -> bool:
    """Whether new environments with the same seed do the same again, or fail.

    Args:
        actions: of each step, [n, *action].
        steps: what they did.
    """
    try:
        with contextlib.closing(make()) as group:
            group.reset(0)
            for t, (action, step) in enumerate(zip(actions, steps)):
                if t in BEGINNINGS:
                    group.reset(None)
                again = _step(group, action)
                if group.faults:
                    return True
                if not _same(again, step):
                    return False
    except UserError:  # one cannot be started
        pass
    return True


def _held_actions(steps: int, num_envs: int, action_map: ActionMap, space: gymnasium.Space) -> np.ndarray:
    """Random actions as a policy chooses them, each held for five steps so that bodies move: [T, n, A]."""
    rng, shape = np.random.default_rng(0), (-(-steps // 5), num_envs, action_map.size)
    if isinstance(space, gymnasium.spaces.Box):
        drawn = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
    else:
        drawn = rng.integers(choices(space), size=shape).astype(np.float32)
    return np.repeat(drawn, 5, axis=0)[:steps]


def _same(first: Step, second: Step) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first[:5], second[:5]))


def _step(group: Group, actions: np.ndarray) -> Step:
    """A step's observations, rewards and ends, copied."""
    group.send(actions)
    return Step(*(np.array(column) for column in group.recv()[:5]))


PROBED = 4  # environments


def find_restore_method(
    environment: Environment,
    backend: str,
    action_map: ActionMap,
    time_limit: float = 60.0,
    warn: Callable[[str], None] = print,
    num_envs: int = PROBED,
) -> RestoreMethod:
    """How such environments are brought back, found out by doing it with a few of them.

    Args:
        warn: called with a line if the same seed does not lead to the same steps.
        num_envs: of the run; no more are built at once.

    Raises:
        UserError: an environment cannot be started.
    """
    if backend == "ale":
        return "resets"

    way: RestoreMethod = "resets" if backend == "envpool" else "rebuilt" if _keeps_a_world(environment) else "episodes"

    def make() -> Group:
        return make_vector_env(environment, min(PROBED, num_envs), backend, 1, way, time_limit).groups[0]

    def unseeded() -> None:
        warn(
            f"warning: {environment.id} does not do the same twice with the same seed and actions, so this run cannot "
            "be repeated, and if it is cut off it may not be possible to resume it: draw random numbers from "
            "self.np_random, which super().reset(seed=seed) seeds"
        )

    # Compiled environments are fast, and nothing but the probe says which of their ways is right.
    try:
        return proven_method(make, way, action_map, environment.action_space, backend == "envpool", unseeded)
    except StartError:  # a failure like that of a step
        return "rebuilt"


def _keeps_a_world(environment: Environment) -> bool:
    """Whether it has a Box2D world from the start, and so uses it again for every episode, as BipedalWalker does."""
    with closed(environment.make()) as env:
        return any(type(value).__name__ == "b2World" for value in vars(env.unwrapped).values())
