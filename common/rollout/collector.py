"""Collecting an epoch, and cutting it into minibatches."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from common import funcs
from common.envs.groups import Group, quiet_gymnasium
from common.envs.seeded_episodes import Way
from common.envs.spaces import ActionMap
from common.envs.vector_env import VectorEnv
from common.errors import NotFiniteError, UserError
from common.records import Timing, Trajectory
from common.rollout.repeatable import Record
from common.state import load_generator, pack_generator

OnRows = Callable[[slice, Trajectory], None]
ShapeNoise = Callable[[np.ndarray], np.ndarray]


class Behaviour(Protocol):
    """Chooses actions while an epoch is collected."""

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for raw observations [n, S]; `noise` [n, A], standard normal; without it the best known."""
        ...


class Collector:
    """Steps the environments with a policy, an epoch at a time; episodes run on from epoch to epoch.

    Args:
        envs: the environments, not yet reset.
        action_map: from policy actions to the environments'.
        steps: T, steps of an epoch in each environment.
        seed: of the environments and of the exploration noise.
        restarts: how many failing environments may be replaced by new ones.
        warn: called with a line about each, and its traceback.
        way: how the environments are brought back; see `common.rollout.repeatable`.
    """

    def __init__(
        self,
        envs: VectorEnv,
        action_map: ActionMap,
        steps: int,
        seed: int,
        restarts: int = 0,
        warn: Callable[[str], None] = print,
        way: Way = "episodes",
    ) -> None:
        self.envs = envs
        self.warn = warn
        self._record = Record(envs.num_envs, way, action_map.size)
        self._restarts = restarts
        self._faults = 0  # since training began
        self._action_map = action_map
        self._steps = steps
        self._threads = ThreadpoolController()
        env_seed, noise_seed = np.random.SeedSequence(seed).generate_state(2)
        self._noise = np.random.default_rng(noise_seed)
        self.restart(int(env_seed))

    def restart(self, seed: int | None = None) -> None:
        """Throw the running episodes away and begin new ones; a seed decides all that follow."""
        if seed is None and self._record.way == "history":
            self.restart_parts(range(len(self.envs.parts)))
            return
        if seed is None:
            self._record.begin_episodes()
        else:
            self._seed = seed
            self._record.clear()
        self._observations = self.envs.reset(seed)  # [n, *shape] a group
        self._ended, self._lost = np.zeros((2, self.envs.num_envs), bool)  # [N] each; see `restart_lost`
        self._episode_steps = np.zeros(self.envs.num_envs, np.int64)  # [N] so far

    def restart_parts(self, numbers: Iterable[int]) -> np.ndarray:
        """Build some of `VectorEnv.parts` again, whose running episodes are thrown away; which they are, [N] bool."""
        which = np.zeros(self.envs.num_envs, bool)  # [N]
        for number in numbers:
            group, columns = self.envs.parts[number]
            self._record.restart(columns)
            which[columns] = True
            self._bring_back(group, columns)
        self._ended[which] = self._lost[which] = False
        self._episode_steps[which] = 0
        return which

    def restart_lost(self) -> np.ndarray:
        """Build those again whose history holds a failure, which cannot be repeated; which they are, [N] bool."""
        lost = self._lost
        return self.restart_parts(i for i, (_, columns) in enumerate(self.envs.parts) if lost[columns].any())

    def _bring_back(self, group: int, columns: slice) -> None:
        """To what the record says of some environments of a group."""
        first = self.envs.columns[group].start
        numbers = range(columns.start, columns.stop)
        pasts = {n - first: self._record.past(n, self._action_map, bool(self._ended[n])) for n in numbers}
        for n in np.flatnonzero(self._lost):  # whose actions end with a failure, and which begin again anyway
            if n - first in pasts:
                pasts[n - first] = pasts[n - first]._replace(actions=pasts[n - first].actions[:0])
        self._observations[group][list(pasts)] = self.envs.groups[group].bring_back(pasts)

    def collect(
        self,
        behaviour: Behaviour,
        timing: Timing,
        on_rows: OnRows | None = None,
        rows_per_call: int = 1,
        shape_noise: ShapeNoise | None = None,
    ) -> Trajectory:
        """One epoch. Each group steps while the policy chooses for the other.

        Args:
            on_rows: called with every `rows_per_call` rows as soon as they are complete and with the trajectory,
                whose later rows are not yet filled; the behaviour may change then. By that time the actions
                of the following row are chosen and on their way.
            shape_noise: makes the epoch's exploration noise of standard normal numbers [T, N, A].

        Raises:
            NotFiniteError: an environment or the policy returned NaN or infinity.
            UserError: environments failed more often than they may.
        """
        steps, num_envs = self._steps, self.envs.num_envs
        seen = self._observations[0]  # [n, *shape]
        observations = np.empty((steps + 1, num_envs, *seen.shape[1:]), seen.dtype)  # [T+1, N, *shape]
        noise = self._noise.standard_normal((steps, num_envs, self._action_map.noise_size), np.float32)  # [T, N, X]
        if shape_noise is not None:
            noise = shape_noise(noise)  # [T, N, A]
        actions = np.empty((steps, num_envs, self._action_map.size), np.float32)  # [T, N, A]
        rewards = np.empty((steps, num_envs))  # [T, N]
        terminated = np.empty((steps, num_envs), bool)  # [T, N]
        truncated = np.empty((steps, num_envs), bool)  # [T, N]
        ended = np.empty((steps, num_envs), bool)  # [T, N]
        valid = np.empty((steps, num_envs), bool)  # [T, N]
        episode_steps = np.empty((steps, num_envs), np.int64)  # [T, N]
        replaced = np.zeros((steps, num_envs), bool)  # [T, N]
        trajectory = Trajectory(
            observations, actions, rewards, terminated, truncated, ended, valid, episode_steps, replaced
        )
        failed, ended_before = np.zeros((steps, num_envs), bool), self._ended  # [T, N], [N]
        done = 0  # rows that are complete
        groups = list(zip(self.envs.groups, self.envs.columns))
        clock = time.perf_counter

        # The matrices are small and the other cores have environments.
        with self._threads.limit(limits=1, user_api="blas"):
            for (_, columns), first in zip(groups, self._observations):
                observations[0, columns] = first
            for t in range(steps + 1):
                for group, columns in groups:
                    began = clock()
                    if t > 0:
                        received = group.recv()
                        observations[t, columns] = received.observations
                        rewards[t - 1, columns] = received.rewards
                        terminated[t - 1, columns] = received.terminated
                        truncated[t - 1, columns] = received.truncated
                        ended[t - 1, columns] = received.ended
                        if received.replaced is not None:
                            replaced[t - 1, columns] = received.replaced
                        if group.faults:
                            failed[t - 1, columns] = received.failed
                            self._note_faults(group, columns.start, t - 1)
                    arrived = clock()
                    timing.environment += arrived - began
                    if t < steps:
                        chosen = behaviour.act(observations[t, columns], noise[t, columns])  # [n, A]
                        if not np.isfinite(chosen.sum()):
                            raise NotFiniteError(_not_finite(observations[t, columns], columns.start, t))
                        actions[t, columns] = chosen
                        group.send(self._action_map(chosen))
                        timing.policy += clock() - arrived
                if on_rows is not None and t > 0 and (t % rows_per_call == 0 or t == steps):
                    rows = slice(done, t)
                    self._complete(trajectory, failed, rows)
                    on_rows(rows, trajectory)
                    done = t

        self._observations = [observations[-1, columns].copy() for _, columns in groups]
        self._complete(trajectory, failed, slice(done, steps))
        self._record.add(actions, np.concatenate([ended_before[None], ended[:-1]]))
        self._lost |= failed.any(axis=0) & (self._record.way == "history")
        return trajectory

    def _complete(self, trajectory: Trajectory, failed: np.ndarray, rows: slice) -> None:
        """Fill in what follows from the ends of episodes and from failures [T, N]; check for NaN and infinity."""
        if rows.start == rows.stop:
            return
        ended = trajectory.ended[rows]  # [K, N]
        resets = np.concatenate([self._ended[None], ended[:-1]])  # [K, N]
        trajectory.valid[rows] = ~(resets | failed[rows])  # [K, N]
        trajectory.episode_steps[rows] = funcs.episode_steps(trajectory.valid[rows], self._episode_steps)  # [K, N]
        self._ended = ended[-1]
        self._episode_steps = trajectory.episode_steps[rows.stop - 1].copy()
        _check_finite(trajectory.observations[rows.start : rows.stop + 1], "observation", first=rows.start - 1)
        _check_finite(trajectory.rewards[rows, :, None], "reward", first=rows.start)

    def _note_faults(self, group: Group, first_env: int, t: int) -> None:
        """Warns of environments that failed in step t.

        Raises:
            UserError: that was one too many.
        """
        for index, error, details in group.faults:
            self._faults += 1
            what = f"environment {first_env + index} failed at step {t} of the epoch: {error}"
            if self._faults > self._restarts:
                if details:
                    self.warn(details.rstrip())
                raise UserError(
                    f"{what}; {self._restarts} were replaced by new ones before: fix it, "
                    "or allow more with --environment-restarts"
                )
            self.warn(
                f"warning: {what}; a new one takes its place, its episode does not count "
                f"({self._faults} of {self._restarts})" + ("\n" + details.rstrip() if details else "")
            )
        group.faults.clear()

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        """What brings the environments back to where they are."""
        state = self._record.state()
        state |= {f"observations/{i}": observations for i, observations in enumerate(self._observations)}
        return state | {
            "seed": np.int64(self._seed),
            "ended": self._ended,
            "lost": self._lost,
            "episode_steps": self._episode_steps,
            "noise": pack_generator(self._noise),
            "faults": np.int64(self._faults),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Bring the environments back; they cannot be copied, but they repeat exactly.

        Raises:
            UserError: they did not, so this is not the machine or the version that the run began on.
        """
        self._faults = int(state["faults"])
        load_generator(self._noise, state["noise"])
        if "way" not in state and not _format_1_goes_on(state):
            self.restart(int(np.random.SeedSequence([self._seed, self._faults]).generate_state(1)[0]))
            return
        self.restart(int(state["seed"]))
        self._ended = state["ended"].copy()
        self._lost = state.get("lost", np.zeros(self.envs.num_envs, bool)).copy()
        self._episode_steps = state["episode_steps"].copy()
        if "way" in state:
            self._record.load_state(state)
        else:
            actions = [state[name] for name in sorted(state) if name.startswith("history/")]
            self._record.load_format_1(actions)
        with quiet_gymnasium(), ThreadPoolExecutor(len(self.envs.groups)) as threads:  # a core each
            list(threads.map(self._bring_back, range(len(self.envs.groups)), self.envs.columns))
        for i, columns in enumerate(self.envs.columns):
            known = self._lost[columns] | self._ended[columns]  # [n] of which the record says nothing
            stored = state[f"observations/{i}"]
            if not np.array_equal(self._observations[i][~known], stored[~known]):
                raise UserError(
                    "the environments did not repeat what they did before the run was cut off: resume it on the kind "
                    "of machine and with the versions that its config.json names, or train again in another folder"
                )
            self._observations[i] = stored.copy()


def _format_1_goes_on(state: Mapping[str, np.ndarray]) -> bool:
    """Whether an old checkpoint's episodes go on; not after a failure, nor where each epoch begins new ones."""
    return "seed" in state and all(state[name].size for name in state if name.startswith("history/"))


def _not_finite(observations: np.ndarray, first_env: int, t: int) -> str:
    """Whose fault an action that is no number is; observations: [n, *shape]."""
    faulty = np.flatnonzero(~np.isfinite(observations.reshape(len(observations), -1)).all(axis=-1))
    if len(faulty):
        return _environment_fault(first_env + faulty[0], "observation", t - 1)
    return f"the policy returned NaN or infinity at step {t} of the epoch: training diverged; lower --learning-rate"


def _environment_fault(n: int, what: str, step: int) -> str:
    where = f"step {step} of the epoch" if step >= 0 else "a reset"
    return (
        f"environment {n} returned NaN or infinity as {what} at {where}: "
        "fix the environment, or collect such epochs again with --on-not-finite skip"
    )


def _check_finite(arrays: np.ndarray, what: str, first: int) -> None:
    """arrays: [rows, N, X], or images; `first`: step of the first row, -1 for what a reset returned."""
    if np.issubdtype(arrays.dtype, np.integer):
        return  # whole numbers are finite
    finite = np.isfinite(arrays).all(axis=-1)  # [rows, N]
    if not finite.all():
        row, n = np.argwhere(~finite)[0]
        raise NotFiniteError(_environment_fault(n, what, first + row))
