"""Networks of one's own: the page's examples as they stand, and what is refused."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from run_program import call
from same_state import assert_same_state, resumed_and_whole

from Agent import Agent
from common.errors import UserError
from common.nets.flat_networks import FlatNetworks
from common.nets.keras_layers import Columns
from common.nets.network import Cut
from common.runs import run_folder
from companions.config import OffPolicyConfig, SACConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.SACAgentTrainer import SACAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from programs import policy_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "own-network.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```python title="(\S+)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))
QUIET = ["--evaluation-episodes", "2", "--record"]
FEWER = ["--steps-per-epoch", "256", "--minibatch-size", "128", "--passes", "1", "--epochs", "1"]
OBSERVATIONS = Box(-np.inf, np.inf, (12,), np.float32)
layers = keras.layers


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the page's files, in which the programs are called; modules imported from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_the_pages_commands_train_resume_evaluate_and_export(folder, monkeypatch, capsys):
    for words in map(shlex.split, "".join(re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)).splitlines()):
        module, arguments = (words[2], words[3:]) if words[1] == "-m" else (words[1].removesuffix(".py"), words[2:])
        arguments += QUIET if {"--name", "resume"} & {*arguments} else []
        arguments += FEWER if "cartpole" in arguments else ["--epochs", "2"] if "resume" in arguments else []
        module = "programs.__main__" if module == "programs" else module
        code = call(monkeypatch, importlib.import_module(module), *arguments)
        assert code == 0, capsys.readouterr().err
    runs = {name: folder / "runs" / name for name in ("normed", "lake", "attention")}
    assert json.loads((runs["normed"] / "config.json").read_text())["config"]["networks"] == "normed:make_networks"
    results = {name: run_folder.read_results(run) for name, run in runs.items()}
    assert [len(table["epoch"]) for table in results.values()] == [2, 10, 1]
    assert results["lake"]["avg_reward_orig"][-1] > 0.5  # it has learned, of commands as they stand
    for run, names in ((runs["normed"], policy_files.READ), (runs["attention"], ("saved_model", "policy.tflite"))):
        assert {path.name for path in (run / "export").iterdir()} == {*names}
    capsys.readouterr()
    train = importlib.import_module("programs.__main__")
    assert call(monkeypatch, train, "evaluate", runs["normed"]) == 2
    assert "with --networks normed:make_networks" in capsys.readouterr().err
    assert call(monkeypatch, train, "ship", runs["normed"], "normed", "--networks", "normed:make_networks") == 2
    assert "has layers that are not dense, and cannot be shipped" in capsys.readouterr().err
    arguments = ["--wrappers", "newest:newest_four", "--networks", "transformer:make_networks", "--onnx"]
    assert call(monkeypatch, train, "export", runs["attention"], *arguments) == 2
    assert re.search(r"policy.onnx cannot be written, the layer .*leave --onnx out", capsys.readouterr().err)


def make(name):
    space = {}
    exec(compile(FILES[name], name, "exec"), space)  # the project's own page
    return space["make_networks"]


PPO = PPOConfig(
    env="Pendulum-v1", max_episode_steps=20, backend="gymnasium", num_envs=2, epochs=3, steps_per_epoch=64, passes=2,
    minibatch_size=32, best_metric="mean_episode_reward", score_window=1,
)  # fmt: skip
OFF_POLICY = {
    "env": "Pendulum-v1", "max_episode_steps": 20, "epochs": 3, "steps_per_epoch": 24, "warmup_steps": 16,
    "batch_size": 8, "train_every": 4, "updates_per_train": 2, "hidden_sizes": (8,),
    "best_metric": "mean_episode_reward", "score_window": 1,
}  # fmt: skip


def with_dropout(observation_space, action_space, config):
    """Layers that act through Keras, one of which draws random numbers and one is frozen."""
    inputs = keras.Input(observation_space.shape)
    frozen = layers.Dense(8, "tanh", trainable=False)(inputs)
    return keras.Model(inputs, layers.Dropout(0.2)(layers.Dense(8, "gelu")(frozen)))


TRAINERS = {
    "PPO": (PPOAgentTrainer, PPO),
    "PPO with shared layers": (PPOAgentTrainer, PPO.replace(shared_torso=True, value_coefficient=0.5)),
    "TD3": (OffPolicyAgentTrainer, OffPolicyConfig(**OFF_POLICY)),
    "TQC": (SACAgentTrainer, SACConfig(**OFF_POLICY, quantiles=5, normalize_observations=True)),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_resumed_run_is_the_same_and_exports_act_alike(name, tmp_path):
    trainer, config = TRAINERS[name]
    resumed, whole, state = resumed_and_whole(lambda: trainer(config, make_networks=with_dropout), 1, 3)
    assert_same_state(resumed.state(), whole.state())
    seeds = [key for key, array in state.items() if array.dtype.kind == "i" and array.shape == (2,)]
    assert any((state[key] != whole.state()[key]).any() for key in seeds)
    assert whole.config.networks == "function"
    written = policy_files.export(whole.agent, tmp_path)
    assert [file.path.name for file in written] == ["saved_model", "policy.tflite"]


def test_the_pages_network_of_an_image_and_numbers_learns_and_is_exported(tmp_path):
    config = PPO.replace(env="tests/DotAndSign-v0", max_episode_steps=None)
    trainer = PPOAgentTrainer(config, make_networks=make("seeing.py"))
    trainer.train(1)
    written = policy_files.export(trainer.agent, tmp_path, onnx=True)
    trainer.close()
    assert [file.path.name for file in written] == ["saved_model", "policy.tflite", "policy.onnx"]


def agent_with(make_networks, space=Discrete(3), **changes):  # noqa: B008
    return Agent(OBSERVATIONS, space, PPOConfig(**changes), 1, make_networks)


def test_networks_follow_the_seed_and_act_in_numpy_where_their_layers_allow_it():
    one, again = agent_with(make("normed.py")), agent_with(make("normed.py"))
    for network, other in ((one.actor, again.actor), (one.critic, again.critic)):
        for array, same in zip(network.get_weights(), other.get_weights(), strict=True):
            assert np.array_equal(array, same)
    assert not np.array_equal(one.actor.get_weights()[0], one.critic.get_weights()[0])
    assert one.acting_policy().is_plain and not agent_with(make("transformer.py")).acting_policy().is_plain


@pytest.mark.parametrize("between", [layers.Flatten, lambda: Columns(Cut(np.array([2, 0]), (2,)))])
def test_networks_side_by_side_give_what_each_gives(between):
    networks = [in_a_row(between(), layers.Dense(1))() for _ in range(2)]
    flat, rows = FlatNetworks(networks), np.random.default_rng(0).standard_normal((4, 12)).astype(np.float32)
    side_by_side = flat.call(flat.stacks(), tf.constant(rows))
    np.testing.assert_allclose(side_by_side, [network(rows) for network in networks], rtol=1e-5)
    first = keras.Sequential([keras.Input((12,)), between(), layers.Dense(1)])
    assert FlatNetworks([first]).stacks()[-1].shape == (1, 1, 1)  # they need not be computed by Keras


class Counting(layers.Layer):
    def call(self, rows):
        return tf.ensure_shape(tf.py_function(lambda x: x, [rows], tf.float32), rows.shape)

    def compute_output_shape(self, shape):
        return shape


def in_a_row(*between):
    return lambda *_: keras.Sequential([keras.Input((12,)), layers.Dense(4), *between])


ONLY_ONE = keras.Sequential([keras.Input((12,)), layers.Dense(4)])


@pytest.mark.parametrize(
    ("make_networks", "words"),
    [
        (in_a_row(layers.BatchNormalization(name="x")), r"layer x \(BatchNorm.*own weights.*use LayerNormalization"),
        (lambda *_: ONLY_ONE, "returned the same model twice"),
        (lambda *_: 3, "returned 3: expected a keras.Model from observations"),
        (in_a_row(layers.Reshape((2, 2))), r"outputs \(None, 2, 2\): expected"),
        (lambda *_: keras.Sequential([keras.Input((5,)), layers.Dense(4)]), r"failed \(ValueError: .*shape"),
        (lambda *_: 1 / 0, r"failed \(ZeroDivisionError: division by zero.*, at test_own_networks.py, line \d+"),
    ],
)
def test_what_does_not_fit_is_one_line(make_networks, words):
    with pytest.raises(UserError, match=words) as refusal:
        agent_with(make_networks)
    assert "\n" not in str(refusal.value)


class WithAnotherWeight(layers.Dense):
    def build(self, shape):
        super().build(shape)
        self.add_weight(shape=(3,))


@pytest.mark.parametrize("name", ["PPO", "TD3"])
def test_a_weight_on_which_no_output_depends_does_no_harm(name):
    trainer, config = TRAINERS[name]
    trained = trainer(config, make_networks=lambda space, *_: keras.Sequential(
        [keras.Input(space.shape), layers.LayerNormalization(epsilon=1e-3), WithAnotherWeight(4)]
    ))  # fmt: skip
    before = trained.agent.actor.get_weights()
    trained.train(1)
    trained.close()
    changed = [not np.array_equal(*both) for both in zip(before, trained.agent.actor.get_weights())]
    assert changed.count(False) == 1


def test_a_dense_layer_with_more_weights_acts_through_keras():
    assert not agent_with(in_a_row(layers.Dense(4, lora_rank=2))).acting_policy().is_plain


@pytest.mark.xla
def test_a_layer_that_cannot_be_compiled_is_named_and_others_learn_compiled():
    """With XLA, where the gradient of an Embedding and the random numbers of Dropout need care."""
    with pytest.raises(UserError, match=r"^the layer x \(Counting\) of your networks cannot be compiled .*PyFunc"):
        agent_with(in_a_row(Counting(name="x")))
    config = PPO.replace(env="FrozenLake-v1", epochs=1, normalize_observations=False)
    trainer = PPOAgentTrainer(config, make_networks=make("embedded.py"))
    before = trainer.agent.parameters()
    trainer.train()
    trainer.close()
    changed = {name for name, array in trainer.agent.parameters().items() if not np.array_equal(array, before[name])}
    assert {"actor/0", "critic/0"} <= changed  # the embeddings


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("normed", "expected module:function"),
        ("normed:make", "normed has no function make"),
        ("nowhere:make", "there is no module nowhere"),
        ("function", "pass make_networks again"),
    ],
)
def test_a_function_that_is_not_there_is_one_line(folder, named, words):
    with pytest.raises(UserError, match=words):
        agent_with(None, networks=named)
