"""The epoch loop: collect → advantage → train → collect; and the command line.

python PPOAgentTrainer.py                      the walker, from nothing to walking
python PPOAgentTrainer.py pendulum             another preset
python PPOAgentTrainer.py --env Some-v0        any environment
python PPOAgentTrainer.py --help               the main settings; --help-all shows every one
"""

import os
import sys

if __name__ == "__main__":  # before the imports below, which take a second
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # which PYTHONSAFEPATH leaves out
    from common.runs import signals

    signals.end_on_ctrl_c()

import functools
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from common import funcs
from common.envs.spaces import BoxMap, action_map
from common.errors import DivergedError
from common.learning.trainer_base import SKIPS_IN_A_ROW, Part, TrainerBase
from common.records import Batch, Timing, Trajectory
from common.rollout.collector import CollectingPlan
from common.runs.command_line import one_line_errors
from common.runs.session import train_as_typed
from common.state import State
from ppo.batch import EarlierTrajectories, PreparedBatch, divided_rewards, flat_batch, minibatch_rows, scaled_rewards
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters, LiveHyperparameters, RateByDivergence
from ppo.presets import DEFAULT, FOR_ANY, PRESETS, preset_for
from ppo.results import AVERAGED_METRICS, RUNAWAY, UPDATE_METRICS, PPOResult
from ppo.sequences import sequence_minibatches, sequence_rows

if TYPE_CHECKING:  # TensorFlow is imported with an agent; `--help` and wrong settings need not wait for it
    from Agent import Agent


class PPOAgentTrainer(TrainerBase):
    """Trains an `Agent` by proximal policy optimisation; for arguments and errors see `TrainerBase`.

    Each trajectory is used twice: its episodes score the policy that collected it, then the next update learns from
    it.
    """

    agent: "Agent"
    config: PPOConfig
    result_type = PPOResult
    default_name = "ppo"
    generator_name = "shuffle"

    def __init__(self, config: PPOConfig, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self._new_steps = self.config.steps_per_update  # steps that are collected for an update
        self._samples = self.config.samples_per_update  # those and the earlier ones that it learns from
        self.reward_statistics = funcs.RunningStatistics()
        self.advantage_statistics = funcs.RunningStatistics()
        self.live = LiveHyperparameters(self.config)
        self.rate = RateByDivergence(self.config.desired_kl if self.config.objective == "clip" else None)
        self.earlier = EarlierTrajectories(self.config.reused_trajectories, self.collector.check_trajectory)
        self._last = {name: 0.0 for name in RUNAWAY}  # metrics of the last update

    @staticmethod
    def make_agent(*arguments: Any) -> "Agent":
        """An untrained agent; arguments as for `Agent`."""
        from Agent import Agent

        return Agent(*arguments)

    def collecting(self, config: PPOConfig) -> CollectingPlan:
        """How PPO collects: whole trajectories, with exploration noise of the colour `noise_color`."""
        shape_noise = None  # white
        if config.noise_color and isinstance(action_map(self.environment.action_space), BoxMap):
            shape_noise = functools.partial(funcs.colored_noise, exponent=config.noise_color)
        restarts = config.restarts_at_epoch_end
        sizes = self.agent.output_size, self.agent.memory_size
        return CollectingPlan(config.updates_per_epoch, None, shape_noise, restarts, *sizes)

    def prepare(self) -> None:
        """Collect the trajectory that the first update learns from.

        With `normalize_observations`, collect another one before it, which only fills the statistics.
        """
        if self.collector.is_fresh and not self.agent.lacks_statistics:
            return
        for only_observed in (True, False) if self.agent.lacks_statistics else (False,):
            self.collector.collect(self.agent.collecting_policy(), self.epoch, Timing())
            self.steps += self._new_steps
            if only_observed:
                self._observe_trajectory()

    def run_epoch(self, last: int) -> PPOResult:
        """Train on the trajectory at hand, then collect the next, which scores this epoch; do so for each update."""
        timing, metrics, updates = Timing(), [], self.config.updates_per_epoch
        for i in range(updates):
            self.collector.is_fresh = False
            metrics.append(self._checked_update((self.epoch + i / updates) / last, timing))
            self.collector.collect(self.agent.collecting_policy(), self.epoch, timing)
            self.steps += self._new_steps
        self.epoch += 1
        return self.result_type(
            steps=self.steps,
            reward_std=float(self.reward_statistics.std) if self.config.reward_scaling != "none" else 1.0,
            **self.scoring(self.epoch, last, timing),
            **mean_metrics(metrics),
            **self.live.columns(),
        )

    def _checked_update(self, progress: float, timing: Timing) -> dict[str, float]:
        """`_update` with the settings of now; one that became NaN or infinite is undone, and its metrics are NaN."""
        changes, refused = self.live.poll()
        if refused:
            self.warn(f"warning: {refused}")
        for change in changes:
            self.warn(f"hyperparameters: {change} from epoch {self.epoch + 1} on")
        try:
            metrics = self._update(progress, timing)
        except DivergedError as error:
            self.skipped += 1
            if self.config.on_not_finite == "stop" or self.skipped > SKIPS_IN_A_ROW:
                raise
            what, fate = ("rest of the update", "left out") if self.config.recompute_targets else ("update", "undone")
            self.warn(f"warning: {error}; the {what} of epoch {self.epoch + 1} is {fate}")
            return dict.fromkeys((*UPDATE_METRICS, "explained_variance", "learning_rate", "kl_coefficient"), math.nan)
        self.skipped = 0
        for name, (bound, words) in RUNAWAY.items():
            if metrics[name] > bound >= self._last[name]:
                self.warn(f"warning: {words.format(metrics[name])}")
        self._last = metrics
        return metrics

    def _update(self, progress: float, timing: Timing) -> dict[str, float]:
        """Learn from the trajectory at hand; `progress`: share of all updates that are done."""
        began = time.perf_counter()
        gamma, hyperparameters = self._scheduled(progress)
        trajectory = self.collector.trajectory
        rewards, self.reward_statistics = scaled_rewards(
            self.collector.shaped_rewards, trajectory, gamma, self.config, self.reward_statistics
        )  # [T, N]
        newest = self.prepare_batch(trajectory, rewards, gamma)
        self.advantage_statistics = newest.advantage_statistics
        self.collector.remember(newest.memory)
        prepare = functools.partial(self._prepare_earlier, gamma=gamma)
        batch = self.earlier.joined(newest.batch, prepare, self._new_steps, self.config.minibatch_size)
        if self.config.recompute_targets:
            metrics = self._passes_recomputing_targets(batch, rewards, gamma, hyperparameters)
        else:
            metrics = self._passes(batch, hyperparameters)
        metrics["explained_variance"] = newest.explained_variance
        metrics["learning_rate"] = hyperparameters.learning_rate
        metrics["kl_coefficient"] = self.agent.kl_coefficient if self.config.objective != "clip" else math.nan
        self.rate.follow(metrics["approximate_kl"])
        if self.config.objective != "clip":
            self.agent.adapt_kl_coefficient(batch)
        self.agent.raise_std(self.config.min_std)
        self.earlier.add(trajectory, newest.batch.log_probs[: self._new_steps])
        self._observe_trajectory()  # last: collecting and learning see the same normalisation
        timing.update += time.perf_counter() - began
        return metrics

    def _scheduled(self, progress: float) -> tuple[float, Hyperparameters]:
        """The discount factor and the hyperparameters of an update, by their schedules."""
        config, gamma = self.config, self.config.gamma
        if config.final_gamma is not None:
            gamma = funcs.discount_schedule(gamma, config.final_gamma, progress)
        left = funcs.linear_schedule(1.0, 0.0, progress)
        return gamma, self.live.now(
            learning_rate_left=self.rate.factor * (left if "learning_rate" in config.anneal else 1.0),
            clip_range_left=left if "clip_range" in config.anneal else 1.0,
        )

    def prepare_batch(self, trajectory: Trajectory, rewards: np.ndarray, gamma: float) -> PreparedBatch:
        """What `flat_batch` makes of a trajectory and its scaled rewards [T, N] with the present networks."""
        agent, statistics = self.agent, self.advantage_statistics
        return flat_batch(trajectory, rewards, agent.normalize, agent.assess, gamma, self.config, statistics)

    def _prepare_earlier(self, earlier: Trajectory, gamma: float) -> Batch:
        """An earlier trajectory by the present networks, statistics and cost of a fall."""
        rewards = divided_rewards(self.collector.shaped(earlier), self.config, self.reward_statistics)  # [T, N]
        return self.prepare_batch(earlier, rewards, gamma).batch

    def _observe_trajectory(self) -> None:
        """Merge the observations of the trajectory at hand into the statistics that normalise them."""
        observations = self.collector.trajectory.observations[:-1]  # [T, N, ...]
        self.agent.observe(observations.reshape(self._new_steps, *observations.shape[2:]))

    def _passes(self, batch: Batch, hyperparameters: Hyperparameters) -> dict[str, float]:
        """All passes over a batch, in shuffled minibatches."""
        actor_rows = self._minibatches(hyperparameters.passes)  # [K, B]
        critic_rows = self._minibatches(hyperparameters.passes)  # [K, B]
        return self.agent.update(batch, actor_rows, critic_rows, hyperparameters)

    def _minibatches(self, passes: int) -> np.ndarray:
        """Rows [K, B] of the batch for every gradient step; of networks that remember they are sequences."""
        config, size = self.config, self.config.minibatch_size
        if config.memory == "none":
            return minibatch_rows(self._samples, size, passes, self.generator)
        steps = self._new_steps // config.num_envs  # T
        rows = sequence_rows(steps, config.num_envs, config.sequence_steps, 1 + config.reused_trajectories)
        return sequence_minibatches(rows, self._samples, size, passes, self.generator)

    def _passes_recomputing_targets(
        self, batch: Batch, rewards: np.ndarray, gamma: float, hyperparameters: Hyperparameters
    ) -> dict[str, float]:
        """Recompute values, targets and advantages before each pass; keep the acting policy's log-probabilities."""
        metrics, acted = [], {"log_probs": batch.log_probs, "heads": batch.heads}
        for i in range(hyperparameters.passes):
            if i > 0:
                again = self.prepare_batch(self.collector.trajectory.without_outputs, rewards, gamma)
                self.advantage_statistics = again.advantage_statistics
                batch = again.batch._replace(**acted)
            metrics.append(self._passes(batch, hyperparameters._replace(passes=1)))
            if self.config.max_kl is not None and metrics[-1]["approximate_kl"] > self.config.max_kl:
                break
        means = mean_metrics(metrics)
        return metrics[-1] | {name: means[name] for name in AVERAGED_METRICS}

    def parts(self) -> dict[str, Part]:
        """See `TrainerBase.parts`."""
        return {
            "reward_statistics": self.reward_statistics,
            "advantage_statistics": self.advantage_statistics,
            "hyperparameters": self.live,
            "rate": self.rate,
            "earlier": self.earlier,
        }

    def load_state(self, state: State) -> None:
        """See `TrainerBase.load_state`."""
        super().load_state(state)
        if self.results:
            self._last = vars(self.results[-1])


def mean_metrics(rows: list[dict[str, float]]) -> dict[str, Any]:
    """The mean of each metric over updates, those that were undone left out; NaN without any."""
    if len(rows) == 1:
        return rows[0]
    means = {}
    for name in rows[0]:
        known = [row[name] for row in rows if not math.isnan(row[name])]
        means[name] = sum(known) / len(known) if known else math.nan
    return means


def main() -> None:
    """Train as the command line says."""
    with one_line_errors():
        train_as_typed(
            PPOAgentTrainer, sys.argv[1:], "python PPOAgentTrainer.py", PRESETS, DEFAULT, preset_for, FOR_ANY
        )


if __name__ == "__main__":
    main()
