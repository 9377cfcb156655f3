"""How well an agent does while it is trained, to judge which of its parameters are the best.

Unlike `common.evaluation` it uses the backend that trains, so that it costs little, and its score
decides something; a final score must come from other episodes than these.
"""

import time
from typing import Protocol

import numpy as np

from common.config import TrainingConfig
from common.environment import Environment
from common.records import Timing
from common.rollout import Behaviour
from common.spaces import ActionMap
from common.vector_env import VectorEnv, make_vector_env


class Agent(Protocol):
    """What is judged."""

    action_map: ActionMap

    def behaviour(self) -> Behaviour: ...

    def keep_best(self, metric: float) -> bool: ...


class Judge:
    """Says how well an epoch went, and lets the agent keep its parameters if they are the best so far.

    Args:
        seed: of the validations, which play the same episodes each time.
    """

    def __init__(self, config: TrainingConfig, environment: Environment, agent: Agent, seed: int) -> None:
        self._config, self._environment, self._agent, self._seed = config, environment, agent, seed

    def __call__(
        self, metrics: dict[str, float], scores: dict[str, float], epoch: int, last: int, timing: Timing
    ) -> dict[str, float]:
        """The columns of `EpochResult` that come of it, those of `scores` and `timing` included.

        Args:
            metrics: see `Experience.training_metrics`.
            scores: see `Experience.scores`.
            epoch, last: the one that is over, and the one that will end the training.
            timing: a validation's seconds are added to it.
        """
        metric = metrics.get(self._config.best_metric, float("nan"))
        if self._due(epoch, last):
            metric = self._validate(timing)
        columns = {"epoch": epoch, "metric": metric, "is_best": self._agent.keep_best(metric)}
        return columns | scores | timing.columns(self._config.steps_per_epoch)

    def _due(self, epoch: int, last: int) -> bool:
        """Whether parameters are validated: in the second half of the training, and at its end."""
        if self._config.best_metric != "validation":
            return False
        return epoch == last or (2 * epoch > last and epoch % self._config.validate_every == 0)

    def _validate(self, timing: Timing) -> float:
        """`validate` in environments of its own."""
        began = time.perf_counter()
        config, episodes = self._config, self._config.validation_episodes
        groups = -(-episodes // 25)  # small enough that few environments wait for their group's longest episode
        backend = "gymnasium" if config.backend == "processes" else config.backend  # not a process an episode
        envs = make_vector_env(self._environment, episodes, backend, groups)
        try:
            return validate(self._agent.behaviour(), self._agent.action_map, envs, self._seed)
        finally:
            envs.close()
            timing.validation += time.perf_counter() - began


def validate(behaviour: Behaviour, action_map: ActionMap, envs: VectorEnv, seed: int) -> float:
    """Mean unshaped reward of one whole deterministic episode in each of N environments.

    Every call with the same seed plays on the same N terrains, so that two agents' scores differ by what
    the agents do. An environment whose episode is over steps on, uncounted, until its group's last one is.
    """
    observations = envs.reset(seed)  # [n, *shape] a group
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)  # [N], [N]
    active = list(zip(envs.groups, envs.columns, observations))
    while active:
        for group, _, seen in active:
            group.send(action_map(behaviour.act(seen)))
        for group, columns, seen in active:
            step = group.recv()
            seen[:] = step.observations
            returns[columns] += np.where(running[columns], step.rewards, 0.0)
            running[columns] &= ~step.ended
        active = [(group, columns, seen) for group, columns, seen in active if running[columns].any()]
    return float(returns.mean())
