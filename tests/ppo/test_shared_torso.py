"""One network for both heads, targets taken anew before each pass, and epochs of several updates."""

import numpy as np
import pytest
import tensorflow as tf
from collecting import batch_of as next_batch
from collecting import next_trajectory, watched_updates
from gymnasium.spaces import Box, Discrete
from numpy.testing import assert_allclose, assert_array_equal

from Agent import Agent
from common.errors import UserError
from common.learning.compiled import Compiled, KerasHeads
from ppo.config import PPOConfig
from ppo.live_settings import Hyperparameters
from ppo.presets import PRESETS
from PPOAgentTrainer import PPOAgentTrainer

SMALL = PPOConfig(
    env="CartPole-v1", backend="gymnasium", num_envs=2, epochs=2, steps_per_epoch=128, minibatch_size=64, passes=2,
    hidden_sizes=(8,), learning_rate=1e-2, anneal=(), adopt_best=False, shared_torso=True,
    reward_scaling="none", normalize_observations=False, normalize_advantages="none", max_gradient_norm=None,
)  # fmt: skip
IMAGES = Box(0, 255, (12, 12, 1), np.uint8)
SMALL_CONVOLUTIONS = {"convolutions": ("4x4/2", "8x3/1")}


def weights_of(agent: Agent) -> list[np.ndarray]:
    return [value for name, value in agent.parameters().items() if not name.startswith("observations/")]


def batch_of(config: PPOConfig):
    """A trainer with one trajectory, and its batch."""
    trainer = PPOAgentTrainer(config)
    next_trajectory(trainer)
    batch = next_batch(trainer)
    return trainer, batch


def test_the_halves_are_the_whole_and_share_the_torso():
    agent = Agent(Box(-1, 1, (4,)), Discrete(2), PRESETS["cartpole-minimal"], 0)
    # torso 4·256 + 256 = 1,280; logits 256·2 + 2 = 514; value 257
    assert agent.network.count_params() == 1280 + 514 + 257
    breakout = Agent(Box(0, 255, (84, 84, 4), np.uint8), Discrete(4), PRESETS["breakout"], 0)
    assert breakout.network.count_params() == 1_686_693  # as published
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    logits, values = agent.network(observations)
    assert_array_equal(logits, agent.actor(observations))
    assert_array_equal(values, agent.critic(observations))
    assert len(agent.state()["adam/0"].shape) == 0 and "actor/0" not in agent.state()


def test_one_gradient_step_is_adam_on_the_sum_of_the_losses(eager):
    trainer, batch = batch_of(SMALL.replace(value_coefficient=0.3, entropy_coefficient=0.02))
    agent = trainer.agent
    twin = Agent(Box(-9, 9, (4,)), Discrete(2), agent.config, 5)
    twin.load_state(agent.state())
    rows = np.arange(128, dtype=np.int32)[None]
    agent.update(batch, rows, rows, Hyperparameters.of(agent.config)._replace(passes=1))
    with tf.GradientTape() as tape:
        logits, values = twin.network(batch.observations)
        log_probs = tf.gather(tf.nn.log_softmax(logits), batch.actions[:, 0].astype(int), batch_dims=1)
        surrogate = tf.reduce_sum(batch.weights * tf.exp(log_probs - batch.log_probs) * batch.advantages)
        entropy = -tf.reduce_sum(tf.nn.softmax(logits) * tf.nn.log_softmax(logits), axis=1)
        error = tf.square(values[:, 0] - batch.value_targets)
        loss = -surrogate - 0.02 * tf.reduce_sum(batch.weights * entropy)
        loss = (loss + 0.3 * tf.reduce_sum(batch.weights * error)) / batch.weights.sum()
    variables = twin.network.trainable_variables
    twin.adams["adam"].apply(tape.gradient(loss, variables), variables)
    for ours, expected in zip(weights_of(agent), weights_of(twin)):
        assert_allclose(ours, expected, atol=2e-5)
    trainer.close()


def test_without_the_stopped_gradient_the_target_learns_too(eager):
    """The same loss, another gradient: d/dθ of (V − r − γV')² has a part through V'."""
    config = SMALL.replace(gamma=0.9, value_coefficient=1.0)
    moved = []
    for target in ("one_step", "one_step_gradient"):
        trainer, batch = batch_of(config.replace(value_target=target))
        rows = np.arange(128, dtype=np.int32)[None]
        metrics = trainer.agent.update(batch, rows, rows, Hyperparameters.of(config)._replace(passes=1))
        moved.append((metrics["loss_critic"], metrics["gradient_norm_critic"]))
        trainer.close()
    assert moved[0][0] == pytest.approx(moved[1][0], rel=1e-5)
    assert moved[0][1] != pytest.approx(moved[1][1], rel=1e-3)


@pytest.mark.parametrize("kind", ["numbers", "images"])
def test_each_pass_has_targets_of_its_own_and_the_policy_that_acted(request, kind):
    if kind == "numbers":
        request.getfixturevalue("eager")  # images are acted upon by a compiled call
    config = SMALL.replace(value_target="one_step", minibatch_size=128, reward_scaling="rewards")
    trainer = PPOAgentTrainer({"numbers": config, "images": IMAGES_SEEN}[kind].replace(recompute_targets=True))
    seen = watched_updates(trainer)
    trainer.train(1)
    (first, *_), (second, *_) = seen
    assert_array_equal(first.log_probs, second.log_probs)
    for name in ("values", "value_targets", "advantages"):
        assert not np.allclose(getattr(first, name), getattr(second, name), atol=1e-4), name
    assert kind == "images" or trainer.reward_statistics.count <= 128  # rewards are counted once
    trainer.close()


def test_an_epoch_of_several_updates_collects_its_steps_in_parts(eager):
    config = SMALL.replace(updates_per_epoch=4, minibatch_size=32, epochs=3)
    trainer = PPOAgentTrainer(config)
    results = trainer.train()
    rows = trainer.results
    assert [row.steps for row in rows] == [160, 288, 416]  # 128 an epoch, and the 32 before the first
    assert trainer.collector.trajectory.rewards.shape == (16, 2)
    lengths = sum(row.avg_steps * row.episodes for row in rows if row.episodes)
    assert 0 < lengths <= 416
    assert results["total_reward_epochs"][0] == pytest.approx(128, abs=12)  # 1 a step, but for resets
    trainer.close()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("actions", [Discrete(3), Box(-1, 1, (2,))])
def test_images_go_through_convolutions(shared, actions, eager):
    config = PPOConfig(shared_torso=shared, hidden_sizes=(16,), activation="relu", **SMALL_CONVOLUTIONS)
    agent = Agent(IMAGES, actions, config, 0)
    images = np.random.default_rng(0).integers(0, 256, (7, 12, 12, 1), dtype=np.uint8)
    # 12 → (12 − 4) / 2 + 1 = 5 → 5 − 3 + 1 = 3: 3·3·8 = 72 features
    assert agent.actor.get_layer("hidden_0").kernel.shape[0] == 72
    policy = agent.acting_policy()
    assert policy.act(images).shape == (7, agent.action_size)
    values, log_probs, _ = agent.assess(images, policy.act(images))
    assert values.shape == log_probs.shape == (7,)
    brighter = agent.critic(images // 2 + 128)
    assert not np.allclose(brighter[:, 0], values)
    assert agent.normalize(images) is images


IMAGES_SEEN = PPOConfig(
    env="tests/Dot-v0", backend="gymnasium", num_envs=5, epochs=2, steps_per_epoch=120, minibatch_size=24, passes=2,
    shared_torso=True, hidden_sizes=(16,), learning_rate=1e-2, anneal=(), adopt_best=False,
    **SMALL_CONVOLUTIONS,
)  # fmt: skip


def assessed(trainer):
    """Values [T+1, N] and log-probabilities [T, N] of the trajectory at hand, by looking at its images again."""
    trajectory = trainer.collector.trajectory
    images = trajectory.observations.reshape(-1, 12, 12, 1)
    values, log_probs, _ = trainer.agent.assess(images, trajectory.actions.reshape(-1, 1))
    shape = trajectory.rewards.shape
    return values.reshape(shape[0] + 1, shape[1]), log_probs.reshape(shape)


@pytest.mark.parametrize("objective", ["clip", "kl_penalty"])
def test_values_and_log_probs_of_images_come_from_the_call_that_chose_the_actions(objective):
    trainer = PPOAgentTrainer(IMAGES_SEEN.replace(objective=objective))
    trainer.train(1)
    trajectory = trainer.collector.trajectory
    assert trajectory.outputs.shape == (25, 5, 4)  # three logits and the value
    values, log_probs = assessed(trainer)
    assert_allclose(trajectory.outputs[..., -1], values, rtol=1e-4, atol=1e-5)
    assert np.std(values) > 1e-3
    logits = trajectory.outputs[:-1, :, :-1].reshape(-1, 3)
    asked, trainer.agent.compiled_assess = trainer.agent.compiled_assess, None  # no second look
    seen = watched_updates(trainer)
    trainer.train(1)
    [(batch, *_)] = seen
    assert_allclose(batch.log_probs, log_probs.ravel(), rtol=1e-4, atol=1e-5)
    assert_allclose(batch.values, values[:-1].ravel(), rtol=1e-4, atol=1e-5)
    assert_allclose(batch.heads, logits if objective == "kl_penalty" else logits[:, :0])
    trainer.agent.compiled_assess = asked
    trainer.close()


def test_normal_policies_of_images_keep_means_standard_deviations_and_values():
    agent = Agent(IMAGES, Box(-1, 1, (2,)), PPOConfig(shared_torso=True, hidden_sizes=(16,), **SMALL_CONVOLUTIONS), 0)
    images = np.random.default_rng(0).integers(0, 256, (11, 12, 12, 1), dtype=np.uint8)
    policy = agent.collecting_policy()
    assert policy.output_size == agent.output_size == 5
    actions = policy.act(images, np.ones((11, 2), np.float32))
    assert_allclose(actions, policy.outputs[:, :2] + policy.outputs[:, 2:4], rtol=1e-6)
    assert_allclose(policy.outputs[:, 4], agent.values(images), rtol=1e-4, atol=1e-6)
    for found, expected in zip(agent.assess(images, actions, policy.outputs), agent.assess(images, actions)):
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_forged_outputs_are_refused():
    name = "experience/trajectory/outputs"
    for config in (IMAGES_SEEN, SMALL):
        trainer = PPOAgentTrainer(config)
        trainer.train(1)
        state = trainer.state()
        returned = state.get(name, np.zeros((65, 2, 3), np.float32))
        assert (name in state) == (config is IMAGES_SEEN)  # the other network returns none
        for wrong in (returned[..., 1:], returned.astype(np.float64), np.full(returned.shape, "x")):
            with pytest.raises(ValueError, match="outputs"):
                trainer.load_state(state | {name: wrong})
        trainer.close()


@pytest.mark.parametrize("actions", [Discrete(3), Box(-1, 1, (2,))])
def test_any_number_of_images_is_acted_upon_with_one_compilation(actions):
    config = PPOConfig(shared_torso=True, hidden_sizes=(16,), **SMALL_CONVOLUTIONS)
    agent = Agent(IMAGES, actions, config, 0)
    images = np.random.default_rng(0).integers(0, 256, (19, 12, 12, 1), dtype=np.uint8)
    expected = [head.numpy() for head in tf.nest.flatten(agent.actor(images))]
    heads = KerasHeads(Compiled(agent.actor), agent.normalize)
    for count in (1, 8, 9, 19):
        for head, whole in zip(heads(images[:count]), expected):
            assert_allclose(head, whole[:count], rtol=1e-5, atol=1e-6)
    assert heads.compiled.traces == 1


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"convolutions": ()}, "convolutions is '': expected FILTERSxSIDE/STRIDE for each, like 32x8/4"),
        ({"convolutions": ("32x8/4", "64x4")}, "convolutions is '32x8/4 64x4': expected"),
        ({"convolutions": ("32x8/0",)}, "convolutions is '32x8/0': expected"),
        ({"updates_per_epoch": 3}, "multiple of 6"),
        ({"updates_per_epoch": 4, "minibatch_size": 64}, "use --minibatch-size 32 or less"),
        ({"reused_trajectories": 2, "recompute_targets": True}, "does not go with recompute_targets"),
        ({"value_target": "normalized_advantage"}, "they are none: add --normalize-advantages running_std"),
        (
            {"value_target": "normalized_advantage", "normalize_advantages": "minibatch"},
            "they are minibatch: add --normalize-advantages running_std",
        ),
        ({"minibatch_size": 1, "normalize_advantages": "minibatch"}, "use --minibatch-size 2 or more"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, what):
    with pytest.raises(UserError, match=what):
        SMALL.replace(**changes)


@pytest.mark.parametrize("side", [2, 3, 6, 7, 15])
def test_convolutions_that_leave_nothing_are_refused_and_those_named_instead_fit(side):
    space = Box(0, 255, (side, side, 3), np.uint8)
    with pytest.raises(UserError, match=rf"leave nothing of images of {side} × {side} pixels") as refusal:
        Agent(space, Discrete(2), PPOConfig(), 0)
    named = str(refusal.value).partition("use --convolutions ")[2]
    Agent(space, Discrete(2), PPOConfig(convolutions=tuple(named.split())), 0)
