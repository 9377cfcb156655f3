"""Every reward wrapper on scripted episodes, by hand; and the same designs on the arrays of an epoch."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from common import env_wrappers
from common.env_wrappers import reward_design
from common.envs.environment import find_environment
from common.errors import UserError
from common.hidden_speeds import CartPoleWithoutSpeeds, LunarLanderWithoutSpeeds, PendulumWithoutSpeed
from ppo.config import PPOConfig

Step = tuple[float, bool, bool]  # reward, terminated, truncated
LIMIT = 4
FALLS: list[Step] = [(0.5, False, False), (-0.25, False, False), (-100.0, True, False)]
REACHES_THE_GOAL: list[Step] = [(0.5, False, False), (2.0, False, False), (30.0, True, False)]
RUNS_OUT_OF_TIME: list[Step] = [(1.0, False, False), (-100.0, False, False), (0.25, False, False), (0.5, False, True)]
FALLS_AS_TIME_RUNS_OUT: list[Step] = [(1.0, False, False)] * 3 + [(-100.0, True, True)]
SCRIPT = [FALLS, REACHES_THE_GOAL, RUNS_OUT_OF_TIME, FALLS_AS_TIME_RUNS_OUT]


class ScriptedEnv(gymnasium.Env):
    """Plays episodes from a script, one after the other, whatever the actions."""

    observation_space = Box(-1, 1, (1,))
    action_space = Box(-1, 1, (1,))

    def __init__(self, script: list[list[Step]]) -> None:
        self.script = script
        self.episode, self.t = -1, 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = (self.episode + 1) % len(self.script), 0
        return np.zeros(1, np.float32), {"from": "reset"}

    def step(self, action):
        reward, terminated, truncated = self.script[self.episode][self.t]
        self.t += 1
        return np.full(1, self.t, np.float32), reward, terminated, truncated, {"t": self.t}


def play(env: gymnasium.Env, episodes: int) -> list[list[float]]:
    """Shaped rewards, episode by episode; all else is the script's, and infos have the original rewards."""
    shaped = []
    for _ in range(episodes):
        assert env.reset()[1] == {"from": "reset"}
        shaped.append([])
        for t, (original, *ends) in enumerate(env.unwrapped.script[env.unwrapped.episode], start=1):
            observation, reward, *found, info = env.step(np.zeros(1))
            assert (observation.tolist(), found, type(reward)) == ([t], ends, float)
            assert info == {"t": t} | ({} if env is env.unwrapped else {"original_reward": original})
            shaped[-1].append(reward)
    return shaped


W = env_wrappers
BY_HAND = [  # the wrapper, its numbers, the shaped rewards of the script's four episodes
    (W.UnchangedReward, {}, [[0.5, -0.25, -100], [0.5, 2, 30], [1, -100, 0.25, 0.5], [1, 1, 1, -100]]),
    # +1 only where the last step is the 4th: the goal counts as a failure, the fall at the limit as a success
    (W.LastedToLimitReward, {"max_steps": LIMIT}, [[0.5, -0.25, -1], [0.5, 2, -1], [1, -100, 0.25, 1], [1, 1, 1, 1]]),
    (W.LastedToLimitReward, {"max_steps": LIMIT, "success": 7, "failure": -8},
     [[0.5, -0.25, -8], [0.5, 2, -8], [1, -100, 0.25, 7], [1, 1, 1, 7]]),
    (W.LastedToLimitReward, {"max_steps": LIMIT + 1},  # not reached
     [[0.5, -0.25, -1], [0.5, 2, -1], [1, -100, 0.25, -1], [1, 1, 1, -1]]),
    # fell −1, goal +1, time +1; a reward of −100 within the episode is no end
    (W.OutcomeBonusReward, {}, [[0.5, -0.25, -1], [0.5, 2, 1], [1, -100, 0.25, 1], [1, 1, 1, -1]]),
    (W.OutcomeBonusReward, {"goal": 3, "timeout": 2, "fall": -5},
     [[0.5, -0.25, -5], [0.5, 2, 3], [1, -100, 0.25, 2], [1, 1, 1, -5]]),
    (W.OutcomeBonusReward, {"goal": 3, "timeout": 2, "fall": -5, "fall_reward": -101},  # what counts as a fall
     [[0.5, -0.25, 3], [0.5, 2, 3], [1, -100, 0.25, 2], [1, 1, 1, 3]]),
    # .005 · 3 = .015 and .005 · 4 = .02
    (W.StepsAtEndReward, {}, [[0.5, -0.25, 0.015], [0.5, 2, 0.015], [1, -100, 0.25, 0.02], [1, 1, 1, 0.02]]),
    # on top of −100, 30, .5, −100
    (W.StepsAddedAtEndReward, {}, [[0.5, -0.25, -99.985], [0.5, 2, 30.015], [1, -100, 0.25, 0.52], [1, 1, 1, -99.98]]),
    (W.StepsAddedAtEndReward, {"per_step": 2},
     [[0.5, -0.25, -94], [0.5, 2, 36], [1, -100, 0.25, 8.5], [1, 1, 1, -92]]),
    (W.ScaledReward, {}, [[0.05, -0.025, -10], [0.05, 0.2, 3], [0.1, -10, 0.025, 0.05], [0.1, 0.1, 0.1, -10]]),
    (W.SignReward, {}, [[1, -1, -1], [1, 1, 1], [1, -1, 1, 1], [1, 1, 1, -1]]),
    # −1 where the last reward is −100, else +1
    (W.FallPenaltyReward, {}, [[0.5, -0.25, -1], [0.5, 2, 1], [1, -100, 0.25, 1], [1, 1, 1, -1]]),
    (W.FallPenaltyReward, {"fall_reward": 0.5, "success": 4, "failure": -6},
     [[0.5, -0.25, -6], [0.5, 2, 4], [1, -100, 0.25, -6], [1, 1, 1, -6]]),
]  # fmt: skip


@pytest.mark.parametrize(("wrapper", "numbers", "expected"), BY_HAND)
def test_shaped_rewards_worked_by_hand(wrapper, numbers, expected):
    env = wrapper(ScriptedEnv(SCRIPT), **numbers)
    found = play(env, episodes=8)  # the script twice: nothing is left of an episode
    assert len(found) == 8
    for episode, by_hand in zip(found, expected * 2):
        assert episode == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments", "after_a_fall", "after_time_ran_out"),
    [
        ("EnvWrapper_plain", (), -100, 0.5),
        ("EnvWrapper_01", (4, 1, -1), -1, 1),
        ("EnvWrapper_02", (0.005,), 0.015, 0.02),
        ("EnvWrapper_03", (0.005,), -99.985, 0.52),
        ("EnvWrapper_04", (0.1,), -10, 0.05),
        ("EnvWrapper_05", (-100.0, 1, -1), -1, 1),
    ],
)
def test_the_studys_names_and_order_of_arguments(name, arguments, after_a_fall, after_time_ran_out):
    """The last rewards of an episode of three steps with a fall, and of one that reaches the limit of four."""
    env = getattr(env_wrappers, name)(ScriptedEnv([FALLS, RUNS_OUT_OF_TIME]), *arguments)
    last = [rewards[-1] for rewards in play(env, 2)]
    assert last == pytest.approx([after_a_fall, after_time_ran_out])


def test_counting_starts_anew_when_an_episode_is_left_unfinished_and_wrappers_go_together():
    env = W.StepsAtEndReward(ScriptedEnv([RUNS_OUT_OF_TIME, FALLS]), per_step=1)
    env.reset()
    env.step(np.zeros(1))
    env.step(np.zeros(1))
    assert play(env, 1) == [[0.5, -0.25, 3]]
    both = W.ScaledReward(W.LastedToLimitReward(ScriptedEnv(SCRIPT), max_steps=LIMIT))
    assert play(both, 1)[0] == pytest.approx([0.05, -0.025, -0.1])


@pytest.mark.parametrize(
    ("name", "wrapper"),
    [
        ("unchanged", W.EnvWrapper_plain),
        ("lasted_to_limit", W.EnvWrapper_01),
        ("steps_at_end", W.EnvWrapper_02),
        ("steps_added_at_end", W.EnvWrapper_03),
        ("scaled", W.EnvWrapper_04),
        ("fall_penalty", W.EnvWrapper_05),
        ("outcome_bonus", W.OutcomeBonusReward),
        ("sign", W.SignReward),
    ],
)
def test_a_settings_name_means_what_the_wrapper_does_on_a_hundred_random_episodes(name, wrapper):
    rng = np.random.default_rng(0)
    script = []
    for _ in range(100):
        rewards = rng.choice([-100.0, 0.0, *rng.normal(size=4)], size=rng.integers(1, 9))
        ends = [(True, False), (False, True), (True, True)][rng.integers(3)]
        script.append([*((reward, False, False) for reward in rewards[:-1]), (rewards[-1], *ends)])
    steps = np.concatenate([np.arange(1, len(episode) + 1) for episode in script])
    rewards, terminated, truncated = (np.array(column) for column in zip(*(step for one in script for step in one)))
    numbers = {"max_steps": 5} if name == "lasted_to_limit" else {}
    one_by_one = np.concatenate(play(wrapper(ScriptedEnv(script), **numbers), 100))
    at_once = reward_design(name, PPOConfig().reward_factor, step_limit=5)(rewards, terminated, truncated, steps)
    assert at_once.dtype == np.float64
    np.testing.assert_array_equal(at_once, one_by_one)
    assert reward_design("sign", 1.0, step_limit=None)(np.array([0.0, -3, 7]), False, False, 1).tolist() == [0, -1, 1]
    with pytest.raises(TypeError, match="unexpected keyword argument 'reward'"):
        wrapper(ScriptedEnv(script), reward=1)


@pytest.mark.parametrize(("own", "limit"), [(50, 50), (None, 1600)])
def test_lasting_to_the_limit_means_the_runs_own_limit_or_the_environments(own, limit):
    """BipedalWalker-v3 is registered with a limit of 1,600 steps: running out of time there is a success."""
    design = reward_design("lasted_to_limit", 1.0, find_environment("BipedalWalker-v3", own).max_episode_steps)
    assert [float(design(-3.0, False, True, steps)) for steps in (limit - 1, limit)] == [-1, 1]


def test_a_function_of_ones_own_gets_copies_in_the_documented_order():
    given = [np.array([[1.0, 2.0]]), np.array([[True, False]]), np.array([[False, True]]), np.array([[3, 4]])]

    def mine(rewards, terminated, truncated, steps):
        shaped = rewards + 10 * terminated + 100 * truncated + 1000 * steps
        rewards[:] = 0.0
        return shaped

    design = reward_design("function", 1.0, None, mine)
    assert design(*given).tolist() == [[3011.0, 4102.0]]
    assert given[0].tolist() == [[1.0, 2.0]]
    with pytest.raises(UserError, match="a Python program has to give"):
        reward_design("function", 1.0, None)


@pytest.mark.parametrize(
    ("env", "wrapper", "shown"),
    [
        ("CartPole-v1", CartPoleWithoutSpeeds, [0, 2]),
        ("Pendulum-v1", PendulumWithoutSpeed, [0, 1]),
        ("LunarLanderContinuous-v3", LunarLanderWithoutSpeeds, [0, 1, 4, 6, 7]),
    ],
)
def test_speeds_are_hidden(env, wrapper, shown):
    whole, hidden = gymnasium.make(env), wrapper(gymnasium.make(env))
    seen = whole.reset(seed=3)[0], hidden.reset(seed=3)[0]
    action = hidden.action_space.sample()
    seen += whole.step(action)[0], hidden.step(action)[0]
    for all_numbers, some in zip(seen[::2], seen[1::2]):
        assert some.tolist() == all_numbers[shown].tolist() and hidden.observation_space.contains(some)
    with pytest.raises(ValueError, match="it is for observations of"):
        wrapper(hidden)
