"""Plays whole episodes outside training, each a pure function of a policy, an environment and a seed.

Worker processes import this module: nothing here imports TensorFlow.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import gymnasium
import numpy as np
from threadpoolctl import ThreadpoolController

from common import progress
from common.config import TrainingConfig
from common.envs import worker_processes
from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.spaces import ActionMap, is_image
from common.errors import StartError, UserError
from common.rollout.policies import Policy
from common.rollout.reach import Reach
from common.user_code import explain

STEP_BOUND = 10_000  # steps after which an episode is cut if the environment has no limit
LONG = 30.0  # seconds; the duration of what takes longer is said before
ROWS = 8  # episodes played side by side; the policy always sees a batch of this size
WORTHWHILE = 5  # number of batches from which worker processes save time
_NOISE_STEPS = 128  # steps of noise drawn at a time


@dataclass(frozen=True)
class Job:
    """Episodes to play: one from each of the seeds `seed`, `seed` + 1, …"""

    environment: Environment
    deterministic: bool
    episodes: int
    seed: int


@dataclass(frozen=True)
class Episode:
    """The result of an episode."""

    score: float  # sum of the original rewards
    steps: int
    cut: bool = False  # ended after STEP_BOUND steps, in an environment without a limit
    failures: int = 0  # how often the environment failed; the episode was played again while that was allowed
    fault: str | None = None  # the failure that ended the episode for good, in one line
    unfinished: bool = False  # ended by `Reach`, and the score is what was hoped for


class _Batch(NamedTuple):
    job: int
    first: int  # episode of the job
    size: int  # episodes


@dataclass(frozen=True)
class _Player:
    """The function that a worker process runs: called with a batch, it plays the batch's episodes."""

    policy: Policy
    action_map: ActionMap
    jobs: tuple[Job, ...]
    restarts: int
    rows: int | None = ROWS  # observations that a plain policy sees at a time; None: as many as episodes in the batch
    reach: Reach | None = None  # ends a batch that misses it

    def __call__(self, batch: _Batch, tell: Callable[[int], None] = lambda ended: None) -> list[Episode]:
        job = self.jobs[batch.job]
        seeds = range(job.seed + batch.first, job.seed + batch.first + batch.size)
        rows = self.rows or batch.size if getattr(self.policy, "is_plain", False) else None
        return play(
            self.policy, self.action_map, job.environment, seeds, job.deterministic, self.restarts, rows, self.reach,
            tell,
        )  # fmt: skip


def forewarning(
    config: TrainingConfig, environment: Environment, episodes: int, steps: float, seconds: float, workers: int = 1
) -> str:
    """How long episodes are expected to take, such as "about 5.0 minutes"; empty for less than half a minute.

    Args:
        config: of the training.
        environment: where they are played.
        episodes: how many.
        steps: of a training episode; NaN where none has ended.
        seconds: that an epoch of the training took to step the environments.
        workers: number of processes that play.
    """
    if math.isnan(steps):
        steps = environment.most_actions or STEP_BOUND
    at_once = config.num_envs if config.backend == "processes" else 1
    seconds *= episodes * steps * at_once / config.steps_per_epoch / workers
    return "" if seconds < LONG else f"about {progress.duration(seconds)}"


def play_all(
    policy: Policy, action_map: ActionMap, jobs: Sequence[Job], restarts: int, workers: int | None = None
) -> list[list[Episode]]:
    """Play the episodes of several jobs, in worker processes if the policy is plain arrays.

    The result depends neither on the number of processes nor on the other jobs: a plain policy always sees batches of
    ROWS observations, because matrix products of other sizes are rounded differently.

    Args:
        policy: chooses the actions.
        action_map: from policy actions to the environment's.
        jobs: what to play.
        restarts: how often an episode in which the environment fails is played again.
        workers: number of processes; None means one for each core, or this process alone for few episodes.

    Returns:
        The episodes of each job, in the order of their seeds.

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
    batches.sort(key=lambda batch: -batch.size)  # small ones last, so that workers end together
    played = _play_batches(_Player(policy, action_map, tuple(jobs), restarts), batches, workers)
    episodes: list[list[Episode]] = [[] for _ in jobs]
    for batch, those in sorted(zip(batches, played), key=lambda pair: pair[0].first):
        episodes[batch.job] += those
    return episodes


def play_side_by_side(
    policy: Policy,
    action_map: ActionMap,
    jobs: Sequence[Job],
    restarts: int,
    workers: int = 1,
    reach: Reach | None = None,
) -> list[Episode]:
    """Play the episodes of each job as one batch; the number of processes changes nothing.

    Args:
        policy, action_map, jobs, restarts: see `play_all`.
        workers: number of processes; more than one only if the policy is plain arrays.
        reach: see `play`; each batch is judged alone.

    Raises:
        UserError: an environment cannot be started, or the policy returned NaN.
    """
    batches = [_Batch(number, 0, job.episodes) for number, job in enumerate(jobs)]
    played = _play_batches(_Player(policy, action_map, tuple(jobs), restarts, None, reach), batches, workers)
    return [episode for batch in played for episode in batch]


def _cuts(episodes: int, largest: int, workers: int) -> list[tuple[int, int]]:
    """First episode and size of each batch. Towards the end batches get smaller, so that workers end together."""
    cuts, first = [], 0
    while first < episodes:
        left = episodes - first
        size = min(largest, left if workers == 1 else max(2, left // (2 * workers)), left)
        cuts.append((first, size))
        first += size
    return cuts


def takes_workers(policy: Policy, episodes: int) -> bool:
    """Whether `play_all` with `workers=None` plays this number of episodes in worker processes."""
    batches = -(-episodes // ROWS)
    return getattr(policy, "is_plain", False) and batches >= WORTHWHILE and worker_processes.cores() > 1


def _play_batches(player: _Player, batches: list[_Batch], workers: int) -> list[list[Episode]]:
    sizes = [batch.size for batch in batches]

    def tell(ended: int) -> None:
        progress.tell("episodes", ended, sum(sizes))

    if workers > 1:
        with contextlib.suppress(worker_processes.CannotStartError, StartError):  # perhaps only one may exist
            return worker_processes.run_in_workers(
                player, batches, workers, player.restarts, lambda done: tell(sum(sizes[i] for i in done))
            )
    played: list[list[Episode]] = []
    for batch in batches:
        played.append(player(batch, lambda ended: tell(sum(map(len, played)) + ended)))
    return played


def empty_observations(environment: Environment, rows: int) -> np.ndarray:
    """[rows, *shape] zeros: images stay uint8, all other numbers become float32."""
    space = environment.observation_space
    return np.zeros((rows, *space.shape), np.uint8 if is_image(space) else np.float32)


class _NotFiniteNumberError(Exception):
    """The environment returned NaN or infinity, which counts as a failure."""


@dataclass
class _Running:
    """An episode that is being played."""

    seed: int
    env: gymnasium.Env | None = None
    noise: np.random.Generator | None = None
    score: float = 0.0
    steps: int = 0
    failures: int = 0
    outcome: Episode | None = field(default=None)


class _Table:
    """Episodes played side by side: row i of every array belongs to episode i.

    Args:
        noise_size: X, random numbers that sample an action; 0 for deterministic actions.
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
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            for i in self.running:
                self._begin(i)
            on_error.pop_all()

    def noise(self, rows: list[int] | slice) -> np.ndarray:
        """Standard normal numbers for the next step, [n, X]; each episode has its own generator."""
        for i in self.running:
            episode = self._episodes[i]
            if episode.steps % _NOISE_STEPS == 0:
                assert episode.noise is not None
                episode.noise.standard_normal(out=self._noise[i], dtype=np.float32)
        ages = [episode.steps % _NOISE_STEPS for episode in self._episodes]
        ages += [0] * (len(self._noise) - len(ages))
        return self._noise[np.arange(len(self._noise)), ages][rows]  # [n, X]

    def step(self, actions: np.ndarray) -> None:
        """Step the running episodes with actions [n, *action], in their order."""
        for i, action in zip(self.running, actions):
            self._step(i, action)
        self.running = [i for i in self.running if self._episodes[i].outcome is None]

    def end_if_missed(self, reach: Reach) -> None:
        """End the running episodes if not even good ends of them can reach what is wanted; see `Reach`."""
        running = np.isin(np.arange(len(self._episodes)), self.running)  # [E]
        scores = np.array([episode.score for episode in self._episodes])  # [E]
        if not reach.missed(scores, running):
            return
        for i, score in enumerate(reach.optimistic_returns(scores, running).tolist()):
            if running[i]:
                one = self._episodes[i]
                one.outcome = Episode(score, one.steps, failures=one.failures, unfinished=True)
                self._close(one)
        self.running = []

    def outcomes(self) -> list[Episode]:
        """The result of each episode, once none is running."""
        return [episode.outcome for episode in self._episodes if episode.outcome is not None]

    def _begin(self, i: int) -> None:
        """Begin an episode in a new environment, because some environments depend on what they did before a reset."""
        episode = self._episodes[i]
        episode.noise = np.random.default_rng([episode.seed, 1])
        episode.score, episode.steps = 0.0, 0
        while True:
            try:
                self._close(episode)
                episode.env = self._environment.make()
                self._observe(i, episode.env.reset(seed=episode.seed)[0], "a reset")
                return
            except Exception as error:  # the environment is the user's code and may raise anything
                episode.failures += 1
                if episode.failures > self._restarts:
                    raise start_error(self._environment.id, error) from error

    def _step(self, i: int, action: np.ndarray) -> None:
        episode = self._episodes[i]
        assert episode.env is not None
        try:
            observation, reward, terminated, truncated, _ = episode.env.step(action)
            self._observe(i, observation, f"step {episode.steps + 1}")
            if isinstance(reward, np.ndarray):
                reward = reward.item()
            reward = float(reward)
            if not np.isfinite(reward):
                raise _NotFiniteNumberError(f"it returned NaN or infinity as reward in step {episode.steps + 1}")
        except Exception as error:
            episode.failures += 1
            if episode.failures <= self._restarts:
                self._begin(i)
            else:
                self._end(episode, fault=str(error) if isinstance(error, _NotFiniteNumberError) else explain(error))
            return
        episode.score += reward
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
        """Close the environments that are still open."""
        for episode in self._episodes:
            self._close(episode)


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> contextlib.AbstractContextManager:
    """A context with one thread for matrix products, which are small; the other cores step environments."""
    return _threads().limit(limits=1, user_api="blas")


def play(
    policy: Policy,
    action_map: ActionMap,
    environment: Environment,
    seeds: Sequence[int],
    deterministic: bool,
    restarts: int = 0,
    rows: int | None = None,
    reach: Reach | None = None,
    tell: Callable[[int], None] = lambda ended: None,
) -> list[Episode]:
    """Play one episode from each seed, side by side in this process.

    Args:
        policy: chooses the actions.
        action_map: from policy actions to the environment's.
        environment: where to play.
        seeds: of the episodes.
        deterministic: take the policy's deterministic action instead of a sample.
        restarts: how often an episode in which the environment fails, or returns NaN, is played again.
        rows: observations in each batch for the policy, with those of ended episodes; None leaves ended ones out.
        reach: ends all episodes once it is missed; those that are running then have the score that was hoped for.
        tell: called between two steps with the number of episodes that have ended.

    Returns:
        The episodes, in the order of the seeds.

    Raises:
        UserError: the environment cannot be started, or the policy returned NaN.
    """
    noise_size = 0 if deterministic else action_map.noise_size
    try:
        table = _Table(environment, seeds, rows or len(seeds), noise_size, restarts)
    except StartError:
        if len(seeds) == 1:
            raise
        # Perhaps only one may exist, so they are played one after another.
        alone = [play(policy, action_map, environment, [seed], deterministic, restarts, rows) for seed in seeds]
        return [episode for [episode] in alone]
    with contextlib.closing(table), one_blas_thread():
        while table.running:
            tell(len(seeds) - len(table.running))
            asked = slice(None) if rows else table.running
            chosen = policy.act(table.observations[asked], None if deterministic else table.noise(asked))  # [n, A]
            chosen = chosen[table.running] if rows else chosen  # [running, A]
            if not np.isfinite(chosen).all():
                raise UserError("the policy returned NaN or infinity: evaluate other weights")
            table.step(action_map(chosen))
            if reach is not None:
                table.end_if_missed(reach)
    return table.outcomes()
