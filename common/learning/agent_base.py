"""The base of all agents: spaces, optimisers, the best parameters, and saving and loading everything learned."""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np

from common import arrays_file
from common.config import MakeNetworks
from common.envs.mirror_settings import mirror_of
from common.envs.mirrors import Mirror
from common.envs.spaces import action_map, choices, is_image
from common.funcs import RunningStatistics
from common.learning.device import choose_device
from common.nets.network import UNCHANGED, Normalizer
from common.nets.own_networks import own_torso
from common.nets.rounded_products import check_precision
from common.state import State, part_of


class AgentBase(ABC):
    """An agent has parameters, optimisers and a few counters; each method defines them.

    Args:
        observation_space, action_space: of one environment.
        config: the method's settings.
        make_networks: makes the hidden layers (`common.nets.own_networks`), in place of what the config names.

    Attributes:
        action_map: from policy actions to the environment's.
        action_size, observation_size: A and S.
        adams: the optimisers by their names in a checkpoint.
        best_metric: score of the best parameters so far; −∞ before there are any.
        best_parameters: a copy of them, by name; empty before there are any.
        mask_size: numbers of an action mask at the end of each observation; 0 without `action_masks`.
        sees_images: whether observations are images, which are scaled inside the network.
        images: those among the numbers of an observation.
        mirror: the symmetry of the networks, for observations as they see them; None without `symmetry`.
        own_torso: the hidden layers of a function of the user's; None without one.
        observation_statistics: mean and variance of raw observations; empty without `normalize_observations`.

    Raises:
        UserError: the requested device is missing, `precision` is not supported by this processor, or `symmetry` is
            asked for and no mirror is known or fits the spaces; or `networks` names no function.
    """

    adams: Mapping[str, keras.optimizers.Adam]

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: Any,
        make_networks: MakeNetworks | None = None,
    ) -> None:
        self.config = config
        self.sees_images = is_image(observation_space)
        self.images = getattr(observation_space, "images", ())
        choose_device(config.device, self.sees_images or bool(self.images))
        check_precision("float32" if self.sees_images else config.precision)  # Keras rounds images
        self.action_map = action_map(action_space)
        self.action_size = self.action_map.size
        self.mask_size = sum(choices(action_space)) if config.action_masks else 0
        self.observation_size = int(np.prod(observation_space.shape or ()))
        self.best_metric = -np.inf
        self.best_parameters: State = {}
        self._replaced: State = {}  # by `adopt_best`
        self._normalizes = config.normalize_observations and not self.sees_images
        self._mirror_of_raw = mirror_of(config, observation_space, action_space)
        self.mirror: Mirror | None = self._mirror_of_raw
        if self.mirror is not None and self._normalizes:
            self.mirror = self.mirror.normalized
        seen: Any = observation_space
        if self.mask_size:  # which networks do not see
            seen = gymnasium.spaces.Box(seen.low[: -self.mask_size], seen.high[: -self.mask_size])
            seen.images = self.images
        self.own_torso = own_torso(seen, action_space, config, make_networks)
        self.observation_statistics = RunningStatistics(observation_space.shape or ())

    def new_adam(
        self, rate: float | None, variables: Sequence[keras.Variable], epsilon: float = 1e-7, beta_1: float = 0.9
    ) -> keras.optimizers.Adam:
        """An Adam optimiser of these variables; the rate None takes that of the setting `learning_rate`."""
        rate = self.config.learning_rate if rate is None else rate
        adam = keras.optimizers.Adam(rate, beta_1, epsilon=epsilon)
        adam.build(variables)
        return adam

    # -- observations --

    def normalizer(self) -> Normalizer:
        """A frozen copy of the present normalisation; without `normalize_observations` it changes nothing."""
        normalize = Normalizer.of(self.observation_statistics) if self._normalizes else UNCHANGED
        if normalize.shift is not None and normalize.scale is not None:
            stay: list[Any] = [image.columns for image in self.images if image.is_scaled]  # already
            stay += [slice(-self.mask_size, None)] if self.mask_size else []
            for columns in stay:
                normalize.shift[columns], normalize.scale[columns] = 0, 1
        return normalize

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

    def layers(self, state: State) -> dict[str, list[np.ndarray]]:
        """The weights in a state, each network's in the order of its layers."""
        names = [name.removesuffix("0") for name in state if name.endswith("/0")]
        counts = {name: sum(key.startswith(name) for key in state) for name in names}
        return {name[:-1]: [state[f"{name}{i}"] for i in range(count)] for name, count in counts.items()}

    # -- best parameters --

    def keep_best(self, metric: float) -> bool:
        """Copy the present parameters if `metric` is at least the best so far; NaN never is."""
        if not metric >= self.best_metric:
            return False
        self.best_metric, self.best_parameters = float(metric), self.parameters()
        return True

    def adopt_best(self) -> None:
        """Go back to the copy that `keep_best` made; without one, change nothing."""
        if self.best_parameters:
            self._replaced = self._replaced or self.parameters()
            self.load_parameters(self.best_parameters)

    def leave_best(self) -> None:
        """Undo `adopt_best`, so that training continues from the last parameters; otherwise change nothing."""
        if self._replaced:
            self.load_parameters(self._replaced)
            self._replaced = {}

    # -- state --

    def _adam_variables(self) -> dict[str, keras.Variable]:
        """All variables of all optimisers, as "name/number"."""
        return {f"{name}/{i}": v for name, adam in self.adams.items() for i, v in enumerate(adam.variables)}

    def learned_state(self) -> State:
        """Copies of everything that an update changes."""
        adams = {name: np.array(variable) for name, variable in self._adam_variables().items()}
        return self.parameters() | adams | self.counters()

    def load_learned_state(self, state: State) -> None:
        """Restore what `learned_state` returned."""
        self.load_parameters(state)
        for name, variable in self._adam_variables().items():
            variable.assign(state[name])
        self.load_counters(state)

    def state(self) -> State:
        """`learned_state` and the best parameters."""
        best = {f"best/{name}": array for name, array in self.best_parameters.items()}
        return self.learned_state() | {"best_metric": np.array(self.best_metric, np.float64)} | best

    def load_state(self, state: State) -> None:
        """Restore what `state` returned for an agent of the same configuration."""
        self.load_learned_state(state)
        self.best_metric, self.best_parameters = float(state["best_metric"]), part_of(state, "best")
        self._replaced = {}

    def training_state(self) -> State:
        """`state()` without the effect of `adopt_best`: what training continues from."""
        return self.state() | self._replaced

    def save_weights(self, path: str | Path) -> None:
        """Write `state()` to an .npz file of plain arrays, replacing it atomically."""
        arrays_file.write_weights(Path(path), self.state())

    def read_weights(self, path: str | Path) -> None:
        """Load what `save_weights` wrote.

        Raises:
            UserError: the file is missing, damaged, or of an agent with other networks.
        """
        self.load_state(arrays_file.read_weights(Path(path), self.state(), self.parameters()))
