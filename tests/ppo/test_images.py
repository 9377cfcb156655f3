"""Images and lost lives on their way through the environment side, on environments that are known altogether."""

import math

import numpy as np
import pytest
from collecting import WholeEpochs
from gymnasium.spaces import Box, Discrete

from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.envs.vector_env import make_vector_env
from common.records import Timing
from common.rollout import collector as collectors
from common.rollout.collector import Collector
from common.rollout.evaluation import evaluate
from common.rollout.validation import validate
from common.runs.film import FilmedEpisode
from ppo.config import PPOConfig


class Knowing:
    """Names the third that the dot is in; with noise it guesses."""

    def act(self, observations, noise=None):
        assert observations.dtype == np.uint8
        assert observations.shape[1:] == (12, 12, 1)
        if noise is not None:
            return noise.argmax(axis=1)[:, None].astype(np.float32)  # [n, 1]
        return (observations.any(axis=(1, 3)).argmax(axis=1) // 4)[:, None].astype(np.float32)  # [n, 1]


class Idle:
    """Always chooses the first action."""

    def act(self, observations, noise=None):
        return np.zeros((len(observations), 1), np.float32)


def collector(env_id, num_envs=3, steps=20, backend="gymnasium", seed=0):
    envs = make_vector_env(find_environment(env_id), num_envs, backend, groups=2)
    return WholeEpochs(envs, action_map(find_environment(env_id).make().action_space), steps, seed)


def test_images_are_not_flattened_and_keep_their_dtype():
    env = find_environment("tests/Dot-v0").make()
    assert env.observation_space == Box(0, 255, (12, 12, 1), np.uint8)
    one, second = collector("tests/Dot-v0"), collector("tests/Dot-v0")
    trajectory = one.collect(Knowing(), Timing())
    assert trajectory.observations.shape == (21, 3, 12, 12, 1)
    assert trajectory.observations.dtype == np.uint8
    assert (trajectory.observations.reshape(63, -1) == 255).sum(axis=1).tolist() == [1] * 63
    columns = trajectory.observations[:-1].any(axis=(2, 4)).argmax(axis=2)  # [T, N]
    right = (trajectory.actions[..., 0] == columns // 4) & trajectory.valid
    np.testing.assert_array_equal(trajectory.rewards, right)
    second.load_state(one.state())
    assert_goes_on(one, second, Knowing())


def assert_goes_on(one, other, policy):
    """Both collect the same next."""
    expected, found = one.collect(policy, Timing()), other.collect(policy, Timing())
    for name, array in expected._asdict().items():
        np.testing.assert_array_equal(array, getattr(found, name), err_msg=name)
    one.envs.close(), other.envs.close()


def test_images_are_evaluated_and_filmed():
    spaces = action_map(Discrete(3))
    known = evaluate(Knowing(), spaces, find_environment("tests/Dot-v0"), 4, deterministic=True)
    assert known.returns.tolist() == [8.0] * 4
    guessed = evaluate(Knowing(), spaces, find_environment("tests/Dot-v0"), 60, deterministic=False)
    assert 2 < guessed.returns.mean() < 3.4  # 8 / 3
    take = FilmedEpisode(Knowing(), spaces, find_environment("tests/Dot-v0"))
    frames = list(take)
    assert (take.score, take.frame_rate, len(frames), frames[0].shape) == (8.0, 4, 9, (48, 48, 3))


# -- lives --


@pytest.mark.parametrize("backend", ["gymnasium", "processes"])
@pytest.mark.parametrize("env_id, length", [("tests/Lives-v0", 6), ("tests/LivesShort-v0", 4)])
def test_a_lost_life_terminates_but_the_game_goes_on(env_id, length, backend):
    one, second = (collector(env_id, num_envs=2, steps=20, backend=backend) for _ in range(2))
    trajectory = one.collect(Idle(), Timing())
    step = np.arange(20)[:, None] % (length + 1) + np.zeros((1, 2), int)  # [T, N] of the game, 0 is its first
    np.testing.assert_array_equal(trajectory.valid, step < length)
    np.testing.assert_array_equal(trajectory.terminated, (step % 2 == 1) & trajectory.valid)
    np.testing.assert_array_equal(trajectory.ended, step == length - 1)
    np.testing.assert_array_equal(trajectory.truncated, (step == length - 1) & (length == 4))
    np.testing.assert_array_equal(trajectory.episode_steps, (step + 1) % (length + 1))
    np.testing.assert_array_equal(trajectory.observations[:-1, :, 0, 0, 0], step)
    second.load_state(one.state())
    assert_goes_on(one, second, Idle())


def test_validation_counts_whole_games():
    validation = validate(Idle(), action_map(Discrete(2)), find_environment("tests/Lives-v0"), "gymnasium", 4, 0)
    assert validation.returns.tolist() == [1 + 2 + 3 + 4 + 5 + 6] * 4


def experience(**changes):
    small = {"backend": "gymnasium", "num_envs": 2, "steps_per_epoch": 28, "minibatch_size": 8}
    config = PPOConfig(env="tests/Lives-v0", **small | changes)
    return Collector(config, find_environment(config.env), action_map(Discrete(2)), 0)


def test_scores_are_those_of_whole_games_over_all_collections_of_an_epoch():
    one = experience(score_window=5, reward_design="sign")
    one.collect(Idle(), 0, Timing())  # 14 steps in each environment: two games of 6 steps and their restarts
    first = one.scores.columns()
    one.scores.begin_epoch()
    assert first["episodes"] == first["total_episodes"] == 4
    assert (first["avg_reward"], first["avg_reward_orig"], first["avg_steps"]) == (6, 21, 6)
    assert (first["total_reward"], first["total_reward_orig"]) == (24, 84)
    assert math.isnan(first["score"])  # of fewer than five
    for _ in range(3):
        one.collect(Idle(), 1, Timing())
    second = one.scores.columns()
    assert second["episodes"] == 12
    assert second["total_episodes"] == 16
    assert (second["total_reward"], second["total_reward_orig"]) == (72, 252)
    assert (second["avg_reward_orig"], second["max_steps"]) == (21, 6)
    assert (second["score"], second["score_steps"]) == (21, 6)
    one.close()


def test_the_score_is_the_mean_of_the_last_episodes_and_survives_a_checkpoint():
    one = experience(score_window=3)
    one.scores.running_returns[1] = 30  # as if the first two games had scored 51
    one.collect(Idle(), 0, Timing())
    columns = one.scores.columns()
    assert (columns["score"], columns["score_steps"]) == (pytest.approx((51 + 21 + 21) / 3), 6)
    two = experience(score_window=3)
    two.load_state(one.state())
    for each in (one, two):
        each.scores.begin_epoch()
        each.collect(Idle(), 1, Timing())
    assert one.scores.columns() == two.scores.columns()
    one.close()
    two.close()


def test_an_episode_that_a_restart_cuts_counts_nowhere(monkeypatch):
    monkeypatch.setattr(collectors, "find_restore_method", lambda *_: "history")
    monkeypatch.setattr(collectors, "default_restart_interval", lambda *_: 2)
    one = experience(steps_per_epoch=8)
    one.collect(Idle(), 0, Timing())  # four steps of a game of six
    assert one.scores.running_returns[1].tolist() == [1 + 2 + 3 + 4] * 2
    one.scores.begin_epoch()
    one.collect(Idle(), 1, Timing())  # the turn of the first environment
    scores = one.scores.columns()
    assert scores["episodes"] == 1  # of the second environment
    assert scores["avg_reward_orig"] == 1 + 2 + 3 + 4 + 5 + 6
    assert one.trajectory.episode_steps[:, 0].tolist() == [1, 2, 3, 4]
    one.close()
