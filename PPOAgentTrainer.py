"""The epoch loop: collect → advantage → train → collect; and the command line.

    python PPOAgentTrainer.py                      the walker, from nothing to walking
    python PPOAgentTrainer.py pendulum             another preset
    python PPOAgentTrainer.py --env Some-v0        any environment
    python PPOAgentTrainer.py --help               every setting

The run leaves its traces in runs/NAME; `common.runs.run_folder` says which.
"""

import functools
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from common import funcs
from common.env_wrappers import RewardDesign
from common.envs.environment import Environment, look_up
from common.envs.make_env import MakeEnv
from common.envs.spaces import BoxMap
from common.envs.vector_env import resolve_backend
from common.errors import DivergedError
from common.records import Batch, Timing
from common.results import from_columns, results_dictionary, to_columns
from common.rollout.experience import Experience
from common.rollout.policies import MAX_STD
from common.rollout.validation import Judge
from common.runs import session
from common.runs.command_line import one_line_errors, parse
from common.state import State, join_parts, load_generator, pack_generator, part_of
from ppo.batch import minibatch_rows, padded_rows
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters, LiveHyperparameters
from ppo.presets import PRESETS, preset_for
from ppo.results import PPOResult

if TYPE_CHECKING:  # TensorFlow is imported with an agent; `--help` and wrong settings need not wait for it
    from Agent import Agent

EpochCallback = Callable[[PPOResult], None]
RUNAWAY_STD = 10.0  # half action ranges; a policy this wide tosses coins
SKIPS_IN_A_ROW = 10  # updates that are undone before training stops anyway


class PPOAgentTrainer:
    """Trains an `Agent` by proximal policy optimisation.

    Args:
        config: see `common.config` and `ppo.presets`.
        name, description: for the results dictionary and figures.
        make_env: builds a new environment of one's own, in place of the one that the config names.
        reward_design: what is rewarded in place of the design that the config names.

    Raises:
        UserError: the environment is unknown or not supported, or its backend is missing.
    """

    result_type = PPOResult

    def __init__(
        self,
        config: PPOConfig,
        name: str = "ppo",
        description: str = "",
        make_env: MakeEnv | None = None,
        reward_design: RewardDesign | None = None,
    ) -> None:
        self.name, self.description = name, description
        # A bad environment fails here, before any network is built.
        self.environment = environment = look_up(config.env, config.max_episode_steps, config.env_kwargs, make_env)
        self.config = config = config.replace(
            env=environment.id,
            backend=resolve_backend(config.backend, environment),
            reward_design=config.reward_design if reward_design is None else "function",
        )
        if config.backend != "processes":  # else a crash or an endless loop of its code would be this process's
            environment.check()
        agent_seed, environment_seed, shuffle_seed, validation_seed = config.seeds()
        self.agent = _new_agent(environment, config, agent_seed)
        self.warn: Callable[[str], None] = print
        self.experience = Experience(
            config,
            environment,
            self.agent.action_map,
            environment_seed,
            lambda line: self.warn(line),
            config.restart_each_epoch,
            config.updates_per_epoch,
            reward_design,
        )
        self._shuffle = np.random.default_rng(shuffle_seed)
        self._judge = Judge(config, environment, self.agent, validation_seed, lambda line: self.warn(line))
        self.reward_statistics = funcs.RunningStatistics()
        self.advantage_statistics = funcs.RunningStatistics()
        self.live = LiveHyperparameters(config)
        self._skipped = 0  # updates in a row that were undone
        self._mean_std = 0.0  # of the policy after the last update
        self._shape_noise = None  # white
        if config.noise_color and isinstance(self.agent.action_map, BoxMap):
            self._shape_noise = functools.partial(funcs.colored_noise, exponent=config.noise_color)
        self.steps = 0  # in the environments, autoreset steps included
        self.epoch = 0
        self.results: list[PPOResult] = []

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
        if self.experience.trajectory is None:
            self._collect_first()
        while self.epoch < last:
            result = self._run_epoch(max(last, self.config.epochs))
            self.results.append(result)
            if on_epoch is not None:
                on_epoch(result)
        if self.config.adopt_best:
            self.agent.adopt_best()
        return results_dictionary(self.name, self.description, self.results, self.agent.best.metric, self.config)

    def _collect_first(self) -> None:
        """What the first update learns from; before it a trajectory that only fills the observations' statistics.

        Without that one the first update would see raw observations and all later ones normalised ones.
        """
        if self.agent.lacks_statistics:
            self._collect(Timing())
            self._observe_trajectory()
        self._collect(Timing())
        self.experience.scores()  # of a policy that no epoch has trained

    def _run_epoch(self, last: int) -> PPOResult:
        """Train on the trajectory at hand, then collect the next, which scores this epoch. `last`: the final epoch."""
        timing, metrics = Timing(), []
        updates = self.config.updates_per_epoch
        for i in range(updates):
            metrics.append(self._checked_update((self.epoch + i / updates) / last, timing))
            self._collect(timing)
        self.epoch += 1
        return PPOResult(
            steps=self.steps,
            reward_std=float(self.reward_statistics.std) if self.config.scale_rewards else 1.0,
            **self._judge(self.experience.training_metrics(), self.experience.scores(), self.epoch, last, timing),
            **_means(metrics),
            **{f"hp_{name}": float(value) for name, value in self.live.values.items()},
        )

    def _collect(self, timing: Timing) -> None:
        self.experience.collect(self.agent.behaviour(), self.epoch, timing, shape_noise=self._shape_noise)
        self.steps += self.config.steps_per_update

    def _checked_update(self, progress: float, timing: Timing) -> dict[str, float]:
        """`_update`; one that came to NaN or infinity is undone, and its metrics are NaN."""
        self._take_up_hyperparameters()
        try:
            metrics = self._update(progress, timing)
        except DivergedError as error:
            self._skipped += 1
            if self.config.on_not_finite == "stop" or self._skipped > SKIPS_IN_A_ROW:
                raise
            what, fate = ("rest of the update", "left out") if self.config.recompute_targets else ("update", "undone")
            self.warn(f"warning: {error}; the {what} of epoch {self.epoch + 1} is {fate}")
            from Agent import UPDATE_METRICS

            names = (*UPDATE_METRICS, "explained_variance", "learning_rate", "kl_coefficient")
            return dict.fromkeys(names, float("nan"))
        self._skipped = 0
        if metrics["mean_std"] > RUNAWAY_STD >= self._mean_std:
            self.warn(
                f"warning: the policy's standard deviation runs away, on average it is {metrics['mean_std']:.1f} half "
                f"action ranges (bounded at {MAX_STD:g}): lower --entropy-coefficient"
            )
        self._mean_std = metrics["mean_std"]
        return metrics

    def _take_up_hyperparameters(self) -> None:
        """Values that were changed since the last update hold from this one on."""
        changes, refused = self.live.poll()
        if refused:
            self.warn(f"warning: {refused}")
        for change in changes:
            self.warn(f"hyperparameters: {change} from epoch {self.epoch + 1} on")

    def _update(self, progress: float, timing: Timing) -> dict[str, float]:
        """Learn from the trajectory at hand; `progress`: share of all updates that are over."""
        began = time.perf_counter()
        config = self.config
        gamma = config.gamma
        if config.final_gamma is not None:
            gamma = funcs.discount_schedule(gamma, config.final_gamma, progress)
        left = funcs.linear_schedule(1.0, 0.0, progress)
        hyperparameters = self.live.now(
            learning_rate_left=left if config.anneal_learning_rate else 1.0,
            clip_range_left=left if config.anneal_clip_range else 1.0,
        )
        rewards = self._scaled_rewards(gamma)  # [T, N]
        batch, explained_variance = self._batch(rewards, gamma)
        if config.recompute_targets:
            metrics = self._passes_with_targets_anew(batch, rewards, gamma, hyperparameters)
        else:
            metrics = self._passes(batch, hyperparameters)
        kl_coefficient = math.nan
        if config.objective != "clip":
            kl_coefficient = self.agent.kl_coefficient
            self.agent.adapt_kl_coefficient(batch)
        # Only now: collecting and learning must have seen the same normalisation.
        self._observe_trajectory()
        timing.update += time.perf_counter() - began
        return metrics | {
            "explained_variance": explained_variance,
            "learning_rate": hyperparameters.learning_rate,
            "kl_coefficient": kl_coefficient,
        }

    def _observe_trajectory(self) -> None:
        """Merge the observations of the trajectory at hand into the statistics that normalise them."""
        observations = self.experience.trajectory.observations[:-1]  # [T, N, ...]
        self.agent.observe(observations.reshape(self.config.steps_per_update, *observations.shape[2:]))

    def _passes(self, batch: Batch, hyperparameters: Hyperparameters) -> dict[str, float]:
        """All passes over a batch, in shuffled minibatches."""
        shape = (self.config.steps_per_update, self.config.minibatch_size, hyperparameters.passes)
        actor_rows = minibatch_rows(*shape, self._shuffle)  # [K, B]
        critic_rows = minibatch_rows(*shape, self._shuffle)  # [K, B]
        return self.agent.update(batch, actor_rows, critic_rows, hyperparameters)

    def _passes_with_targets_anew(
        self, batch: Batch, rewards: np.ndarray, gamma: float, hyperparameters: Hyperparameters
    ) -> dict[str, float]:
        """Each pass learns from values, targets and advantages of its own; the policy that acted stays that one."""
        metrics, acted = [], {"log_probs": batch.log_probs, "heads": batch.heads}
        for i in range(hyperparameters.passes):
            if i > 0:
                batch = self._batch(rewards, gamma)[0]._replace(**acted)
            metrics.append(self._passes(batch, hyperparameters._replace(passes=1)))
            if self.config.max_kl is not None and metrics[-1]["approximate_kl"] > self.config.max_kl:
                break
        return _means(metrics)

    def _scaled_rewards(self, gamma: float) -> np.ndarray:
        """The shaped rewards of the trajectory at hand, [T, N], by the cumulative std that they now are part of."""
        rewards, trajectory = self.experience.shaped, self.experience.trajectory  # [T, N]
        if self.config.scale_rewards:
            measured = rewards  # [T, N]
            if self.config.reward_std_of == "returns":
                measured = funcs.rewards_to_go(
                    rewards, trajectory.terminated, trajectory.truncated, trajectory.valid, gamma
                )  # [T, N]
            self.reward_statistics.update(measured[trajectory.valid])
            rewards = rewards / (self.reward_statistics.std + 1e-4)  # [T, N]
        return rewards

    def _batch(self, rewards: np.ndarray, gamma: float) -> tuple[Batch, float]:
        """The trajectory at hand as a flat batch, and how well the critic foresaw its value targets."""
        config, trajectory = self.config, self.experience.trajectory
        steps, num_envs = rewards.shape
        observations = self.agent.normalize(trajectory.observations)  # [T+1, N, ...]
        shape = observations.shape[2:]
        actions = trajectory.actions.reshape(steps * num_envs, -1)  # [M, A]
        values, log_probs, heads = self.agent.assess(
            observations.reshape((steps + 1) * num_envs, *shape), actions
        )  # [M+N], [M], [M, X]
        values = values.reshape(steps + 1, num_envs)  # [T+1, N]
        terminated, truncated, valid = trajectory.terminated, trajectory.truncated, trajectory.valid  # [T, N]
        if config.truncation_is_terminal:
            terminated = terminated | truncated
        advantages = funcs.generalized_advantages(
            rewards, values, terminated, truncated, valid, gamma, config.gae_lambda
        )  # [T, N]
        learned, discounts = self._normalized(advantages, valid), gamma * ~terminated  # [T, N]
        targets = advantages + values[:-1]  # [T, N]
        if config.value_target == "normalized_advantage":
            targets = learned + values[:-1]  # [T, N]
        elif config.value_target == "one_step":
            targets = rewards + discounts * values[1:]  # [T, N]
        explained_variance = funcs.explained_variance(values[:-1][valid], targets[valid])
        following = observations[1:].reshape(steps, num_envs, -1)[:, :, :0]  # [T, N, 0]
        if not config.stop_target_gradient:  # the update adds the next state's value itself
            targets, following = rewards, observations[1:]  # [T, N], [T, N, S]
        padding = padded_rows(steps * num_envs, config.minibatch_size)

        def flat(array: np.ndarray) -> np.ndarray:
            kind = array.dtype if array.dtype == np.uint8 else np.float32  # images are scaled by the network
            column = array.astype(kind, copy=False).reshape(steps * num_envs, *array.shape[2:])  # [M, ...]
            return np.pad(column, [(0, padding)] + [(0, 0)] * (column.ndim - 1)) if padding else column

        batch = Batch(
            observations=flat(observations[:-1]),
            actions=flat(trajectory.actions),
            log_probs=flat(log_probs.reshape(steps, num_envs)),
            advantages=flat(learned),
            value_targets=flat(targets),
            weights=flat(valid),
            heads=flat(heads.reshape(steps, num_envs, -1)),
            values=flat(values[:-1]),
            next_observations=flat(following),
            discounts=flat(discounts),
            actor_weights=flat(valid & ~trajectory.replaced),
        )
        return batch, explained_variance

    def _normalized(self, advantages: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """advantages [T, N] as the whole trajectory normalises them; minibatches are the update's."""
        if self.config.normalize_advantages == "running_std":
            self.advantage_statistics.update(advantages[valid])
            return advantages / (self.advantage_statistics.std + 1e-4)  # [T, N]
        if self.config.normalize_advantages == "epoch":
            return funcs.standardize(advantages, valid)  # [T, N]
        return advantages

    # -- state --

    def state(self) -> State:
        """Everything that changes, between two epochs: going on from it is going on as if never stopped."""
        return join_parts(
            {
                "agent": self.agent.training_state(),
                "experience": self.experience.state(),
                "reward_statistics": self.reward_statistics.state(),
                "advantage_statistics": self.advantage_statistics.state(),
                "hyperparameters": self.live.state(),
                "trainer": {
                    "epoch": np.int64(self.epoch),
                    "steps": np.int64(self.steps),
                    "skipped": np.int64(self._skipped),
                    "shuffle": pack_generator(self._shuffle),
                },
                "results": to_columns(self.results, PPOResult),
            }
        )

    def load_state(self, state: State) -> None:
        """Take over what `state` returned for a trainer of the same configuration.

        Raises:
            UserError: the environments do not repeat what they did.
        """
        self.agent.load_state(part_of(state, "agent"))
        self.experience.load_state(part_of(state, "experience"))
        self.reward_statistics.load_state(part_of(state, "reward_statistics"))
        self.advantage_statistics.load_state(part_of(state, "advantage_statistics"))
        self.live.load_state(part_of(state, "hyperparameters"))
        trainer = part_of(state, "trainer")
        self.epoch = int(trainer["epoch"])
        before = self.epoch * self.config.steps_per_epoch + self.config.steps_per_update
        self.steps = int(trainer.get("steps", before))  # older versions did not count them
        self._skipped = int(trainer["skipped"])
        load_generator(self._shuffle, trainer["shuffle"])
        self.results = from_columns(part_of(state, "results"), PPOResult)
        self._mean_std = self.results[-1].mean_std if self.results else 0.0

    def close(self) -> None:
        """End the environments."""
        self.experience.close()


def _new_agent(environment: Environment, config: PPOConfig, seed: int) -> "Agent":
    from Agent import Agent

    return Agent(environment.observation_space, environment.action_space, config, seed)


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over updates, those that were undone left out; NaN without any."""
    if len(rows) == 1:
        return rows[0]
    means = {}
    for name in rows[0]:
        known = [row[name] for row in rows if not math.isnan(row[name])]
        means[name] = sum(known) / len(known) if known else math.nan
    return means


def main() -> None:
    with one_line_errors():
        preset, config, options = parse(
            sys.argv[1:], "python PPOAgentTrainer.py", PRESETS, "bipedal-walker", preset_for
        )
        session.run(lambda config: PPOAgentTrainer(config, description=f"preset {preset}"), preset, config, options)


if __name__ == "__main__":
    main()
