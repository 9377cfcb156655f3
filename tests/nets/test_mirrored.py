"""Networks with `symmetry` obey the mirror whatever their weights are: when they learn, act, and are exported."""

import functools

import gymnasium
import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose
from same_state import assert_same_state, resumed_and_whole

from Agent import Agent
from common.envs.mirror_settings import mirror_of
from common.nets import network
from common.nets.network import MAX_LOG_STD, MIN_LOG_STD
from common.records import Timing
from common.rollout import policies
from companions.config import OffPolicyConfig, SACConfig
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from programs.methods import METHODS
from programs.policy_files import ExportedPolicy

PPO = PPOConfig(hidden_sizes=(8, 8), initial_gains=(2**0.5, 1.0), symmetry=True)
TD3 = OffPolicyConfig(hidden_sizes=(8, 8), symmetry=True)
SAC = SACConfig(hidden_sizes=(8, 8), symmetry=True)
KINDS = {
    "a Normal policy": PPO.replace(env="BipedalWalker-v3"),
    "raw observations": PPO.replace(env="BipedalWalker-v3", normalize_observations=False),
    "a standard deviation for each state": PPO.replace(env="BipedalWalker-v3", initial_std=None),
    "choices": PPO.replace(env="LunarLander-v3"),
    "a shared torso": PPO.replace(env="Pendulum-v1", shared_torso=True),
    "TD3": TD3.replace(env="BipedalWalker-v3"),
    "normalised TD3": TD3.replace(env="BipedalWalker-v3", normalize_observations=True, layer_norm=True),
    "TD3 with rounded products": TD3.replace(env="BipedalWalker-v3", precision="bfloat16"),
    "SAC": SAC.replace(env="BipedalWalker-v3"),
    "TQC": SAC.replace(env="Pendulum-v1", quantiles=5, normalize_observations=True),
    "DDPG": TD3.replace(env="Pendulum-v1", twin_critics=False, target_smoothing=0.0),
}
OFF_POLICY = [name for name, config in KINDS.items() if isinstance(config, OffPolicyConfig | SACConfig)]


def marked(names) -> list:
    """Plain graphs have no rounded products."""
    return [pytest.param(name, marks=pytest.mark.xla if "rounded" in name else ()) for name in names]


@functools.cache
def random_agent(kind):
    config, rng = KINDS[kind], np.random.default_rng(0)
    env = gymnasium.make(config.env)
    spaces = env.observation_space, env.action_space
    agent = METHODS[config.METHOD].trainer.make_agent(*spaces, config, 0)
    observations = rng.normal(0.3, 1.0, (64, agent.observation_size)).astype(np.float32)  # [K, S]
    agent.observe(observations)
    state = agent.parameters()
    agent.load_parameters(
        {k: v if "observations" in k else v + rng.normal(0, 0.2, v.shape).astype(v.dtype) for k, v in state.items()}
    )
    return agent, mirror_of(config, *spaces), observations


@pytest.fixture(params=marked(KINDS))
def made(request):
    """An agent with random weights in every part, its mirror and raw observations [K, S]; tests only read them."""
    return random_agent(request.param)


def heads(agent, observations):
    """What the acting copy says: means and standard deviations (of SAC, log σ), logits, or actions; each [K, X]."""
    policy = agent.acting_policy()
    if hasattr(policy, "mean_and_std"):
        mean, std = policy.mean_and_std(observations)
        return mean, np.broadcast_to(std, mean.shape)
    if isinstance(policy, policies.SquashedPolicy):
        [both] = policy.heads(observations)  # [K, 2A]
        log_std = np.clip(np.split(both, 2, axis=1)[1], MIN_LOG_STD, MAX_LOG_STD)  # [K, A]
        return policy.act(observations), log_std
    return (policy.logits(observations),) if hasattr(policy, "logits") else (policy.act(observations),)


def keras_actor(agent, observations):
    """What the Keras network says, [K, X] each."""
    said = agent.actor(agent.normalizer()(observations))
    if isinstance(agent.acting_policy(), policies.SquashedPolicy):
        mean, log_std = np.split(said, 2, axis=1)
        return [np.tanh(mean), np.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)]
    return list(said) if isinstance(said, list | tuple) else [said]


def test_mirrored_states_have_mirrored_policies_and_equal_values(made):
    agent, mirror, observations = made
    first, *spread = heads(agent, observations)  # [K, X]
    first_there, *spread_there = heads(agent, mirror.observation(observations))  # [K, X]
    assert_allclose(mirror.action(first), first_there, atol=1e-5)
    for std, std_there in zip(spread, spread_there):
        assert_allclose(mirror.action.unsigned(std), std_there, atol=1e-5)
    assert np.abs(first - first_there).max() > 0.1  # it is not the same policy in all states
    values, values_there = agent.values(observations), agent.values(mirror.observation(observations))  # [K], [K]
    assert_allclose(values, values_there, atol=1e-5)
    assert values.std() > 0.1


@pytest.mark.parametrize("made", marked(OFF_POLICY), indirect=True)
def test_every_critic_values_mirrored_actions_in_mirrored_states_alike(made):
    agent, mirror, observations = made
    rng = np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (len(observations), agent.action_size)).astype(np.float32)  # [K, A]
    normalize = agent.normalizer()
    inputs = np.concatenate([normalize(observations), actions], axis=1)  # [K, S + A]
    images = [normalize(mirror.observation(observations)), mirror.action(actions)]
    for critic in (*agent.critics, *agent.target_critics):
        values, values_there = np.asarray(critic(inputs)), np.asarray(critic(np.concatenate(images, axis=1)))
        assert_allclose(values, values_there, atol=1e-5)  # [K, 1], or [K, quantiles]
        assert values.std(axis=0).min() > 0.05
    stacked, stacked_there = agent.target_values(*inputs_of(inputs, agent)), agent.target_values(*images)
    assert_allclose(stacked, stacked_there, atol=1e-5)  # [critics, K], or [critics, K, quantiles]


def inputs_of(inputs, agent):
    """Observations [K, S] and actions [K, A] of a critic's inputs."""
    return inputs[:, : agent.observation_size], inputs[:, agent.observation_size :]


def test_both_passes_are_one_product_of_twice_the_rows(made, monkeypatch):
    agent, _, observations = made
    of_numpy, linear = [], network.NUMPY.linear
    monkeypatch.setattr(network.NUMPY, "linear", lambda x, layer: of_numpy.append(len(x)) or linear(x, layer))
    agent.acting_policy().act(observations)
    assert of_numpy == len(of_numpy) * [2 * len(observations)]
    critics = agent.critics if hasattr(agent, "critics") else [agent.critic]
    for model in (agent.actor, *critics):
        [first] = [layer for layer in model.layers if layer.name == "hidden_0"]
        [width] = [tensor.shape[1] for tensor in model.inputs]
        features = keras.Model(model.inputs, first.output)([np.zeros((5, width), np.float32)])
        assert features.shape == (10, 8)  # and .output would raise if the layer was called twice


def test_the_acting_copy_and_the_export_are_the_keras_networks(made):
    agent, _, observations = made
    for ours, keras_s in zip(heads(agent, observations), keras_actor(agent, observations), strict=True):
        assert_allclose(ours, keras_s, atol=1e-5 if agent.config.precision == "float32" else 0.02)
    exported = ExportedPolicy(agent).act(observations)["actions"].numpy()  # [K, *space.shape]
    assert_allclose(exported, agent.action_map(agent.acting_policy().act(observations)), atol=1e-5)


@pytest.mark.parametrize("name", ["a Normal policy", "choices", "TD3", "SAC"])
def test_sides_may_differ_by_the_weight_of_the_image(name):
    """With a weight of 0 the actor is the network alone, with 1 its mirror image."""
    env = gymnasium.make(KINDS[name].env)
    spaces = env.observation_space, env.action_space
    mirror = mirror_of(KINDS[name], *spaces)
    rows = np.random.default_rng(0).normal(size=(16, gymnasium.spaces.flatdim(spaces[0]))).astype(np.float32)  # [K, S]
    said = {}
    for weight in (0.0, 0.3, 0.5, 1.0):
        config = KINDS[name].replace(mirror={"weight": weight})
        agent = METHODS[config.METHOD].trainer.make_agent(*spaces, config, 0)
        agent.observe(np.concatenate([rows, 1 - rows]))
        said[weight] = heads(agent, rows)[0]  # [K, X]
        assert_allclose(said[weight], keras_actor(agent, rows)[0], atol=1e-5)
        there = heads(agent, mirror.observation(rows))[0]  # [K, X]
        assert (np.abs(mirror.action(said[weight]) - there).max() < 1e-5) == (weight == 0.5)
    assert np.abs(said[0.0] - said[1.0]).max() > 0.01
    if name != "SAC":  # whose mean is squashed afterwards
        assert_allclose(said[0.3], 0.7 * said[0.0] + 0.3 * said[1.0], atol=1e-5)


@pytest.mark.parametrize("name", ["a Normal policy", "choices", "TD3", "SAC", "TQC"])
def test_a_trained_agent_obeys_it_and_a_resumed_run_is_the_run_that_was_not_stopped(name, eager):
    config = KINDS[name]
    own = {"warmup_steps": 40, "batch_size": 8, "train_every": 8}
    if isinstance(config, PPOConfig):
        own = {"minibatch_size": 32, "passes": 2}
    config, kind = config.replace(
        max_episode_steps=20, backend="gymnasium", num_envs=2, epochs=2, steps_per_epoch=64,
        best_metric="mean_episode_reward", score_window=1, adopt_best=False, **own,
    ), METHODS[config.METHOD].trainer  # fmt: skip
    before = kind(config).agent.parameters()
    resumed, whole, _ = resumed_and_whole(lambda: kind(config), 1, 2)
    assert_same_state(resumed.state(), whole.state())
    learned = whole.agent.parameters()
    assert any(np.abs(learned[key] - array).max() > 1e-4 for key, array in before.items() if "critic" in key)
    mirror = mirror_of(config, whole.environment.observation_space, whole.environment.action_space)
    observations = np.random.default_rng(1).normal(size=(64, whole.agent.observation_size)).astype(np.float32)
    there = heads(whole.agent, mirror.observation(observations))[0]  # [K, X]
    assert_allclose(mirror.action(heads(whole.agent, observations)[0]), there, atol=1e-5)


class Fork(gymnasium.Env):
    """Left and right are good, the middle is not: reward 1 beside it and −1 in it, ten times."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0 if abs(action[0]) > 0.05 else -1.0, False, self.steps == 10, {}


@pytest.mark.parametrize("metric", ["validation", "mean_episode_reward"])
def test_a_symmetric_policy_that_is_good_only_with_noise_is_judged_without(metric, eager):
    """Its own mirror image, such a state allows only the action 0."""
    config = PPO.replace(
        mirror={"observation": [-1], "action": [-1]}, normalize_observations=False, backend="gymnasium", num_envs=2,
        epochs=2, steps_per_epoch=80, minibatch_size=40, passes=2, score_window=2, best_metric=metric,
        **{"validate_every": 1, "validate_from": (0.0,), "validation_episodes": 2} if metric == "validation" else {},
    )  # fmt: skip
    trainer, warnings = PPOAgentTrainer(config, make_env=Fork), []
    trainer.warn = warnings.append
    trainer.train()
    assert all(row.score > 5 for row in trainer.results)
    if metric == "validation":
        assert [row.metric for row in trainer.results] == [-10, -10] and not warnings
        assert trainer.validator.returns(Timing()).mean() == trainer.agent.best_metric == -10
    else:
        assert trainer.agent.best_metric > 5
        assert warnings == [
            "warning: best_metric mean_episode_reward scores actions with noise, and a symmetric policy can do well "
            "with noise and badly without: use --best-metric validation"
        ]
    trainer.close()


def test_both_sides_are_normalised_alike():
    env = gymnasium.make("BipedalWalker-v3")
    agent = Agent(env.observation_space, env.action_space, KINDS["a Normal policy"], 0)
    mirror = mirror_of(agent.config, env.observation_space, env.action_space)
    rows = np.random.default_rng(0).normal(0.5, 2.0, (100, 24)).astype(np.float32)  # [K, S]
    agent.observe(rows)
    both = np.concatenate([rows, mirror.observation(rows)]).astype(np.float64)  # [2K, S]
    normalizer = agent.normalizer()
    assert_allclose(normalizer.shift, both.mean(axis=0), rtol=1e-5)
    assert_allclose(normalizer.scale, 1 / both.std(axis=0), rtol=1e-5)
    assert_allclose(normalizer(mirror.observation(rows)), mirror.normalized.observation(normalizer(rows)), atol=1e-5)
