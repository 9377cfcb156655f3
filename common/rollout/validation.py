"""How well an agent does while it is trained, to judge which of its parameters are the best.

Unlike `common.rollout.evaluation` it uses the backend that trains, so that it costs little, and its score
decides something; a final score must come from other episodes than these.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from common import progress
from common.config import TrainingConfig
from common.envs import worker_processes
from common.envs.environment import Environment
from common.envs.envpool_group import EnvPoolGroup
from common.envs.spaces import ActionMap
from common.envs.vector_env import VectorEnv, group_seeds, make_vector_env
from common.records import Timing
from common.rollout.evaluation import Evaluation, remarks_on
from common.rollout.playing import STEP_BOUND, EpisodeBatch, Reach, forewarning, play_all
from common.rollout.policies import InEpisodes, Policy
from common.state import State

SLOW = 5.0  # seconds of a validation after which the next ones use a process for each core
NONE = np.empty(0)
CONFIRMING_EPISODES = 100  # of the validation that confirms `stop_score`
GROUP = 25  # episodes side by side at most, so that few wait for their group's longest
ENVPOOL_GROUP = 50  # the same with EnvPool, which steps no episodes that are over; 75 are faster in 2 groups than in 3


class Validator:
    """Scores parameters by playing episodes.

    Args:
        agent: whose policy plays, and whose best metric is to be reached.
        seed: of the validations, which play the same episodes each time, but for those that confirm `stop_score`.
        warn: called with a line about episodes that were cut.
    """

    def __init__(
        self, config: TrainingConfig, environment: Environment, agent: Any, seed: int, warn: Callable[[str], None]
    ) -> None:
        self._config, self._environment, self._agent, self._seed, self._warn = config, environment, agent, seed, warn
        self._seconds = 0.0  # of the last validation in this process
        self._highest = -math.inf  # reward of the best episode of all validations

    def __call__(self, epoch: int, steps: float, timing: Timing) -> float:
        """The mean of `returns`; less if it reaches `stop_score` and other episodes do not confirm that.

        Args:
            epoch: the one just trained.
            steps: of a training episode; NaN where none has ended.
            timing: of the epoch; a validation's seconds are added to it.
        """
        if not self._seconds:
            self._forewarn(steps, timing.environment + timing.policy)
        metric, stop_score = float(self.returns(timing).mean()), self._config.stop_score
        if stop_score is not None and metric >= stop_score:
            return self._confirmed(stop_score, epoch, timing)
        return metric

    def _forewarn(self, steps: float, seconds: float) -> None:
        episodes = self._config.validation_episodes
        if expected := forewarning(self._config, self._environment, episodes, steps, seconds):
            plural, endless = "s" if episodes > 1 else "", self._environment.max_episode_steps is None
            self._warn(
                f"a validation of {episodes} episode{plural} takes {expected}: a new run can have another number with "
                f"--validation-episodes{', or shorter ones with --max-episode-steps' if endless else ''}"
            )

    def _confirmed(self, score: float, epoch: int, timing: Timing) -> float:
        """The mean of other episodes less `confirming_margin` standard errors.

        First a group of them is played, and then all others if that number has reached `score`. The standard error is
        always that of all of them, with the standard deviation of those played so far.
        """
        wanted, margin = CONFIRMING_EPISODES, self._config.confirming_margin
        returns, bound = np.empty(0), math.inf
        while len(returns) < wanted and bound >= score:
            episodes = wanted - len(returns) if len(returns) else min(GROUP, wanted)
            seed = int(np.random.SeedSequence([self._seed, epoch, len(returns)]).generate_state(1)[0])
            returns = np.append(returns, self.returns(timing, episodes, seed, returns))  # [played]
            bound = float(returns.mean() - margin * returns.std() / math.sqrt(wanted))
        return bound

    def _reach(self, episodes: int, before: np.ndarray) -> Reach | None:
        """What a validation has to reach not to end early: the best score so far, or `stop_score` if that is less.

        An episode that is not over is hoped to reach `stop_score`, or as much as the best episode of all validations.
        """
        if not self._config.confirming_margin or self._config.stop_score is None:
            return None
        target = min(self._agent.best_metric, self._config.stop_score)
        hope = max(self._highest, self._config.stop_score)
        return Reach(target, hope, len(before) + episodes, float(before.sum()), len(before))

    def returns(
        self, timing: Timing, episodes: int | None = None, seed: int | None = None, before: np.ndarray = NONE
    ) -> np.ndarray:
        """Unshaped rewards [E] of whole episodes, in separate environments; their seconds are added to `timing`.

        None takes the number of episodes and the seed of all validations. `before` [k] are rewards of other episodes
        that count in the same score.
        """
        began = time.perf_counter()
        config, agent = self._config, self._agent
        episodes = config.validation_episodes if episodes is None else episodes
        seed = self._seed if seed is None else seed
        policy = agent.acting_policy()
        spreads = self._seconds > SLOW and getattr(policy, "is_plain", False)
        try:
            validation = validate(
                policy, agent.action_map, self._environment, config.backend, episodes, seed,
                config.environment_restarts, worker_processes.cores() if spreads else 1,
                self._reach(episodes, before),
            )  # fmt: skip
        finally:
            seconds = time.perf_counter() - began
            timing.validation += seconds
        timing.validation_steps += int(validation.lengths.sum())
        if not spreads:
            self._seconds = seconds
        for remark in remarks_on(f"{episodes} validation episodes", validation.incidents()):
            self._warn(f"warning: {remark}")
        if validation.faults:  # a policy must not gain by making the environment fail
            self._warn("warning: validation episodes failed, so these parameters cannot be the best")
            return np.full(episodes, np.nan)
        self._highest = max(self._highest, float(validation.returns.max()))
        return validation.returns

    # -- state --

    def state(self) -> State:
        """The reward of the best episode so far, on which depends when a validation ends early."""
        return {"highest": np.array(self._highest, np.float64)} if self._config.confirming_margin else {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        self._highest = float(state.get("highest", -math.inf))


def validate(
    policy: Policy,
    action_map: ActionMap,
    environment: Environment,
    backend: str,
    episodes: int,
    seed: int,
    restarts: int = 0,
    workers: int = 1,
    reach: Reach | None = None,
) -> Evaluation:
    """Unshaped rewards of whole deterministic episodes.

    Every call with the same seed plays on the same terrains, so that two agents' scores differ by what
    the agents do. An episode that has ended is not stepped further, except in Atari games, whose vector
    environment steps the whole group.

    Args:
        backend: as `resolve_backend` returns it.
        restarts: how often an episode in which a Gymnasium environment fails is played again.
        workers: number of processes that play groups of Gymnasium environments; the scores are the same.
        reach: ends the episodes once it is missed; those that are running then have the reward that was hoped for.
            A group of Gymnasium environments ends for itself; if it hoped for too little, all are played again.

    Raises:
        UserError: an environment cannot be started.
    """
    groups = -(-episodes // (ENVPOOL_GROUP if backend == "envpool" else GROUP))
    if backend not in ("gymnasium", "processes"):
        envs = make_vector_env(environment, episodes, backend, groups)
        with contextlib.closing(envs):
            return _validate_in_groups(policy, action_map, environment, envs, seed, reach)
    sizes = [len(part) for part in np.array_split(np.arange(episodes), groups)]  # not a process an episode
    jobs = [
        EpisodeBatch(environment, True, range(one, one + size)) for size, one in zip(sizes, group_seeds(seed, groups))
    ]
    played = [e for job in play_all(policy, action_map, jobs, restarts, workers, None, reach) for e in job]
    scores, unfinished = (np.array(column) for column in zip(*((e.score, e.unfinished) for e in played)))  # [E], [E]
    if reach is not None and unfinished.any() and not reach.missed(scores, unfinished):  # it hoped for too little
        return validate(policy, action_map, environment, backend, episodes, seed, restarts, workers)
    return Evaluation.of(played)


def _validate_in_groups(
    policy: Policy,
    action_map: ActionMap,
    environment: Environment,
    envs: VectorEnv,
    seed: int,
    reach: Reach | None,
) -> Evaluation:
    """Each group's episodes side by side, until its last one is over or `reach` is missed."""
    bound = STEP_BOUND if environment.max_episode_steps is None else math.inf
    observations = envs.reset(seed)  # [n, *shape] a group
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)  # [N], [N]
    running = np.ones(envs.num_envs, bool)  # [N]
    acting = InEpisodes(policy, envs.num_envs)
    active, steps = list(zip(envs.groups, envs.columns, observations)), 0
    while active and steps < bound:
        progress.tell("episodes", envs.num_envs - int(running.sum()), envs.num_envs)
        stepped = []  # [n] bool a group
        for group, columns, seen in active:
            wanted = running[columns] if isinstance(group, EnvPoolGroup) else np.ones(group.num_envs, bool)  # [n]
            actions = action_map(acting.act(seen, rows=columns))  # [n, *action]
            if isinstance(group, EnvPoolGroup):
                group.send(actions[wanted], np.flatnonzero(wanted))
            else:
                group.send(actions)
            stepped.append(wanted)
        before = running.sum()
        for (group, columns, seen), wanted in zip(active, stepped):
            step = group.recv()  # of those that were stepped
            seen[wanted] = step.observations
            stepped_columns = np.arange(columns.start, columns.stop)[wanted]
            returns[stepped_columns] += np.where(running[stepped_columns], step.rewards, 0.0)
            lengths[stepped_columns] += running[stepped_columns]
            running[stepped_columns] &= ~step.ended
        active = [part for part in active if running[part[1]].any()]
        steps += 1
        if reach is not None and running.sum() < before and reach.missed(returns, running):
            return Evaluation(reach.optimistic_returns(returns, running), lengths)
    return Evaluation(returns, lengths, cut=int(running.sum()))
