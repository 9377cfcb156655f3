"""Networks that remember: cut into sequences, learned, and acted with alike."""

import functools

import numpy as np
import pytest
from collecting import batch_of, next_trajectory
from numpy.testing import assert_allclose, assert_array_equal
from same_state import assert_same_state

from common.envs.environment import find_environment
from common.errors import UserError
from common.rollout.evaluation import evaluate
from common.rollout.playing import one_episode
from common.rollout.validation import validate
from common.rollout.workers.cluster import WorkerPlacement
from ppo.config import PPOConfig
from ppo.sequences import sequence_minibatches, sequence_rows
from PPOAgentTrainer import PPOAgentTrainer

RECALL = PPOConfig(
    env="tests/Recall-v0", backend="gymnasium", memory="gru", memory_size=16, hidden_sizes=(16,), num_envs=16,
    epochs=12, steps_per_epoch=640, sequence_length=8, minibatch_size=80, passes=4, learning_rate=1e-2, gamma=0.95,
    normalize_observations=False, reward_scaling="none", best_metric="mean_episode_reward",
)  # fmt: skip
SMALL = RECALL.replace(num_envs=4, steps_per_epoch=92, shards=2, epochs=3)  # T = 23: episodes end within sequences


def test_rows_of_sequences_by_hand():
    """Five steps of two environments, whose rows alternate; a sequence of three and one of two, filled up with 10."""
    assert_array_equal(sequence_rows(5, 2, 3), [[0, 2, 4], [6, 8, 10], [1, 3, 5], [7, 9, 10]])
    assert_array_equal(sequence_rows(2, 1, 2, trajectories=3), [[0, 1], [2, 3], [4, 5]])
    assert PPOConfig(num_envs=2, steps_per_epoch=80, minibatch_size=8, sequence_length=32).sequence_steps == 20


def test_a_pass_visits_every_sequence_once_in_minibatches_of_about_that_size():
    rows = sequence_rows(20, 3, 5)  # 12 sequences of 5 steps
    found = sequence_minibatches(rows, 60, 17, 2, np.random.default_rng(0))
    assert found.shape == (2 * 4, 3 * 5) and found.dtype == np.int32
    for one_pass in found.reshape(2, -1, 5):
        assert sorted(map(tuple, one_pass)) == sorted(map(tuple, rows))
    assert not np.array_equal(*found.reshape(2, -1))
    assert sequence_minibatches(rows, 60, 25, 1, np.random.default_rng(0)).shape == (3, 20)
    assert (sequence_minibatches(rows[:5], 60, 10, 1, np.random.default_rng(0))[-1, 5:] == 60).all()


@pytest.mark.parametrize(("memory", "shared_torso"), [("gru", False), ("lstm", False), ("lstm", True)])
def test_an_update_sees_the_policy_that_acted(memory, shared_torso):
    """In the order of the steps, and in sequences from stored memories, both over ends of episodes."""
    trainer = PPOAgentTrainer(SMALL.replace(memory=memory, shared_torso=shared_torso))
    agent, numbers = trainer.agent, np.random.default_rng(0)
    weights = {name: array for name, array in agent.parameters().items() if not name.startswith("observations/")}
    larger = {name: array + 0.3 * numbers.standard_normal(array.shape) for name, array in weights.items()}
    agent.load_parameters(agent.parameters() | larger)  # so that the memory matters
    trainer.prepare()
    trainer.collector.remember(numbers.standard_normal((4, agent.memory_size)).astype(np.float32))
    trajectory = next_trajectory(trainer)
    assert trajectory.memory.any() and not trajectory.valid.all()
    assert agent.values(trajectory.observations[0]).shape == (4,)
    batch = batch_of(trainer)

    logits, memory = np.empty((23, 4, 2)), trajectory.memory.copy()  # as the acting policy has them, step by step
    policy = agent.acting_policy()
    for t in range(23):
        logits[t] = policy.logits(trajectory.observations[t], memory)
        memory[~trajectory.valid[t]] = 0
    acted = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    chosen = np.take_along_axis(acted, trajectory.actions.astype(int), axis=2).ravel()  # [M]
    assert_allclose(batch.log_probs[:92], chosen, atol=2e-6)

    config = trainer.config
    rows = sequence_minibatches(sequence_rows(23, 4, config.sequence_steps), 92, 1000, 1, numbers)[0]
    whole = type(batch)(*(column[rows] for column in batch))
    name = "network" if shared_torso else "actor"
    heads = np.concatenate(agent.outputs(name, whole), axis=1)[:, :2]
    of_batch = heads - np.log(np.exp(heads).sum(axis=1, keepdims=True))
    counts = whole.weights > 0
    found = np.take_along_axis(of_batch, whole.actions.astype(int), axis=1)[:, 0]
    assert_allclose(found[counts], whole.log_probs[counts], atol=2e-6)
    values = np.asarray(agent.outputs("network" if shared_torso else "critic", whole)[-1])[:, 0]
    assert_allclose(values[counts], whole.values[counts], atol=2e-6)
    trainer.close()


@functools.cache
def trained(memory: str) -> PPOAgentTrainer:
    trainer = PPOAgentTrainer(RECALL.replace(memory=memory))
    trainer.train()
    trainer.close()
    return trainer


def score(trainer: PPOAgentTrainer) -> float:
    agent = trainer.agent
    return evaluate(agent.acting_policy(), agent.action_map, trainer.environment, 100, True).returns.mean()


@pytest.mark.parametrize(("memory", "least", "most"), [("gru", 0.99, 1), ("lstm", 0.99, 1), ("none", 0.3, 0.7)])
def test_only_a_memory_learns_what_was_seen_four_steps_ago(memory, least, most):
    assert least <= score(trained(memory)) <= most


def test_a_validation_begins_each_episode_without_a_memory():
    agent = trained("gru").agent
    played = validate(agent.acting_policy(), agent.action_map, find_environment("tests/Recall-v0"), "gymnasium", 30, 5)
    assert played.returns.mean() == 1


def test_an_episode_that_is_shown_is_the_one_that_is_evaluated():
    trainer = trained("gru")
    agent, environment = trainer.agent, trainer.environment
    for seed in range(4):  # of which one alone would be right by chance
        *_, last = one_episode(agent.acting_policy(), agent.action_map, environment, environment.make(), seed)
        assert last.score == 1


def states(config: PPOConfig, workers: int = 0) -> list[dict[str, np.ndarray]]:
    """After each of three epochs."""
    trainer, found = PPOAgentTrainer(config, workers=WorkerPlacement(workers)), []
    trainer.train(on_epoch=lambda row: found.append(trainer.state()))
    trainer.close()
    return found


def test_any_number_of_workers_trains_the_same_agent():
    pytest.importorskip("ray")
    alone, two = (states(SMALL, workers=workers)[-1] for workers in (0, 2))
    assert_same_state(two, alone)
    assert alone["experience/collector/memory"].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"symmetry": True}, "symmetry True does not go with memory gru: use --no-symmetry"),
        ({"objective": "clip+kl"}, "objective clip.kl does not go with memory gru: use --objective clip"),
        ({"env": "tests/Dot-v0"}, "memory gru is for observations that are numbers, not images"),
    ],
)
def test_what_does_not_go_with_a_memory_is_one_line(settings, message):
    with pytest.raises(UserError, match=message) as refusal:
        PPOAgentTrainer(RECALL.replace(**settings))
    assert "\n" not in str(refusal.value)
