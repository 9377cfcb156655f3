"""The running mean of weights: its numbers, what it leaves alone, and what a run does with it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from same_state import resumed_and_whole

from common.learning.scoring import WeightAverage
from common.records import Timing
from PPOAgentTrainer import PPOAgentTrainer


class Agent:
    """One weight, a counter of what was seen, and what was loaded."""

    def __init__(self):
        self.own = {"actor/0": np.array([0.0], np.float32), "observations/count": np.array(7)}

    def parameters(self):
        return {name: array.copy() for name, array in self.own.items()}

    def load_parameters(self, state):
        self.own = dict(state)

    def learn(self, value):
        self.own["actor/0"] = np.array([value], np.float32)


def followed(decay, values):
    agent = Agent()
    average = WeightAverage(agent, decay)
    for value in values:
        agent.learn(value)
        average.follow()
    return agent, average


def test_the_average_begins_with_the_first_weights_and_then_follows():
    agent, average = followed(0.8, [1.0, 2.0, 4.0])
    with average.in_place():
        assert_allclose(agent.own["actor/0"], 0.8 * (0.8 * 1 + 0.2 * 2) + 0.2 * 4)
        assert agent.own["actor/0"].dtype == np.float32
        assert_array_equal(agent.own["observations/count"], 7)
    assert_array_equal(agent.own["actor/0"], [4.0])


def test_an_error_gives_the_weights_back():
    agent, average = followed(0.8, [1.0, 2.0])
    with pytest.raises(KeyError), average.in_place():
        raise KeyError
    assert_array_equal(agent.own["actor/0"], [2.0])


def test_the_state_is_the_average():
    agent, average = followed(0.5, [1.0, 3.0])
    other = WeightAverage(agent, 0.5)
    other.load_state(average.state())
    assert_array_equal(other.state()["actor/0"], [2.0])
    without = WeightAverage(agent, 0.0)
    with pytest.raises(ValueError, match="disagree about average_weights"):
        without.load_state(average.state())
    without.follow()
    agent.learn(5.0)
    with without.in_place():
        assert_array_equal(agent.own["actor/0"], [5.0])  # nothing is averaged
    without.load_state(without.state())


VALIDATED = dict(best_metric="validation", validate_every=1, validate_from=(0.0,), validation_episodes=2, epochs=3)


def played(tiny, **changes):
    """A trainer whose every epoch was validated, and the actor's output weights after each epoch's updates."""
    trainer, weights = PPOAgentTrainer(tiny.replace(**VALIDATED, **changes)), []
    trainer.train(on_epoch=lambda _: weights.append(trainer.agent.parameters()["actor/2"]))
    return trainer, weights


def test_what_is_kept_is_the_average_and_training_goes_on_with_its_own(tiny, eager):
    plain, own = played(tiny)
    trainer, weights = played(tiny, average_weights=0.5)
    assert_array_equal(weights, own)
    means = [own[0], 0.5 * own[0] + 0.5 * own[1], 0.25 * own[0] + 0.25 * own[1] + 0.5 * own[2]]
    best = int(np.nonzero([row.is_best for row in trainer.results])[0][-1])
    assert_allclose(trainer.agent.best_parameters["actor/2"], means[best], rtol=1e-6)
    assert_array_equal(trainer.agent.parameters()["actor/2"], trainer.agent.best_parameters["actor/2"])
    assert trainer.validator.returns(Timing()).mean() == trainer.agent.best_metric  # what was validated is what plays
    assert [row.metric for row in trainer.results[1:]] != [row.metric for row in plain.results[1:]]


def test_the_average_is_restored(tiny, eager):
    config = tiny.replace(**VALIDATED, average_weights=0.5)
    resumed, whole, _ = resumed_and_whole(lambda: PPOAgentTrainer(config), 1, 3)
    assert [row.metric for row in resumed.results] == [row.metric for row in whole.results]
