"""Whole episodes apart from training, each a pure function of a policy, an environment and a seed.

Worker processes import this module: nothing here imports TensorFlow.
"""

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import gymnasium
import numpy as np
from threadpoolctl import ThreadpoolController

from common.envs import worker_processes
from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.spaces import ActionMap, is_image
from common.errors import UserError
from common.user_code import explain

STEP_BOUND = 10_000  # steps of an episode where the environment has no limit
ROWS = 8  # episodes that are played side by side, always as a batch of so many
WORTHWHILE = 5  # batches from which on starting worker processes pays
_NOISE_STEPS = 128  # drawn at a time


@dataclass(frozen=True)
class Job:
    """Episodes to play: one each from seeds `seed`, `seed` + 1, …"""

    environment: Environment
    deterministic: bool
    episodes: int
    seed: int


@dataclass(frozen=True)
class Episode:
    """What came of an episode."""

    score: float  # original rewards summed
    steps: int
    cut: bool = False  # after STEP_BOUND steps, in an environment without a limit
    failures: int = 0  # of the environment; after each but the last allowed one the episode was played again
    fault: str | None = None  # the failure that ended it in the end, in a line


class _Batch(NamedTuple):
    job: int
    first: int  # episode of the job
    count: int


@dataclass(frozen=True)
class _Player:
    """What a worker process is given; called with a batch it plays its episodes."""

    policy: object
    action_map: ActionMap
    jobs: tuple[Job, ...]
    restarts: int

    def __call__(self, batch: _Batch) -> list[Episode]:
        job = self.jobs[batch.job]
        seeds = range(job.seed + batch.first, job.seed + batch.first + batch.count)
        rows = ROWS if getattr(self.policy, "is_plain", False) else None
        return play(self.policy, self.action_map, job.environment, seeds, job.deterministic, self.restarts, rows)


def play_all(
    policy: object, action_map: ActionMap, jobs: Sequence[Job], restarts: int, workers: int | None = None
) -> list[list[Episode]]:
    """The episodes of several jobs, in as many processes as there are cores where the policy is plain arrays.

    The result does not depend on how many processes there are, nor on what else is played: a plain policy always
    sees batches of ROWS observations, whose products would otherwise be rounded in another way.

    Args:
        policy: see `common.rollout.policies.Policy`.
        restarts: how often an episode in which the environment fails is played again.
        workers: processes; None takes a core each, and plays few episodes in this process.

    Raises:
        UserError: an environment cannot be started, or the policy returned NaN.
    """
    plain = getattr(policy, "is_plain", False)
    if not plain:
        workers = 1
    elif workers is None:
        worth_it = takes_workers(policy, sum(job.episodes for job in jobs))
        workers = worker_processes.cores() if worth_it else 1
    batches = [
        _Batch(number, first, size)
        for number, job in enumerate(jobs)
        for first, size in _cuts(job.episodes, ROWS if plain else job.episodes, workers)
    ]
    batches.sort(key=lambda batch: -batch.count)  # small ones last, so that workers end together
    played = _play_batches(_Player(policy, action_map, tuple(jobs), restarts), batches, workers)
    episodes: list[list[Episode]] = [[] for _ in jobs]
    for batch, those in sorted(zip(batches, played), key=lambda pair: pair[0].first):
        episodes[batch.job] += those
    return episodes


def _cuts(episodes: int, largest: int, workers: int) -> list[tuple[int, int]]:
    """First episode and size of batches; in the end each is half of a worker's share of what is left, or two."""
    cuts, first = [], 0
    while first < episodes:
        left = episodes - first
        size = min(largest, left if workers == 1 else max(2, left // (2 * workers)), left)
        cuts.append((first, size))
        first += size
    return cuts


def takes_workers(policy: object, episodes: int) -> bool:
    """Whether `play_all` would by itself play so many episodes in worker processes."""
    batches = -(-episodes // ROWS)
    return getattr(policy, "is_plain", False) and batches >= WORTHWHILE and worker_processes.cores() > 1


def _play_batches(player: _Player, batches: list[_Batch], workers: int) -> list[list[Episode]]:
    if workers > 1:
        with contextlib.suppress(worker_processes.CannotStartError):
            return worker_processes.run_in_workers(player, batches, workers, player.restarts)
    return [player(batch) for batch in batches]


def empty_observations(environment: Environment, rows: int) -> np.ndarray:
    """[rows, *shape] zeros: images stay uint8, all other numbers become float32."""
    space = environment.observation_space
    return np.zeros((rows, *space.shape), np.uint8 if is_image(space) else np.float32)


class _NotFiniteNumberError(Exception):
    """Counts as a failure of the environment."""


@dataclass
class _Running:
    """An episode while it is played."""

    seed: int
    env: gymnasium.Env | None = None
    noise: np.random.Generator | None = None
    score: float = 0.0
    steps: int = 0
    failures: int = 0
    outcome: Episode | None = field(default=None)


class _Table:
    """Episodes side by side: row i of every array belongs to the i-th.

    Args:
        noise_size: X, random numbers that choose an action; 0 for none.
    """

    def __init__(
        self, environment: Environment, seeds: Sequence[int], rows: int, noise_size: int, restarts: int
    ) -> None:
        self.observations = empty_observations(environment, rows)  # [R, *shape]
        self._noise = np.zeros((rows, _NOISE_STEPS, noise_size), np.float32)  # [R, _NOISE_STEPS, X]
        self._environment, self._restarts = environment, restarts
        self._bound = STEP_BOUND if environment.max_episode_steps is None else None
        self._episodes = [_Running(seed) for seed in seeds]
        self.running = list(range(len(seeds)))
        for i in self.running:
            self._begin(i)

    def noise(self, rows: list[int] | slice) -> np.ndarray:
        """Standard normal numbers of the next step [n, X], each episode's from a generator of its own."""
        for i in self.running:
            episode = self._episodes[i]
            if episode.steps % _NOISE_STEPS == 0:
                episode.noise.standard_normal(out=self._noise[i], dtype=np.float32)
        ages = [episode.steps % _NOISE_STEPS for episode in self._episodes]
        ages += [0] * (len(self._noise) - len(ages))
        return self._noise[np.arange(len(self._noise)), ages][rows]  # [n, X]

    def step(self, actions: np.ndarray) -> None:
        """actions: [n, *action] of the episodes that are running, in their order."""
        for i, action in zip(self.running, actions):
            self._step(i, action)
        self.running = [i for i in self.running if self._episodes[i].outcome is None]

    def outcomes(self) -> list[Episode]:
        """What came of each, once none is running."""
        return [episode.outcome for episode in self._episodes]

    def _begin(self, i: int) -> None:
        """From its seed, in a new environment: what some do after a reset depends on what they did before."""
        episode = self._episodes[i]
        episode.noise = np.random.default_rng([episode.seed, 1])
        episode.score, episode.steps = 0.0, 0
        while True:
            try:
                self._close(episode)
                episode.env = self._environment.make()
                self._observe(i, episode.env.reset(seed=episode.seed)[0], "a reset")
                return
            except UserError:
                raise
            except Exception as error:  # somebody else's code: whatever it raises is a fault of the environment
                episode.failures += 1
                if episode.failures > self._restarts:
                    raise start_error(self._environment.id, error) from error

    def _step(self, i: int, action: np.ndarray) -> None:
        episode = self._episodes[i]
        try:
            observation, reward, terminated, truncated, _ = episode.env.step(action)
            self._observe(i, observation, f"step {episode.steps + 1}")
            if isinstance(reward, np.ndarray):
                reward = reward.item()
            if not np.isfinite(reward):
                raise _NotFiniteNumberError(f"it returned NaN or infinity as reward in step {episode.steps + 1}")
        except Exception as error:
            episode.failures += 1
            if episode.failures <= self._restarts:
                self._begin(i)
            else:
                self._end(episode, fault=str(error) if isinstance(error, _NotFiniteNumberError) else explain(error))
            return
        episode.score += float(reward)
        episode.steps += 1
        if terminated or truncated:
            self._end(episode)
        elif episode.steps == self._bound:
            self._end(episode, cut=True)

    def _observe(self, i: int, observation: np.ndarray, where: str) -> None:
        if not np.isfinite(observation).all():
            raise _NotFiniteNumberError(f"it returned NaN or infinity as observation in {where}")
        self.observations[i] = observation

    def _end(self, episode: _Running, cut: bool = False, fault: str | None = None) -> None:
        episode.outcome = Episode(episode.score, episode.steps, cut, episode.failures, fault)
        self._close(episode)

    def _close(self, episode: _Running) -> None:
        if episode.env is not None:
            with contextlib.suppress(Exception):
                episode.env.close()
            episode.env = None

    def close(self) -> None:
        """End environments that still run."""
        for episode in self._episodes:
            self._close(episode)


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> contextlib.AbstractContextManager:
    """Products in this thread alone while it is open: a policy's are small, and cores have environments to step."""
    return _threads().limit(limits=1, user_api="blas")


def play(
    policy: object,
    action_map: ActionMap,
    environment: Environment,
    seeds: Sequence[int],
    deterministic: bool,
    restarts: int = 0,
    rows: int | None = None,
) -> list[Episode]:
    """One episode from each seed, side by side in this process. An episode that is over is not stepped further.

    Args:
        policy: see `common.rollout.policies.Policy`.
        restarts: how often an episode in which the environment fails, or returns NaN, is played again.
        rows: observations in a batch for the policy, those of episodes that are over included; None leaves these out.

    Raises:
        UserError: the environment cannot be started, or the policy returned NaN.
    """
    noise_size = 0 if deterministic else action_map.noise_size
    table = _Table(environment, seeds, rows or len(seeds), noise_size, restarts)
    with contextlib.closing(table), one_blas_thread():
        while table.running:
            asked = slice(None) if rows else table.running
            chosen = policy.act(table.observations[asked], None if deterministic else table.noise(asked))  # [n, A]
            chosen = chosen[table.running] if rows else chosen  # [running, A]
            if not np.isfinite(chosen).all():
                raise UserError("the policy returned NaN or infinity: evaluate other weights")
            table.step(action_map(chosen))
    return table.outcomes()
