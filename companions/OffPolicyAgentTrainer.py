"""The off-policy loop: step, remember, train on memories, every few steps; and the command line.

    python -m companions.OffPolicyAgentTrainer pendulum-td3          a preset
    python -m companions.OffPolicyAgentTrainer td3 --env Some-v0     any environment with Box observations and actions
    python -m companions.OffPolicyAgentTrainer td3 --help            every setting

The run leaves its traces in runs/NAME, as PPO's does.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from common import funcs
from common.env_wrappers import RewardDesign
from common.envs.environment import look_up
from common.envs.make_env import MakeEnv
from common.envs.spaces import check_continuous
from common.envs.vector_env import resolve_backend
from common.errors import DivergedError
from common.records import Timing, Trajectory, Transitions
from common.results import from_columns, results_dictionary, to_columns
from common.rollout.experience import Experience
from common.rollout.policies import DeterministicBehaviour
from common.rollout.validation import Judge
from common.runs import session
from common.runs.command_line import one_line_errors, parse
from common.state import State, join_parts, load_generator, pack_generator, part_of
from companions.config import OffPolicyConfig
from companions.exploration import OrnsteinUhlenbeck
from companions.presets import PRESETS, preset_for
from companions.replay import ReplayBuffer
from companions.results import OffPolicyResult

if TYPE_CHECKING:  # TensorFlow is imported with an agent; `--help` and wrong settings need not wait for it
    from companions.DDPGAgent import DDPGAgent

NOTHING_DRAWN = (np.empty(0, np.float32), np.empty(0, np.float32))
SKIPS_IN_A_ROW = 10  # epochs whose updates are undone before training stops anyway


EpochCallback = Callable[[OffPolicyResult], None]


def make_agent(
    observation_space: gymnasium.spaces.Box, action_space: gymnasium.spaces.Box, config: OffPolicyConfig, seed: int
) -> "DDPGAgent":
    """DDPG's agent, or TD3's where one of its changes of the target is wanted."""
    from companions.DDPGAgent import DDPGAgent
    from companions.TD3Agent import TD3Agent

    kind = TD3Agent if config.twin_critics or config.target_smoothing else DDPGAgent
    return kind(observation_space, action_space, config, seed)


class OffPolicyAgentTrainer:
    """Trains a deterministic policy while it explores.

    Args:
        config: see `companions.config` and `companions.presets`.
        name, description: for the results dictionary and figures.
        make_env: builds a new environment of one's own, in place of the one that the config names.
        reward_design: what is rewarded in place of the design that the config names.

    Raises:
        UserError: the environment is unknown or not supported, or its backend is missing.
    """

    result_type = OffPolicyResult
    live = None  # no setting of its methods can be changed while a run goes on

    def __init__(
        self,
        config: OffPolicyConfig,
        name: str = "td3",
        description: str = "",
        make_env: MakeEnv | None = None,
        reward_design: RewardDesign | None = None,
    ) -> None:
        self.name, self.description = name, description
        # A bad environment fails here, before any network is built.
        self.environment = environment = look_up(config.env, config.max_episode_steps, config.env_kwargs, make_env)
        check_continuous(environment.id, environment.observation_space, environment.action_space)
        self.config = config = config.replace(
            env=environment.id,
            backend=resolve_backend(config.backend, environment),
            reward_design=config.reward_design if reward_design is None else "function",
        )
        if config.backend != "processes":  # else a crash or an endless loop of its code would be this process's
            environment.check()
        agent_seed, environment_seed, sample_seed, validation_seed = config.seeds()
        self.agent = make_agent(environment.observation_space, environment.action_space, config, agent_seed)
        self.warn: Callable[[str], None] = print
        self.experience = Experience(
            config,
            environment,
            self.agent.action_map,
            environment_seed,
            lambda line: self.warn(line),
            design=reward_design,
        )
        self.replay = ReplayBuffer(config.replay_size, self.agent.observation_size, self.agent.action_size)
        self._rng = np.random.default_rng(sample_seed)  # of minibatches, smoothing noise and random actions
        self._judge = Judge(config, environment, self.agent, validation_seed, lambda line: self.warn(line))
        self._ornstein_uhlenbeck = OrnsteinUhlenbeck(
            config.ou_theta, config.ou_dt, (config.num_envs, self.agent.action_size)
        )
        self.steps = 0  # learned from, autoreset steps not counted
        self._untrained = 0  # of them since the last time of training, the warm-up not counted
        self._drawn = NOTHING_DRAWN  # minibatches [K, B, W] and noise [K, B, A] of updates that wait
        self._skipped = 0  # epochs in a row whose updates were undone
        self.epoch = 0
        self.results: list[OffPolicyResult] = []

    def train(self, epochs: int | None = None, on_epoch: EpochCallback | None = None) -> dict[str, object]:
        """Run epochs; another call continues where the last one ended, even if that adopted the best parameters.

        Args:
            epochs: how many more; None takes the config's. Schedules run over the config's epochs however many calls
                they are divided among, and stretch once a call goes beyond them.
            on_epoch: called after every epoch with its row.

        Returns:
            The results dictionary of everything trained so far; see `common.results`.
        """
        last = self.epoch + (self.config.epochs if epochs is None else epochs)
        self.agent.leave_best()
        while self.epoch < last:
            result = self._run_epoch(max(last, self.config.epochs))
            self.results.append(result)
            if on_epoch is not None:
                on_epoch(result)
        if self.config.adopt_best:
            self.agent.adopt_best()
        return results_dictionary(self.name, self.description, self.results, self.agent.best.metric, self.config)

    def _run_epoch(self, last: int) -> OffPolicyResult:
        """Steps and updates by turns. `last`: the final epoch."""
        config, timing = self.config, Timing()
        std = config.exploration_std
        if config.final_exploration_std is not None:
            std = funcs.linear_schedule(std, config.final_exploration_std, self.epoch / max(1, last - 1))
        tables: list[np.ndarray] = []  # [K, metrics] of every time of training
        before, self._diverged = self.agent.learned_state(), False
        policy = self.agent.behaviour(std)
        behaviour = _WarmUp(policy, self._random_actions)
        shape_noise = self._ornstein_uhlenbeck if config.exploration == "ornstein_uhlenbeck" else None

        def on_rows(rows: slice, trajectory: Trajectory) -> None:
            began = time.perf_counter()
            self._remember(rows, trajectory)
            behaviour.random = self._acts_at_random()
            if self._untrained >= config.train_every and not self._diverged:
                self._draw()
                if due := self.agent.updates_that_act(len(self._drawn[0])):
                    tables.extend(self._checked_learn(before, due))
                    policy.refresh(self.agent.actor_weights())
            timing.update += time.perf_counter() - began

        behaviour.random = self._acts_at_random()
        rows_per_call = max(1, config.train_every // config.num_envs)
        self.experience.collect(behaviour, self.epoch, timing, on_rows, rows_per_call, shape_noise)
        if waiting := len(self._drawn[0]):
            began = time.perf_counter()
            tables.extend(self._checked_learn(before, waiting))
            timing.update += time.perf_counter() - began
        if self._diverged:
            self._untrained %= config.train_every  # its updates are dropped, not owed to the next epoch
        self._skipped = self._skipped + 1 if self._diverged else 0
        self.epoch += 1
        return OffPolicyResult(
            steps=self.epoch * config.steps_per_epoch,
            updates=self.agent.updates,
            exploration_std=std,
            replay_filled=self.replay.size,
            **self._judge(self.experience.training_metrics(), self.experience.scores(), self.epoch, last, timing),
            **_means([] if self._diverged else tables),
        )

    def _remember(self, rows: slice, trajectory: Trajectory) -> None:
        """Rows of a trajectory into the replay buffer."""
        valid = trajectory.valid[rows]  # [K, N]
        ends = trajectory.terminated[rows], trajectory.truncated[rows]  # [K, N], [K, N]
        shaped = self.experience.shape(trajectory.rewards[rows], *ends, trajectory.episode_steps[rows])  # [K, N]
        transitions = Transitions(
            trajectory.observations[rows],
            trajectory.actions[rows],
            shaped,
            ends[0] | ends[1] if self.config.truncation_is_terminal else ends[0],
            trajectory.observations[rows.start + 1 : rows.stop + 1],
        )
        self.replay.add(Transitions(*(column[valid] for column in transitions)))
        count = int(valid.sum())
        if self.steps >= self.config.warmup_steps:
            self._untrained += count
        self.steps += count

    def _acts_at_random(self) -> bool:
        return self.config.warmup_actions == "random" and self.steps < self.config.warmup_steps

    def _random_actions(self, count: int) -> np.ndarray:
        return self._rng.uniform(-1.0, 1.0, (count, self.agent.action_size)).astype(np.float32)  # [n, A]

    def _draw(self) -> None:
        """Minibatches and noise of the updates that have come due."""
        config = self.config
        updates = self._untrained // config.train_every * config.updates_per_train
        self._untrained %= config.train_every
        rows = self.replay.sample(updates, config.batch_size, self._rng)  # [K, B, W]
        shape = (updates, config.batch_size, self.agent.action_size)
        noise = self._rng.standard_normal(shape if config.target_smoothing else (*shape[:2], 0), np.float32)
        waiting, drawn = self._drawn, (rows, noise)
        self._drawn = tuple(map(np.concatenate, zip(waiting, drawn))) if len(waiting[0]) else drawn

    def _checked_learn(self, before: dict[str, np.ndarray], count: int) -> list[np.ndarray]:
        """The first updates of those drawn; if they come to NaN the agent is again what it was before the epoch."""
        now, self._drawn = ([part[cut] for part in self._drawn] for cut in (slice(count), slice(count, None)))
        try:
            return [self.agent.update(*now)]  # [K, metrics]
        except DivergedError as error:
            self._drawn = NOTHING_DRAWN
            self.agent.load_learned_state(before)
            if self.config.on_not_finite == "stop" or self._skipped >= SKIPS_IN_A_ROW:
                raise
            self.warn(f"warning: {error}; the updates of epoch {self.epoch + 1} are undone")
            self._diverged = True
            return []

    # -- state --

    def state(self) -> State:
        """Everything that changes, between two epochs: going on from it is going on as if never stopped."""
        return join_parts(
            {
                "agent": self.agent.training_state(),
                "experience": self.experience.state(),
                "replay": self.replay.state(),
                "exploration": self._ornstein_uhlenbeck.state(),
                "trainer": {
                    "epoch": np.int64(self.epoch),
                    "steps": np.int64(self.steps),
                    "untrained": np.int64(self._untrained),
                    "skipped": np.int64(self._skipped),
                    "rng": pack_generator(self._rng),
                },
                "results": to_columns(self.results, OffPolicyResult),
            }
        )

    def load_state(self, state: State) -> None:
        """Take over what `state` returned for a trainer of the same configuration.

        Raises:
            UserError: the environments do not repeat what they did.
        """
        self.agent.load_state(part_of(state, "agent"))
        self.experience.load_state(part_of(state, "experience"))
        self.replay.load_state(part_of(state, "replay"))
        self._ornstein_uhlenbeck.load_state(part_of(state, "exploration"))
        trainer = part_of(state, "trainer")
        self.epoch = int(trainer["epoch"])
        self.steps = int(trainer["steps"])
        self._untrained = int(trainer["untrained"])
        if not 0 <= self._untrained < max(self.config.train_every, self.config.steps_per_epoch):
            raise ValueError(f"{self._untrained} steps cannot wait for their updates")
        self._skipped = int(trainer["skipped"])
        load_generator(self._rng, trainer["rng"])
        self.results = from_columns(part_of(state, "results"), OffPolicyResult)

    def close(self) -> None:
        """End the environments."""
        self.experience.close()


class _WarmUp:
    """Acts by a policy, or at random while `random` is set."""

    def __init__(self, policy: DeterministicBehaviour, random_actions: Callable[[int], np.ndarray]) -> None:
        self._policy, self._random_actions = policy, random_actions
        self.random = False

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        if self.random:
            return self._random_actions(len(observations))  # [n, A]
        return self._policy.act(observations, noise)  # [n, A]


def _means(tables: list[np.ndarray]) -> dict[str, float]:
    """UPDATE_METRICS over an epoch's updates, of the actor's loss over those that it learned in; NaN without any."""
    from companions.DDPGAgent import UPDATE_METRICS

    table = np.concatenate(tables) if tables else np.full((1, len(UPDATE_METRICS)), np.nan)  # [K, metrics]
    means = {}
    for name, values in zip(UPDATE_METRICS, table.T):
        known = values[np.isfinite(values)]
        means[name] = float(known.mean()) if len(known) else float("nan")
    return means


def main() -> None:
    with one_line_errors():
        program = "python -m companions.OffPolicyAgentTrainer"
        preset, config, options = parse(sys.argv[1:], program, PRESETS, "pendulum-td3-fast", preset_for)
        session.run(
            lambda config: OffPolicyAgentTrainer(config, description=f"preset {preset}"), preset, config, options
        )


if __name__ == "__main__":
    main()
