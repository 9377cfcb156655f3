"""DDPG and TD3: what one update does, what the loop feeds it, and that it learns."""

import dataclasses
import functools

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from collecting import mean_return
from gymnasium.spaces import Box
from numpy.testing import assert_allclose, assert_array_equal
from run_program import call
from same_state import assert_same_state, resumed_and_whole

from common.config import TrainingConfig
from common.errors import DivergedError, UserError
from common.nets.flat_networks import FlatNetworks
from common.nets.tensorflow_operations import standardized_rows
from common.records import Transitions
from common.runs import run_folder
from common.state import part_of
from companions import OffPolicyAgentTrainer as program
from companions import losses
from companions.config import OffPolicyConfig
from companions.DDPGAgent import DDPGAgent
from companions.exploration import OrnsteinUhlenbeck
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.presets import PRESETS, preset_for
from companions.replay import ReplayBuffer
from ppo.config import PPOConfig
from programs import methods

S, A, B = 3, 1, 16
SPACES = Box(-np.inf, np.inf, (S,)), Box(-2.0, 2.0, (A,))
TINY = OffPolicyConfig(
    env="Pendulum-v1", max_episode_steps=20, num_envs=2, epochs=3, steps_per_epoch=42, hidden_sizes=(8,),
    warmup_steps=40, replay_size=100, batch_size=8, train_every=16, updates_per_train=3, learning_rate=1e-2,
    best_metric="mean_episode_reward", score_window=1, adopt_best=False,
)  # fmt: skip
compiled, pytestmark = pytest.mark.compiled, pytest.mark.usefixtures("eager")
DDPG = dict(twin_critics=False, target_smoothing=0.0, policy_delay=1)


def made(**changes) -> DDPGAgent:
    config = OffPolicyConfig(hidden_sizes=(8, 8), learning_rate=1e-2).replace(**changes)
    return OffPolicyAgentTrainer.make_agent(*SPACES, config, 0)


def drawn(updates: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((updates, B, 2 * S + A + 2)).astype(np.float32)
    rows[..., S : S + A] = np.clip(rows[..., S : S + A], -1, 1)
    rows[..., S + A + 1] = rng.random((updates, B)) < 0.2
    return rows, rng.standard_normal((updates, B, A)).astype(np.float32)


unpack = ReplayBuffer(0, S, A).unpack


def weights(network) -> np.ndarray:
    return np.concatenate([weight.ravel() for weight in network.get_weights()])


# -- one update --


def test_smoothing_is_cut_twice_worked_by_hand():
    # .2·1 = .2; .2·9 = 1.8, cut to .5; .9 + .2 = 1.1, cut to 1; −.8 − .5 = −1.3, cut to −1.
    actions = losses.smoothed_actions(
        tf.constant([[0.0], [0.0], [0.9], [-0.8]]), tf.constant([[1.0], [9.0], [1.0], [-9.0]]), 0.2, 0.5
    )
    assert_allclose(actions.numpy().ravel(), [0.2, 0.5, 1.0, -1.0], rtol=1e-6)


def hand_made(agent: DDPGAgent, action: float, values: list[float]) -> None:
    """Target networks that answer constants: the action tanh⁻¹-free through its bias, each critic its value + a'."""
    actor, critics = agent.target_actor, agent.target_critics
    for network in (actor, *critics):
        network.set_weights([np.zeros_like(weight) for weight in network.get_weights()])
    actor.layers[-1].bias.assign([np.arctanh(action)])
    for critic, value in zip(critics, values):
        critic.layers[-1].bias.assign([value])
    push(agent)


def push(agent: DDPGAgent) -> None:
    """The Keras networks' weights become the agent's."""
    for flat_networks in agent.flat_networks().values():
        flat_networks.weights.assign(FlatNetworks(flat_networks.networks).weights)


def test_a_transitions_target_to_the_last_digit():
    """r = 1, γ = .5: DDPG 1 + .5·4 = 3; TD3 takes the smaller of 4 and 2: 1 + .5·2 = 2; terminated: 1."""
    batch = Transitions(
        np.zeros((2, S), np.float32), np.zeros((2, A), np.float32), np.ones(2, np.float32),
        np.array([0, 1], np.float32), np.ones((2, S), np.float32),
    )  # fmt: skip
    noise = np.zeros((2, A), np.float32)
    for agent, expected in ((made(gamma=0.5, **DDPG), 3.0), (made(gamma=0.5), 2.0)):
        hand_made(agent, 0.3, [4.0, 2.0])
        assert agent.targets(batch, noise).numpy().tolist() == [expected, 1.0]


def test_smoothing_moves_the_action_that_the_target_is_taken_at():
    """A critic that answers a' itself: μ' = .3, noise .2·.5 = .1: r + γ·.4."""
    agent = made(gamma=0.5, hidden_sizes=())
    hand_made(agent, 0.3, [0.0, 0.0])
    for critic in agent.target_critics:
        kernel = np.zeros((S + A, 1), np.float32)
        kernel[S:] = 1.0
        critic.layers[-1].kernel.assign(kernel)
    push(agent)
    batch = Transitions(*(np.zeros(shape, np.float32) for shape in ((1, S), (1, A), 1, 1, (1, S))))
    noise = np.full((1, A), 0.5, np.float32)
    assert_allclose(agent.targets(batch, noise), [0.5 * 0.4], rtol=1e-6)
    off = made(gamma=0.5, hidden_sizes=(), target_smoothing=0.0)
    off.load_parameters(agent.parameters())
    assert_allclose(off.targets(batch, noise), [0.5 * 0.3], rtol=1e-6)


@pytest.mark.xla
def test_a_compiled_update_is_the_update():
    """Seven updates, compiled in cycles of two and a single one, against the same step by step."""
    rows, noise = drawn(7)
    one, other = made(), made()
    one.update(rows, noise)
    tf.config.run_functions_eagerly(False)
    other.update(rows, noise)
    for name, values in one.parameters().items():
        assert_allclose(values, other.parameters()[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("changes", [{}, DDPG, {"hard_update_every": 3}])
def test_many_updates_in_one_call_are_as_many_calls(changes):
    rows, noise = drawn(7)
    one, other = made(**changes), made(**changes)
    expected = one.update(rows, noise)
    found, i = [], 0
    for count in (3, 1, 3):
        found.append(other.update(rows[i : i + count], noise[i : i + count]))
        i += count
    assert one.updates == other.updates == 7
    for name, values in one.parameters().items():
        assert_allclose(values, other.parameters()[name], atol=2e-5, err_msg=name)
    for name, values in expected.items():
        assert_allclose(np.concatenate([metrics[name] for metrics in found]), values, rtol=1e-3, atol=1e-4)


def test_the_critic_learns_by_plain_gradient_descent_of_adam():
    """An update against Adam's formula on gradients taken eagerly: both critics, then the actor up Q₁."""
    agent = made(policy_delay=1)
    rows, noise = drawn(1)
    batch = unpack(tf.constant(rows[0]))
    target = agent.targets(batch, noise[0])
    inputs = tf.concat([batch.observations, batch.actions], axis=1)
    critics = agent.critics
    variables = [variable for critic in critics for variable in critic.trainable_variables]
    before = [variable.numpy() for variable in variables]
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_mean((critic(inputs)[:, 0] - target) ** 2) for critic in critics)
    gradients = tape.gradient(loss, variables)
    metrics = agent.update(rows, noise)
    assert metrics["loss_critic"] == pytest.approx(float(loss), rel=1e-5)
    assert len(agent.critics) == 2  # and their variables are those of now
    for variable, was, gradient in zip(variables, before, gradients):
        g = gradient.numpy()
        clear = np.abs(g) > 2e-3  # where ε and rounding do not matter
        assert_allclose(variable.numpy()[clear], (was - 1e-2 * np.sign(g))[clear], atol=1e-4)  # Adam's first step


def test_the_actor_learns_from_the_critic_that_has_learned_already():
    rows, noise = drawn(1)
    for first in (False, True):
        agent, twin = made(policy_delay=1, quirks=("actor_first",) * first), made(policy_delay=1)
        if not first:
            twin.update(rows, noise)  # its critics are now those the actor should have seen
            twin.load_parameters(twin.parameters() | {"actor": agent.parameters()["actor"]})
        batch = unpack(tf.constant(rows[0]))
        seen = tf.concat([batch.observations, twin.actor(batch.observations)], axis=1)
        expected = -float(tf.reduce_mean(twin.critics[0](seen)))
        metrics = agent.update(rows, noise)
        assert metrics["loss_actor"] == pytest.approx(expected, rel=1e-4)


def test_actor_and_targets_wait_for_the_delay():
    agent = made(policy_delay=3, tau=0.5)
    rows, noise = drawn(6)
    for i in range(6):
        before = agent.parameters()
        agent.update(rows[i : i + 1], noise[i : i + 1])
        moved = {name: (array != before[name]).any() for name, array in agent.parameters().items()}
        assert moved.pop("critics")
        assert moved == dict.fromkeys(("actor", "target_actor", "target_critics"), i in (2, 5))


def test_targets_move_each_time_where_the_quirk_wants_it():
    agent = made(policy_delay=3, tau=0.5, quirks=("targets_every_update",))
    rows, noise = drawn(1)
    before = weights(agent.target_critics[0])
    agent.update(rows, noise)
    assert_allclose(weights(agent.target_critics[0]), before + 0.5 * (weights(agent.critics[0]) - before), atol=1e-6)


def test_soft_and_hard_targets_worked_by_hand():
    rows, noise = drawn(4)
    soft, hard = made(tau=0.25, **DDPG), made(hard_update_every=4, **DDPG)
    was = soft.parameters()["target_actor"]
    soft.update(rows[:1], noise[:1])
    assert_allclose(weights(soft.target_actor), 0.75 * was + 0.25 * weights(soft.actor), atol=1e-6)
    for i in range(4):
        hard.update(rows[i : i + 1], noise[i : i + 1])
        now = hard.parameters()
        assert np.array_equal(now["target_actor"], now["actor"]) == (i == 3)


def test_an_update_that_diverges_says_so():
    rows, noise = drawn(2)
    rows[1, 3, S + A] = np.inf
    with pytest.raises(DivergedError, match="a loss is NaN or infinite"):
        made().update(rows, noise)


# -- exploration --


def test_ornstein_uhlenbeck_worked_by_hand():
    # θ = .5, dt = .25, so x loses an eighth and gains √.25 = .5 of what is drawn.
    noise = OrnsteinUhlenbeck(0.5, 0.25, (1, 1))
    assert noise(np.array([[[2.0]], [[0.0]], [[-1.0]]], np.float32)).ravel().tolist() == [1.0, 0.875, 0.265625]
    assert noise(np.zeros((1, 1, 1), np.float32)).item() == pytest.approx(0.265625 * 0.875)  # it goes on


def test_the_frozen_copy_acts_as_the_actor_and_refreshes():
    agent = made()
    policy = agent.acting_policy(0.3)
    observations = np.random.default_rng(0).standard_normal((5, S)).astype(np.float32)
    rows, noise = drawn(4)
    for _ in range(2):
        expected = agent.actor(observations).numpy()
        assert_allclose(policy.act(observations), expected, atol=1e-6)
        unit = np.array([[0.1], [9], [-9], [0], [1]], np.float32)
        assert_allclose(policy.act(observations, unit), np.clip(expected + 0.3 * unit, -1, 1), atol=1e-6)
        agent.update(rows, noise)
        assert np.abs(policy.act(observations) - agent.actor(observations).numpy()).max() > 1e-4
        policy.heads = agent.acting_network()


@pytest.mark.parametrize("final, std", [(None, 0.3), (0.1, 0.1), (0.0, 0.0)])
def test_an_agent_acts_with_the_noise_of_the_end_of_training(final, std):
    agent = made(exploration_std=0.3, final_exploration_std=final)
    observations = np.random.default_rng(0).standard_normal((5, S)).astype(np.float32)
    noise = np.random.default_rng(1).uniform(-1, 1, (5, A)).astype(np.float32)
    sampled, expected = (agent.acting_policy(*given).act(observations, noise) for given in ((), (std,)))
    np.testing.assert_array_equal(sampled, expected)
    assert f"standard deviation of {std:g} of" in agent.acting_policy().noise


# -- the loop --


def remembered(config: OffPolicyConfig, epochs: int = 1) -> tuple[OffPolicyAgentTrainer, Transitions]:
    trainer = OffPolicyAgentTrainer(config.replace(replay_size=1000))
    trainer.train(epochs)
    trainer.close()
    return trainer, trainer.replay.unpack(trainer.replay.state()["rows"])


def test_what_is_remembered_is_what_happened():
    """Pendulum truncates after 20 steps and never terminates; the step after an end is not remembered."""
    trainer, memory = remembered(TINY.replace(num_envs=1, steps_per_epoch=63, warmup_steps=1000, epochs=20))
    assert len(memory.rewards) == trainer.steps == 60
    trajectory = trainer.collector.trajectory
    kept = np.flatnonzero(np.arange(63) % 21 != 20)
    assert_array_equal(memory.observations, trajectory.observations[kept, 0])
    assert_array_equal(memory.next_observations, trajectory.observations[kept + 1, 0])
    assert_array_equal(memory.actions, trajectory.actions[kept, 0])
    assert_allclose(memory.rewards, trajectory.rewards[kept, 0], rtol=1e-6)
    assert not memory.terminated.any()
    # A truncated step's next observation is its true final one: pendulum's angle moves on by its speed.
    speed, angle = memory.next_observations[19, 2], np.arctan2(*memory.observations[19, [1, 0]])
    assert_allclose(memory.next_observations[19, 0], np.cos(angle + 0.05 * speed), atol=1e-4)
    assert np.abs(memory.actions).max() <= 1


def test_a_timeout_is_terminal_only_by_the_quirk():
    quirk = TINY.replace(
        num_envs=1, steps_per_epoch=63, warmup_steps=1000, epochs=20, quirks=("truncation_is_terminal",)
    )
    _, memory = remembered(quirk)
    assert list(np.flatnonzero(memory.terminated)) == [19, 39, 59]


@pytest.mark.parametrize(
    ("changes", "warm_up", "updates"),
    [
        # 80 of 84 rows are valid; those after row 48 (45 valid ones, 3 calls of 16) count, by sixteens.
        (dict(num_envs=1, warmup_steps=41), 46, (80 - 46) // 16 * 3),
        # Four environments: a call a row, the row of an end and the one after it included.
        (dict(num_envs=4, warmup_steps=40, train_every=2), 40, (80 - 40) // 2 * 3),
    ],
)
def test_updates_come_as_often_as_asked(changes, warm_up, updates):
    trainer, _ = remembered(TINY.replace(steps_per_epoch=84, **changes))
    assert trainer.steps == 80
    assert trainer.agent.updates == updates


def waiting_config(**changes):
    """Cycles of 6 updates, in epochs of 60 updates; the first epoch has 20."""
    one_a_step = dict(num_envs=1, train_every=1, updates_per_train=1, policy_delay=6, steps_per_epoch=63)
    return TINY.replace(**one_a_step, epochs=3, **changes)


@compiled
def test_an_update_that_waits_for_its_cycle_comes_to_the_same(monkeypatch):
    """The acting policy changes only with the actor's update; minibatches are drawn when they come due."""
    calls, states = {}, {}
    for waits in (True, False):
        trainer = OffPolicyAgentTrainer(waiting_config())
        update, counts = trainer.agent.update, []
        calls[waits] = counts
        monkeypatch.setattr(
            trainer.agent, "update", lambda *drawn, up=update, n=counts: (n.append(len(drawn[0])), up(*drawn))[1]
        )
        if not waits:
            monkeypatch.setattr(trainer.agent, "updates_due_now", lambda waiting: waiting)
        trainer.train()
        if waits:  # whole cycles, over the ends of epochs
            assert set(counts) == {6}
            left = part_of(trainer.state(), "waiting")
            assert len(left["rows"]) == 2
            trainer.agent.update(left["rows"], left["noise"])
        states[waits] = trainer.agent.learned_state() | {"replay": trainer.replay.state()["rows"]}
        trainer.close()
    assert set(calls[False]) == {1} and sum(calls[False]) == sum(calls[True])
    for name, values in states[True].items():
        assert_allclose(values, states[False][name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_updates_wait_in_a_checkpoint_too():
    resumed, whole, state = resumed_and_whole(lambda: OffPolicyAgentTrainer(waiting_config()), 1, 2)
    assert len(part_of(state, "waiting")["rows"]) == len(part_of(state, "waiting")["noise"]) > 0
    assert_same_state(resumed.state(), whole.state())


def test_what_waits_has_the_right_type_and_shape():
    trainer = OffPolicyAgentTrainer(waiting_config())
    trainer.train(1)
    state, other = trainer.state(), OffPolicyAgentTrainer(waiting_config())
    trainer.close()
    for name, spoiled in (("rows", lambda a: a[:, :-1]), ("noise", lambda a: a[1:]), ("rows", np.float64)):
        with pytest.raises(ValueError, match=f"{name} is float"):
            other.load_state(state | {f"waiting/{name}": spoiled(state[f"waiting/{name}"])})
    other.close()


def test_warming_up_is_random_or_the_policys():
    actions = {}
    for kind in ("random", "policy"):
        config = TINY.replace(warmup_actions=kind, warmup_steps=2000, steps_per_epoch=1008, exploration_std=0.01)
        trainer, memory = remembered(config.replace(replay_size=2000))
        actions[kind] = memory.actions  # [K, A]
    assert np.abs(actions["random"].mean()) < 0.1
    assert actions["random"].std() == pytest.approx(1 / np.sqrt(3), abs=0.05)  # of the uniform on [−1, 1]
    chosen = trainer.agent.acting_policy().act(memory.observations)  # [K, A], by the policy that nothing trained yet
    assert_allclose(actions["policy"], chosen, atol=0.06)  # six standard deviations of the noise


def test_warming_up_ends_one_action_after_the_steps_asked_for():
    config = TINY.replace(num_envs=1, warmup_steps=12, steps_per_epoch=16, exploration_std=1e-3, train_every=4)
    trainer, memory = remembered(config.replace(learning_rate=1e-12))
    chosen = trainer.agent.acting_policy().act(memory.observations)  # [16, A], by the policy, which hardly learns
    random = (np.abs(memory.actions - chosen) > 0.01).all(axis=1)  # [16]
    assert list(np.flatnonzero(random)) == list(range(13))  # the thirteenth was chosen before the twelfth was stored


def test_exploration_falls_over_the_epochs():
    config = TINY.replace(exploration_std=0.5, final_exploration_std=0.1, epochs=5, updates_per_train=1)
    trainer = OffPolicyAgentTrainer(config)
    trainer.train()
    trainer.close()
    assert_allclose([row.exploration_std for row in trainer.results], [0.5, 0.4, 0.3, 0.2, 0.1])


def test_learning_rates_fall_linearly_over_the_epochs():
    config = TINY.replace(learning_rate=0.04, critic_learning_rate=0.08, anneal=("learning_rate",), epochs=4)
    trainer, rates = OffPolicyAgentTrainer(config), []
    for _ in range(4):
        trainer.train(1)
        rates.append([float(adam.learning_rate) for adam in trainer.agent.adams.values()])
    trainer.close()
    assert_allclose(rates, np.outer([1.0, 0.75, 0.5, 0.25], [0.04, 0.08]), rtol=1e-6)


def test_a_compiled_update_follows_the_learning_rate():
    """With a rate of 0, the weights stay as they are."""
    trainer = OffPolicyAgentTrainer(TINY.replace(epochs=4, adopt_best=False))
    trainer.train(2)
    for adam in trainer.agent.adams.values():
        adam.learning_rate = 0.0
    before = trainer.agent.parameters()
    trainer.train(1)
    after = trainer.agent.parameters()
    trainer.close()
    for name in ("actor", "critics"):
        assert_array_equal(after[name], before[name])


CASES = {
    "ddpg, one environment, hard targets": TINY.replace(num_envs=1, hard_update_every=13, **DDPG),
    "ornstein-uhlenbeck, odd rhythm, falling learning rates": TINY.replace(
        exploration="ornstein_uhlenbeck", updates_per_train=3, train_every=9, anneal=("learning_rate",)
    ),
    "envpool": TINY.replace(backend="envpool", num_envs=3),
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_run_that_was_not_stopped(case):
    if case == "envpool":
        pytest.importorskip("envpool")
    whole = OffPolicyAgentTrainer(CASES[case])
    states = []
    whole.train(3, on_epoch=lambda _: states.append({name: np.array(a) for name, a in whole.state().items()}))
    assert not any("trajectory" in name for name in states[0])  # the replay buffer has its steps
    for after in (1, 2):  # in the warm-up, and after the first updates
        resumed = OffPolicyAgentTrainer(CASES[case])
        resumed.load_state(states[after - 1])
        resumed.train(3 - after)
        assert_same_state(resumed.state(), whole.state())
        resumed.close()
    whole.close()


def test_training_in_parts_is_training_in_one_go():
    changes = dict(adopt_best=True, final_exploration_std=0.01, best_metric="validation", validate_every=1)
    config = TINY.replace(epochs=4, validation_episodes=2, **changes)
    parts, whole = OffPolicyAgentTrainer(config), OffPolicyAgentTrainer(config)
    for epochs in (2, 1, 1):
        parts.train(epochs)  # adopts the best of what there is
    whole.train(4)
    assert sum(not np.isnan(row.metric) for row in whole.results) == 2  # of the second half of all four epochs
    assert_same_state(parts.state(), whole.state())
    assert_same_state(parts.agent.state(), whole.agent.state())
    parts.close(), whole.close()


def test_updates_of_an_epoch_that_was_undone_are_not_owed_to_the_next():
    trainer, asked = OffPolicyAgentTrainer(TINY.replace(on_not_finite="skip", epochs=4, steps_per_epoch=210)), []
    trainer.warn = lambda line: None
    trainer.train(1)
    sample = trainer.replay.sample

    def watched(updates, *arguments, spoil):
        asked.append(updates)
        rows = sample(updates, *arguments)
        rows[-1, 0] = np.nan if spoil else rows[-1, 0]
        return rows

    trainer.replay.sample = functools.partial(watched, spoil=True)
    trainer.train(1)
    assert sum(asked) <= 6  # of 36; the third update waits for a fourth, and it is the one that ends the epoch
    asked.clear()
    trainer.replay.sample = functools.partial(watched, spoil=False)
    trainer.train(1)
    assert max(asked) == 3 and len(asked) >= 12  # three updates every 16 of the epoch's 200 steps, and no more
    trainer.close()


def a_minibatch_of_nan(trainer):
    sample = trainer.replay.sample

    def spoiled(*arguments):
        rows = sample(*arguments)
        rows[-1, 0] = np.nan
        return rows

    trainer.replay.sample = spoiled


def weights_of_nan(network, trainer):
    """No loss shows it."""

    def spoiled(rows, noise):
        parameters = trainer.agent.parameters()
        parameters[network][:] = np.nan
        trainer.agent.load_parameters(parameters)
        return {name: np.zeros(len(rows), np.float32) for name in trainer.agent.metrics}

    trainer.agent.update = spoiled


@pytest.mark.parametrize("choice", ["stop", "skip"])
@pytest.mark.parametrize(
    ("spoil", "said_of_it"),
    [
        (a_minibatch_of_nan, "a loss is NaN"),
        (functools.partial(weights_of_nan, "actor"), r"a weight \(actor\) is NaN or infinite"),
        (functools.partial(weights_of_nan, "critics"), r"a weight \(critics\) is NaN or infinite"),
    ],
)
def test_an_epoch_that_diverges_is_undone_or_ends_the_run(choice, spoil, said_of_it):
    trainer, said = OffPolicyAgentTrainer(TINY.replace(on_not_finite=choice)), []
    trainer.warn = said.append
    trainer.train(1)
    before = trainer.agent.learned_state()
    spoil(trainer)
    if choice == "stop":
        with pytest.raises(DivergedError, match=said_of_it):
            trainer.train(1)
    else:
        trainer.train(1)
        assert len(said) == 1 and "the updates of epoch 2 are undone" in said[0]
        assert np.isnan(trainer.results[-1].loss_critic)
    after = trainer.agent.learned_state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    trainer.close()


@compiled
def test_thousands_of_updates_compile_once_and_memory_stays_flat(resident_megabytes):
    config = TINY.replace(
        env="tests/Wide-v0", max_episode_steps=None, num_envs=1, steps_per_epoch=420, warmup_steps=420, epochs=30,
        replay_size=800, batch_size=4, train_every=20, updates_per_train=6, hidden_sizes=(4,),
    )  # fmt: skip
    trainer, traces, memory = OffPolicyAgentTrainer(config), [], []

    def on_epoch(result):
        agent = trainer.agent
        functions = (agent.compiled_cycles, agent.compiled_step)
        traces.append([function.traces for function in functions])
        if result.epoch in (10, 30):
            memory.append(resident_megabytes())

    trainer.train(on_epoch=on_epoch)
    trainer.close()
    assert trainer.agent.updates > 3_000
    assert traces[1:] == [[1, 0]] * 29
    assert memory[1] - memory[0] < 20  # 20 epochs of 2 MB passed; the allocator alone takes some, now and then


# -- settings --

ALTERNATIVES: dict[str, tuple[object, dict[str, object]]] = {
    "hidden_sizes": ((9,), {}),
    "critic_hidden_sizes": ((9,), {}),
    "layer_norm": (True, {}),
    "precision": ("bfloat16", {"hidden_sizes": (8, 8)}),
    "normalize_observations": (True, {}),
    "exploration": ("ornstein_uhlenbeck", {"exploration_std": 0.5}),
    "exploration_std": (0.5, {}),
    "final_exploration_std": (1.0, {}),
    "ou_dt": (0.1, {"exploration": "ornstein_uhlenbeck", "exploration_std": 0.5}),
    "warmup_steps": (70, {}),
    "warmup_actions": ("policy", {}),
    "replay_size": (20, {}),
    "batch_size": (4, {}),
    "train_every": (8, {}),
    "updates_per_train": (1, {}),
    "gamma": (0.5, {}),
    "n_step": (3, {}),
    "learning_rate": (1e-3, {}),
    "critic_learning_rate": (1e-1, {}),
    "adam_beta": (0.5, {}),
    "anneal": (("learning_rate",), {}),
    "tau": (0.5, {}),
    "hard_update_every": (10, {}),
    "quirks": (("actor_first",), {}),
    "twin_critics": (False, {}),
    "target_smoothing": (0.0, {}),
    "policy_delay": (1, {}),
}


SHAPES = ("hidden_sizes", "critic_hidden_sizes", "twin_critics", "layer_norm")  # they change what there is
OF_ALL_METHODS = {field.name for field in dataclasses.fields(TrainingConfig)}


@functools.cache
def outcome(config: OffPolicyConfig) -> dict[str, np.ndarray]:
    trainer = OffPolicyAgentTrainer(config)
    trainer.train()
    trainer.close()
    return trainer.agent.parameters()


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(OffPolicyConfig) if f.name not in OF_ALL_METHODS])
def test_every_setting_changes_what_is_learned(name):
    """Those of these methods alone; tests/ppo/test_training.py has those that all methods share."""
    assert name in ALTERNATIVES, f"give {name} an alternative here: a setting that nothing reads is a defect"
    value, needed = ALTERNATIVES[name]
    config = TINY.replace(**{"epochs": 2} | needed)
    assert getattr(config, name) != value
    one, other = outcome(config), outcome(config.replace(**{name: value}))
    if name in SHAPES:
        assert {k: v.shape for k, v in one.items()} != {k: v.shape for k, v in other.items()}
    else:
        assert max(np.abs(one[k] - other[k]).max() for k in one) > 1e-4


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tau": 1.5}, "tau is 1.5: expected 0 to 1"),
        ({"policy_delay": 0}, "policy_delay is 0: expected 1 or more"),
        ({"exploration_std": float("nan")}, "exploration_std is nan: expected a finite number, 0 or more"),
        ({"steps_per_epoch": 43}, "steps_per_epoch 43 is not divisible by num_envs 2: try --steps-per-epoch 44"),
        ({"warmup_steps": 126}, "warmup_steps 126 leaves nothing to learn in 3 epochs of 42 steps"),
        ({"exploration": "pink"}, "exploration is 'pink': expected one of "),
        ({"hidden_sizes": 64}, "hidden_sizes is 64: expected a tuple"),
        ({"hidden_sizes": (64.5,)}, "hidden_sizes is 64.5: expected a whole number"),
        ({"batch_size": 101}, "batch_size 101 is larger than replay_size 100: use --batch-size 100 or less"),
        (
            {"num_envs": 1, "epochs": 1, "steps_per_epoch": 40},
            "warmup_steps 40 leaves nothing to learn in 1 epochs of 40 steps: use --warmup-steps 4 or less",
        ),
        (
            {"num_envs": 1, "epochs": 1, "steps_per_epoch": 5},
            "warmup_steps 40 leaves nothing to learn in 1 epochs of 5 steps: raise --epochs",
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_line(changes, line):
    with pytest.raises(UserError) as error:
        TINY.replace(**changes)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
    assert TINY.replace(batch_size=100, warmup_steps=125).batch_size == 100  # bounds are allowed


def test_settings_are_what_is_read_back(tmp_path):
    """Lists, and NumPy's numbers."""
    given = TINY.replace(
        hidden_sizes=[np.int64(8), 8], seed=np.int64(3), tau=np.float32(0.5), twin_critics=np.bool_(True)
    )
    assert given == TINY.replace(hidden_sizes=(8, 8), seed=3, tau=0.5, twin_critics=True)
    run_folder.write_config(tmp_path, given, "td3")
    assert methods.read_config(tmp_path) == ("td3", given)


def test_presets_are_what_is_published():
    """tests/ppo/test_presets.py has the numbers of the Pendulum presets."""
    td3, authors = PRESETS["pendulum-td3"], PRESETS["td3"]
    assert td3.epochs * td3.steps_per_epoch == 100_000
    corrected = PRESETS["pendulum-td3-corrected"]
    assert not corrected.quirks and corrected.adopt_best and corrected.best_metric == "validation"
    assert authors == OffPolicyConfig() == PRESETS[preset_for("Pendulum-v1")]
    assert (authors.hidden_sizes, authors.batch_size, authors.tau) == ((256, 256), 256, 0.005)
    assert authors.warmup_steps == 25_000


# -- it learns --


@compiled
def test_swings_the_pendulum_up_within_five_thousand_steps():
    config = PRESETS["pendulum-td3-seconds"]
    assert config.epochs * config.steps_per_epoch <= 5000
    trainer = OffPolicyAgentTrainer(config)
    trainer.train()
    assert mean_return(trainer, 200) > -175  # of 1,000 episodes: −155; start states alone move the mean of 200 by ±12
    trainer.close()


def test_layer_normalisation_stands_in_the_critics_alone():
    """Rows of mean 0 and variance 1 come before the activation; the Keras network agrees, and so do gradients."""
    agent, inputs = made(layer_norm=True), np.random.default_rng(0).standard_normal((5, S + A)).astype(np.float32)
    kinds = [[type(layer).__name__ for layer in network.layers] for network in (agent.actor, agent.critics[1])]
    normalised = ["Dense", "LayerNormalization", "Activation"]
    assert kinds == [["InputLayer", "Dense", "Dense", "Dense"], ["InputLayer", *normalised, *normalised, "Dense"]]
    agent.update(*drawn(2))  # scales and shifts are no longer 1 and 0
    critics, networks = agent.critics, agent.flat_networks()["critics"]
    expected = [critic(inputs).numpy() for critic in critics]
    assert_allclose(networks.call(networks.stacks(), tf.constant(inputs)), expected, rtol=1e-4, atol=1e-5)
    kernel, bias, scale, shift = critics[0].get_weights()[:4]
    features = inputs @ kernel + bias  # [B, units]
    features = (features - features.mean(axis=1, keepdims=True)) / np.sqrt(features.var(axis=1, keepdims=True) + 1e-3)
    hidden = keras.Model(critics[0].input, critics[0].layers[3].output)(inputs)
    assert_allclose(hidden, np.maximum(features * scale + shift, 0), rtol=1e-3, atol=1e-5)
    assert np.abs(scale - 1).max() > 1e-3 and np.abs(shift).max() > 1e-3


def test_the_gradient_of_the_normalisation_is_that_of_its_formula():
    features, weights = tf.random.stateless_normal((2, 2, 5, 8), (1, 2))  # [networks, B, units] each
    epsilon = 1e-3

    def by_moments(features):
        mean, variance = tf.nn.moments(features, axes=[-1], keepdims=True)
        return (features - mean) * tf.math.rsqrt(variance + epsilon)

    found = []
    for normalise in (by_moments, lambda features: standardized_rows(features, epsilon)):
        with tf.GradientTape() as tape:
            tape.watch(features)
            result = normalise(3.0 * features + 7.0)
            loss = tf.reduce_sum(weights * result**2)
        found.append((result, tape.gradient(loss, features)))
    for expected, ours in zip(*found):
        assert np.abs(expected).max() > 0.1
        assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)


@compiled
def test_ddpg_learns_a_tiny_environment():
    """`Target` pays 0 at best and −1.28 for ever choosing the centre; it checks that actions are within its bounds."""
    config = OffPolicyConfig(
        env="tests/Target-v0", num_envs=4, epochs=4, steps_per_epoch=800, hidden_sizes=(32, 32), warmup_steps=400,
        replay_size=10_000, batch_size=64, train_every=40, updates_per_train=40, learning_rate=3e-3, gamma=0.5,
        tau=0.02, adopt_best=False, best_metric="total_reward", **DDPG,
    )  # fmt: skip
    trainer = OffPolicyAgentTrainer(config)
    trainer.train()
    trainer.close()
    assert mean_return(trainer, 50) > -0.1


# -- the program --


def run(monkeypatch, *arguments) -> int:
    return call(monkeypatch, program, *arguments)


def test_wrong_input_is_one_line(monkeypatch, tmp_path, capsys):
    run_folder.write_config(tmp_path, PPOConfig(), "default")
    for arguments, line in (
        (["pendulum-td4"], "did you mean pendulum-td3"),
        (["td3", "--env", "CartPole-v1"], "CartPole-v1 has actions of type Discrete; this method needs Box"),
        (["--resume", tmp_path], "is a run of another method"),
    ):
        assert run(monkeypatch, *arguments) == 2
        assert line in capsys.readouterr().err


def test_number_of_critics():
    """TD3 has two, also where only its other changes are wanted; DDPG has one (arXiv:1802.09477, section 4)."""
    numbers = [
        len(made(twin_critics=twin, target_smoothing=smooth).critics)
        for twin, smooth in ((True, 0.2), (True, 0.0), (False, 0.2), (False, 0.0))
    ]
    assert numbers == [2, 2, 1, 1]


def test_actions_at_random_are_no_score_of_the_agent():
    trainer = OffPolicyAgentTrainer(TINY.replace(num_envs=1, steps_per_epoch=63, warmup_steps=70))
    trainer.train()
    trainer.close()
    assert [np.isnan(row.metric) for row in trainer.results] == [True, True, False]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        # Every second step only begins an episode, so it does not count.
        (dict(max_episode_steps=1, num_envs=1, warmup_steps=30, epochs=1),
         "because the warm-up is not over: 20 of its 30 steps"),
        (dict(warmup_steps=20, train_every=5000, updates_per_train=1, epochs=2),
         "because no update was made: updates follow every 5000 steps"),
    ],
)  # fmt: skip
def test_a_run_that_never_learned_is_told_why(changes, why):
    trainer, said = OffPolicyAgentTrainer(TINY.replace(steps_per_epoch=40, **changes)), []
    trainer.warn = said.append
    trainer.train()
    trainer.close()
    [line] = said
    assert line.startswith(f"warning: nothing was learned, {why}")


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_a_training_that_was_interrupted_begins_new_episodes_when_it_goes_on(monkeypatch, backend):
    if backend == "envpool":
        pytest.importorskip("envpool")
    config = TINY.replace(backend=backend, num_envs=2, steps_per_epoch=64, warmup_steps=2000, epochs=40)
    trainer = OffPolicyAgentTrainer(config)
    trainer.train(1)
    remember, calls = OffPolicyAgentTrainer._remember, []  # noqa: SLF001

    def interrupted(self, rows, trajectory):
        calls.append(rows)
        if len(calls) == 2:
            raise KeyboardInterrupt
        remember(self, rows, trajectory)

    with monkeypatch.context() as patch:
        patch.setattr(OffPolicyAgentTrainer, "_remember", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(1)
    trainer.train(1)
    trajectory = trainer.collector.trajectory
    assert trajectory.episode_steps[0].tolist() == [1, 1]  # new episodes
    assert (np.abs(trajectory.observations[0]) <= 1.0).all()  # Pendulum begins slowly
    state = trainer.state()
    trainer.close()
    again = OffPolicyAgentTrainer(trainer.config)
    again.load_state(state)  # the environments repeat what they did
    again.close()


def test_a_state_of_a_full_buffer_does_not_change_with_it():
    replay = ReplayBuffer(4, 2, 1)
    one = Transitions(np.ones((4, 2)), np.ones((4, 1)), np.ones(4), np.zeros(4), np.ones((4, 2)))
    replay.add(one)
    state = replay.state()
    replay.add(one._replace(rewards=np.full(4, 7.0)))
    assert state["rows"][:, 3].tolist() == [1.0] * 4


class Large(gymnasium.Env):
    """Its observations and rewards are of a given size."""

    observation_space, action_space = Box(-np.inf, np.inf, (2,)), Box(-1.0, 1.0, (1,))

    def __init__(self, observation=1.0, reward=1.0):
        self.observation, self.reward = np.full(2, observation, np.float32), reward

    def reset(self, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return self.observation, self.reward, False, False, {}


@pytest.mark.parametrize(
    ("sizes", "settings", "named"),
    [
        ({}, {}, []),
        ({"observation": 1e6, "reward": -1e6}, {}, ["--normalize-observations", "--reward-factor 1e-06"]),
        (
            {"observation": 1e6, "reward": 1e6},
            {"normalize_observations": True, "reward_design": "scaled", "reward_factor": 1e-6},
            [],
        ),
    ],
)
def test_numbers_that_are_far_too_large_are_said_once_after_the_warm_up(sizes, settings, named):
    trainer, said = OffPolicyAgentTrainer(TINY.replace(**settings), make_env=lambda: Large(**sizes)), []
    trainer.warn = said.append
    trainer.train()
    trainer.close()
    assert [flag in line for flag, line in zip(named, said, strict=True)] == [True] * len(named)
