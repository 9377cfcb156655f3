"""Which way of restoring environments is right for them, found out by doing it with a few of them."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np

from common.envs.environment import Environment
from common.envs.groups import Group, Step
from common.envs.seeded_episodes import RestoreMethod, RestorePoint
from common.envs.spaces import ActionMap, choices
from common.envs.vector_env import make_vector_env
from common.errors import StartError, UserError
from common.rollout.stepping import RestoreRecord
from common.user_code import closed

BEGINNINGS = (70, 150, 250)  # steps before which all begin an episode, so that long ones are no exception
MIDDLES = (110, 190, 290)  # steps after which episodes are under way
AFTER = 40  # steps in which environments that were restored must do the same
PATIENCE = 5.0  # seconds for the steps that are to be repeated, without building and resets
PATIENCE_TO_REPEAT = 20.0  # seconds for building environments again and repeating those steps
PROBED = 4  # environments

MakeGroup = Callable[[], Group]
Points = Mapping[int, RestorePoint]  # by the environment's index


def find_restore_method(
    environment: Environment,
    backend: str,
    action_map: ActionMap,
    time_limit: float = 60.0,
    warn: Callable[[str], None] = print,
    num_envs: int = PROBED,
) -> RestoreMethod:
    """How such environments are restored; of `num_envs` of the run no more are built at once.

    Nothing is proven where environments are slow or fail. Then the answer is a way that is right by construction, as
    it begins with an environment that was just built. That is "rebuilt", whose episodes are those of "episodes" if the
    proof would have succeeded; but where building environments is what takes so long, it is "history".

    Raises:
        UserError: an environment cannot be started.
    """
    if backend == "ale":
        return "resets"
    way: RestoreMethod = "resets" if backend == "envpool" else "rebuilt" if _keeps_a_world(environment) else "episodes"
    patient = backend == "envpool"  # compiled environments are fast, and no other of their ways is right for sure
    count = min(PROBED, num_envs)
    drawn = _held_actions(max(MIDDLES) + AFTER, count, action_map, environment.action_space)  # [T, n, A]
    masked = environment.action_space if environment.action_masks else None

    def make() -> Group:
        return make_vector_env(environment, count, backend, 1, way, time_limit).groups[0]

    def played(patient: bool) -> tuple[list[Step], list[np.ndarray], dict[int, Points]] | None:
        record = RestoreRecord([slice(0, count)], way, action_map.size)
        return _played(make, drawn, action_map, record, patient, masked)

    try:
        first = played(patient)
        if first is None:
            return "rebuilt"
        steps, taken, points = first
        found = _repeated(make, points, taken, steps, patient)
    except StartError:  # a failure like that of a step
        return "rebuilt"
    if found == "different" or (found == "failed" and masked is not None):  # by what was allowed the first time
        with contextlib.suppress(UserError):  # one cannot be started
            second = played(patient=True)
            is_same = second is not None and all(map(_are_same, steps, second[0]))
            if is_same and backend != "envpool":
                warn(
                    f"warning: an episode of {environment.id} depends on those before it. A physics world that is "
                    "kept does no harm. But running statistics, a curriculum or random numbers that do not come from "
                    "self.np_random begin afresh now and then, and in validations: for statistics use "
                    "--normalize-observations and --reward-scaling"
                )
            elif second is not None and not is_same:
                warn(
                    f"warning: {environment.id} does not do the same twice with the same seed and actions, so this "
                    "run cannot be repeated, and if it is cut off it may not be possible to resume it: draw random "
                    "numbers from self.np_random, which super().reset(seed=seed) seeds"
                )
    if found == "slow":
        return "rebuilt" if way == "rebuilt" else "history"
    return {"same": way, "different": "history", "failed": "rebuilt"}[found]


def _played(
    make: MakeGroup, actions: np.ndarray, action_map: ActionMap, record: RestoreRecord, patient: bool,
    masked: gymnasium.Space | None,
) -> tuple[list[Step], list[np.ndarray], dict[int, Points]] | None:  # fmt: skip
    """What environments do with actions [T, n, A] of a policy, the actions taken, and what restores them at times.

    None if they fail, or are slow; with `patient` they may be, so that the answer depends on no clock. Of a `masked`
    action space only what is allowed is taken.
    """
    points: dict[int, Points] = {}
    steps, taken, seconds = [], [], 0.0
    with contextlib.closing(make()) as group:
        seen = group.reset(0)
        for t, drawn in enumerate(actions):
            if t in BEGINNINGS:
                seen = group.reset(None)
                record.begin_episodes()
            action = drawn if masked is None else _allowed(drawn, seen, masked)
            if t in BEGINNINGS + MIDDLES:
                points[t] = {i: record.restore_point(i, action_map) for i in range(group.num_envs)}
            began = time.monotonic()
            taken.append(action_map(action))
            steps.append(_step(group, taken[-1].copy()))  # an environment may change it in place
            seen = steps[-1].observations
            seconds += time.monotonic() - began
            record.add_actions(action[None], record.ended[None])
            record.ended = steps[-1].ended.copy()
            if group.faults or (not patient and seconds > PATIENCE):
                return None
    return steps, taken, points


def _allowed(actions: np.ndarray, rows: np.ndarray, space: gymnasium.Space) -> np.ndarray:
    """The actions [n, A] that are allowed, and the first allowed ones for the others, by the masks behind the rows."""
    counts = choices(space)
    masks = np.split(rows[:, -sum(counts) :], np.cumsum(counts)[:-1], axis=1)
    columns = [
        np.where(np.take_along_axis(mask, column[:, None].astype(int), 1)[:, 0] > 0, column, mask.argmax(axis=1))
        for column, mask in zip(actions.T, masks)
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _repeated(
    make: MakeGroup, points: Mapping[int, Points], actions: Sequence[np.ndarray], steps: list[Step], patient: bool
) -> Literal["same", "different", "failed", "slow"]:
    """Whether environments that are restored to each of several steps then do the same with actions [n, *action]."""
    began = time.monotonic()
    with contextlib.closing(make()) as group:
        group.reset(0)
        for first, point in points.items():
            group.restore(point)
            for t in range(first, first + AFTER):
                step = _step(group, actions[t])
                if group.faults:
                    return "failed"
                if not _are_same(step, steps[t]):
                    return "different"
                if not patient and time.monotonic() - began > PATIENCE_TO_REPEAT:
                    return "slow"
    return "same"


def _are_same(one: Step, other: Step) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one[:5], other[:5]))


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
    columns: Any = (np.array(column) for column in group.recv()[:5])
    return Step(*columns)


def _keeps_a_world(environment: Environment) -> bool:
    """Whether it has a Box2D world from the start, and so uses it again for every episode, as BipedalWalker does."""
    with closed(environment.make()) as env:
        return any(type(value).__name__ == "b2World" for value in vars(env.unwrapped).values())
