"""The score of an epoch, whether its parameters are the best so far, and the mean of the last epochs' weights."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from common.config import TrainingConfig
from common.errors import StartError
from common.records import Timing
from common.rollout.collector import Collector
from common.rollout.validation import Validator
from common.state import State

T = TypeVar("T")
STATISTICS = "observations/"  # of what is seen: they are a mean already, and no weights


class EpochScoring:
    """Scores epochs, and lets the agent keep its parameters if they are the best so far."""

    def __init__(
        self,
        config: TrainingConfig,
        agent: Any,
        collector: Collector,
        validator: Validator,
        warn: Callable[[str], None],
    ) -> None:
        self._config, self._agent, self._collector = config, agent, collector
        self._validator, self._warn = validator, warn
        self.average = WeightAverage(agent, config.average_weights)

    def __call__(self, epoch: int, last: int, timing: Timing, own_actions: bool = True) -> dict[str, Any]:
        """An epoch's scores and timing, as columns of its row; a validation that is due is played.

        Args:
            epoch, last: the epoch just trained, and the final one.
            timing: of the epoch; the seconds of a validation are added.
            own_actions: whether the agent chose all actions of the epoch. Random ones say nothing about it.
        """
        config, scores = self._config, self._collector.scores.columns()
        self.average.follow()
        metrics = self._collector.scores.training_metrics() if own_actions else {}
        metric = metrics.get(config.best_metric, float("nan"))
        due = validation_is_due(config, epoch, last, scores["score"])
        with self.average.in_place() if due else contextlib.nullcontext():
            if due:
                play = functools.partial(self._validator, epoch, scores["avg_steps"], timing)
                metric = self.beside_training(play, epoch)
            columns = {"epoch": epoch, "metric": metric, "is_best": self._agent.keep_best(metric)}
        return columns | scores | timing.columns(config.steps_per_epoch)

    def beside_training(self, play: Callable[[], T], epoch: int) -> T:
        """What `play` returns. If it cannot start an environment beside those of training, these are closed.

        Raises:
            UserError: an environment cannot be started.
        """
        try:
            return play()
        except StartError as error:
            self._warn(
                f"warning: {error}; perhaps no more may exist, so those that train are closed meanwhile and their "
                "episodes do not count; episodes that score the agent are played one after another"
            )
            with self._collector.aside(epoch):
                return play()


def validation_is_due(config: TrainingConfig, epoch: int, last: int, score: float) -> bool:
    """Whether parameters are validated: every few epochs from `validate_from` on, and at the end.

    Args:
        score: of the last training episodes; `validate_from` may name one that it has to reach.
    """
    if config.best_metric != "validation":
        return False
    share, *needed = config.validate_from
    begun = epoch > share * last and (not needed or score >= needed[0])
    return epoch == last or (begun and epoch % config.validate_every == 0)


class WeightAverage:
    """An exponential moving average of an agent's weights, over epochs (Polyak and Juditsky 1992).

    `decay` is the weight of the past in the average, 0 to below 1; 0 turns averaging off.
    """

    def __init__(self, agent: Any, decay: float) -> None:
        self._agent, self._decay = agent, decay
        self._mean: State = {}  # float64

    def follow(self) -> None:
        """Let the present weights enter the average; call it after each epoch's updates."""
        if not self._decay:
            return
        for name, weights in self._agent.parameters().items():
            if not name.startswith(STATISTICS):
                before = self._mean.get(name, weights).astype(np.float64)
                self._mean[name] = self._decay * before + (1.0 - self._decay) * weights

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the agent has the averaged weights; without an average, its own."""
        if not self._mean:
            yield
            return
        own = self._agent.parameters()
        self._agent.load_parameters(own | {name: mean.astype(own[name].dtype) for name, mean in self._mean.items()})
        try:
            yield
        finally:
            self._agent.load_parameters(own)

    def state(self) -> State:
        """The averaged weights, by their names; empty without an average, and before the first epoch."""
        return dict(self._mean)

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: the state holds an average, and the config is without one.
        """
        if state and not self._decay:
            raise ValueError("the checkpoint and the settings disagree about average_weights")
        self._mean = dict(state)
