"""The base of all agents: it keeps the best parameters, and saves and loads everything learned."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np

from common import arrays_file
from common.envs.mirror_settings import mirror_of
from common.envs.mirrors import Mirror
from common.envs.spaces import is_image
from common.learning.snapshots import Best, adams_state, load_adams
from common.nets.network import UNCHANGED, Normalizer
from common.running_statistics import RunningStatistics
from common.state import State


class AgentBase(ABC):
    """An agent has parameters, optimisers and a few counters; each method defines them.

    Args:
        observation_space, action_space: of one environment.
        config: the method's settings.

    Attributes:
        adams: the optimisers by their names in a checkpoint.
        best: a copy of the best parameters so far, and their `metric`.
        sees_images: whether observations are images, which are scaled inside the network.
        mirror: the symmetry of the networks, for observations as they see them; None without `symmetry`.
        observation_statistics: mean and variance of raw observations; empty without `normalize_observations`.

    Raises:
        UserError: `symmetry` is asked for, and no mirror is known or it does not fit the spaces.
    """

    adams: Mapping[str, keras.optimizers.Adam]

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space, config: Any) -> None:
        self.config = config
        self.best = Best()
        self.sees_images = is_image(observation_space)
        self._normalizes = config.normalize_observations and not self.sees_images
        self._mirror_of_raw = mirror_of(config, observation_space, action_space)
        self.mirror: Mirror | None = self._mirror_of_raw
        if self.mirror is not None and self._normalizes:
            self.mirror = self.mirror.normalized
        self.observation_statistics = RunningStatistics(observation_space.shape or ())

    # -- observations --

    def normalizer(self) -> Normalizer:
        """A frozen copy of the present normalisation; without `normalize_observations` it changes nothing."""
        return Normalizer.of(self.observation_statistics) if self._normalizes else UNCHANGED

    def observe(self, observations: np.ndarray) -> None:
        """Merge raw observations [K, S] into `observation_statistics`; do nothing without `normalize_observations`."""
        if not self._normalizes:
            return
        if self._mirror_of_raw is not None:  # so that both sides are normalised alike
            observations = np.concatenate([observations, self._mirror_of_raw.observation(observations)])  # [2K, S]
        self.observation_statistics.update(observations)

    # -- parameters --

    @abstractmethod
    def parameters(self) -> State:
        """Copies of all that acting needs, by name."""

    @abstractmethod
    def load_parameters(self, state: State) -> None:
        """Restore what `parameters` returned; other names are ignored."""

    @abstractmethod
    def counters(self) -> State:
        """Numbers that change during training, besides parameters and optimisers, by name."""

    @abstractmethod
    def load_counters(self, state: State) -> None:
        """Restore what `counters` returned; other names are ignored."""

    # -- best parameters --

    def keep_best(self, metric: float) -> bool:
        """Copy the present parameters if `metric` is at least the best so far; NaN never is."""
        return self.best.offer(metric, self.parameters)

    @property
    def best_metric(self) -> float:
        """The metric of the best parameters so far; −∞ before there are any."""
        return self.best.metric

    def adopt_best(self) -> None:
        """Go back to the copy that `keep_best` made; without one, change nothing."""
        self.best.adopt(self.parameters, self.load_parameters)

    def leave_best(self) -> None:
        """Undo `adopt_best`, so that training continues from the last parameters; otherwise change nothing."""
        self.best.leave(self.load_parameters)

    # -- state --

    def learned_state(self) -> State:
        """Copies of everything that an update changes."""
        return self.parameters() | adams_state(self.adams) | self.counters()

    def load_learned_state(self, state: State) -> None:
        """Restore what `learned_state` returned."""
        self.load_parameters(state)
        load_adams(self.adams, state)
        self.load_counters(state)

    def state(self) -> State:
        """`learned_state` and the best parameters."""
        return self.learned_state() | self.best.state()

    def load_state(self, state: State) -> None:
        """Restore what `state` returned for an agent of the same configuration."""
        self.load_learned_state(state)
        self.best.load_state(state)

    def training_state(self) -> State:
        """`state()` without the effect of `adopt_best`: what training continues from."""
        return self.state() | self.best.replaced

    def save_weights(self, path: str | Path) -> None:
        """Write `state()` to an .npz file of plain arrays, replacing it whole or not at all."""
        arrays_file.write_weights(Path(path), self.state())

    def read_weights(self, path: str | Path) -> None:
        """Load what `save_weights` wrote.

        Raises:
            UserError: the file is missing, damaged, or of an agent with other networks.
        """
        self.load_state(arrays_file.read_weights(Path(path), self.state(), self.parameters()))
