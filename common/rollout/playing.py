"""Plays whole episodes outside training, each a pure function of a policy, an environment and a seed.

Worker processes import this module: nothing here imports TensorFlow.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from common import progress
from common.config import TrainingConfig
from common.envs import worker_processes
from common.envs.environment import Environment
from common.envs.environment_check import start_error
from common.envs.spaces import ActionMap, is_image
from common.errors import StartError, UserError
from common.rollout.policies import InEpisodes, Policy
from common.rollout.stepping import one_blas_thread
from common.user_code import WrongReturnError, explain

STEP_BOUND = 10_000  # steps after which an episode is cut if the environment has no limit
FILM_BOUND = 2_000  # the same of an episode that is shown
LONG = 30.0  # seconds; the duration of what takes longer is said before
ROWS = 8  # episodes played side by side; the policy always sees a batch of this size
WORTHWHILE = 5  # number of batches from which worker processes save time
_NOISE_STEPS = 128  # steps of noise drawn at a time


@dataclass(frozen=True)
class EpisodeBatch:
    """Episodes to play, one from each seed, with the policy's deterministic action or with samples."""

    environment: Environment
    deterministic: bool
    seeds: range


@dataclass(frozen=True)
class Episode:
    """The result of an episode."""

    score: float  # sum of the original rewards
    steps: int
    cut: bool = False  # ended after STEP_BOUND steps, in an environment without a limit
    failures: int = 0  # how often the environment failed; the episode was played again while that was allowed
    fault: str | None = None  # the failure that ended the episode for good, in one line
    is_unbegun: bool = False  # it failed at its start
    unfinished: bool = False  # ended by `Reach`, and the score is what was hoped for


@dataclass(frozen=True)
class Reach:
    """The mean that a validation has to reach not to end early, and how well its episodes may still end."""

    target: float  # the mean reward of an episode that has to be reached
    hope: float  # reward of an episode that is not over, unless one of this validation has more already
    episodes: int  # E, how many count in the mean
    total: float = 0.0  # sum of the rewards of those that were played before
    played: int = 0  # how many those are

    def optimistic_returns(self, returns: np.ndarray, running: np.ndarray) -> np.ndarray:
        """The rewards [n], so far `returns` [n], if episodes that are `running` [n] end as well as can be hoped."""
        return np.where(running, np.maximum(returns, self._highest(returns, running)), returns)  # [n]

    def missed(self, returns: np.ndarray, running: np.ndarray) -> bool:
        """Whether the mean of all E episodes stays below `target` even with the rewards of `optimistic_returns`."""
        to_come = (self.episodes - self.played - len(returns)) * self._highest(returns, running)
        total = self.total + self.optimistic_returns(returns, running).sum() + to_come
        return bool(total / self.episodes < self.target)

    def _highest(self, returns: np.ndarray, running: np.ndarray) -> float:
        """The highest reward among `hope` and the episodes that are over."""
        return float(np.max(returns, initial=self.hope, where=~running))


def play_all(
    policy: Policy,
    action_map: ActionMap,
    jobs: Sequence[EpisodeBatch],
    restarts: int,
    workers: int | None = None,
    rows: int | None = ROWS,
    reach: Reach | None = None,
) -> list[list[Episode]]:
    """Play the episodes of each job in the order of their seeds, in worker processes if the policy is plain arrays.

    The result depends neither on the number of processes nor on the other jobs: a plain policy always sees batches of
    the same size, because matrix products of other sizes are rounded differently.

    Args:
        restarts: how often an episode in which the environment fails is played again.
        workers: number of processes; None means one for each core, or this process alone for few episodes.
        rows: observations that a plain policy sees at a time; None plays all of a job's episodes side by side.
        reach: see `play`; each batch is ended alone.

    Raises:
        UserError: an environment cannot be started, or the policy returned NaN.
    """
    if not getattr(policy, "is_plain", False):
        workers, rows = 1, None
    elif workers is None:
        worth_it = takes_workers(policy, sum(len(job.seeds) for job in jobs))
        workers = worker_processes.cores() if worth_it else 1
    batches = [(i, replace(job, seeds=cut)) for i, job in enumerate(jobs) for cut in _cuts(job.seeds, rows, workers)]
    batches.sort(key=lambda batch: -len(batch[1].seeds))  # small ones last, so that workers end together

    def player(number: int, tell: Callable[[int], None] = lambda ended: None) -> list[Episode]:
        return play(policy, action_map, batches[number][1], restarts, rows, reach, tell)

    played = _play_batches(player, [len(batch.seeds) for _, batch in batches], workers, restarts)
    episodes: list[list[Episode]] = [[] for _ in jobs]
    for (i, batch), those in sorted(zip(batches, played), key=lambda pair: pair[0][1].seeds.start):
        if workers > 1:  # perhaps another worker had the only one that may exist
            those = _played_anew(those, policy, action_map, batch, restarts, rows or len(batch.seeds))
        episodes[i] += those
    if all(episode.is_unbegun for job in episodes for episode in job):
        raise StartError(next(str(episode.fault) for job in episodes for episode in job))
    return episodes


def _played_anew(
    played: list[Episode], policy: Policy, action_map: ActionMap, job: EpisodeBatch, restarts: int, rows: int | None
) -> list[Episode]:
    """A job's episodes; those that did not begin are played once more, alone."""
    again = (replace(job, seeds=job.seeds[i : i + 1]) for i in range(len(played)))
    return [
        play(policy, action_map, one, restarts, rows)[0] if episode.is_unbegun else episode
        for episode, one in zip(played, again)
    ]


def _cuts(seeds: range, largest: int | None, workers: int) -> Iterator[range]:
    """Seeds of each batch. Towards the end batches get smaller, so that workers end together."""
    while seeds:
        left = len(seeds)
        size = left if largest is None else min(largest, left if workers == 1 else max(2, left // (2 * workers)), left)
        yield seeds[:size]
        seeds = seeds[size:]


def takes_workers(policy: Policy, episodes: int) -> bool:
    """Whether `play_all` with `workers=None` plays this number of episodes in worker processes."""
    batches = -(-episodes // ROWS)
    return getattr(policy, "is_plain", False) and batches >= WORTHWHILE and worker_processes.cores() > 1


def _play_batches(
    player: Callable[..., list[Episode]], sizes: list[int], workers: int, restarts: int
) -> list[list[Episode]]:
    tell = functools.partial(progress.tell, "episodes", total=sum(sizes))
    numbers = range(len(sizes))
    if workers > 1:
        with contextlib.suppress(worker_processes.CannotStartError):
            return worker_processes.run_in_workers(
                player, numbers, workers, restarts, lambda done: tell(sum(sizes[i] for i in done))
            )
    played: list[list[Episode]] = []
    for number in numbers:
        played.append(player(number, lambda ended: tell(sum(map(len, played)) + ended)))
    return played


def forewarning(
    config: TrainingConfig, environment: Environment, episodes: int, steps: float, seconds: float, workers: int = 1
) -> str:
    """How long episodes are expected to take, such as "about 5.0 minutes"; empty for less than half a minute.

    Args:
        steps: of a training episode; NaN where none has ended.
        seconds: that an epoch of the training took to step the environments.
        workers: number of processes that play.
    """
    if math.isnan(steps):
        steps = environment.most_actions or STEP_BOUND
    at_once = config.num_envs if config.backend == "processes" else 1
    seconds *= episodes * steps * at_once / config.steps_per_epoch / workers
    return "" if seconds < LONG else f"about {progress.duration(seconds)}"


def _empty_observations(environment: Environment, rows: int) -> np.ndarray:
    space = environment.observation_space
    return np.zeros((rows, *space.shape), np.uint8 if is_image(space) else np.float32)


class _Running:
    """An episode that is being played; row i of `observations` [R, *shape] is always its newest observation."""

    def __init__(
        self, environment: Environment, seed: int, restarts: int, observations: np.ndarray, acting: InEpisodes, i: int
    ) -> None:
        self._environment, self._seed, self._restarts = environment, seed, restarts
        self._observations, self._acting, self._i = observations, acting, i
        self._env: Any = None
        self._failures = 0
        self._has_begun = False
        self.outcome: Episode | None = None

    def begin(self) -> None:
        """Begin the episode in a new environment, because some depend on what they did before a reset.

        If its start fails too often, the episode is over.
        """
        self.score, self._steps = 0.0, 0
        self._acting.forget(self._i)
        self._generator = np.random.default_rng([self._seed, 1])
        while True:
            try:
                self.close()
                self._env = self._environment.make()
                self._observe(self._env.reset(seed=self._seed)[0], "a reset")
                self._has_begun = True
                return
            except Exception as error:  # the environment is the user's code and may raise anything
                self._failures += 1
                if self._failures > self._restarts:
                    self.end(fault=str(start_error(self._environment.id, error)), is_unbegun=not self._has_begun)
                    return

    def noise(self, size: int) -> np.ndarray:
        """Standard normal numbers for the next step, [X]; each episode has its own generator."""
        t = self._steps % _NOISE_STEPS
        if t == 0:
            self._drawn = self._generator.standard_normal((_NOISE_STEPS, size), np.float32)  # [_NOISE_STEPS, X]
        return self._drawn[t]

    def step(self, action: np.ndarray) -> None:
        """Take a step; once the episode is over, `outcome` is set."""
        try:
            observation, reward, terminated, truncated, _ = self._env.step(action)
            self._observe(observation, f"step {self._steps + 1}")
            reward = float(reward)
            if not np.isfinite(reward):
                raise WrongReturnError(f"it returned NaN or infinity as reward in step {self._steps + 1}")
        except Exception as error:
            self._failures += 1
            if self._failures <= self._restarts:
                self.begin()
            else:
                self.end(fault=explain(error))
            return
        self.score += reward
        self._steps += 1
        if terminated or truncated:
            self.end()
        elif self._environment.max_episode_steps is None and self._steps == STEP_BOUND:
            self.end(cut=True)

    def _observe(self, observation: np.ndarray, where: str) -> None:
        if not np.isfinite(observation).all():
            raise WrongReturnError(f"it returned NaN or infinity as observation in {where}")
        self._observations[self._i] = observation

    def end(self, **how: Any) -> None:
        self.outcome = Episode(self.score, self._steps, failures=self._failures, **how)
        self.close()

    def close(self) -> None:
        if self._env is not None:
            with contextlib.suppress(Exception, SystemExit):
                self._env.close()
            self._env = None


def play(
    policy: Policy,
    action_map: ActionMap,
    job: EpisodeBatch,
    restarts: int = 0,
    rows: int | None = None,
    reach: Reach | None = None,
    tell: Callable[[int], None] = lambda ended: None,
) -> list[Episode]:
    """Play a job's episodes side by side in this process; they are in the order of the seeds.

    Args:
        restarts: how often an episode in which the environment fails, or returns NaN, is played again.
        rows: observations that a plain policy sees at a time, with those of ended episodes; None: as many as episodes.
            Another policy does not see those of ended episodes.
        reach: ends all episodes once it is missed; those that are running then have the score that was hoped for.
        tell: called between two steps with the number of episodes that have ended.

    Raises:
        UserError: the environment cannot be started, or the policy returned NaN.
    """
    environment, seeds = job.environment, job.seeds
    rows = (rows or len(seeds)) if getattr(policy, "is_plain", False) else None
    observations = _empty_observations(environment, rows or len(seeds))  # [R, *shape]
    noise = None if job.deterministic else np.zeros((len(observations), action_map.noise_size), np.float32)  # [R, X]
    acting = InEpisodes(policy, len(observations))
    episodes = [_Running(environment, seed, restarts, observations, acting, i) for i, seed in enumerate(seeds)]
    with contextlib.ExitStack() as stack:
        for episode in episodes:
            stack.callback(episode.close)
        for episode in episodes:
            episode.begin()
        stack.enter_context(one_blas_thread())
        while running := [i for i, episode in enumerate(episodes) if episode.outcome is None]:
            tell(len(seeds) - len(running))
            if noise is not None:
                for i in running:
                    noise[i] = episodes[i].noise(action_map.noise_size)
            asked = slice(None) if rows else running
            chosen = acting.act(observations[asked], None if noise is None else noise[asked], asked)  # [n, A]
            chosen = chosen[running] if rows else chosen  # [running, A]
            if not np.isfinite(chosen).all():
                raise UserError("the policy returned NaN or infinity: evaluate other weights")
            for i, action in zip(running, action_map(chosen)):
                episodes[i].step(action)
            if reach is not None:
                _end_if_missed(episodes, reach)
    played = [episode.outcome for episode in episodes if episode.outcome is not None]
    if all(episode.is_unbegun for episode in played):
        return played
    return _played_anew(played, policy, action_map, job, restarts, rows)  # perhaps only one may exist at a time


def _end_if_missed(episodes: Sequence[_Running], reach: Reach) -> None:
    """End the running episodes if not even good ends of them can reach what is wanted; see `Reach`."""
    running = np.array([episode.outcome is None or episode.outcome.is_unbegun for episode in episodes])  # [E]
    scores = np.array([episode.score for episode in episodes])  # [E]
    if reach.missed(scores, running):
        for i, score in enumerate(reach.optimistic_returns(scores, running).tolist()):
            if running[i]:
                episodes[i].score = score
                episodes[i].end(unfinished=True)


class Progress(NamedTuple):
    """How far an episode is."""

    score: float = 0.0  # sum of the environment's own rewards
    steps: int = 0
    over: bool = False
    was_cut: bool = False  # after FILM_BOUND steps


def one_episode(
    policy: Policy, action_map: ActionMap, environment: Environment, env: Any, seed: int
) -> Iterator[Progress]:
    """Play a deterministic episode step by step, for films and windows; its score is that of an evaluation.

    Yields:
        The progress of `env`, which may draw itself, after the reset and after every step.
    """
    rows = ROWS if getattr(policy, "is_plain", False) else 1  # as the evaluation plays it
    observations, acting = _empty_observations(environment, rows), InEpisodes(policy, rows)  # [R, *shape]
    observations[0], _ = env.reset(seed=seed)
    now = Progress()
    yield now
    while not (now.over or now.was_cut):
        with one_blas_thread():
            action = action_map(acting.act(observations)[:1])[0]
        observations[0], reward, terminated, truncated, _ = env.step(action)
        score, steps, over = now.score + float(reward), now.steps + 1, terminated or truncated
        was_cut = not over and environment.max_episode_steps is None and steps == FILM_BOUND
        now = Progress(score, steps, over, was_cut)
        yield now
