"""Evaluation apart from training: Gymnasium's own unshaped environment, seeds of its own, nothing learned."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from common.envs.environment import Environment
from common.envs.spaces import ActionMap
from common.errors import UserError
from common.rollout.playing import STEP_BOUND, Episode, Job, play_all
from common.rollout.policies import NormalPolicy

EVALUATION_SEED = 1_000_003  # far from the small seeds people train with
KINDS = ("deterministic", "sampled")
Summaries = dict[str, dict[str, object]]  # kind → `Evaluation.summary`


@dataclass(frozen=True)
class Evaluation:
    """Scores of whole episodes, one each from seeds `seed`, `seed` + 1, …"""

    returns: np.ndarray  # [E] original rewards summed
    lengths: np.ndarray  # [E] steps
    cut: int = 0  # episodes that were cut after STEP_BOUND steps
    repeated: int = 0  # episodes that were played again, since the environment failed
    faults: tuple[str, ...] = field(default=())  # of episodes that ended early all the same, a line each

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "Evaluation":
        """What came of these."""
        return cls(
            np.array([episode.score for episode in episodes]),
            np.array([episode.steps for episode in episodes], np.int64),
            sum(episode.cut for episode in episodes),
            sum(episode.failures > 0 and episode.fault is None for episode in episodes),
            tuple(episode.fault for episode in episodes if episode.fault is not None),
        )

    def summary(self) -> dict[str, object]:
        """Mean with a 95% bootstrap interval, spread, extremes, mean length, every episode's score; `exceptions`."""
        from scipy.stats import bootstrap  # a tenth of what is imported before the first line

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
            "returns": [round(float(score), 3) for score in self.returns],
        } | self.exceptions()

    def exceptions(self) -> dict[str, object]:
        """How many episodes were cut, played again or failed; only what there was."""
        exceptions = {}
        if self.cut:
            exceptions |= {"cut_episodes": self.cut, "cut_after_steps": STEP_BOUND}
        if self.repeated:
            exceptions["repeated_episodes"] = self.repeated
        if self.faults:
            exceptions |= {"failed_episodes": len(self.faults), "fault": self.faults[0]}
        return exceptions

    def remarks(self, episodes: str) -> list[str]:
        """`exceptions` as sentences; `episodes` is what they were, such as "100 episodes"."""
        return _remarks(episodes, self.exceptions())


def evaluate(
    policy: NormalPolicy,
    action_map: ActionMap,
    environment: Environment,
    episodes: int,
    deterministic: bool,
    seed: int = EVALUATION_SEED,
    restarts: int = 0,
    workers: int | None = None,
) -> Evaluation:
    """Plays `episodes` whole episodes; see `common.rollout.playing.play_all`.

    Episode i starts from seed + i and is stepped until it ends, so short episodes weigh no more than
    long ones. No generator of training is touched.

    Raises:
        UserError: the environment cannot be started, or failed in every episode; the policy returned NaN.
    """
    [evaluation] = _evaluations(
        policy, action_map, [Job(environment, deterministic, episodes, seed)], restarts, workers
    )
    return evaluation


def _evaluations(
    policy: NormalPolicy, action_map: ActionMap, jobs: Sequence[Job], restarts: int, workers: int | None
) -> list[Evaluation]:
    evaluations = []
    for job, episodes in zip(jobs, play_all(policy, action_map, jobs, restarts, workers)):
        evaluation = Evaluation.of(episodes)
        if len(evaluation.faults) == len(episodes):
            raise UserError(
                f"{job.environment.id} failed in every episode ({evaluation.faults[0]}): fix the environment"
            )
        evaluations.append(evaluation)
    return evaluations


def evaluate_both(
    policy: NormalPolicy,
    action_map: ActionMap,
    environment: Environment,
    episodes: int,
    seed: int = EVALUATION_SEED,
    restarts: int = 0,
    workers: int | None = None,
) -> Summaries:
    """Summaries of a deterministic and a sampled evaluation; see `evaluate`."""
    [summaries] = evaluate_limits(policy, action_map, [environment], episodes, seed, restarts, workers)
    return summaries


def evaluate_limits(
    policy: NormalPolicy,
    action_map: ActionMap,
    environments: Sequence[Environment],
    episodes: int,
    seed: int = EVALUATION_SEED,
    restarts: int = 0,
    workers: int | None = None,
) -> list[Summaries]:
    """`evaluate_both` in each of several environments, which differ in their step limits, all at once."""
    jobs = [
        Job(environment, kind == "deterministic", episodes, seed) for environment in environments for kind in KINDS
    ]
    evaluations = iter(_evaluations(policy, action_map, jobs, restarts, workers))
    return [
        {kind: next(evaluations).summary() | _circumstances(policy, environment, kind, seed) for kind in KINDS}
        for environment in environments
    ]


def _circumstances(policy: NormalPolicy, environment: Environment, kind: str, seed: int) -> dict[str, object]:
    """What must be known to repeat an evaluation."""
    circumstances = {"seed": seed, "max_episode_steps": environment.max_episode_steps}
    return circumstances if kind == "deterministic" else circumstances | {"noise": policy.noise}


def evaluation_line(summaries: Summaries) -> str:
    """'deterministic 301.2 [298.0, 303.9], sampled …', means with 95% intervals; then what was out of the ordinary."""
    scores = ", ".join(f"{kind} {s['mean']:.1f} [{s['low']:.1f}, {s['high']:.1f}]" for kind, s in summaries.items())
    return "; ".join([scores, *remarks(summaries)])


def remarks(summaries: Summaries) -> list[str]:
    """Sentences about episodes that did not end by themselves, or had to be played again."""
    return [
        sentence
        for kind, summary in summaries.items()
        for sentence in _remarks(f"{summary['episodes']} {kind} episodes", summary)
    ]


def _remarks(episodes: str, summary: dict[str, object]) -> list[str]:
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
