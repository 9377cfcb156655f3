"""The off-policy loop: step, remember, train on memories, every few steps; and the command line.

    python -m companions.OffPolicyAgentTrainer pendulum-td3          a preset
    python -m companions.OffPolicyAgentTrainer td3 --env Some-v0     any environment with Box observations and actions
    python -m companions.OffPolicyAgentTrainer td3 --help            the main settings

The run leaves its traces in runs/NAME, as PPO's does.
"""

if __name__ == "__main__":  # before the imports below, which take a second
    from common.runs import signals

    signals.end_on_ctrl_c()

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from common import funcs
from common.envs.environment import Environment
from common.envs.spaces import action_map
from common.envs.supported_spaces import check_continuous
from common.errors import DivergedError, NotFiniteError
from common.learning.trainer_base import SKIPS_IN_A_ROW, Part, TrainerBase
from common.records import Timing, Trajectory, Transitions
from common.results import EpochResult
from common.rollout.collector import CollectingPlan, ShapeNoise
from common.rollout.policies import DeterministicPolicy, SquashedPolicy, WarmUp
from common.runs.command_line import one_line_errors
from common.runs.session import train_as_typed
from common.state import State
from companions.config import OffPolicySettings
from companions.exploration import OrnsteinUhlenbeck
from companions.image_replay import new_replay
from companions.n_step import NStepReturns
from companions.presets import PRESETS, preset_for
from companions.replay import WaitingMinibatches
from companions.results import OffPolicyResult

LARGE = 1000.0  # mean absolute value of observations or rewards; those of well-made environments are near 1
OU_THETA = 0.15  # rate, per unit of time, at which Ornstein-Uhlenbeck noise drifts back to 0; that of the DDPG paper

if TYPE_CHECKING:  # TensorFlow is imported with an agent; `--help` and wrong settings need not wait for it
    from companions.DDPGAgent import DDPGAgent


class OffPolicyAgentTrainer(TrainerBase):
    """Trains a deterministic policy, which explores with added noise; for arguments and errors see `TrainerBase`."""

    agent: "DDPGAgent"
    config: Any  # OffPolicySettings, and those of the method
    result_type: type[Any] = OffPolicyResult  # an EpochResult, and the columns of the method
    default_name = "td3"
    exploration: OrnsteinUhlenbeck | None = None

    def __init__(self, config: OffPolicySettings, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self.replay = new_replay(config, self.agent)
        sizes = self.replay.observation_size, self.agent.action_size
        self._n_step = NStepReturns(config.n_step, config.gamma, config.num_envs, sizes) if config.n_step > 1 else None
        self._learning_rates = {name: float(adam.learning_rate) for name, adam in self.agent.adams.items()}
        self._before: State = {}  # what the agent had learned before the epoch
        self._diverged = False  # in this epoch, so that its updates are undone
        self._updates: list[dict[str, np.ndarray]] = []  # metrics of this epoch's updates
        self._untrained = 0  # steps since the last time of training, the warm-up not counted
        row_size, row_type = self.replay.row_size, self.replay.row_type
        self._waiting = WaitingMinibatches(config.batch_size, row_size, self.agent.update_noise_size, row_type)

    def check_environment(self, environment: Environment, config: Any) -> None:
        """Raises UserError unless actions are a Box, and an image has a size that the networks take."""
        check_continuous(environment.id, environment.observation_space, environment.action_space)

    @staticmethod
    def make_agent(*arguments: Any) -> "DDPGAgent":
        """An untrained agent; arguments as for `DDPGAgent`."""
        from companions.DDPGAgent import DDPGAgent

        return DDPGAgent(*arguments)

    def collecting(self, config: OffPolicySettings) -> CollectingPlan:
        """How the method collects: it hands over steps as soon as an update is due."""
        return CollectingPlan(
            rows_per_yield=max(1, config.train_every // config.num_envs),
            shape_noise=self.shape_noise(config),
        )

    def shape_noise(self, config: Any) -> ShapeNoise | None:
        """What turns an epoch's standard normal numbers into exploration noise; None keeps them as they are."""
        size = action_map(self.environment.action_space).size
        self.exploration = OrnsteinUhlenbeck(OU_THETA, config.ou_dt, (config.num_envs, size))
        return self.exploration if config.exploration == "ornstein_uhlenbeck" else None

    def prepare(self) -> None:
        """Say how much memory the replay buffer will take, but for small ones."""
        if self.replay.gigabytes >= 0.1 and not self.epoch:
            self.warn(f"the replay buffer takes up to {self.replay.gigabytes:.1f} GiB of memory (--replay-size)")

    def exploring(self, last: int) -> dict[str, float]:
        """How the coming epoch explores: arguments of the agent's `acting_policy`, and columns of the epoch's row."""
        std, final = self.config.exploration_std, self.config.final_exploration_std
        if final is not None:
            std = funcs.linear_schedule(std, final, self.epoch / max(1, last - 1))
        return {"exploration_std": std}

    def run_epoch(self, last: int) -> EpochResult:
        """Train one epoch, in which steps and updates alternate, and return its row."""
        timing, exploring = Timing(), self.exploring(last)
        if self.config.anneal:
            left = funcs.linear_schedule(1.0, 0.0, self.epoch / last)
            for name, adam in self.agent.adams.items():
                adam.learning_rate = left * self._learning_rates[name]
        self._before, self._diverged, self._updates = self.agent.learned_state(), False, []
        policy = self.agent.acting_policy(**exploring)
        warm_up = WarmUp(policy, self._random_actions)
        warm_up.random = began_at_random = self._acts_at_random()

        def learn(rows: slice) -> None:
            began = time.perf_counter()
            self._remember(rows, self.collector.trajectory)
            warm_up.random = self._acts_at_random()
            if self._untrained >= self.config.train_every and not self._diverged:
                self._learn(policy)
            timing.update += time.perf_counter() - began

        try:
            self.collector.collect(warm_up, self.epoch, timing, learn)
            self.collector.is_fresh = False  # the replay buffer has its steps
        except NotFiniteError:
            self._check_weights()  # so that what is stored is finite
            raise
        self._check_weights()
        if self._diverged:
            self._untrained %= self.config.train_every  # its updates are dropped, not owed to the next epoch
        self.skipped = self.skipped + 1 if self._diverged else 0
        self.epoch += 1
        if self.epoch == last:
            self._warn_if_nothing_was_learned()
        return self.result_type(
            steps=self.epoch * self.config.steps_per_epoch,
            updates=self.agent.updates,
            replay_filled=self.replay.size,
            **exploring,
            **self.scoring(self.epoch, last, timing, own_actions=not began_at_random),
            **_means(self.agent.metrics, [] if self._diverged else self._updates),
        )

    def _learn(self, policy: DeterministicPolicy | SquashedPolicy) -> None:
        """Make the updates that are due; then the policy acts with the newest weights."""
        self._warn_of_sizes()
        self._draw()
        due = self.agent.updates_due_now(len(self._waiting))
        if not due:
            return
        try:
            self._updates.append(self.agent.update(*self._waiting.take(due)))
        except DivergedError as error:
            self._undo(error)
        if self.config.on_not_finite == "skip" and not self.agent.actor_is_finite():
            self._check_weights()
        policy.heads = self.agent.acting_network()

    def _warn_if_nothing_was_learned(self) -> None:
        config = self.config
        if self.steps < config.warmup_steps:
            self.warn(
                f"warning: nothing was learned, because the warm-up is not over: {self.steps:,} of its "
                f"{config.warmup_steps:,} steps were taken (steps that only begin an episode do not count); lower "
                "--warmup-steps or raise --epochs"
            )
        elif not self.agent.updates and not self._diverged:
            self.warn(
                f"warning: nothing was learned, because no update was made: updates follow every {config.train_every} "
                "steps after the warm-up; lower --train-every or raise --epochs"
            )

    def _warn_of_sizes(self) -> None:
        """Before the first update, say where to begin if the numbers to learn from are far too large."""
        if self.agent.updates or len(self._waiting):
            return
        observations, rewards = self.replay.sizes()
        if observations > LARGE and not self.config.normalize_observations:
            self.warn(
                f"warning: the observations' numbers are about {observations:.0e} on average, and networks learn "
                "little from such large ones: give --normalize-observations"
            )
        if rewards > LARGE:
            self.warn(
                f"warning: rewards are about {rewards:.0e} on average, and critics learn little from such large ones: "
                f"give --reward-design scaled --reward-factor {1 / rewards:.0e}"
            )

    def _remember(self, rows: slice, trajectory: Trajectory) -> None:
        """Rows of a trajectory into the replay buffer."""
        valid = trajectory.valid[rows]  # [K, N]
        ends = trajectory.terminated[rows], trajectory.truncated[rows]  # [K, N], [K, N]
        seen = self.replay.stored(trajectory.observations[rows.start : rows.stop + 1])  # [K + 1, N, S]
        transitions = Transitions(
            seen[:-1],
            trajectory.actions[rows],
            self.collector.shaped(trajectory, rows),
            ends[0] | ends[1] if "truncation_is_terminal" in self.config.quirks else ends[0],
            seen[1:],
        )
        if self._n_step is None:
            transitions = Transitions(*(column[valid] for column in transitions))  # [K · N or less, ...]
        else:
            first = trajectory.episode_steps[rows] == 1  # [K, N]
            transitions = self._n_step(transitions, valid, ends[0] | ends[1], first)
        self.replay.add(transitions)
        self.agent.observe(trajectory.observations[rows][valid])
        count = int(valid.sum())
        if self.steps >= self.config.warmup_steps:
            self._untrained += count
        self.steps += count

    def _acts_at_random(self) -> bool:
        return self.config.warmup_actions == "random" and self.steps < self.config.warmup_steps

    def _random_actions(self, count: int) -> np.ndarray:
        return self.generator.uniform(-1.0, 1.0, (count, self.agent.action_size)).astype(np.float32)  # [n, A]

    def _draw(self) -> None:
        """Minibatches and noise of the updates that have come due."""
        config = self.config
        updates = self._untrained // config.train_every * config.updates_per_train
        self._untrained %= config.train_every
        rows = self.replay.sample(updates, config.batch_size, self.generator)  # [K, B, W]
        shape = updates, config.batch_size, self.agent.update_noise_size
        noise = self.generator.standard_normal(shape, np.float32)  # [K, B, X]
        self._waiting.add(rows, noise)

    def _check_weights(self) -> None:
        """Undo the epoch's updates if the newest made a weight NaN or infinite, which no loss has shown yet."""
        try:
            self.agent.check_finite()
        except DivergedError as error:
            self._undo(error)

    def _undo(self, error: DivergedError) -> None:
        """Restore the agent of before the epoch; raises the error again if the run has to end."""
        self._waiting.take(len(self._waiting))
        self.agent.load_learned_state(self._before)
        if self.config.on_not_finite == "stop" or self.skipped >= SKIPS_IN_A_ROW:
            raise error
        self.warn(f"warning: {error}; the updates of epoch {self.epoch + 1} are undone")
        self._diverged = True

    # -- state --

    def parts(self) -> dict[str, Part]:
        """The replay buffer, updates that wait, exploration noise, and steps whose `n_step` transition waits."""
        parts: dict[str, Part | None] = {"replay": self.replay, "waiting": self._waiting}
        parts |= {"exploration": self.exploration, "n_step": self._n_step}
        return {name: part for name, part in parts.items() if part is not None}

    def counters(self) -> dict[str, int]:
        """`TrainerBase.counters`, and the steps that wait for their updates; autoreset steps are not counted."""
        return super().counters() | {"untrained": self._untrained}

    def load_counters(self, counters: State) -> None:
        """Restore what `counters` returned; raises ValueError for a number of steps that cannot wait for updates."""
        super().load_counters(counters)
        self._untrained = int(counters["untrained"])
        if not 0 <= self._untrained < max(self.config.train_every, self.config.steps_per_epoch):
            raise ValueError(f"{self._untrained} steps cannot wait for their updates")


def _means(names: tuple[str, ...], updates: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Metrics over an epoch's updates, those of the actor over the updates that it learned in; NaN without any."""
    means = {}
    for name in names:
        values = np.concatenate([metrics[name] for metrics in updates]) if updates else np.array([])  # [updates]
        known = values[np.isfinite(values)]
        means[name] = float(known.mean()) if len(known) else float("nan")
    return means


def main() -> None:
    """Train as the command line says."""
    with one_line_errors():
        program = "python -m companions.OffPolicyAgentTrainer"
        train_as_typed(OffPolicyAgentTrainer, sys.argv[1:], program, PRESETS, "pendulum-td3-fast", preset_for)


if __name__ == "__main__":
    main()
