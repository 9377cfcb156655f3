"""Validations that end early: where no episode ends better than hoped, this changes no decision."""

import contextlib

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from tiny_envs import Lengths

from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.envs.vector_env import group_seeds
from common.records import Timing
from common.rollout import validation
from common.rollout.playing import EpisodeBatch, Reach, play_all
from common.rollout.validation import validate
from PPOAgentTrainer import PPOAgentTrainer

LENGTHS = find_environment("tests/Lengths-v0")


class Idle:
    is_plain = True

    def act(self, observations, noise=None):
        return np.zeros((len(observations), 1), np.float32)


def idle(episodes, reach, env="tests/Lengths-v0", backend="gymnasium", workers=1):
    space = find_environment(env).action_space
    return validate(Idle(), action_map(space), find_environment(env), backend, episodes, 3, 0, workers, reach)


def test_a_running_episode_is_hoped_to_end_as_well_as_the_best_one():
    returns, running = np.array([10.0, 40.0, 25.0, 60.0]), np.array([False, False, True, True])
    assert Reach(0.0, hope=30.0, episodes=4).optimistic_returns(returns, running).tolist() == [10.0, 40.0, 40.0, 60.0]
    assert Reach(0.0, hope=50.0, episodes=4).optimistic_returns(returns, running).tolist() == [10.0, 40.0, 50.0, 60.0]
    none = np.ones(4, bool)
    assert Reach(0.0, hope=-5.0, episodes=4).optimistic_returns(np.full(4, -9.0), none).tolist() == [-5.0] * 4


def test_it_is_missed_as_soon_as_the_hoped_mean_is_below_the_target():
    returns, running = np.array([0.0, 90.0]), np.array([False, True])  # hoped: 0 and 100
    assert not Reach(50.0, hope=100.0, episodes=2).missed(returns, running)
    assert Reach(50.1, hope=100.0, episodes=2).missed(returns, running)
    assert not Reach(75.0, hope=100.0, episodes=4).missed(returns, running)  # two more, of 100 each, are to come
    assert Reach(75.1, hope=100.0, episodes=4).missed(returns, running)
    assert not Reach(60.0, hope=100.0, episodes=3, total=80.0, played=1).missed(returns, running)
    assert Reach(60.1, hope=100.0, episodes=3, total=80.0, played=1).missed(returns, running)
    assert not Reach(-np.inf, hope=0.0, episodes=2).missed(returns, running)  # nothing was validated before


def test_episodes_end_when_it_is_missed_and_count_as_hoped():
    whole = idle(7, None)  # lengths 1 to 7 in some order, and L (L + 1) / 2 each
    assert sorted(whole.lengths) == [1, 2, 3, 4, 5, 6, 7]
    assert idle(7, Reach(12.0, 28.0, 7)).returns.tolist() == whole.returns.tolist()  # their mean is 12
    early = idle(7, Reach(20.0, 28.0, 7))
    # Episodes of 1, 2 and 3 steps pay 1, 3 and 6. At best it is (4 + 5 · 28) / 7 = 20.6, and (10 + 4 · 28) / 7 = 17.4.
    assert sorted(early.lengths) == [1, 2, 3, 3, 3, 3, 3]
    assert sorted(early.returns) == [1.0, 3.0, 6.0, 28.0, 28.0, 28.0, 28.0]
    assert (early.returns >= whole.returns).all() and early.returns.mean() < 20.0
    assert early.cut == 0 and not early.incidents()


def test_envpool_ends_early_with_the_same_rule():
    pytest.importorskip("envpool")
    environment, space = find_environment("CartPole-v1"), Discrete(2)
    given = Idle(), action_map(space), environment, "envpool", 30, 3, 0, 1  # two groups
    whole = validate(*given)
    assert len(set(whole.lengths)) > 2  # each pays its length
    target, hope = float(whole.returns.mean()) + 0.5, float(whole.returns.max())
    early = validate(*given, Reach(target, hope, 30))
    ended = early.lengths == whole.lengths
    assert 0 < ended.sum() < 30 and (early.lengths <= whole.lengths).all()
    np.testing.assert_array_equal(early.returns[ended], whole.returns[ended])
    assert early.returns.mean() < target
    np.testing.assert_array_equal(validate(*given, Reach(target - 0.5, hope, 30)).returns, whole.returns)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("target", "hope"), [(74 / 6, 13.0), (18.0, 20.0)])
def test_a_group_that_hoped_for_too_little_is_played_again(workers, target, hope, monkeypatch):
    """The other group has the episode of 28, of which this one does not know; with it the target is in reach."""
    monkeypatch.setattr(validation, "GROUP", 3)
    whole = idle(6, None)
    assert whole.returns.tolist() == [1.0, 3.0, 6.0, 15.0, 21.0, 28.0]
    reach = Reach(target, hope, 6)  # the first group hopes for 1 + 5 · 13 after a step, or 1 + 5 · 20
    jobs = [EpisodeBatch(LENGTHS, True, range(first, first + 3)) for first in group_seeds(3, 2)]
    assert any(
        episode.unfinished
        for part in play_all(Idle(), action_map(LENGTHS.action_space), jobs, 0, 1, None, reach)
        for episode in part
    )
    assert idle(6, reach, workers=workers).returns.tolist() == whole.returns.tolist()


def test_decisions_are_the_same_with_and_without(tiny, monkeypatch):
    """The same epochs are the best ones, and the same ones reach the score; the score of some others is too high."""
    played = []
    monkeypatch.setattr(validation, "validate", lambda *given: (played.append(validate(*given)), played[-1])[1])
    config = tiny.replace(
        env="tests/Lengths-v0", max_episode_steps=None, best_metric="validation", validate_from=(0.0,),
        validate_every=1, validation_episodes=5, stop_score=62.0, confirming_margin=0.01,
    )  # fmt: skip
    monkeypatch.setattr(validation, "CONFIRMING_EPISODES", 40)
    metrics, best, steps = {}, {}, {}
    for early in (False, True):
        played.clear()
        with contextlib.closing(PPOAgentTrainer(config)) as trainer:
            if not early:
                monkeypatch.setattr(trainer.validator, "_reach", lambda *_: None)
            rows = []
            for epoch in range(1, 41):  # most episodes have 10 or 11 steps and pay 55 or 66
                monkeypatch.setattr(Lengths, "length", staticmethod(lambda seed, epoch=epoch: _length(seed, epoch)))
                metric = trainer.validator(epoch, 10.0, Timing(1.0))
                rows.append((metric, trainer.agent.keep_best(metric)))
        metrics[early], best[early] = np.array([row[0] for row in rows]), [row[1] for row in rows]
        steps[early] = sum(evaluation.lengths.sum() for evaluation in played)
    assert best[True] == best[False] and 3 <= sum(best[True]) < 20
    assert ((metrics[True] >= 62.0) == (metrics[False] >= 62.0)).all() and 0 < (metrics[True] >= 62.0).sum() < 20
    assert (metrics[True] >= metrics[False]).all() and (metrics[True] > metrics[False]).sum() > 5
    assert steps[True] < 0.95 * steps[False]


def _length(seed, epoch):
    """Fewer are short in later epochs, and from epoch 30 on all others are as long as the longest."""
    draw = np.random.default_rng([seed, epoch])
    if draw.random() < 0.2 - epoch / 180:
        return int(draw.integers(1, 9))
    return int(draw.integers(10, 12) if epoch < 30 else 11)


def test_a_resumed_run_hopes_for_as_much(tiny, eager):
    config = tiny.replace(
        best_metric="validation", validate_from=(0.0,), validate_every=1, validation_episodes=3, stop_score=0.0,
        confirming_margin=1e-9, epochs=1,
    )  # fmt: skip
    with contextlib.closing(PPOAgentTrainer(config)) as trainer:
        trainer.train()
        state = trainer.state()
        highest = float(state["judge/highest"])
        assert highest >= trainer.agent.best_metric > -np.inf
        with contextlib.closing(PPOAgentTrainer(config)) as resumed:
            resumed.load_state(state)
            assert resumed.validator.state() == {"highest": highest}
    assert "judge/highest" not in PPOAgentTrainer(config.replace(confirming_margin=0.0)).state()
