"""The trainer and the agent together: what an epoch does to the numbers, and what a run leaves behind."""

import contextlib
import csv
import dataclasses
import functools
import itertools
import typing
import warnings

import numpy as np
import pytest
import tensorflow as tf
from collecting import watched_updates
from gymnasium.spaces import Discrete
from numpy.testing import assert_allclose, assert_array_equal
from same_state import assert_same_state
from tiny_envs import Lengths, Schedule

from Agent import Agent
from common import funcs
from common.envs.environment import find_environment
from common.envs.envpool_group import EnvPoolGroup
from common.envs.spaces import action_map
from common.envs.vector_env import VectorEnv, group_seeds
from common.errors import UserError
from common.nets import distributions, network
from common.records import Timing
from common.results import TIMING_COLUMNS
from common.rollout import evaluation, playing, policies
from common.rollout.policies import NormalPolicy
from common.rollout.validation import validate
from common.runs import run_folder
from common.runs.options import RunOptions
from common.runs.recorder import Recorder
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters
from ppo.results import UPDATE_METRICS
from PPOAgentTrainer import PPOAgentTrainer

SILENT = RunOptions(evaluation_episodes=0, record=())
SCHEDULE = dict(
    env="tests/Schedule-v0",
    max_episode_steps=None,
    num_envs=1,
    steps_per_epoch=Schedule.TRAJECTORY,
    epochs=4,
    minibatch_size=Schedule.TRAJECTORY,
    passes=1,
    normalize_observations=False,  # else a trajectory more comes before the first update
)


def without_timing(folder):
    """results.csv without the columns that differ from run to run."""
    with open(folder / run_folder.RESULTS, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in TIMING_COLUMNS} for row in rows]


def policy_of(agent):
    """Everything that decides how the agent acts and judges: weights and observation statistics."""
    parts = ("actor", "critic", "network", "observations")
    return {k: np.array(v) for k, v in agent.state().items() if k.split("/")[0] in parts}


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


# -- one update --


@pytest.fixture(scope="module")
def update():
    """A batch of the second epoch, its minibatches, the agent, and a function that learns from them."""
    config = PPOConfig(
        env="Pendulum-v1", max_episode_steps=20, backend="gymnasium", num_envs=2, steps_per_epoch=64,
        hidden_sizes=(8,), passes=2, minibatch_size=24, learning_rate=1e-2, normalize_advantages="none",
        anneal=(), adopt_best=False,
    )  # fmt: skip
    trainer = PPOAgentTrainer(config)
    trainer.train(1)
    seen = watched_updates(trainer)
    trainer.train(1)
    [(batch, actor_rows, critic_rows, _)] = seen
    yield trainer.agent, batch, actor_rows, critic_rows
    trainer.close()


def learn(agent, batch, actor_rows, critic_rows, learning_rate):
    """The metrics of the compiled update, each [K]."""
    rates = np.full(2, learning_rate, np.float32)
    numbers = np.array([*rates, 1, 0.2, 0.5, 0.0, 1.0], np.float32)  # passes, clip range, value, entropy, KL
    metrics, *_ = agent.compiled_update(batch, actor_rows, critic_rows, numbers, len(actor_rows) // 2)
    return {name: column.numpy() for name, column in metrics.items()}


def test_ratio_is_1_in_the_first_minibatch_and_only_there(update):
    agent, batch, actor_rows, critic_rows = update
    samples = int(actor_rows.max())  # one row of padding follows
    _, log_probs, _ = agent.assess(batch.observations[: samples + 2], batch.actions[:samples])
    batch = batch._replace(log_probs=np.append(log_probs, np.float32(0)))

    table = learn(agent, batch, actor_rows, critic_rows, 0.01)

    rows = actor_rows[0]
    mean_advantage = np.average(batch.advantages[rows], weights=batch.weights[rows])
    assert table["approximate_kl"][0] == pytest.approx(0, abs=1e-10)
    assert table["clip_fraction"][0] == 0
    assert table["loss_actor"][0] == pytest.approx(-mean_advantage, rel=1e-4, abs=1e-5)  # ratio 1
    assert (table["approximate_kl"][1:] > 1e-6).all()


def test_each_network_learns_from_its_own_rows(update):
    agent, batch, actor_rows, critic_rows = update
    table = learn(agent, batch, actor_rows, critic_rows, 0.0)  # nothing moves: every row is known beforehand

    values, log_probs, _ = agent.assess(batch.observations, batch.actions)
    ratio = np.exp(log_probs - batch.log_probs)
    gain = np.minimum(ratio * batch.advantages, np.clip(ratio, 0.8, 1.2) * batch.advantages)
    error = np.square(values - batch.value_targets)
    loss_actor = [-np.average(gain[rows], weights=batch.weights[rows]) for rows in actor_rows]
    loss_critic = [np.average(error[rows], weights=batch.weights[rows]) for rows in critic_rows]
    assert_allclose(table["loss_actor"], loss_actor, rtol=1e-3, atol=1e-5)
    assert_allclose(table["loss_critic"], loss_critic, rtol=1e-3)
    assert np.ptp(loss_actor) > 1e-3 and np.ptp(loss_critic) > 1e-3


# -- from the environment to the batch --


def test_the_discount_moves_to_its_final_value(tiny, eager, monkeypatch):
    tiny = tiny.replace(reward_scaling="rewards")  # returns are sums of the same function
    discounts, advantages = [], funcs.generalized_advantages

    def watch(rewards, values, terminated, truncated, valid, gamma, gae_lambda):
        discounts.append(gamma)
        return advantages(rewards, values, terminated, truncated, valid, gamma, gae_lambda)

    monkeypatch.setattr(funcs, "generalized_advantages", watch)
    trainer = PPOAgentTrainer(tiny.replace(epochs=2, gamma=0.9, final_gamma=0.999, adopt_best=False))
    trainer.train()
    trainer.train(1)
    # Horizons of 10, 100 and 10 · 100^(2/3) steps: halfway, then two of three epochs are over.
    assert discounts == pytest.approx([0.9, 0.99, 1 - 0.1 * 0.01 ** (2 / 3)])


def test_rewards_are_divided_by_the_std_of_all_of_them_and_not_shifted(tiny, eager):
    # With γ = 0 the value target of a step is its scaled reward. All of Pendulum's rewards are negative.
    plain = tiny.replace(gamma=0.0, normalize_advantages="none", learning_rate=0.0, epochs=3, adopt_best=False)
    scaled_trainer, raw_trainer = PPOAgentTrainer(plain), PPOAgentTrainer(plain.replace(reward_scaling="none"))
    scaled, raw = watched_updates(scaled_trainer), watched_updates(raw_trainer)
    scaled_trainer.train(2)
    scaled_trainer.train(1)  # the statistics go on
    raw_trainer.train(3)
    so_far = np.array([])
    for (batch, *_), (raw_batch, *_), result in zip(scaled, raw, scaled_trainer.results):
        counts = raw_batch.weights > 0
        rewards = raw_batch.value_targets[counts].astype(np.float64)
        so_far = np.append(so_far, rewards)
        assert_allclose(batch.value_targets[counts], rewards / (so_far.std() + 1e-4), rtol=1e-3)
        assert result.reward_std == pytest.approx(so_far.std(), rel=1e-3)
        assert (batch.value_targets[counts] < 0).all()
    assert len(so_far) > 100


@contextlib.contextmanager
def log_probs_compared(trainer, monkeypatch):
    """Lists, for every update, the log-probabilities it is given and those under the policy that drew the actions."""
    listed, acted, act, update = [], [], NormalPolicy.act, trainer.agent.update

    def watch_act(self, observations, noise=None):
        _, std = self.mean_and_std(observations)
        logs = -0.5 * np.square(noise) - np.log(std) - 0.5 * np.log(2 * np.pi)  # [n, A]
        acted.extend(logs.sum(axis=-1))
        return act(self, observations, noise)

    def watch_update(batch, *arguments):
        samples = trainer.config.steps_per_epoch
        counts = batch.weights[:samples] > 0
        listed.append((batch.log_probs[:samples][counts], np.array(acted[-samples:])[counts]))
        return update(batch, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(NormalPolicy, "act", watch_act)
        patch.setattr(trainer.agent, "update", watch_update)
        yield listed


@pytest.mark.parametrize("backend, num_envs", [("gymnasium", 2), ("envpool", 4)])
def test_updates_compare_with_the_policy_that_acted(tiny, eager, monkeypatch, backend, num_envs):
    # Were observations normalised with other statistics when learning than when acting, these would differ.
    if backend == "envpool":
        pytest.importorskip("envpool")
    config = tiny.replace(backend=backend, num_envs=num_envs, passes=1, minibatch_size=64)
    trainer = PPOAgentTrainer(config)
    with log_probs_compared(trainer, monkeypatch) as listed:
        trainer.train(3)
    trainer.close()
    assert len(listed) == 3
    for given, drawn in listed:
        assert_allclose(given, drawn, atol=2e-4)


def test_after_adopting_the_best_updates_still_compare_with_the_policy_that_acted(tiny, eager, monkeypatch):
    trainer = PPOAgentTrainer(tiny.replace(**SCHEDULE, best_metric="total_reward"))
    with log_probs_compared(trainer, monkeypatch) as listed:
        trainer.train()  # adopts the first epoch's parameters
        trainer.train(1)
    given, drawn = listed[-1]
    assert_allclose(given, drawn, atol=2e-4)


@pytest.mark.parametrize("backend, env", [("gymnasium", "tests/Target-v0"), ("envpool", "Pendulum-v1")])
def test_validation_scores_whole_deterministic_episodes(tiny, monkeypatch, backend, env):
    if backend == "envpool":
        pytest.importorskip("envpool")
    trainer = PPOAgentTrainer(tiny.replace(env=env, max_episode_steps=None))
    agent, seed = trainer.agent, 11
    played = agent.acting_policy(), agent.action_map, find_environment(env), backend, 30  # in groups of 15
    closed: list[VectorEnv] = []
    close = VectorEnv.close
    monkeypatch.setattr(VectorEnv, "close", lambda self: closed.append(self) or close(self))
    score = validate(*played, seed).returns
    assert len(closed) == (backend == "envpool")
    np.testing.assert_array_equal(score, validate(*played, seed).returns)
    assert (score != validate(*played, seed + 1).returns).any()
    if backend == "gymnasium":
        returns = [
            evaluation.evaluate(
                agent.acting_policy(), agent.action_map, find_environment(env), 15, True, first
            ).returns
            for first in group_seeds(seed, 2)
        ]
        assert score == pytest.approx(np.concatenate(returns))
    trainer.close()


def test_validation_counts_each_environments_first_episode_whole(tiny):
    agent = PPOAgentTrainer(tiny.replace(env="tests/Lengths-v0", max_episode_steps=None)).agent
    Lengths.seeds.clear()
    validation = validate(
        agent.acting_policy(), agent.action_map, find_environment("tests/Lengths-v0"), "gymnasium", 60, 7
    )
    assert len(Lengths.seeds) == len(set(Lengths.seeds)) == 60  # one reset each: what is over is not stepped further
    lengths = np.array([Lengths.length(seed) for seed in Lengths.seeds])
    assert len(set(lengths)) > 3
    np.testing.assert_array_equal(validation.lengths, lengths)
    np.testing.assert_array_equal(validation.returns, lengths * (lengths + 1) / 2)


def test_validation_steps_what_envpool_still_plays(monkeypatch):
    envpool = pytest.importorskip("envpool")
    assert "CartPole-v1" in envpool.list_all_envs()
    sent, send = [], EnvPoolGroup.send

    def watched(group, actions, which=None):
        sent.append(len(actions))
        send(group, actions, which)

    class Pushing:
        is_plain = True

        def act(self, observations, noise=None):
            return (observations[:, 2] > 0.02).astype(np.float32)[:, None]  # after the pole, but late

    monkeypatch.setattr(EnvPoolGroup, "send", watched)
    environment = find_environment("CartPole-v1")
    ours = validate(Pushing(), action_map(Discrete(2)), environment, "envpool", 10, 3)
    assert sum(sent) == ours.lengths.sum() < len(sent) * 10
    assert len(set(ours.lengths)) > 3
    np.testing.assert_array_equal(ours.returns, ours.lengths)  # CartPole pays 1 a step


def test_a_validation_says_how_many_episodes_it_cut(tiny, monkeypatch):
    monkeypatch.setattr(playing, "STEP_BOUND", 12)
    monkeypatch.setattr(evaluation, "STEP_BOUND", 12)
    config = tiny.replace(**VALIDATED | {"env": "tests/Wandering-v0", "max_episode_steps": None})
    with contextlib.closing(PPOAgentTrainer(config.replace(validation_episodes=2))) as trainer:
        trainer.warn = (said := []).append
        timing = Timing()
        trainer.validator.returns(timing)
    assert said == ["warning: 2 of 2 validation episodes were cut after 12 steps"]


def test_validation_judges_the_second_half_and_disturbs_nothing(tiny, eager):
    judged = PPOAgentTrainer(tiny.replace(**VALIDATED | {"validate_every": 3}))
    plain = PPOAgentTrainer(tiny.replace(**VALIDATED | {"best_metric": "total_reward"}))
    policies = []
    judged.train(on_epoch=lambda _: policies.append(policy_of(judged.agent)))
    plain.train()
    scores = {row.epoch: row.metric for row in judged.results if not np.isnan(row.metric)}
    assert list(scores) == [6, 8]
    assert [row.is_best for row in judged.results] == [False] * 5 + [True, False, scores[8] >= scores[6]]
    assert same(policy_of(judged.agent), policies[max(scores, key=scores.get) - 1])
    assert all(row.seconds_validation > 0 for row in judged.results if row.epoch in scores)
    played = 64 * 3  # validation episodes, of three steps each
    assert [row.validation_steps for row in judged.results] == [played * (epoch in scores) for epoch in range(1, 9)]
    differ = {"metric", "is_best", "validation_steps", *TIMING_COLUMNS}
    for one, other in zip(judged.results, plain.results, strict=True):
        one, other = dataclasses.asdict(one), dataclasses.asdict(other)
        assert {k: v for k, v in one.items() if k not in differ} == {k: v for k, v in other.items() if k not in differ}


@pytest.mark.parametrize("normalizes", [True, False])
def test_the_first_update_sees_observations_normalised_as_all_others_do(tiny, eager, normalizes):
    config = tiny.replace(epochs=2, passes=1, minibatch_size=64, normalize_observations=normalizes)
    trainer = PPOAgentTrainer(config)
    raw, observe = [], trainer.agent.observe
    trainer.agent.observe = lambda observations: (raw.append(observations), observe(observations))[1]
    seen = watched_updates(trainer)
    trainer.train()
    first = seen[0][0].observations
    if normalizes:
        assert len(raw) == 3  # a trajectory from before the first update, and those of both updates
        expected = np.clip((raw[1] - raw[0].mean(axis=0)) / (raw[0].std(axis=0) + 1e-8), -10, 10)
        assert_allclose(first, expected, rtol=1e-4, atol=1e-4)
    else:
        assert_array_equal(first, raw[0])
    assert [row.steps for row in trainer.results] == ([192, 256] if normalizes else [128, 192])
    trainer.close()


# -- repeatability --


def test_compiled_and_step_by_step_agree(update, eager):
    agent, batch, actor_rows, critic_rows = update
    table = learn(agent, batch, actor_rows, critic_rows, 0.0)
    tf.config.run_functions_eagerly(False)
    compiled = learn(agent, batch, actor_rows, critic_rows, 0.0)
    for name in UPDATE_METRICS:
        assert_allclose(table[name], compiled[name], rtol=1e-3, atol=1e-5, err_msg=name)


# -- every setting does something --

# Overshoots so far that epoch 5 of the 8 is the best by 64 episodes and as good as epoch 8 by a single one.
VALIDATED = dict(
    env="tests/Target-v0", max_episode_steps=None, epochs=8, hidden_sizes=(8,), passes=1, learning_rate=0.5,
    anneal=(), initial_std=0.5, initial_gains=(2**0.5, 0.01), best_metric="validation", validate_every=1,
    validation_episodes=64, adopt_best=True, score_window=1,
)  # fmt: skip

SEEN = dict(env="tests/Dot-v0", max_episode_steps=None, convolutions=("2x4/2", "3x3/1"))
FALLS = dict(env="tests/Falls-v0", max_episode_steps=None, reward_design="outcome_bonus", reward_scaling="none")

# For each field another value, and what has to be set for it to matter.
ALTERNATIVES: dict[str, tuple[object, dict[str, object]]] = {
    "reward_factor": (5.0, {"reward_design": "scaled", "reward_scaling": "none"}),
    "action_cost": (("0.5@-1e6",), {}),
    "fall_cost": (("1", "50@-1e6"), FALLS),
    "env_kwargs": ({"g": 3.0}, {}),  # Pendulum's gravity
    "wrappers": (("gymnasium.wrappers:TimeAwareObservation",), {}),
    "updates_per_epoch": (2, {}),
    "shared_torso": (True, {}),
    "convolutions": (("4x4/2", "3x3/1"), SEEN),
    "value_target": ("one_step", {}),
    "recompute_targets": (True, {"passes": 2}),
    "value_loss": ("smooth_l1", {}),
    "value_coefficient": (0.0, {"shared_torso": True}),
    "env": ("tests/Target-v0", {}),
    "action_masks": (True, {"env": "tests/LooseDoors-v0"}),
    "max_episode_steps": (10, {}),
    "reward_design": ("outcome_bonus", {}),
    "backend": ("envpool", {}),
    "num_envs": (4, {}),
    "shards": (2, {}),
    "action_repeat": ((3,), {}),
    "networks": ("tiny_envs:make_networks", {}),
    "memory": ("gru", {}),
    "memory_size": (8, {"memory": "gru"}),
    "sequence_length": (3, {"memory": "gru"}),
    "symmetry": (True, {}),
    "mirror": ({"weight": 0.3}, {"symmetry": True}),  # Pendulum's own is 1 -2 -3, and -1
    "epochs": (3, {}),
    "steps_per_epoch": (80, {}),
    "seed": (1, {}),
    "hidden_sizes": ((), {}),
    "precision": ("bfloat16", {"hidden_sizes": (8, 8)}),
    "activation": ("relu", {}),
    "mean_activation": ("tanh", {}),
    "initial_gains": ((1.0, 0.01), {}),
    "initial_std": (0.5, {}),
    "min_std": (1.5, {}),
    "normalize_observations": (False, {}),
    "reward_scaling": ("rewards", {}),
    "noise_color": (0.0, {}),
    "normalize_advantages": ("running_std", {}),
    "gamma": (0.9, {}),
    "final_gamma": (0.5, {}),
    "gae_lambda": (0.5, {}),
    "passes": (3, {}),
    "reused_trajectories": (1, {}),
    "minibatch_size": (64, {}),
    "learning_rate": (3e-3, {}),
    "critic_learning_rate": (3e-2, {}),
    "anneal": ((), {}),
    "desired_kl": (1e-9, {}),
    "adam_epsilon": (1e-2, {}),
    "clip_range": (0.01, {}),
    "objective": ("kl_penalty", {}),
    "max_kl": (0.0, {"passes": 2}),
    "entropy_coefficient": (0.1, {}),
    "max_gradient_norm": (None, {}),
    "quirks": (("saturating_log_prob",), {"initial_std": 1e7}),  # densities near 1e-8
    "environment_restarts": (1000, {"env": "tests/Raising-v0", "max_episode_steps": None}),
    "on_not_finite": ("skip", {"env": "tests/FaultyReward-v0"}),
    "best_metric": ("total_reward", SCHEDULE | {"adopt_best": True}),
    "validate_every": (8, VALIDATED),
    "average_weights": (0.9, VALIDATED),
    "validation_episodes": (1, VALIDATED),
    "validate_from": ((0.0,), VALIDATED),
    "stop_score": (-1e9, VALIDATED),
    "confirming_margin": (100.0, VALIDATED | {"stop_score": -10.0}),
    "adopt_best": (False, SCHEDULE | {"adopt_best": True}),
}


ENDS = {  # what the default ends training with
    "environment_restarts": "failed at step",
    "on_not_finite": "NaN or infinity as reward",
}
SHAPES = (
    "env", "wrappers", "networks", "action_masks", "shared_torso", "convolutions", "hidden_sizes", "memory",
    "memory_size",
)  # fmt: skip
NOT_LEARNED = (
    "score_window", "device", "environment_time_limit", "start_from", "log_info", "image_size"
)  # tested where they act  # fmt: skip


@functools.cache
def outcome(config):
    """How the agent acts after training: weights and observation statistics."""
    trainer = PPOAgentTrainer(config)
    try:
        trainer.train()
        return policy_of(trainer.agent)
    finally:
        trainer.close()


def change(one, other):
    """The largest relative change of an array."""
    return max(np.abs(one[k] - other[k]).max() / (np.abs(one[k]).max() + 1e-9) for k in one)


@pytest.mark.parametrize(
    "name", [field.name for field in dataclasses.fields(PPOConfig) if field.name not in NOT_LEARNED]
)
def test_every_setting_changes_what_is_learned(tiny, request, monkeypatch, name):
    if "memory" not in name and name != "sequence_length":  # whose loop along the steps has to be compiled
        request.getfixturevalue("eager")
    for module in (distributions, policies, network):
        monkeypatch.setattr(module, "MAX_STD", 1e9)  # a density of 1e-8 takes a spread as wide as 1e7
    assert name in ALTERNATIVES, f"give {name} an alternative here: a setting that nothing reads is a defect"
    value, needed = ALTERNATIVES[name]
    if value == "envpool":
        pytest.importorskip("envpool")
    config = tiny.replace(**{"adopt_best": False, "passes": 1} | needed)
    assert getattr(config, name) != value
    trained = outcome(config.replace(**{name: value}))
    if name in ENDS:
        with pytest.raises(UserError, match=ENDS[name]):
            outcome(config)
        assert all(np.isfinite(array).all() for array in trained.values())
    elif name in SHAPES:
        assert {k: v.shape for k, v in outcome(config).items()} != {k: v.shape for k, v in trained.items()}
    else:
        assert change(outcome(config), trained) > 0.01


def test_every_way_to_normalize_advantages_does_something_of_its_own(tiny, eager):
    kinds = typing.get_args(typing.get_type_hints(PPOConfig)["normalize_advantages"])
    ends = [outcome(tiny.replace(normalize_advantages=kind)) for kind in kinds]
    assert all(change(one, other) > 1e-3 for one, other in itertools.combinations(ends, 2))


def test_standard_deviations_do_not_fall_below_their_floor(tiny, eager):
    config = tiny.replace(env="tests/Wide-v0", max_episode_steps=None, learning_rate=1e-4, epochs=4, adopt_best=False)
    trainer = PPOAgentTrainer(config.replace(initial_std=0.1, min_std=0.5))
    found = []
    trainer.train(on_epoch=lambda _: found.append(np.exp(trainer.agent.actor.get_layer("std").log_std.numpy())))
    trainer.close()
    np.testing.assert_allclose(found[0], 0.5, rtol=1e-6)  # raised from 0.1
    assert all(std.min() >= 0.4999 and std.max() < 0.51 for std in found)
    trainer = PPOAgentTrainer(config.replace(initial_std=0.5, min_std=0.4))
    trainer.agent.actor.get_layer("std").log_std.assign(np.log(np.linspace(0.1, 0.7, trainer.agent.action_size)))
    trainer.train(1)
    raised = np.exp(trainer.agent.actor.get_layer("std").log_std.numpy())
    np.testing.assert_allclose(raised, np.maximum(np.linspace(0.1, 0.7, len(raised)), 0.4), rtol=1e-2)
    trainer.close()


# -- time and memory --


def test_compiled_once_and_memory_stays_flat(tiny, tmp_path, resident_megabytes):
    config = tiny.replace(env="tests/Wide-v0", max_episode_steps=None, num_envs=8, steps_per_epoch=512, epochs=50)
    config = config.replace(passes=2, minibatch_size=16)  # 3,200 gradient steps in all
    trainer = PPOAgentTrainer(config)
    agent, traces, memory = trainer.agent, [], []
    options = dataclasses.replace(SILENT, record=("tensorboard",))
    with Recorder(trainer, tmp_path, options) as recorder:

        def on_epoch(result):
            recorder(result)
            functions = (agent.compiled_update, agent.compiled_passes, agent.compiled_assess)
            traces.append([f.experimental_get_tracing_count() for f in functions])
            if result.epoch in (10, 50):
                memory.append(resident_megabytes())

        trainer.train(45, on_epoch=on_epoch)
        trainer.train(5, on_epoch=on_epoch)  # with another learning rate
    trainer.close()
    assert traces == [[1, 2, 1]] * 50  # the passes of actor and critic are two functions
    assert memory[1] - memory[0] < 20  # 40 trajectories of 1 MB passed; the allocator alone has been seen to take 12


# -- calling train again, and what it returns --

STUDY_KEYS = {
    "name", "description", "loss_actor_epochs", "loss_critic_epochs", "epoch_metrics_epochs", "total_reward_epochs",
    "total_reward_orig_epochs", "avg_steps_epochs", "avg_reward_epochs", "avg_reward_orig_epochs",
    "max_epoch_metrics", "processing_time_total", "processing_time_total_string",
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"desired_kl": 1e-9},
        {"shared_torso": True, "updates_per_epoch": 2},
        {"objective": "kl_penalty", "final_gamma": 0.999},
    ],
)
def test_training_in_parts_is_training_in_one_go(tiny, eager, changes):
    config = tiny.replace(epochs=6, best_metric="validation", validate_every=2, validation_episodes=2, **changes)
    config = config.replace(anneal=("learning_rate", "clip_range"), adopt_best=True)
    parts, whole, loaded = (PPOAgentTrainer(config) for _ in range(3))
    parts.train(2)
    parts.train(3)  # adopts epoch 4's parameters
    assert not same(parts.agent.state(), parts.agent.training_state())
    loaded.load_state(parts.state())
    parts.train(1)
    whole.train(6)
    loaded.train(1)
    for trainer in (parts, loaded):
        assert same(trainer.agent.state(), whole.agent.state())
        assert_same_state(trainer.state(), whole.state())
        trainer.close()
    whole.close()


def test_weights_that_are_read_after_training_are_what_training_continues_from(tiny, eager, tmp_path):
    trainer = PPOAgentTrainer(tiny.replace(**SCHEDULE, best_metric="total_reward"))
    trainer.agent.save_weights(tmp_path / "first.npz")
    first = policy_of(trainer.agent)
    trainer.train()
    trainer.agent.read_weights(tmp_path / "first.npz")
    trainer.agent.leave_best()
    assert same(policy_of(trainer.agent), first)
    trainer.close()


def test_results_dictionary_has_the_keys_of_the_study_and_the_settings(tiny, eager):
    trainer = PPOAgentTrainer(tiny, name="one", description="two")
    results = trainer.train(1)
    settings = dataclasses.asdict(tiny)
    assert not STUDY_KEYS & set(settings)
    assert set(results) == STUDY_KEYS | set(settings)
    assert {k: results[k] for k in settings} == settings
    assert (results["name"], results["description"]) == ("one", "two")
    assert results["max_epoch_metrics"] == max(results["epoch_metrics_epochs"])
    assert results["processing_time_total"] > 0
    assert results["total_reward_epochs"] == [trainer.results[0].total_reward]
    assert results["avg_steps_epochs"] == [20.0]


def test_the_critic_learns_at_a_rate_of_its_own(tiny, eager):
    trainer = PPOAgentTrainer(tiny.replace(learning_rate=0.0, critic_learning_rate=0.1, adopt_best=False))
    before = policy_of(trainer.agent)
    trainer.train()
    after = policy_of(trainer.agent)
    assert float(trainer.agent.adams["critic_adam"].learning_rate) == pytest.approx(0.05)  # in the second epoch
    moved = {name.split("/")[0] for name in before if not np.array_equal(before[name], after[name])}
    assert moved == {"critic", "observations"}


@pytest.mark.parametrize(
    ("changes", "step", "left"),
    [
        ({}, 1, [1, 0.75, 0.5, 0.25]),
        ({"desired_kl": 1e-9, "anneal": ()}, 1 / 1.15, [1, 1, 1, 1]),  # steered to the desired divergence
        ({"desired_kl": 1e3, "anneal": ()}, 1.15, [1, 1, 1, 1]),
        ({"desired_kl": 1e3}, 1.15, [1, 0.75, 0.5, 0.25]),
    ],
)
def test_learning_rates_fall_to_zero_over_the_epochs_and_are_steered(tiny, eager, changes, step, left):
    config = tiny.replace(epochs=4, learning_rate=0.01, critic_learning_rate=0.02, adopt_best=False, **changes)
    trainer = PPOAgentTrainer(config)
    trainer.train()
    expected = [0.01 * step**i * share for i, share in enumerate(left)]
    assert [row.learning_rate for row in trainer.results] == pytest.approx(expected)
    assert float(trainer.agent.adams["critic_adam"].learning_rate) == pytest.approx(2 * expected[-1])
    trainer.train(0)
    assert trainer.epoch == 4
    trainer.close()


@pytest.mark.parametrize(("anneal", "ranges"), [((), [0.4, 0.4, 0.4, 0.4]), (("clip_range",), [0.4, 0.3, 0.2, 0.1])])
def test_the_clip_range_falls_only_if_it_is_asked_to(tiny, eager, anneal, ranges):
    trainer = PPOAgentTrainer(tiny.replace(epochs=4, passes=1, clip_range=0.4, anneal=anneal))
    seen = watched_updates(trainer)
    trainer.train()
    assert [hyperparameters.clip_range for *_, hyperparameters in seen] == pytest.approx(ranges)


def test_a_state_of_more_epochs_than_the_config_has_is_restored(tiny, eager):
    config = tiny.replace(env="tests/Target-v0", max_episode_steps=1, num_envs=1, epochs=1, steps_per_epoch=32)
    trainer, other = PPOAgentTrainer(config), PPOAgentTrainer(config)
    trainer.train(5)  # begins 96 episodes
    other.load_state(trainer.state())
    assert repr(other.train(1)["loss_critic_epochs"]) == repr(trainer.train(1)["loss_critic_epochs"])


# -- best parameters --


def test_a_training_metric_counts_only_over_enough_episodes(tiny, eager):
    # Episodes of 20 steps and a restart in two environments: 2 or 4 in each epoch of 64 steps.
    trainer = PPOAgentTrainer(tiny.replace(epochs=5, score_window=10, best_metric="mean_episode_reward", passes=1))
    returns, take = [], trainer.collector.scores.training_metrics

    def watch():
        returns.extend(trainer.collector.scores.of_epoch[-1].returns)
        return take()

    trainer.collector.scores.training_metrics = watch
    trainer.train()
    before = trainer.results[0].total_episodes - trainer.results[0].episodes  # of the two trajectories before it
    enough = [row.total_episodes >= 10 for row in trainer.results]
    assert 0 < before < 10 and enough.count(False) >= 1 and enough.count(True) >= 2
    assert [not np.isnan(row.metric) for row in trainer.results] == enough
    assert [row.is_best for row in trainer.results[: enough.index(True)]] == [False] * enough.index(True)
    assert max(row.episodes for row in trainer.results) < 10
    assert trainer.results[-1].metric == pytest.approx(np.mean(returns[-10:]))
    assert trainer.results[-1].metric != pytest.approx(trainer.results[-1].avg_reward)
    state = {name: np.array(array) for name, array in trainer.state().items()}
    resumed = PPOAgentTrainer(trainer.config)
    resumed.load_state(state)
    assert resumed.collector.scores.state()["recent_shaped"].tolist() == pytest.approx(returns[-10:])
    trainer.close(), resumed.close()


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("total_reward", [16, 11, 4.6, 1.6]),
        ("mean_episode_reward", [2, 5.5, 4.6, 0.2]),
        ("reward_times_steps", [4, 60.5, 105.8, 0.4]),
    ],
)
def test_best_parameters_are_kept_and_adopted(tiny, eager, metric, expected):
    best = Schedule.BEST_EPOCH[metric]
    trainer = PPOAgentTrainer(tiny.replace(**SCHEDULE, best_metric=metric))
    policies = []
    results = trainer.train(on_epoch=lambda _: policies.append(policy_of(trainer.agent)))
    assert [row.metric for row in trainer.results] == pytest.approx(expected)
    assert results["max_epoch_metrics"] == pytest.approx(max(expected))
    assert same(policy_of(trainer.agent), policies[best - 1])
    assert [row.is_best for row in trainer.results] == [epoch <= best for epoch in (1, 2, 3, 4)]
    assert not any(same(policies[i], policies[j]) for i in range(4) for j in range(i))
    trainer.agent.adopt_best()  # twice
    assert same(policy_of(trainer.agent), policies[best - 1])
    trainer.agent.leave_best()  # training is still where it was
    assert same(policy_of(trainer.agent), policies[3])
    trainer.close()


def test_ties_take_the_later_epoch_and_nan_never_is_the_best(tiny, eager):
    trainer = PPOAgentTrainer(tiny)
    agent = trainer.agent
    assert not agent.keep_best(float("nan"))
    agent.adopt_best()  # nothing kept: stays
    assert agent.keep_best(-5.0) and agent.keep_best(-5.0)
    assert not agent.keep_best(-5.1) and not agent.keep_best(float("nan"))
    assert agent.best_metric == -5.0


# -- weights on disk --


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A trained agent's trainer, a batch to go on with, and its saved weights."""
    tf.config.run_functions_eagerly(True)
    config = PPOConfig(
        env="Pendulum-v1", backend="gymnasium", num_envs=2, steps_per_epoch=64, hidden_sizes=(8,), passes=2,
        minibatch_size=32, learning_rate=1e-2, max_episode_steps=20,
    )  # fmt: skip
    trainer = PPOAgentTrainer(config)
    seen = watched_updates(trainer)
    trainer.train(2)
    trainer.agent.keep_best(-1.0)
    path = tmp_path_factory.mktemp("weights") / "below" / "weights.npz"
    trainer.agent.save_weights(path)
    tf.config.run_functions_eagerly(False)
    yield trainer, seen[-1][:3], path
    trainer.close()


def other_agent(trainer, **changes):
    known = trainer.environment
    return Agent(known.observation_space, known.action_space, trainer.config.replace(**changes), 99)


def test_saved_weights_act_and_learn_on_alike(weights, eager):
    trainer, (batch, actor_rows, critic_rows), path = weights
    agent, loaded, without_adam = trainer.agent, other_agent(trainer), other_agent(trainer)
    loaded.read_weights(path)
    assert same(loaded.state(), agent.state())
    without_adam.load_parameters(agent.state())

    observations = np.random.default_rng(0).normal(size=(50, 3))
    noise = np.random.default_rng(1).normal(size=(50, 1)).astype(np.float32)
    assert_array_equal(
        loaded.acting_policy().act(observations, noise),
        agent.acting_policy().act(observations, noise),
    )

    again = other_agent(trainer)  # the fixture's own agent stays as it is
    again.load_state(agent.state())
    at_rate = Hyperparameters.of(trainer.config)
    results = [one.update(batch, actor_rows, critic_rows, at_rate) for one in (loaded, again, without_adam)]
    assert results[0] == results[1]
    assert same(loaded.state(), again.state())
    assert not same(policy_of(loaded), policy_of(without_adam))  # the optimisers' state does matter


def test_best_parameters_survive_saving(weights, eager):
    trainer, (batch, actor_rows, critic_rows), path = weights
    loaded = other_agent(trainer)
    loaded.read_weights(path)
    best = policy_of(loaded)
    assert loaded.best_metric == trainer.agent.best_metric > -np.inf
    loaded.update(batch, actor_rows, critic_rows, Hyperparameters.of(trainer.config))
    assert not same(policy_of(loaded), best)
    loaded.adopt_best()
    assert same(policy_of(loaded), best)


def test_unreadable_weights_are_told_in_one_line_and_change_nothing(weights, tmp_path):
    """tests/runs/test_hostile_folders.py has damaged files of other kinds."""
    trainer, _, path = weights
    agent, state = other_agent(trainer), trainer.agent.state()
    before = {k: np.array(v) for k, v in agent.state().items()}
    cut, broken = tmp_path / "cut.npz", {}
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for name, arrays in {
        "foreign arrays": {"something": np.zeros(3)},
        "policy without optimisers": policy_of(trainer.agent),
        "optimiser of another size": state | {"actor_adam/2": np.zeros((3, 3), np.float32)},
    }.items():
        broken[name] = tmp_path / f"{name}.npz"
        np.savez(broken[name], **arrays)
    for wrong in (cut, *broken.values(), tmp_path / "none.npz", tmp_path):
        with pytest.raises(UserError, match=str(wrong)) as caught:
            agent.read_weights(wrong)
        assert "\n" not in str(caught.value)
        assert same(agent.state(), before)
    for sizes in ((9,), (8, 8)):
        with pytest.raises(UserError, match="other networks"):
            other_agent(trainer, hidden_sizes=sizes).read_weights(path)


# -- epochs without an end, and environments that fail --


def test_an_epoch_without_a_finished_episode_says_so(tiny, eager, tmp_path, capsys):
    trainer = PPOAgentTrainer(tiny.replace(max_episode_steps=None))  # Pendulum's 200 steps; an epoch has 32
    options = dataclasses.replace(SILENT, record=("figure", "tensorboard"))
    with warnings.catch_warnings(), Recorder(trainer, tmp_path, options) as recorder:
        warnings.simplefilter("error", RuntimeWarning)
        trainer.train(on_epoch=recorder)
        recorder.draw()
    for row in trainer.results:
        assert row.episodes == 0 and not row.is_best
        assert np.isnan([row.avg_reward, row.avg_reward_orig, row.avg_steps, row.metric]).all()
        assert np.isfinite([row.total_reward, row.loss_actor, row.loss_critic]).all()
    rows = [line for line in capsys.readouterr().out.splitlines() if "no episode finished" in line]
    assert len(rows) == 2
    assert "nan" not in rows[0]
    assert [row["episodes"] for row in without_timing(tmp_path)] == ["0", "0"]
    assert (tmp_path / run_folder.FIGURE).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("env", "noise_color", "colored"),
    [("Pendulum-v1", 0.5, True), ("Pendulum-v1", 0.0, False), ("CartPole-v1", 0.5, False)],
)
def test_noise_has_a_color_where_actions_are_continuous(tiny, env, noise_color, colored):
    trainer = PPOAgentTrainer(tiny.replace(env=env, max_episode_steps=None, noise_color=noise_color))
    assert (trainer.collecting(trainer.config).shape_noise is not None) == colored
    trainer.close()


@pytest.mark.parametrize("normalized", [True, False])
def test_a_training_that_was_interrupted_while_it_collected_learns_from_no_trajectory_twice(
    tiny, eager, monkeypatch, normalized
):
    trainer = PPOAgentTrainer(tiny.replace(epochs=4, normalize_observations=normalized))
    trainer.train(1)
    learned = trainer.collector.trajectory.observations.copy()
    group, calls = trainer.collector.envs.groups[0], []
    send = group.send

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt
        send(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(group, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(1)
    trainer.prepare()
    fresh = trainer.collector.trajectory.observations.copy()
    assert not np.array_equal(learned, fresh) and trainer.collector.trajectory.episode_steps[0].tolist() == [1, 1]
    with monkeypatch.context() as patch:
        patch.setattr(trainer.collector, "collect", interrupted)  # at once after the update
        with pytest.raises(KeyboardInterrupt):
            calls[:] = calls[:4]
            trainer.train(1)
    trainer.prepare()
    assert not np.array_equal(trainer.collector.trajectory.observations, fresh)
    trainer.train(1)
    trainer.close()


def test_a_design_of_a_user_is_never_asked_about_a_step_that_only_begins_an_episode(tiny, eager):
    asked = []

    def design(rewards, terminated, truncated, steps):
        asked.append(steps.min())
        return rewards / steps

    trainer = PPOAgentTrainer(tiny.replace(max_episode_steps=5), reward_design=design)
    trainer.train(1)
    assert not trainer.collector.trajectory.valid.all() and min(asked) >= 1
    trainer.close()
