"""Exported policies: files that act as the agent does, without this project; and one line for every mistake."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from run_program import call

from Agent import Agent
from common.envs.environment import find_environment
from common.errors import UserError
from common.nets import tensorflow_operations
from common.rollout import evaluation
from common.rollout.policies import InEpisodes
from common.runs import run_folder
from companions.config import OffPolicyConfig, SACConfig
from companions.CrossQAgent import CrossQAgent
from companions.DDPGAgent import DDPGAgent
from companions.SACAgent import SACAgent
from ppo.config import PPOConfig
from programs import export, methods, onnx_files, policy_files

OBSERVATIONS = Box(-np.inf, np.inf, (3,))
CONFIG = PPOConfig(env="Pendulum-v1", hidden_sizes=(8, 8), initial_gains=(2**0.5, 1.0))
TD3 = OffPolicyConfig(env="Pendulum-v1", hidden_sizes=(8, 8))
SAC = SACConfig(env="Pendulum-v1", hidden_sizes=(8, 8))
UNEVEN = Box(np.array([-2, 1, -np.inf, 0], np.float32), np.array([0, 5, np.inf, np.inf], np.float32))
SPACES = {
    "uneven bounds": UNEVEN,
    "a matrix": Box(-3.0, 3.0, (2, 2)),
    "float64": Box(-1.0, 1.0, (2,), np.float64),
    "whole numbers": Box(-5, 200, (2,), np.int16),
    "on or off": Box(0, 1, (2,), np.bool_),
    "Discrete from 3": Discrete(4, start=3),
    "MultiDiscrete": MultiDiscrete([3, 2, 4], start=[1, 0, 5]),
    "MultiBinary": MultiBinary(3),
}


REMEMBERS = "begin an episode with a memory of zeros, and give each step's next_memory to the next one"
MASKED = "the last numbers of the input are the action mask: 1 for each choice that is allowed, else 0"


def ppo_agent(space, **changes):
    """An agent that has seen observations about 50, 0 and −3, of very different spreads."""
    agent = Agent(OBSERVATIONS, space, CONFIG.replace(**changes), seed=1)
    rng = np.random.default_rng(0)
    agent.observe(np.array([50, 0, -3]) + np.array([10, 0.1, 1]) * rng.standard_normal((1000, 3)))
    return agent


def exported(agent, folder):
    """All policies, read again, and what the export said of them."""
    written = policy_files.export(agent, folder, onnx=True)
    return *(read(folder / name) for name, read in policy_files.READ.items()), written


@pytest.mark.parametrize("space", SPACES)
def test_all_files_act_as_the_agent_in_every_space(tmp_path, space):
    agent = ppo_agent(SPACES[space])
    *policies, written = exported(agent, tmp_path)
    rng = np.random.default_rng(7)
    near = np.array([50, 0, -3]) + np.array([10, 0.1, 1]) * rng.standard_normal((300, 3))
    far = 1e4 * rng.standard_normal((100, 3))  # cut to ±10 standard deviations
    observations = np.concatenate([near, far]).astype(np.float32)
    expected = agent.action_map(agent.acting_policy().act(observations))
    for policy in policies:
        actions = policy(observations)
        assert actions.dtype == expected.dtype and actions.shape == expected.shape
        np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-5)
        assert SPACES[space].contains(policy(observations[:1])[0])
    assert [file.path.name for file in written] == ["saved_model", "policy.tflite", "policy.onnx"]
    assert all(file.difference <= 1e-5 and file.size > 1000 for file in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.onnx", "policy.tflite", "saved_model"]


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 65535, (2,), np.int32),
        Box(-(10**6), 10**6, (2,), np.int64),
        Box(-2000.0, 2000.0, (2,), np.float16),
        Box(0, 2**64 - 1, (2,), np.uint64),
        MultiDiscrete([3, 2], dtype=np.uint64),
    ],
    ids=str,
)
def test_actions_that_float32_and_float64_round_to_different_sides(tmp_path, space):
    """A file may then differ by one whole number, or one of float16's steps."""
    agent = ppo_agent(space)
    *policies, written = exported(agent, tmp_path)
    expected = agent.action_map(agent.acting_policy().act(TRIED))
    for policy in policies:
        assert policy(TRIED).dtype == space.dtype and space.contains(policy(TRIED)[0])
        np.testing.assert_allclose(policy(TRIED).astype(float), expected.astype(float), rtol=0, atol=1)
    assert all(file.difference <= 1e-6 for file in written)


def test_rounding_excuses_no_other_difference():
    whole, choice = ppo_agent(Box(0, 65535, (2,), np.int32)), ppo_agent(Discrete(4, start=10**6))
    down = lambda rows: np.int32(whole.action_map.unrounded(whole.acting_policy().act(rows)))  # noqa: E731
    assert policy_files.largest_difference(down, whole, TRIED) > 1e-6
    next_one = lambda rows: choice.action_map(choice.acting_policy().act(rows)) + 1  # noqa: E731
    assert policy_files.largest_difference(next_one, choice, TRIED) >= 0.5


def test_actions_beyond_the_bounds_are_cut(tmp_path):
    agent = ppo_agent(UNEVEN)
    agent.actor.get_layer("mean").bias.assign([9.0, -9.0, 9.0, -9.0])
    *policies, _ = exported(agent, tmp_path)
    for policy in policies:
        [action] = policy(np.array([[50, 0, -3]], np.float32))
        assert (action[0], action[1], action[3]) == (0.0, 1.0, 0.0)
        assert action[2] > 5  # unbounded


@pytest.mark.parametrize(
    "changes", [{"normalize_observations": False}, {"mean_activation": "tanh"}, {"initial_std": None}]
)
def test_every_kind_of_normal_actor(tmp_path, changes):
    *_, written = exported(ppo_agent(UNEVEN, **changes), tmp_path)
    assert all(file.difference <= 1e-5 for file in written)


@pytest.mark.parametrize(("kind", "space"), [("gru", Box(-2.0, 2.0, (1,))), ("lstm", Discrete(4, start=3))])
def test_a_policy_that_remembers_takes_its_memory_and_returns_the_next(tmp_path, kind, space):
    agent = ppo_agent(space, memory=kind, memory_size=5)
    *policies, written = exported(agent, tmp_path)
    assert all(file.difference <= 1e-5 for file in written)
    acting, rng = InEpisodes(agent.acting_policy(), 2), np.random.default_rng(1)
    memories = [acting.memory.copy() for _ in policies]
    for _ in range(4):
        observations = (np.array([50, 0, -3]) + np.array([10, 0.1, 1]) * rng.standard_normal((2, 3))).astype(
            np.float32
        )
        expected = agent.action_map(acting.act(observations))
        for policy, memory in zip(policies, memories):
            np.testing.assert_allclose(policy(observations, memory), expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(memory, acting.memory, atol=1e-5)
    if kind == "gru":
        pendulum = find_environment("Pendulum-v1", 30)
        played = evaluation.evaluate(agent.acting_policy(), agent.action_map, pendulum, 2, True, 7)
        line = evaluation.evaluation_line({"deterministic": played.summary()})
        assert [export.score(file.path, pendulum, 2, 7, 0, 5) for file in written] == [line] * 3


def td3_agent(space, **changes):
    return DDPGAgent(OBSERVATIONS, space, TD3.replace(**changes), seed=1)


def sac_agent(space, **changes):
    return SACAgent(OBSERVATIONS, space, SAC.replace(**changes), 1)


def crossq_agent(space, **changes):
    agent = CrossQAgent(OBSERVATIONS, space, SAC.replace(crossq=True, **changes), 1)
    drawn = np.random.default_rng(0).uniform(0.5, 2.0, len(agent.parameters()["statistics/actor"]))
    agent.load_parameters(agent.parameters() | {"statistics/actor": drawn.astype(np.float32)})
    return agent


MIRROR = {"observation": [1, -2, -3], "action": [-1], "weight": 0.3}
MIRRORED = dict(symmetry=True, mirror=MIRROR)


@pytest.mark.parametrize("make", [ppo_agent, td3_agent, sac_agent, crossq_agent])
def test_onnx_of_every_method_that_obeys_a_mirror(make, tmp_path):
    agent, file = make(Box(-2.0, 2.0, (1,)), **MIRRORED), tmp_path / "policy.onnx"
    policy = agent.acting_policy()
    onnx_files.write_onnx(policy, policy_files.acting_network(agent), agent.action_map, (3,), file)
    assert policy_files.largest_difference(onnx_files.read_onnx(file), agent, TRIED) < 1e-5
    straight = make(Box(-2.0, 2.0, (1,)))
    assert policy_files.largest_difference(onnx_files.read_onnx(file), straight, TRIED) > 1e-3


def test_onnx_of_choices_that_obey_a_mirror(tmp_path):
    file, space = tmp_path / "policy.onnx", MultiDiscrete([3, 2])
    agent = ppo_agent(space, **MIRRORED | {"mirror": MIRROR | {"action": [3, 2, 1, 5, 4]}})
    policy = agent.acting_policy()
    onnx_files.write_onnx(policy, policy_files.acting_network(agent), agent.action_map, (3,), file)
    act, tried = onnx_files.read_onnx(file), 10 * TRIED + np.float32([50, 0, -3])
    assert policy_files.largest_difference(act, agent, tried) == 0.0
    chosen = agent.action_map(agent.acting_policy().act(tried))
    assert len(np.unique(chosen, axis=0)) > 2
    assert policy_files.largest_difference(act, ppo_agent(space), tried) > 0.0


TRIED = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)


def test_onnx_is_written_where_it_is_wanted_and_an_old_one_does_not_stay(tmp_path):
    agent, other = ppo_agent(UNEVEN), ppo_agent(UNEVEN, hidden_sizes=(4,))
    policy_files.export(agent, tmp_path, onnx=True)
    assert (tmp_path / "policy.onnx").exists()
    policy_files.export(other, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.tflite", "saved_model"]
    with pytest.raises(UserError, match="already has these files"):
        policy_files.copy(other, UNEVEN, tmp_path, tmp_path)


def test_without_its_package_onnx_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"needs the package onnx: pip install -r requirements/export\.txt"):
        policy_files.export(ppo_agent(UNEVEN), tmp_path, onnx=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_path_that_tensorflow_takes_for_a_pattern(tmp_path):
    agent = crossq_agent(UNEVEN)
    *policies, _ = exported(agent, tmp_path / "a [x]\\b*?" / "export")
    assert len(policies) == 3
    for policy in policies:
        assert policy_files.largest_difference(policy, agent, TRIED) < 1e-5


def test_a_file_that_acts_otherwise_is_not_left_behind(tmp_path, monkeypatch):
    scaled = tensorflow_operations.TENSORFLOW.normalized  # as if somebody had changed one side alone
    monkeypatch.setattr(tensorflow_operations.TENSORFLOW, "normalized", lambda *given: 0.5 * scaled(*given))
    with pytest.raises(UserError, match="acts differently from the agent"):
        policy_files.export(ppo_agent(UNEVEN), tmp_path)
    assert not list(tmp_path.iterdir())


def test_nan_and_wrong_shapes_are_infinitely_far():
    agent = ppo_agent(UNEVEN)
    observations = policy_files.random_observations(agent, np.random.default_rng(0))
    right = lambda rows: agent.action_map(agent.acting_policy().act(rows))  # noqa: E731
    difference = policy_files.largest_difference
    assert difference(right, agent, observations) < 1e-6
    assert difference(lambda rows: right(rows) * np.float32(np.nan), agent, observations) == np.inf
    assert difference(lambda rows: right(rows)[:, :1], agent, observations) == np.inf
    assert difference(lambda rows: right(rows).astype(np.float64), agent, observations) == np.inf


# -- images --

IMAGES = Box(0, 255, (20, 26, 3), np.uint8)
CAMERA = CONFIG.replace(convolutions=("4x5/2", "6x3/1"), activation="relu")


def test_images_whatever_the_actions_and_the_torso(tmp_path):
    for space, shared_torso in [(UNEVEN, False), (Discrete(4, start=3), True)]:
        agent = Agent(IMAGES, space, CAMERA.replace(shared_torso=shared_torso), seed=2)
        if space is UNEVEN:  # else the means would be near 0 for every image
            kernel = agent.actor.get_layer("mean").kernel
            kernel.assign(10 * kernel)
        *policies, written = exported(agent, tmp_path)
        seen = np.random.default_rng(5).integers(0, 256, (9, *IMAGES.shape)).astype(np.uint8)
        expected = agent.action_map(agent.acting_policy().act(seen))
        for policy in policies:
            actions = policy(seen)
            assert actions.dtype == expected.dtype
            np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
        assert all(file.difference <= 1e-5 for file in written)


def test_a_convolution_that_is_turned_is_noticed(tmp_path, monkeypatch):
    right = policy_files.describe

    def turned(*arguments):
        network = right(*arguments)
        rescaling, first, *others = network.hidden
        return replace(network, hidden=(rescaling, first._replace(kernel=first.kernel[:, ::-1]), *others))

    monkeypatch.setattr(policy_files, "describe", turned)
    with pytest.raises(UserError, match="saved_model acts differently from the agent"):
        policy_files.export(Agent(IMAGES, UNEVEN, CAMERA, seed=2), tmp_path, onnx=True)
    assert not list(tmp_path.iterdir())


# -- the program --


def run_of(folder, config, agent):
    """A run folder with what an export reads."""
    folder.mkdir()
    run_folder.write_config(folder, config, "preset")
    for name in (run_folder.WEIGHTS, run_folder.BEST_AGENT):
        agent.save_weights(folder / name)
    return folder


@pytest.fixture
def run(tmp_path):
    return run_of(tmp_path / "run", CONFIG, Agent(OBSERVATIONS, Box(-2.0, 2.0, (1,)), CONFIG, seed=0))


def test_a_run_is_exported_in_place_of_what_an_earlier_export_left_and_needs_nothing_of_this_project(
    run, monkeypatch, tmp_path, capfd
):
    for name in ("unfinished-thesis", f"{policy_files.UNFINISHED}saved_model", "saved_model"):
        (run / "export" / name).mkdir(parents=True)
    (run / "export" / "saved_model" / "saved_model.pb").touch()
    assert call(monkeypatch, export, run) == 0
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    assert printed.err == "" and len(lines) == 2
    for line, name in zip(lines, ("saved_model", "policy.tflite")):
        assert str(run / "export" / name) in line and "bytes, largest difference" in line
    assert sorted(path.name for path in (run / "export").iterdir()) == [
        "policy.tflite", "saved_model", "unfinished-thesis",
    ]  # fmt: skip
    program = (
        "import sys, tensorflow as tf\n"
        "act = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "print(act(observations=tf.zeros((5, 3)))['actions'].shape)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(run / "export" / "saved_model")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout.strip() == "(5, 1)", ended.stderr


def test_the_last_weights_of_a_run_with_rounded_products_to_a_folder_of_choice(tmp_path, monkeypatch):
    """In float32, also where there is no XLA, which alone has such products."""
    agent = Agent(OBSERVATIONS, Box(-2.0, 2.0, (1,)), CONFIG, seed=0)
    run = run_of(tmp_path / "run", CONFIG.replace(precision="bfloat16"), agent)
    (run / run_folder.BEST_AGENT).unlink()
    assert call(monkeypatch, export, run, "--weights", "last", "--out", tmp_path / "deep" / "er") == 0
    assert (tmp_path / "deep" / "er" / "policy.tflite").exists() and not (run / "export").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"memory": "gru"}, [REMEMBERS]),
        ({"action_repeat": (3,)}, ["hold each action for 3 steps of the environment"]),
        ({"action_repeat": (3, 1)}, []),
        ({"action_masks": True}, [MASKED]),
        ({"action_repeat": (1, 2)}, ["hold each action for 2 steps of the environment"]),
    ],
)
def test_it_says_what_the_training_did_to_observations_and_actions(changes, said):
    assert export.duties(CONFIG.replace(**changes)) == said


@pytest.mark.parametrize(
    ("arguments", "word"),
    [("RUN/nothing", "nothing"), ("", "no run is named"), ("RUN --weights worst", "worst"), ("RUN", "best_agent.npz")],
)
def test_a_mistake_is_one_line_and_changes_nothing(run, monkeypatch, capfd, arguments, word):
    (run / run_folder.BEST_AGENT).unlink()
    before = sorted(run.rglob("*"))
    assert call(monkeypatch, export, *arguments.replace("RUN", str(run)).split()) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and word in error
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize(
    ("there", "out"),
    [
        ("export", ""), ("export", "export/deeper"), ("export/saved_model/poem.txt", ""),
        ("export/policy.tflite/poem.txt", ""), ("export/policy.onnx/poem.txt", ""),
    ],
)  # fmt: skip
def test_what_is_no_export_and_in_the_way_stays(run, monkeypatch, capfd, there, out):
    (run / there).parent.mkdir(parents=True, exist_ok=True)
    (run / there).write_text("precious")
    before = sorted(run.rglob("*"))
    assert call(monkeypatch, export, run, *(("--out", run / out) if out else ())) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and str(run / "export") in error
    assert sorted(run.rglob("*")) == before and (run / there).read_text() == "precious"


def test_all_files_are_scored(run, monkeypatch, capfd):
    asked = "--onnx", "--episodes", 2, "--seed", 7, "--max-episode-steps", 30
    assert call(monkeypatch, export, run, *asked) == 0
    agent, _, environment = methods.load_agent(run, "best")
    played = evaluation.evaluate(agent.acting_policy(), agent.action_map, environment.limited_to(30), 2, True, 7)
    lines = [line for line in capfd.readouterr().out.splitlines() if "unshaped reward of 2 episodes" in line]
    assert len(lines) == 3 and all(f"deterministic {played.returns.mean():.1f} [" in line for line in lines)
