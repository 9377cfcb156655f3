"""Actions that are held for several steps, on every backend."""

import gymnasium
import numpy as np
import pytest
from same_state import assert_same_state, resumed_and_whole

from common.env_wrappers import reward_design
from common.envs.environment import find_environment
from common.envs.vector_env import make_vector_env
from common.errors import UserError
from common.rollout.validation import validate
from common.runs import after_training, run_folder
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from programs.methods import load_agent

ACTIONS = np.random.default_rng(0).uniform(-1, 1, (40, 4, 4)).astype(np.float32)  # [T, N, A]


def walker(repeat, limit=20):
    return find_environment("BipedalWalker-v3", limit, action_repeat=repeat)


def played(environment, actions):
    """EnvPool's observations [T + 1, N, S], rewards [T, N], terminated [T, N] and truncated [T, N]."""
    envs = make_vector_env(environment, 4, "envpool", groups=1)
    seen, columns = [np.array(envs.reset(3)[0])], []
    for row in actions:
        envs.groups[0].send(row)
        step = envs.groups[0].recv()
        seen.append(np.array(step.observations))
        columns.append([np.array(column) for column in (step.rewards, step.terminated, step.truncated)])
    envs.close()
    return np.stack(seen), *(np.stack(column) for column in zip(*columns))


def by_hand(environment, actions, repeat):
    """The same from an environment that holds no actions: each is sent as often as it is to be held."""
    envs = make_vector_env(environment, 4, "envpool", groups=1)
    group = envs.groups[0]
    seen, columns = [np.array(envs.reset(3)[0])], []
    begins = np.zeros(4, bool)  # whose next step only begins an episode
    for row in actions:
        now, total = seen[-1].copy(), np.zeros(4)
        ended = [np.zeros(4, bool), np.zeros(4, bool)]
        going = np.ones(4, bool)
        for _ in range(repeat):
            which = np.flatnonzero(going)
            if not len(which):
                break
            group.send(row[which], which)
            step = group.recv()
            now[which] = step.observations
            total[which] += step.rewards
            ended[0][which], ended[1][which] = step.terminated, step.truncated
            going[which] &= ~(step.ended | begins[which])
        begins = ended[0] | ended[1]
        seen.append(now)
        columns.append((total, *ended))
    envs.close()
    return np.stack(seen), *(np.stack(column) for column in zip(*columns))


def test_a_gymnasium_environment_adds_up_rewards():
    env, plain = walker(3, limit=10).make(), gymnasium.make("BipedalWalker-v3", max_episode_steps=10)
    env.reset(seed=4), plain.reset(seed=4)
    for count in (3, 3, 3, 1):  # the fourth action meets the limit of ten steps
        action = np.array([0.3, -0.1, 0.2, 0.5], np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        steps = [plain.step(action) for _ in range(count)]
        np.testing.assert_array_equal(observation, steps[-1][0])
        assert reward == pytest.approx(sum(step[1] for step in steps))
        assert (terminated, truncated) == steps[-1][2:4]
    assert truncated


@pytest.mark.parametrize(("repeat", "limit"), [(3, 20), (4, 1600)])
def test_envpool_does_what_sending_an_action_several_times_does(repeat, limit):
    """Episodes of seven actions, and the step that begins the next one; and falls within an action."""
    pytest.importorskip("envpool")
    fall = np.tile(np.array([1, 1, -1, -1], np.float32), (60, 4, 1))  # [T, N, A]
    actions = fall if limit == 1600 else ACTIONS
    expected, found = by_hand(walker(1, limit), actions, repeat), played(walker(repeat, limit), actions)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert found[1][found[2]].max() < -90 if limit == 1600 else expected[3].sum() >= 8


@pytest.mark.parametrize("env", ["BipedalWalker-v3", "LunarLanderContinuous-v3"])
@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_a_resumed_run_goes_on_exactly(backend, env, eager):
    if backend == "envpool":
        pytest.importorskip("envpool")
    config = PPOConfig(
        env=env, backend=backend, action_repeat=(3,), num_envs=6, epochs=2, steps_per_epoch=210,
        minibatch_size=210, passes=1, hidden_sizes=(4,), max_episode_steps=50, validate_from=(0.0,), validate_every=2,
        validation_episodes=3,
    )  # fmt: skip
    resumed, whole, _ = resumed_and_whole(lambda: PPOAgentTrainer(config), 1, 2)
    assert_same_state(resumed.state(), whole.state())
    trajectory = whole.collector.trajectory
    assert trajectory.episode_steps.max() == 17  # 50 steps are 17 actions


def test_the_trained_agent_may_hold_its_actions_for_another_time(tmp_path, eager):
    config = PPOConfig(
        env="BipedalWalker-v3", backend="gymnasium", action_repeat=(3, 1), max_episode_steps=20,
        num_envs=2, epochs=1, steps_per_epoch=64, minibatch_size=64, passes=1, hidden_sizes=(4,),
        best_metric="validation", validation_episodes=3, validate_every=1, normalize_observations=False,
    )  # fmt: skip
    trainer = PPOAgentTrainer(config)
    trainer.train()
    trainer.close()
    agent, result = trainer.agent, trainer.results[-1]
    assert trainer.environment.most_actions == 7 == trainer.collector.trajectory.episode_steps.max()
    learned = trainer.environment.holding(1)
    assert learned.most_actions == 20 and learned.render_fps == 50
    assert learned.holding(None) is learned
    # What is validated, evaluated and loaded from a run is what is played: each action lasts for one step.
    seed = config.seeds()[3]
    for environment, same in ((learned, True), (trainer.environment, False)):
        validation = validate(agent.acting_policy(), agent.action_map, environment, "gymnasium", 3, seed)
        assert bool(np.mean(validation.returns) == result.metric) is same
    assert after_training.evaluate(trainer, 2)["deterministic"]["mean_steps"] == 20
    run_folder.write_config(tmp_path, trainer.config, "a preset")
    agent.save_weights(tmp_path / run_folder.BEST_AGENT)
    assert load_agent(tmp_path)[2].action_repeat == 1


def test_steps_that_are_counted_are_actions():
    assert walker(3).most_actions == 7
    assert walker(1).most_actions == 20
    assert find_environment("tests/Lengths-v0", action_repeat=2).most_actions is None
    assert walker(2).render_fps == walker(1).render_fps / 2 == 25
    design = reward_design("lasted_to_limit", 1.0, walker(3).most_actions, action_repeat=3)
    assert design(np.zeros(2), np.ones(2, bool), np.zeros(2, bool), np.array([6, 7])).tolist() == [-1, 1]


@pytest.mark.parametrize("name", ["outcome_bonus", "fall_penalty"])
def test_a_fall_is_known_though_earlier_rewards_are_added(name):
    rewards, ends, none = np.array([-99.4, -40.0]), np.ones(2, bool), np.zeros(2, bool)
    assert reward_design(name, 1.0, None, fall_cost=7.0, action_repeat=3)(rewards, ends, none, ends).tolist() == [
        -7,
        1,
    ]
    assert reward_design(name, 1.0, None, fall_cost=7.0)(rewards, ends, none, ends).tolist() == [1, 1]


def test_atari_games_are_refused():
    pytest.importorskip("ale_py")
    with pytest.raises(UserError, match=r"actions cannot be held for .*: Atari games hold each one"):
        find_environment("Breakout", action_repeat=2)
    game = find_environment("Breakout")
    with pytest.raises(UserError, match="actions cannot be held for"):
        game.holding(2)
    assert game.holding(1).action_repeat == 1
