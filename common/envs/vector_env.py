"""N environments in groups that take turns: one group steps while the policy chooses actions for the other."""

import os

import gymnasium
import numpy as np

from common.envs import atari
from common.envs.ale_group import AleGroup
from common.envs.environment import Environment
from common.envs.envpool_group import EnvPoolGroup, columns_of
from common.envs.groups import Group
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.process_group import ProcessGroup
from common.envs.seeded_episodes import RestoreMethod
from common.errors import UserError


class VectorEnv:
    """Groups of environments side by side: group g owns the columns `columns[g]` of every [T, N] array."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        ends = np.cumsum([group.num_envs for group in groups])
        self.columns = [slice(int(end) - group.num_envs, int(end)) for group, end in zip(groups, ends)]
        self.num_envs = int(ends[-1])  # N, in all groups
        self.parts = [  # group and columns of environments that can only be restored together; see `Group.parts`
            (i, slice(columns.start + part.start, columns.start + part.stop))
            for i, (group, columns) in enumerate(zip(groups, self.columns))
            for part in group.parts
        ]

    def reset(self, seed: int | None = None) -> list[np.ndarray]:
        """`Group.reset` of every group, with a seed for each; copies of their observations [n, *shape]."""
        seeds = [None] * len(self.groups) if seed is None else group_seeds(seed, len(self.groups))
        return [copied_observations(group.reset(s)) for group, s in zip(self.groups, seeds)]

    def close(self) -> None:
        """End the processes and threads of every group."""
        for group in self.groups:
            group.close()


def group_seeds(seed: int, groups: int) -> list[int]:
    """Independent seeds, one for each group; a group's i-th environment takes the group's seed plus i."""
    return [int(s) % 2**31 for s in np.random.SeedSequence(seed).generate_state(groups)]


def copied_observations(observations: np.ndarray) -> np.ndarray:
    """A copy [n, *shape] that no group overwrites: images stay uint8, all other numbers become float32."""
    image = observations.dtype == np.uint8 and observations.ndim == 4
    return np.array(observations, np.uint8 if image else np.float32)


def resolve_backend(backend: str, environment: Environment) -> str:
    """The backend that steps an environment: the one that was asked for, or the best one for "auto".

    "auto" means "ale" for Atari games and "envpool" for environments that EnvPool has, if those packages are
    installed; otherwise "gymnasium". EnvPool is only used for flat observations.

    Raises:
        UserError: the backend that was asked for by name is not installed, or does not have the environment.
    """
    if backend in ("gymnasium", "processes"):
        return backend
    if problem := _unsuitable("ale" if environment.atari_game else "envpool", environment, backend):
        if backend == "auto":
            return "gymnasium"
        raise UserError(problem)
    return "ale" if environment.atari_game else "envpool"


def _unsuitable(best: str, environment: Environment, asked: str) -> str:
    """Why `best`, the fastest backend of such an environment, cannot step it, or is not `asked` for; else empty."""
    for name in ("env_kwargs", "wrappers", "action_masks"):
        if getattr(environment, name):
            return f"backend {asked} takes no {name}: use --backend gymnasium or processes"
    if best == "ale" and environment.log_info:
        return f"backend {asked} takes no log_info: use --backend gymnasium or processes"
    if asked == "ale" and best != "ale":
        return f"backend ale steps Atari games, and {environment.id} is none: use --backend auto"
    if asked == "envpool" and best != "envpool":
        return f"{environment.id} is prepared here in another way than in EnvPool: use --backend ale"
    if best == "ale" and atari.has_vector_environment():
        return ""
    if best == "ale":
        return f"{environment.id}: this ale-py has no vector environment: use --backend gymnasium"
    try:
        import envpool
    except ImportError:
        return "EnvPool is not installed: run 'pip install -r requirements/fast.txt' or use --backend gymnasium"
    space = environment.native_observation_space
    flat = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1
    if not flat or environment.gymnasium_id not in envpool.list_all_envs():
        return f"EnvPool does not carry {environment.id}, or not with flat observations: use --backend gymnasium"
    try:
        columns_of(envpool.make_spec(environment.gymnasium_id), environment.log_info)
    except ValueError:
        return f"EnvPool reports no info {' '.join(environment.log_info)} here: use --backend gymnasium"
    return ""


PARTS = 8  # of environments that are built again now and then, one part at a time so that few episodes are cut


def make_vector_env(
    environment: Environment,
    num_envs: int,
    backend: str,
    groups: int | None = None,
    way: RestoreMethod | None = None,
    time_limit: float = 60.0,
    threads: int | None = None,
) -> VectorEnv:
    """`num_envs` environments.

    Args:
        backend: as `resolve_backend` returns it.
        groups: number of groups, whose sizes differ by one at most. None makes two that take turns, with two
            exceptions: one group on Gymnasium, whose environments step in this thread anyway, and one of Atari games,
            because a second call of the network takes longer than their frames.
        way: how the environments will be restored; None if they never are.
        time_limit: seconds that a process may take to answer.
        threads: of each group of EnvPool; None divides the cores of this machine among the groups.
    """
    groups = groups or (1 if backend in ("gymnasium", "ale") else 2)
    sizes = [len(part) for part in np.array_split(np.arange(num_envs), min(groups, num_envs))]
    if backend == "gymnasium":
        return VectorEnv([GymnasiumGroup(environment, size, way == "rebuilt") for size in sizes])
    if backend == "processes":
        return VectorEnv([ProcessGroup(environment, size, way == "rebuilt", time_limit) for size in sizes])
    if backend == "ale":
        return VectorEnv([AleGroup(environment, size) for size in sizes])
    threads = threads or max(1, (os.cpu_count() or 1) // len(sizes))
    parts = -(-PARTS // len(sizes)) if way == "history" else 1
    return VectorEnv([EnvPoolGroup(environment, size, min(threads, size), parts) for size in sizes])
