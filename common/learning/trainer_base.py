"""The base of all trainers: build, run epochs, stop, resume."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from common.config import MakeNetworks
from common.env_wrappers import RewardDesign
from common.envs.environment import Environment, environment_of
from common.envs.make_env import MakeEnv
from common.envs.mirror_check import check_mirror
from common.envs.vector_env import resolve_backend
from common.errors import UserError
from common.learning.scoring import EpochScoring
from common.learning.start_from import start_from
from common.results import EpochResult, from_columns, is_true, results_dictionary, to_columns, with_info
from common.rollout.collector import CollectingPlan, Collector
from common.rollout.validation import Validator
from common.rollout.workers.cluster import NO_WORKERS, WorkerPlacement
from common.rollout.workers.shard import resolve_shards
from common.rollout.workers.team import WorkerPoolFactory
from common.state import State, join_parts, load_generator, pack_generator, part_of

EpochCallback = Callable[[Any], object]
SKIPS_IN_A_ROW = 10  # updates that are undone before training stops anyway


def may_keep_falling_policy(config: Any) -> bool:
    """Whether a symmetric policy can be kept that nobody has seen without noise (see docs/mirrors.md)."""
    exact = config.symmetry and config.mirror_description.weight == 0.5
    return exact and config.adopt_best and config.best_metric != "validation"


class Part(Protocol):
    """What changes while a trainer runs, and can be stored."""

    def state(self) -> State:
        """Named arrays that restore it."""

    def load_state(self, state: State) -> None:
        """Restore what `state` returned."""


class TrainerBase(ABC):
    """Builds environments and agent, runs a method's epochs, and stores everything that changes.

    Each method defines its agent (`make_agent`), how it collects (`collecting`), one epoch (`run_epoch`), and its
    state besides agent and environments (`parts`, `counters`).

    Args:
        config: the method's settings.
        name, description: for the results dictionary and figures.
        make_env: a function or class that builds a new environment in each call, in place of the one in the config.
        reward_design: a function that computes the rewards, in place of the design in the config.
        workers: who steps the environments; the results do not depend on it.
        make_networks: a function that makes the hidden layers of the networks, in place of the one in the config; see
            docs/own-network.md.

    Raises:
        UserError: the environment is unknown or not supported, its backend is missing, or the agent refuses a setting.
    """

    result_type: type[Any]
    """The columns of its table, an `EpochResult`; those of info are added for a run that logs some."""
    default_name: ClassVar[str] = ""
    generator_name: ClassVar[str] = "rng"
    """Name of the random generator in a checkpoint."""
    live: Any = None
    """Settings that may be changed during a run; None if the method has none."""

    def __init__(
        self,
        config: Any,
        name: str = "",
        description: str = "",
        make_env: MakeEnv | None = None,
        reward_design: RewardDesign | None = None,
        workers: WorkerPlacement = NO_WORKERS,
        make_networks: MakeNetworks | None = None,
    ) -> None:
        self.name, self.description = name or self.default_name, description
        self.warn: Callable[[str], None] = print
        self.make_networks = make_networks
        self.environment = environment_of(config, make_env)  # a bad one fails here, before any network is built
        self.played_environment = self.environment.holding(config.play_action_repeat)
        self.config = self._resolved(config, reward_design)
        self.result_type = with_info(type(self).result_type, config.log_info)
        self._check_environment()
        self.has_workers = workers.number > 0
        self._worker_pools: WorkerPoolFactory | None = None
        with contextlib.ExitStack() as pools:
            if self.has_workers:
                self._worker_pools = WorkerPoolFactory(workers, self._say)
                pools.callback(self._worker_pools.close)
            self._build(reward_design)
            self._open_pools = pools.pop_all()
        self.steps = 0  # environment steps since training began
        self.skipped = 0  # updates in a row that were undone
        self.epoch = 0
        self.results: list[Any] = []

    def _resolved(self, config: Any, reward_design: RewardDesign | None) -> Any:
        """The config with what it leaves open: the environment's full id, its backend and its shards."""
        environment = self.environment
        self.check_environment(environment, config)
        backend = resolve_backend(config.backend, environment)
        return config.replace(
            env=environment.id,
            backend=backend,
            shards=resolve_shards(config, backend, environment),
            reward_design=config.reward_design if reward_design is None else "function",
            networks=config.networks if self.make_networks is None else "function",
        )

    def _check_environment(self) -> None:
        """Step the environment and try the mirror that the settings name, before anything is built for them."""
        config, environment, remarks = self.config, self.environment, self.environment.remarks
        if config.backend != "processes":  # else a crash or an endless loop of its code would be this process's
            remarks += environment.check(config.environment_restarts)
        for remark in remarks:
            self.warn(f"warning: {environment.id}: {remark}")
        check_mirror(config, environment, self._say)

    def _build(self, reward_design: RewardDesign | None) -> None:
        """The agent, the environments that are collected from, and the validations."""
        config = self.config
        agent_seed, environment_seed, generator_seed, validation_seed = config.seeds()
        spaces = self.environment.observation_space, self.environment.action_space
        self.agent = self.make_agent(*spaces, config, agent_seed, self.make_networks)
        if self.has_workers and not self.agent.acting_policy().is_plain:
            fault, advice = f"{self.environment.id} shows images, which are", ""
            if config.networks is not None and not (self.agent.sees_images or self.agent.images):
                fault = f"networks {config.networks} act through Keras, which is"
                advice = ", or build them of Dense, LayerNormalization and Activation in a row"
            raise UserError(f"{fault} unsupported with --workers: leave --workers out{advice}")
        self.collector = Collector(
            config, self.environment, self.agent.action_map, environment_seed, self._say, self.collecting(config),
            reward_design, self._worker_pools,
        )  # fmt: skip
        self.generator = np.random.default_rng(generator_seed)  # of all that training draws
        self.validator = Validator(config, self.played_environment, self.agent, validation_seed, self._say)
        self.scoring = EpochScoring(config, self.agent, self.collector, self.validator, self._say)

    def _say(self, line: str) -> None:
        self.warn(line)  # which may be replaced later

    # -- what each method defines --

    def check_environment(self, environment: Environment, config: Any) -> None:  # noqa: B027  a method may not need it
        """Raises UserError for an environment that the method cannot be trained on with these settings."""

    @staticmethod
    @abstractmethod
    def make_agent(*arguments: Any) -> Any:
        """An untrained agent from observation space, action space, config, seed and perhaps `make_networks`."""

    def collecting(self, config: Any) -> CollectingPlan:
        """How the method collects."""
        return CollectingPlan()

    def prepare(self) -> None:  # noqa: B027  a method may need none
        """Prepare the first epoch."""

    @abstractmethod
    def run_epoch(self, last: int) -> EpochResult:
        """Train one epoch and return its row.

        Args:
            last: number of the epoch at which schedules end.
        """

    @abstractmethod
    def parts(self) -> Mapping[str, Part]:
        """State besides agent and environments, by its name in a checkpoint."""

    def counters(self) -> dict[str, int]:
        """Whole numbers that change, by their names in a checkpoint."""
        return {"epoch": self.epoch, "steps": self.steps, "skipped": self.skipped}

    def load_counters(self, counters: State) -> None:
        """Restore what `counters` returned."""
        self.epoch, self.steps, self.skipped = (int(counters[name]) for name in ("epoch", "steps", "skipped"))

    # -- training --

    def train(self, epochs: int | None = None, on_epoch: EpochCallback | None = None) -> dict[str, object]:
        """Run epochs; another call continues where the last one ended, even if that adopted the best parameters.

        Training ends early once an epoch's score has reached the config's `stop_score`.

        Args:
            epochs: how many more; None takes the config's number. Schedules end at the config's number of epochs, even
                if several calls train them. A call that goes beyond it stretches the schedules to its own last epoch.
            on_epoch: called after every epoch with its row; training ends if it returns True.

        Returns:
            The results dictionary of everything trained so far; see `common.results`.
        """
        last = self.epoch + (self.config.epochs if epochs is None else epochs)
        self.agent.leave_best()
        if self.epoch == 0 and self.config.start_from is not None:
            self.warn(start_from(self.agent, self.config))
        if self.epoch == 0 and may_keep_falling_policy(self.config):
            self.warn(
                f"warning: best_metric {self.config.best_metric} scores actions with noise, and a symmetric policy "
                "can do well with noise and badly without: use --best-metric validation"
            )
        self.prepare()
        while self.epoch < last and not self.solved:
            self.collector.scores.begin_epoch()
            result = self.run_epoch(max(last, self.config.epochs))
            self.results.append(result)
            if on_epoch is not None and is_true(on_epoch(result)):
                break
        if self.config.adopt_best:
            self.agent.adopt_best()
        return results_dictionary(self.name, self.description, self.results, self.agent.best_metric, self.config)

    @property
    def solved(self) -> bool:
        """Whether the last epoch's score has reached `stop_score`."""
        score = self.config.stop_score
        return score is not None and bool(self.results) and self.results[-1].metric >= score

    # -- state --

    def _all_parts(self) -> dict[str, Part]:
        return {"experience": self.collector, "average": self.scoring.average, "judge": self.validator, **self.parts()}

    def state(self) -> State:
        """Everything that changes during training, between two epochs: a trainer that loads it continues exactly."""
        trainer = {name: np.array(value, np.int64) for name, value in self.counters().items()}
        return join_parts(
            {
                "agent": self.agent.training_state(),
                **{name: part.state() for name, part in self._all_parts().items()},
                "trainer": trainer | {self.generator_name: pack_generator(self.generator)},
                "results": to_columns(self.results, self.result_type),
            }
        )

    def load_state(self, state: State) -> None:
        """Restore what `state` returned for a trainer of the same configuration.

        Raises:
            UserError: the environments do not return the same observations again.
        """
        self.results = from_columns(part_of(state, "results"), self.result_type)
        self.collector.epochs = max(self.config.epochs, len(self.results))  # `train` may go beyond the config's
        self.agent.load_state(part_of(state, "agent"))
        for name, part in self._all_parts().items():
            part.load_state(part_of(state, name))
        trainer = part_of(state, "trainer")
        self.load_counters(trainer)
        load_generator(self.generator, trainer[self.generator_name])

    def close(self) -> None:
        """End the environments, and the workers that stepped them."""
        self.collector.close()
        self._open_pools.close()
