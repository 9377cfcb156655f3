"""The epoch loop: collect → advantage → train → collect; and the command line.

    python PPOAgentTrainer.py                      the walker, from nothing to walking
    python PPOAgentTrainer.py pendulum             another preset
    python PPOAgentTrainer.py --env Some-v0        any environment with Box observations and actions
    python PPOAgentTrainer.py --help               every setting

The run leaves its traces in runs/NAME; `common.run_folder` says which.
"""

import dataclasses
import sys
import time
from collections.abc import Callable

import numpy as np

from Agent import UPDATE_METRICS, Agent
from common import checkpoint, funcs, session
from common.command_line import one_line_errors, parse
from common.config import PPOConfig
from common.env_wrappers import reward_design
from common.errors import NotFiniteError
from common.make_env import make_env, step_limit
from common.networks import MAX_STD
from common.records import Batch, Episodes, EpochResult, Timing, Trajectory, from_columns, to_columns
from common.rollout import Collector, minibatch_rows, padded_rows
from common.validation import validate
from common.vector_env import make_vector_env, resolve_backend

EpochCallback = Callable[[EpochResult], None]
RUNAWAY_STD = 10.0  # half action ranges; a policy this wide tosses coins
SKIPS_IN_A_ROW = 10  # updates that are undone before training stops anyway


class PPOAgentTrainer:
    """Trains an `Agent` by proximal policy optimisation.

    Args:
        config: see `common.config` and `common.presets`.
        name, description: for the results dictionary and figures.

    Raises:
        UserError: the environment is unknown or not supported, or its backend is missing.
    """

    def __init__(self, config: PPOConfig, name: str = "ppo", description: str = "") -> None:
        self.name, self.description = name, description
        env = make_env(config.env, config.max_episode_steps)  # told apart before anything is built
        self.config = config = config.replace(backend=resolve_backend(config.backend, config.env))
        steps = config.steps_per_epoch // config.num_envs
        agent_seed, collector_seed, shuffle_seed, validation_seed = np.random.SeedSequence(config.seed).generate_state(
            4
        )
        self._restart_every = config.restart_environments_every or default_restart_interval(config, steps)
        self.agent = Agent(env.observation_space, env.action_space, config, int(agent_seed))
        env.close()
        self.envs = make_vector_env(config.env, config.num_envs, config.max_episode_steps, config.backend)
        self.warn: Callable[[str], None] = print
        self._collector = Collector(
            self.envs,
            self.agent.action_map,
            steps,
            int(collector_seed),
            config.environment_restarts,
            lambda line: self.warn(line),
        )
        self._shuffle = np.random.default_rng(shuffle_seed)
        self._validation_seed = int(validation_seed)
        self._reward_design = reward_design(config)
        self.reward_statistics = funcs.RunningStatistics()
        self.advantage_statistics = funcs.RunningStatistics()
        self._running_returns = np.zeros((2, config.num_envs))  # [2, N] of unfinished episodes
        self._trajectory: Trajectory | None = None
        self._shaped: np.ndarray | None = None  # [T, N] shaped rewards of that trajectory
        self._seconds = 0.0
        self._skipped = 0  # updates in a row that were undone
        self.epoch = 0
        self.results: list[EpochResult] = []

    def train(self, epochs: int | None = None, on_epoch: EpochCallback | None = None) -> dict[str, object]:
        """Run epochs; calling again goes on where the last call ended.

        Args:
            epochs: how many more; None takes the config's. An annealed learning rate falls to 0 at
                the end of all epochs asked for so far.
            on_epoch: called after every epoch with its row.

        Returns:
            The results dictionary of everything trained so far; see `results_dictionary`.
        """
        last = self.epoch + (self.config.epochs if epochs is None else epochs)
        if self._trajectory is None:
            self._collect(Timing())
        while self.epoch < last:
            result = self._run_epoch(last)
            self.results.append(result)
            if on_epoch is not None:
                on_epoch(result)
        if self.config.adopt_best:
            self.agent.adopt_best()
            self._trajectory = None  # it came from the last policy, not from the one adopted
        return self.results_dictionary()

    def _run_epoch(self, last: int) -> EpochResult:
        """Train on the trajectory at hand, then collect the next, which scores this epoch. `last`: the final epoch."""
        timing = Timing()
        metrics = self._checked_update(self.epoch / last, timing)
        episodes = self._collect(timing)
        self.epoch += 1
        judged = self.config.best_metric == "validation" and self._validation_due(last)
        validation = self._validate(timing) if judged else float("nan")
        self._seconds += timing.training + timing.validation
        return self._score(episodes, metrics, validation, timing)

    def _validation_due(self, last: int) -> bool:
        return self.epoch == last or (2 * self.epoch > last and self.epoch % self.config.validate_every == 0)

    def _validate(self, timing: Timing) -> float:
        """Mean unshaped reward of deterministic episodes, always the same ones."""
        began = time.perf_counter()
        config, agent = self.config, self.agent
        episodes = config.validation_episodes
        groups = -(-episodes // 25)  # small enough that few environments wait for their group's longest episode
        envs = make_vector_env(config.env, episodes, config.max_episode_steps, config.backend, groups)
        try:
            return validate(agent.behaviour(), agent.action_map, envs, self._validation_seed)
        finally:
            envs.close()
            timing.validation += time.perf_counter() - began

    def _collect(self, timing: Timing) -> Episodes:
        """A new trajectory, its shaped rewards, and the episodes that ended in it."""
        if self._collector.must_restart or (self.epoch % self._restart_every == 0 and self.epoch > 0):
            self._restart_environments([self.epoch])
        elif self.config.restart_each_epoch and (self.epoch > 0 or self._trajectory is not None):
            self._collector.restart()
            self._running_returns[:] = 0.0
        self._take_up(self._collect_finite(timing))
        trajectory = self._trajectory
        ended = trajectory.terminated | trajectory.truncated  # [T, N]
        if self.config.restart_each_epoch:  # the quirk: what is cut counts as whole
            ended[-1] |= trajectory.valid[-1]
        episodes, self._running_returns = funcs.finished_episodes(
            self._shaped, trajectory.rewards, ended, trajectory.episode_steps, self._running_returns
        )
        return episodes

    def _restart_environments(self, when: list[int]) -> None:
        seed = np.random.SeedSequence([self.config.seed, *when]).generate_state(1)[0]
        self._collector.restart(int(seed))
        self._running_returns[:] = 0.0

    def _collect_finite(self, timing: Timing) -> Trajectory:
        """A trajectory without NaN or infinity, in as many attempts as the config allows."""
        attempt = 0
        while True:
            try:
                return self._collector.collect(self.agent.behaviour(), timing)
            except NotFiniteError as error:
                attempt += 1
                if self.config.on_not_finite == "stop" or attempt > self.config.environment_restarts:
                    raise
                self.warn(f"warning: {error}; the epoch is collected anew")
                self._restart_environments([self.epoch, attempt])

    def _take_up(self, trajectory: Trajectory) -> None:
        """Make a trajectory the one at hand."""
        self._trajectory = trajectory
        shaped = self._reward_design(
            trajectory.rewards, trajectory.terminated, trajectory.truncated, trajectory.episode_steps
        )  # [T, N]
        self._shaped = np.where(trajectory.valid, shaped, 0.0)  # [T, N]

    def _checked_update(self, progress: float, timing: Timing) -> dict[str, float]:
        """`_update`; one that came to NaN or infinity is undone, and its metrics are NaN."""
        try:
            metrics = self._update(progress, timing)
        except NotFiniteError as error:
            self._skipped += 1
            if self.config.on_not_finite == "stop" or self._skipped > SKIPS_IN_A_ROW:
                raise
            self.warn(f"warning: {error}; the update of epoch {self.epoch + 1} is undone")
            names = (*UPDATE_METRICS, "explained_variance", "learning_rate")
            return dict.fromkeys(names, float("nan"))
        self._skipped = 0
        before = self.results[-1].mean_std if self.results else 0.0
        if metrics["mean_std"] > RUNAWAY_STD >= before:
            self.warn(
                f"warning: the policy's standard deviation runs away, on average it is {metrics['mean_std']:.1f} half "
                f"action ranges (bounded at {MAX_STD:g}): lower --entropy-coefficient"
            )
        return metrics

    def _update(self, progress: float, timing: Timing) -> dict[str, float]:
        """One epoch of learning from the trajectory at hand; `progress`: share of the epochs that are over."""
        began = time.perf_counter()
        config = self.config
        gamma = config.gamma
        if config.final_gamma is not None:
            gamma = funcs.discount_schedule(gamma, config.final_gamma, progress)
        batch, explained_variance = self._batch(gamma)
        samples = config.steps_per_epoch
        actor_rows = minibatch_rows(samples, config.minibatch_size, config.passes, self._shuffle)  # [K, B]
        critic_rows = minibatch_rows(samples, config.minibatch_size, config.passes, self._shuffle)  # [K, B]
        learning_rates = [config.learning_rate, config.critic_learning_rate]
        if config.critic_learning_rate is None:
            learning_rates[1] = config.learning_rate
        if config.anneal_learning_rate:
            learning_rates = [funcs.linear_schedule(rate, 0.0, progress) for rate in learning_rates]
        metrics = self.agent.update(batch, actor_rows, critic_rows, *learning_rates)
        # Only now: collecting and learning must have seen the same normalisation.
        self.agent.observe(self._trajectory.observations[:-1].reshape(samples, -1))
        timing.update += time.perf_counter() - began
        return metrics | {"explained_variance": explained_variance, "learning_rate": learning_rates[0]}

    def _batch(self, gamma: float) -> tuple[Batch, float]:
        """The trajectory at hand as a flat batch, and how well the critic foresaw its value targets."""
        config, trajectory = self.config, self._trajectory
        steps, num_envs = trajectory.rewards.shape
        rewards = self._shaped  # [T, N]
        if config.scale_rewards:
            self.reward_statistics.update(rewards[trajectory.valid])
            rewards = rewards / (self.reward_statistics.std + 1e-4)  # [T, N]
        observations = self.agent.normalize(trajectory.observations).reshape((steps + 1) * num_envs, -1)  # [M+N, S]
        actions = trajectory.actions.reshape(steps * num_envs, -1)  # [M, A]
        values, log_probs = self.agent.assess(observations, actions)  # [M+N], [M]
        values = values.reshape(steps + 1, num_envs)  # [T+1, N]
        terminated, truncated = trajectory.terminated, trajectory.truncated  # [T, N]
        if config.truncation_is_terminal:
            terminated = terminated | truncated
        advantages = funcs.generalized_advantages(
            rewards, values, terminated, truncated, trajectory.valid, gamma, config.gae_lambda
        )  # [T, N]
        targets = advantages + values[:-1]  # [T, N]
        valid = trajectory.valid
        explained_variance = funcs.explained_variance(values[:-1][valid], targets[valid])
        if config.normalize_advantages == "running_std":
            self.advantage_statistics.update(advantages[valid])
            advantages = advantages / (self.advantage_statistics.std + 1e-4)  # [T, N]
        padding = padded_rows(steps * num_envs, config.minibatch_size)

        def flat(array: np.ndarray) -> np.ndarray:
            column = array.astype(np.float32, copy=False).reshape(steps * num_envs, *array.shape[2:])  # [M, ...]
            return np.pad(column, [(0, padding)] + [(0, 0)] * (column.ndim - 1)) if padding else column

        batch = Batch(
            observations=flat(observations[: steps * num_envs].reshape(steps, num_envs, -1)),
            actions=flat(trajectory.actions),
            log_probs=flat(log_probs.reshape(steps, num_envs)),
            advantages=flat(advantages),
            value_targets=flat(targets),
            weights=flat(valid),
        )
        return batch, explained_variance

    def _score(
        self,
        episodes: Episodes,
        metrics: dict[str, float],
        validation: float,
        timing: Timing,
    ) -> EpochResult:
        """The epoch's row; its parameters are kept if they are the best so far."""
        mean = {
            name: float(column.mean()) if len(column) else float("nan")
            for name, column in zip(Episodes._fields, episodes)
        }
        total = float(self._shaped.sum())
        metric = {
            "total_reward": total,
            "mean_episode_reward": mean["returns"],
            "reward_times_steps": mean["returns"] * mean["lengths"],
            "validation": validation,
        }[self.config.best_metric]
        return EpochResult(
            epoch=self.epoch,
            steps=(self.epoch + 1) * self.config.steps_per_epoch,
            metric=metric,
            total_reward=total,
            total_reward_orig=float(self._trajectory.rewards[self._trajectory.valid].sum()),
            avg_reward=mean["returns"],
            avg_reward_orig=mean["original_returns"],
            avg_steps=mean["lengths"],
            episodes=len(episodes.lengths),
            is_best=self.agent.keep_best(metric),
            reward_std=float(self.reward_statistics.std) if self.config.scale_rewards else 1.0,
            seconds=timing.training + timing.validation,
            seconds_environment=timing.environment,
            seconds_policy=timing.policy,
            seconds_update=timing.update,
            seconds_validation=timing.validation,
            steps_per_second=self.config.steps_per_epoch / timing.training,
            **metrics,
        )

    def results_dictionary(self) -> dict[str, object]:
        """Everything trained so far under the keys of the 2021 study, and the settings."""

        def column(name: str) -> list[float]:
            return [getattr(result, name) for result in self.results]

        return {
            "name": self.name,
            "description": self.description,
            "loss_actor_epochs": column("loss_actor"),
            "loss_critic_epochs": column("loss_critic"),
            "epoch_metrics_epochs": column("metric"),
            "total_reward_epochs": column("total_reward"),
            "total_reward_orig_epochs": column("total_reward_orig"),
            "avg_steps_epochs": column("avg_steps"),
            "avg_reward_epochs": column("avg_reward"),
            "avg_reward_orig_epochs": column("avg_reward_orig"),
            "max_epoch_metrics": self.agent.best_metric,
            "processing_time_total": self._seconds,
            "processing_time_total_string": funcs.format_seconds(self._seconds),
            **dataclasses.asdict(self.config),
        }

    # -- state --

    def state(self) -> checkpoint.State:
        """Everything that changes, between two epochs: going on from it is going on as if never stopped."""
        return checkpoint.join(
            {
                "agent": self.agent.state(),
                "collector": self._collector.state(),
                "trajectory": {} if self._trajectory is None else self._trajectory._asdict(),
                "reward_statistics": self.reward_statistics.state(),
                "advantage_statistics": self.advantage_statistics.state(),
                "trainer": {
                    "epoch": np.int64(self.epoch),
                    "seconds": np.float64(self._seconds),
                    "skipped": np.int64(self._skipped),
                    "running_returns": self._running_returns,
                    "shuffle": checkpoint.pack_generator(self._shuffle),
                },
                "results": to_columns(self.results),
            }
        )

    def load_state(self, state: checkpoint.State) -> None:
        """Take over what `state` returned for a trainer of the same configuration.

        Raises:
            UserError: the environments do not repeat what they did.
        """
        self.agent.load_state(checkpoint.part(state, "agent"))
        self._collector.load_state(checkpoint.part(state, "collector"))
        trajectory = checkpoint.part(state, "trajectory")
        if trajectory:
            self._take_up(Trajectory(**trajectory))
        self.reward_statistics.load_state(checkpoint.part(state, "reward_statistics"))
        self.advantage_statistics.load_state(checkpoint.part(state, "advantage_statistics"))
        trainer = checkpoint.part(state, "trainer")
        self.epoch = int(trainer["epoch"])
        self._seconds = float(trainer["seconds"])
        self._running_returns = trainer["running_returns"].copy()
        checkpoint.load_generator(self._shuffle, trainer["shuffle"])
        self._skipped = int(trainer["skipped"])
        self.results = from_columns(checkpoint.part(state, "results"))

    def close(self) -> None:
        self.envs.close()


def default_restart_interval(config: PPOConfig, steps: int) -> int:
    """Epochs that hold ten episodes of full length in each environment, and ten epochs at least.

    A resumed run repeats the steps since the last restart, so the interval bounds the wait; ten
    episodes keep the share that is cut small.
    """
    limit = step_limit(config.env, config.max_episode_steps) or 1000
    return max(10, -(-10 * limit // steps))


def main() -> None:
    with one_line_errors():
        preset, config, options = parse(sys.argv[1:], "python PPOAgentTrainer.py")
        session.run(lambda config: PPOAgentTrainer(config, description=f"preset {preset}"), preset, config, options)


if __name__ == "__main__":
    main()
