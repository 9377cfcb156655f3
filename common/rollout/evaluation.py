"""Evaluates a policy in the unshaped environment, with seeds of its own; nothing is learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.envs.environment import Environment
from common.envs.spaces import ActionMap
from common.errors import UserError
from common.results import score_text
from common.rollout.playing import STEP_BOUND, Episode, EpisodeBatch, play_all
from common.rollout.policies import Policy, SamplingPolicy

EVALUATION_SEED = 1_000_003  # far from the small seeds people train with
KINDS = ("deterministic", "sampled")
Summaries = dict[str, dict[str, object]]  # kind → `Evaluation.summary`


@dataclass(frozen=True)
class Evaluation:
    """Scores of whole episodes, one from each of the seeds `seed`, `seed` + 1, …

    Attributes:
        returns: [E] sums of the environment's own rewards, not discounted.
        lengths: [E] steps.
        cut: number of episodes that were cut after 10,000 steps, in an environment without a step limit.
        repeated: number of episodes that were played again because the environment failed.
        faults: failures that ended an episode for good, each in one line.
    """

    returns: np.ndarray
    lengths: np.ndarray
    cut: int = 0
    repeated: int = 0
    faults: tuple[str, ...] = ()

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "Evaluation":
        """The scores of these episodes."""
        return cls(
            np.array([episode.score for episode in episodes]),
            np.array([episode.steps for episode in episodes], np.int64),
            sum(episode.cut for episode in episodes),
            sum(episode.failures > 0 and episode.fault is None for episode in episodes),
            tuple(episode.fault for episode in episodes if episode.fault is not None),
        )

    def summary(self) -> dict[str, object]:
        """Mean with its 95% bootstrap interval, standard deviation, extremes, mean length, all scores, incidents."""
        from scipy.stats import bootstrap  # here, because a program that evaluates nothing need not wait for it

        low = high = float(self.returns.mean())
        if len(self.returns) > 1 and np.ptp(self.returns) > 0:
            interval = bootstrap(
                (self.returns,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(0)
            ).confidence_interval
            low, high = float(interval.low), float(interval.high)
        return {
            "mean": float(self.returns.mean()),
            "low": low,
            "high": high,
            "std": float(self.returns.std()),
            "min": float(self.returns.min()),
            "max": float(self.returns.max()),
            "mean_steps": float(self.lengths.mean()),
            "episodes": len(self.returns),
            "returns": self.returns.tolist(),
        } | self.incidents()

    def incidents(self) -> dict[str, object]:
        """How many episodes were cut, played again or failed; counts of zero are left out."""
        incidents: dict[str, object] = {}
        if self.cut:
            incidents |= {"cut_episodes": self.cut, "cut_after_steps": STEP_BOUND}
        if self.repeated:
            incidents["repeated_episodes"] = self.repeated
        if self.faults:
            incidents |= {"failed_episodes": len(self.faults), "fault": self.faults[0]}
        return incidents


def evaluate(
    policy: Policy,
    action_map: ActionMap,
    environment: Environment,
    episodes: int,
    deterministic: bool,
    seed: int = EVALUATION_SEED,
    restarts: int = 0,
    workers: int | None = None,
) -> Evaluation:
    """Play whole episodes; see `common.rollout.playing.play_all`.

    Episode i starts from seed + i and runs until it ends, so that short and long episodes weigh the same. The random
    generators of training are not used.

    Args:
        deterministic: take the policy's deterministic action instead of a sample.
        seed: of the first episode.
        restarts: how often an episode in which the environment fails is played again.
        workers: number of processes; None decides by the number of episodes.

    Raises:
        UserError: the environment cannot be started or failed in every episode, no episode is asked for, or the policy
            returned NaN.
    """
    job = EpisodeBatch(environment, deterministic, range(seed, seed + episodes))
    [evaluation] = _evaluations(policy, action_map, [job], restarts, workers)
    return evaluation


def _evaluations(
    policy: Policy, action_map: ActionMap, jobs: Sequence[EpisodeBatch], restarts: int, workers: int | None
) -> list[Evaluation]:
    if not all(len(job.seeds) for job in jobs):
        raise UserError("no episode is asked for: expected 1 or more")
    evaluations = [Evaluation.of(episodes) for episodes in play_all(policy, action_map, jobs, restarts, workers)]
    for job, evaluation in zip(jobs, evaluations):
        if len(evaluation.faults) == len(job.seeds):
            fault = evaluation.faults[0]
            raise UserError(f"{job.environment.id} failed in every episode ({fault}): fix the environment")
    return evaluations


def evaluate_both(
    policy: SamplingPolicy, action_map: ActionMap, environment: Environment, episodes: int, **options: Any
) -> Summaries:
    """Summaries of a deterministic and a sampled evaluation; for seed, restarts and workers see `evaluate`."""
    [summaries] = evaluate_limits(policy, action_map, [environment], episodes, **options)
    return summaries


def evaluate_limits(
    policy: SamplingPolicy,
    action_map: ActionMap,
    environments: Sequence[Environment],
    episodes: int,
    seed: int = EVALUATION_SEED,
    restarts: int = 0,
    workers: int | None = None,
) -> list[Summaries]:
    """`evaluate_both` in each of several environments, which differ in their step limits."""
    seeds = range(seed, seed + episodes)
    jobs = [
        EpisodeBatch(environment, kind == "deterministic", seeds) for environment in environments for kind in KINDS
    ]
    found: list[Summaries] = [{} for _ in environments]
    for i, (job, evaluation) in enumerate(zip(jobs, _evaluations(policy, action_map, jobs, restarts, workers))):
        conditions = {"seed": seed, "max_episode_steps": job.environment.max_episode_steps}
        noise = {} if job.deterministic else {"noise": policy.noise}
        found[i // len(KINDS)][KINDS[i % len(KINDS)]] = evaluation.summary() | conditions | noise
    return found


def evaluation_line(summaries: Summaries) -> str:
    """'deterministic 301.2 [298.0, 303.9], sampled …', means with 95% intervals, then the incidents."""
    scores = ", ".join(f"{kind} {mean_text(summary)}" for kind, summary in summaries.items())
    return "; ".join([scores, *remarks(summaries)])


def mean_text(summary: Mapping[str, Any]) -> str:
    """'301.2 [298.0, 303.9]', the mean with its 95% interval."""
    return f"{score_text(summary['mean'])} [{score_text(summary['low'])}, {score_text(summary['high'])}]"


def remarks(summaries: Summaries) -> list[str]:
    """Sentences about episodes that were cut, failed, or were played again."""
    episodes = [(f"{summary['episodes']} {kind} episodes", summary) for kind, summary in summaries.items()]
    return [sentence for of, summary in episodes for sentence in remarks_on(of, summary)]


def remarks_on(episodes: str, summary: Mapping[str, object]) -> list[str]:
    """The incidents of a summary as sentences; `episodes` names the episodes, such as "100 episodes"."""
    sentences = []
    if cut := summary.get("cut_episodes"):
        sentences.append(
            f"{cut} of {episodes} {'was' if cut == 1 else 'were'} cut after {summary['cut_after_steps']:,} steps"
        )
    if repeated := summary.get("repeated_episodes"):
        sentences.append(
            f"{repeated} of {episodes} {'was' if repeated == 1 else 'were'} played again after the environment failed"
        )
    if failed := summary.get("failed_episodes"):
        sentences.append(f"{failed} of {episodes} ended early because the environment failed ({summary['fault']})")
    return sentences
