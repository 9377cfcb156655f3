"""Earlier observations beside the newest one, on every backend."""

import gymnasium
import numpy as np
import pytest
from same_state import assert_same_state, resumed_and_whole

from common.config import TrainingConfig
from common.envs.environment import find_environment
from common.envs.history import with_history
from common.envs.mirror_settings import mirror_of
from common.envs.seeded_episodes import RestorePoint
from common.errors import UserError
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

AGES = (2, 3)


def test_an_environment_with_earlier_observations():
    env = find_environment("Pendulum-v1", 5, history=AGES).make()
    plain = gymnasium.make("Pendulum-v1", max_episode_steps=5)
    assert env.observation_space.shape == (9,)
    assert env.observation_space.high.tolist() == [1, 1, 8] * 3
    seen = [plain.reset(seed=4)[0]]
    assert env.reset(seed=4)[0].tolist() == [*seen[0]] * 3
    for t in range(1, 6):
        action = np.array([0.3 * t], np.float32)
        observation, _, _, truncated, _ = env.step(action)
        seen.append(plain.step(action)[0])
        assert observation.tolist() == [*seen[t], *seen[max(0, t - 2)], *seen[max(0, t - 3)]]
    assert truncated  # and the final observation has its history, too


def groups(backend, env, steps):
    """The observations [steps + 1, N, S] of some environments, and where episodes ended [steps, N]."""
    from common.envs.vector_env import make_vector_env

    envs = make_vector_env(env, 4, backend, groups=2)
    seen, ended, draws = [np.concatenate(envs.reset(3))], [], np.random.default_rng(0)
    for _ in range(steps):
        for group in envs.groups:
            group.send(draws.uniform(-1, 1, (2, 4)).astype(np.float32))
        stepped = [group.recv() for group in envs.groups]
        seen.append(np.concatenate([step.observations for step in stepped]))
        ended.append(np.concatenate([step.ended for step in stepped]))
    envs.close()
    return np.stack(seen), np.stack(ended)


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_groups_return_what_was_seen_before(backend):
    pytest.importorskip("envpool")
    walker = find_environment("BipedalWalker-v3", 30, history=AGES)
    seen, ended = groups(backend, walker, 100)
    newest = seen[..., :24]  # [101, N, S]
    plain, _ = groups(backend, find_environment("BipedalWalker-v3", 30), 100)
    np.testing.assert_array_equal(newest, plain)
    assert ended.sum() >= 8  # each environment three times or so
    for i in range(4):
        for t in range(101):
            first = max([0, *(np.flatnonzero(ended[: max(0, t - 1), i]) + 2)])  # of the running episode
            for block, age in enumerate(AGES, start=1):
                expected = newest[max(first, t - age), i]
                np.testing.assert_array_equal(seen[t, i, 24 * block : 24 * (block + 1)], expected)


def test_images_are_refused():
    with pytest.raises(UserError, match="history is for observations that are numbers, tests/Dot-v0 shows images"):
        find_environment("tests/Dot-v0", history=(1,))


def test_a_mirror_treats_all_observations_alike():
    config = TrainingConfig(env="BipedalWalker-v3", symmetry=True)
    walker = find_environment("BipedalWalker-v3", history=AGES)
    one = mirror_of(config, find_environment("BipedalWalker-v3").observation_space, walker.action_space).observation
    three = mirror_of(config.replace(history=AGES), walker.observation_space, walker.action_space).observation
    seen = np.random.default_rng(0).normal(size=(5, 3, 24))
    np.testing.assert_allclose(three(seen.reshape(5, 72)).reshape(5, 3, 24), one(seen))


@pytest.mark.parametrize(("backend", "env"), [
    ("gymnasium", "Pendulum-v1"), ("envpool", "BipedalWalker-v3"), ("envpool", "LunarLanderContinuous-v3"),
])  # fmt: skip
def test_a_resumed_run_has_seen_what_the_whole_one_had(backend, env, eager):
    config = PPOConfig(
        env=env, backend=backend, history=(2, 20), symmetry=True, num_envs=6, epochs=2, steps_per_epoch=210,
        minibatch_size=210, passes=1, hidden_sizes=(4,), max_episode_steps=30, validate_from=(0.0,), validate_every=2,
        validation_episodes=3,
    )  # fmt: skip
    resumed, whole, _ = resumed_and_whole(lambda: PPOAgentTrainer(config), 1, 2)
    assert_same_state(resumed.state(), whole.state())
    assert whole.collector.trajectory.observations.shape[-1] == 3 * find_environment(env).observation_space.shape[0]
    assert np.isfinite([row.metric for row in whole.results[1::2]]).all()


def test_the_parts_of_a_group_play_what_one_pool_plays():
    pytest.importorskip("envpool")
    from common.envs.envpool_group import EnvPoolGroup

    walker = find_environment("BipedalWalker-v3", 30)
    one, two = (EnvPoolGroup(walker, 4, 1, parts) for parts in (1, 2))
    np.testing.assert_array_equal(one.reset(5), two.reset(5))
    one.close()
    two.close()


def test_some_environments_of_a_group_are_stepped_alone():
    pytest.importorskip("envpool")
    from common.envs.envpool_group import EnvPoolGroup

    both = [EnvPoolGroup(find_environment("BipedalWalker-v3", 30, history=ages), 3, 1) for ages in ((), (1,))]
    seen = [group.reset(5) for group in both]
    for which in ([0, 1, 2], [2, 0], [2], [1, 2]):
        actions = np.full((len(which), 4), 0.4, np.float32)
        before = seen[0].copy()
        for group, newest in zip(both, seen):
            group.send(actions, np.array(which))
            newest[which] = group.recv().observations
        np.testing.assert_array_equal(seen[1][which, :24], seen[0][which])
        np.testing.assert_array_equal(seen[1][which, 24:], before[which])
    for group in both:
        group.close()


def test_environments_that_are_brought_back_have_seen_what_they_had():
    pytest.importorskip("envpool")
    from common.envs.envpool_group import EnvPoolGroup

    walker = find_environment("BipedalWalker-v3", 5, history=(1, 3))
    group, again = EnvPoolGroup(walker, 3, 1), EnvPoolGroup(walker, 3, 1)
    group.reset(5), again.reset(5)
    actions = np.random.default_rng(0).uniform(-1, 1, (8, 3, 4)).astype(np.float32)
    for row in actions:  # the fifth step ends the episodes, the sixth begins the next ones
        group.send(row)
        step = group.recv()
    points = {i: RestorePoint(restart=0, episode=1, actions=actions[6:, i]) for i in range(3)}
    np.testing.assert_array_equal(again.restore(points), step.observations)
    for one in (group, again):
        one.send(actions[0])
    np.testing.assert_array_equal(again.recv().observations, group.recv().observations)
    for one in (group, again):
        one.close()


class WholeAtFirst(gymnasium.Env):
    """Its first observation is of whole numbers, and the others are not."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return [0], {}

    def step(self, action):
        return [0.75], 0.0, False, False, {}


def test_a_first_observation_of_whole_numbers_does_not_round_the_others():
    env = with_history(WholeAtFirst(), (1,))
    assert env.reset()[0].tolist() == [0, 0]
    observation = env.step(None)[0]
    assert observation.tolist() == [0.75, 0] and observation.dtype == np.float32
