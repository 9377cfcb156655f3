"""A finished run becomes an agent of the project: nothing is typed by hand, and nothing is left half-written."""

import contextlib
import dataclasses
import io
import json
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from run_program import call

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))

import gallery

from Agent import Agent
from common.errors import UserError
from common.rollout import evaluation, policy_file
from common.rollout.evaluation import Evaluation
from common.runs import finished, run_folder
from common.runs.command_line import parse
from ppo.config import PPOConfig
from ppo.presets import PRESETS
from programs import __main__ as programs
from programs import methods, onnx_files, policy_files, ship, shipped

TRAIN = (
    "pendulum", "--backend", "gymnasium", "--num-envs", "2", "--epochs", "3", "--steps-per-epoch", "64",
    "--passes", "1", "--minibatch-size", "64", "--max-episode-steps", "20", "--hidden-sizes", "8", "--seed", "4",
    "--best-metric", "mean_episode_reward", "--score-window", "1", "--anneal", "--no-adopt-best",
    "--checkpoint-every", "1", "--record", "--evaluation-episodes", "2",
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("eager_module")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of three epochs that kept a checkpoint of each."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["programs", "train", *TRAIN, "--runs-folder", str(folder), "--name", "tiny"])
        programs.main()
    return folder / "tiny"


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "tiny"))


@pytest.fixture(autouse=True)
def few_episodes(monkeypatch):
    monkeypatch.setattr(ship, "EPISODES", 2)
    monkeypatch.setattr(ship, "TRIED_EPISODES", 1)


@pytest.fixture
def without_exports(monkeypatch):
    monkeypatch.setattr(policy_files, "export", lambda *_, **__: [])


@pytest.fixture(scope="module")
def swinger(trained):
    """The agent of the run, shipped with everything; its folder and what was printed."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(ship, "EPISODES", 2)
        patch.setattr(ship, "TRIED_EPISODES", 1)
        code, agents = ships(patch, trained)
    assert code == 0
    return agents / "swinger", printed.getvalue().splitlines()


def ships(monkeypatch, run, *more, name="swinger"):
    """The exit code, and the folder of all agents."""
    agents = run.parent / "agents"
    asked = "--commit", "1a2b3c4", "--agents", agents, "--episodes", 2
    return call(monkeypatch, ship, run, name, *asked, *more), agents


def test_an_agent_acts_like_the_run_and_says_where_it_is_from(trained, swinger):
    folder, lines = swinger
    assert shipped.names(folder.parent) == ["swinger"]
    of_run, config, _ = methods.load_agent(trained)
    agent, again, environment = shipped.load(folder)
    observations = np.random.default_rng(0).standard_normal((30, 3)).astype(np.float32)
    expected = of_run.acting_policy().act(observations)
    np.testing.assert_array_equal(agent.acting_policy().act(observations), expected)
    assert again == config and environment.max_episode_steps == 20
    card = json.loads((folder / shipped.CARD).read_text())
    assert (card["name"], card["seed"], card["commit"]) == ("swinger", 4, "1a2b3c4")
    assert (card["environment"], card["run_epochs"], card["run_steps"]) == ("Pendulum-v1", 3, 320)
    assert [stage["epoch"] for stage in card["stages"].values()] == [0, card["stages"]["half-way"]["epoch"], 3]
    assert (folder / "evaluation.json").read_bytes() == (trained / "evaluation.json").read_bytes()
    assert lines[-1] == f"{folder}: python -m programs watch {folder.as_posix()}"
    assert lines[-4].startswith("untrained: 0 steps, score ") and lines[-2].startswith("trained: 320 steps")
    assert [path.name for path in folder.parent.iterdir()] == ["swinger"]


def test_no_more_is_recorded_than_is_kept(trained, monkeypatch):
    monkeypatch.setattr(ship, "OBSERVATIONS", 7)
    agent, _, environment = methods.load_agent(trained)
    assert len(ship.recorded(SimpleNamespace(environment=environment), agent)["observations"]) == 7


def test_what_is_recorded_is_what_the_agent_does(swinger):
    folder, _ = swinger
    with np.load(folder / shipped.RECORDED) as recorded:
        observations, actions = recorded["observations"], recorded["actions"]
    agent, _, _ = shipped.load(folder)
    assert observations.shape == (20, 3) and np.abs(observations[0] - observations[-1]).max() > 0.01
    np.testing.assert_allclose(agent.action_map(agent.acting_policy().act(observations)), actions, atol=1e-6)
    for name, read in policy_files.READ.items():
        found = read(folder / shipped.EXPORT / name)(observations)
        np.testing.assert_allclose(found, actions, rtol=1e-4, atol=1e-5)


def test_the_best_epoch_is_the_one_whose_parameters_were_adopted(trained):
    training = ship.training_of(trained)
    table = {"epoch": np.array([1, 2, 3]), "is_best": np.array([1, 1, 0])}
    adopting = dataclasses.replace(training, table=table, config=training.config.replace(adopt_best=True))
    assert (adopting.best_epoch, training.best_epoch) == (2, 3)  # the run was trained with --no-adopt-best


def test_a_card_counts_environment_steps_where_the_run_counted_actions(trained):
    training = ship.training_of(trained)
    holding = dataclasses.replace(training, config=training.config.replace(action_repeat=(3,)))
    assert (training.steps_of(3), holding.steps_of(3)) == (320, 960)


def test_the_stages_are_the_policies_of_their_epochs(run, without_exports, monkeypatch):
    scores = {0: -900.0, 1: -700.0, 2: -490.0, 3: -100.0}  # of the agents of these epochs; the middle is −500
    training = ship.training_of(run)
    kernels = {float(agent.actor.get_weights()[0].sum()): epoch for epoch, agent in training.checkpoints()}
    kernels[float(training.agent_at(0).actor.get_weights()[0].sum())] = 0
    kernels[float(methods.load_agent(run)[0].actor.get_weights()[0].sum())] = 3
    assert sorted(kernels.values()) == [0, 1, 2, 3]

    def score(self, agent, episodes=2):
        return Evaluation(
            np.full(episodes, scores[kernels[float(agent.actor.get_weights()[0].sum())]]), np.ones(episodes, np.int64)
        )

    monkeypatch.setattr(ship.Training, "score", score)
    path = run / "evaluation.json"
    found = json.loads(path.read_text())
    found["deterministic"]["mean"] = scores[3]
    path.write_text(json.dumps(found))
    _, agents = ships(monkeypatch, run)
    stages = json.loads((agents / "swinger" / shipped.CARD).read_text())["stages"]
    assert {name: stage["mean"] for name, stage in stages.items()} == {
        "untrained": -900.0, "half-way": -490.0, "trained": -100.0,
    }  # fmt: skip
    assert [(stage["epoch"], stage["steps"]) for stage in stages.values()] == [(0, 0), (2, 256), (3, 320)]
    for name, epoch in (("untrained", 0), ("half-way", 2), ("trained", 3)):
        kernel = policy_file.read(agents / "swinger" / shipped.STAGES[name]).heads.hidden[0].kernel
        assert kernels[float(kernel.sum())] == epoch


def test_the_command_on_the_card_trains_the_same_run(trained, swinger):
    card = json.loads((swinger[0] / shipped.CARD).read_text())
    python, _, module, command, *words = shlex.split(card["trained_by"])
    assert (python, module, command) == ("python", "programs", "train")
    _, config, options = parse(words, "train", PRESETS, "pendulum", lambda _: "default")
    assert config == methods.read_config(trained)[1]
    assert (options.name, options.checkpoint_every) == ("tiny", 1)
    assert card["shipped_by"] == "python -m programs ship runs/tiny swinger"


def test_networks_of_ones_own_are_typed_again(tmp_path, without_exports, monkeypatch, capsys, eager):
    typed = "--networks", "tiny_envs:make_networks"
    asked = *TRAIN, *typed, "--epochs", "1", "--runs-folder", tmp_path, "--name", "tiny"
    assert call(monkeypatch, programs, "train", *asked) == 0
    assert ships(monkeypatch, tmp_path / "tiny")[0] == 2
    assert capsys.readouterr().err.endswith(f"type it yourself with {' '.join(typed)}\n")
    code, agents = ships(monkeypatch, tmp_path / "tiny", *typed)
    assert code == 0
    assert capsys.readouterr().out.endswith(f"watch {agents / 'swinger'} {' '.join(typed)}\n")
    observations = np.random.default_rng(0).standard_normal((30, 3)).astype(np.float32)
    agent, run = (
        shipped.load(agents / "swinger", networks=typed[1])[0],
        methods.load_agent(tmp_path / "tiny", networks=typed[1])[0],
    )
    expected = run.acting_policy().act(observations)
    np.testing.assert_array_equal(agent.acting_policy().act(observations), expected)


def test_an_agent_of_that_name_is_replaced(run, without_exports, monkeypatch):
    _, agents = ships(monkeypatch, run)
    (agents / "swinger" / "old.txt").write_text("old")
    assert ships(monkeypatch, run)[0] == 0
    assert not (agents / "swinger" / "old.txt").exists() and (agents / "swinger" / "policy.npz").exists()


def test_a_run_without_earlier_checkpoints_has_no_half_way_policy(run, without_exports, monkeypatch):
    for epoch in (1, 2):
        shutil.rmtree(run / run_folder.CHECKPOINTS / f"{epoch:08d}")
    _, agents = ships(monkeypatch, run)
    card = json.loads((agents / "swinger" / shipped.CARD).read_text())
    assert [*card["stages"]] == ["untrained", "trained"] and not (agents / "swinger" / "half-way.npz").exists()


@pytest.mark.parametrize(
    ("stored", "commit"),
    [
        ({}, "unknown"),
        ({"commit": "abcdef12"}, "abcdef12"),
    ],
)
def test_the_card_names_the_commit_where_it_is_known(run, without_exports, monkeypatch, capsys, stored, commit):
    config = json.loads((run / run_folder.CONFIG).read_text())
    config["versions"].pop("commit", None)
    config["versions"] |= stored
    (run / run_folder.CONFIG).write_text(json.dumps(config))
    agents = run.parent / "agents"
    assert call(monkeypatch, ship, run, "swinger", "--agents", agents, "--episodes", 2) == 0
    assert json.loads((agents / "swinger" / shipped.CARD).read_text())["commit"] == commit
    assert ("is unknown; add --commit" in capsys.readouterr().out) == (commit == "unknown")


def test_the_commit_of_a_copy_within_another_repository_is_unknown(monkeypatch, tmp_path):
    class Asked:
        def __init__(self, lines):
            self.stdout = lines

    for top, changes, commit in [
        (run_folder.ROOT, "", "1a2b"),
        (run_folder.ROOT, " M Agent.py\n", "1a2b+"),
        (tmp_path, "", None),
    ]:
        answers = {"rev-parse": f"{top}\n1a2b\n", "status": changes}
        monkeypatch.setattr(run_folder.subprocess, "run", lambda words, answers=answers, **_: Asked(answers[words[3]]))
        assert run_folder.source_commit() == commit


def test_mistakes_are_one_line_and_leave_nothing(run, monkeypatch, capsys):
    assert ships(monkeypatch, run, name="../walker")[0] == 2
    assert ships(monkeypatch, run.parent / "none")[0] == 2
    assert ships(monkeypatch, run, "--episodes", "0")[0] == 2
    monkeypatch.setattr(ship, "LARGEST_POLICY", 100)
    assert ships(monkeypatch, run)[0] == 2
    errors = capsys.readouterr().err.splitlines()
    for line, words in zip(errors, ("is not a folder name", "holds no run", "episodes is 0", "at most 100 are kept")):
        assert line.startswith("error: ") and words in line
    assert len(errors) == 4 and not list((run.parent / "agents").iterdir())


def test_a_run_that_stopped_at_its_score_is_finished(run, without_exports, monkeypatch):
    config = json.loads((run / run_folder.CONFIG).read_text())
    config["config"] |= {"epochs": 9, "stop_score": -1000.0}
    (run / run_folder.CONFIG).write_text(json.dumps(config))
    done = json.loads((run / "finished.json").read_text())
    (run / "finished.json").write_text(json.dumps(done | {"epochs": 9}))
    _, agents = ships(monkeypatch, run)
    card = json.loads((agents / "swinger" / shipped.CARD).read_text())
    assert (card["run_epochs"], card["run_steps"]) == (3, 320)
    assert card["stages"]["trained"]["epoch"] == 3


def test_an_agent_that_sees_images_is_shipped_as_the_weights_of_its_actor(tmp_path):
    config = PPOConfig(env="tests/Camera-v0", convolutions=("4x8/8",), hidden_sizes=(8,), shared_torso=True)
    images = Box(0, 255, (48, 64, 3), np.uint8)
    agent, other = (Agent(images, Discrete(3), config, seed) for seed in (1, 2))
    ship.write_policy(tmp_path / "policy.npz", agent)
    arrays = policy_file.read_arrays(tmp_path / "policy.npz")
    assert policy_file.layout_of(arrays)["kind"] == shipped.ACTOR
    shipped.set_actor(other, arrays)
    seen = np.random.default_rng(0).integers(0, 256, (5, 48, 64, 3)).astype(np.uint8)
    expected = agent.acting_policy().logits(seen)
    np.testing.assert_array_equal(other.acting_policy().logits(seen), expected)


def test_a_stage_that_is_not_kept_is_filmed_from_the_run(swinger, trained, tmp_path, monkeypatch):
    """As for agents that see images, of which agents/ holds only the trained policy."""
    folder, _ = swinger
    shutil.copytree(folder, tmp_path / "swinger")
    monkeypatch.setattr(shipped, "AGENTS", tmp_path)
    card = gallery.card_of("swinger")
    for stage in ("untrained", "half-way"):
        kept = tmp_path / "swinger" / shipped.STAGES[stage]
        expected = shipped.load(tmp_path / "swinger", stage)[0].acting_policy()
        kept.unlink()
        epoch = card["stages"][stage]["epoch"]
        assert gallery.agent_of("swinger", stage, epoch, None) is None
        agent, environment = gallery.agent_of("swinger", stage, epoch, trained)
        observations = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
        np.testing.assert_allclose(agent.acting_policy().act(observations), expected.act(observations), atol=1e-6)
        assert environment.id == card["environment"]


def test_an_agent_is_shipped_without_an_onnx_file_where_onnx_is_not_installed(run, monkeypatch, capsys):
    asked = []

    def export(_, folder, onnx):
        asked.append(onnx)
        folder.mkdir()

    monkeypatch.setattr(policy_files, "export", export)
    for installed in (True, False):
        monkeypatch.setattr(onnx_files, "can_write", lambda installed=installed: installed)
        assert ships(monkeypatch, run)[0] == 0
        assert ("no ONNX file was written" in capsys.readouterr().out) == (not installed)
    assert asked == [True, False]


@pytest.mark.parametrize("refused", ["the exports", "the policy's size"])
def test_what_is_refused_is_refused_before_episodes_are_played(run, monkeypatch, capsys, refused):
    def refuse(*_, **__):
        raise UserError("no")

    if refused == "the policy's size":
        monkeypatch.setattr(ship, "LARGEST_POLICY", 10)
    else:
        monkeypatch.setattr(policy_files, "export", refuse)
    finished.forget(run, finished.EVALUATE)
    monkeypatch.setattr(evaluation, "play_all", lambda *_: pytest.fail("episodes were played"))
    assert ships(monkeypatch, run)[0] == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_folder_that_is_no_agent_is_not_replaced(run, monkeypatch, capsys):
    assert call(monkeypatch, ship, run, run.name, "--agents", run.parent) == 2
    assert "is there already, and is not a shipped agent: choose another name" in capsys.readouterr().err
    assert (run / run_folder.BEST_AGENT).exists()


def test_an_agent_that_cannot_be_replaced_stays(run, without_exports, monkeypatch):
    _, agents = ships(monkeypatch, run)
    before = (agents / "swinger" / shipped.CARD).read_bytes()
    replace = Path.replace

    def fails_for_the_new_one(self, target):
        if self.name.startswith(".unfinished-") and not self.name.endswith("-before"):
            raise PermissionError(13, "Permission denied", str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_for_the_new_one)
    assert ships(monkeypatch, run, "--commit", "ffffffff")[0] == 2
    assert (agents / "swinger" / shipped.CARD).read_bytes() == before
    assert [path.name for path in agents.iterdir()] == ["swinger"]


@pytest.mark.parametrize("other", [{}, {"seed": 5}, {"max_episode_steps": 10}, {"episodes": 3}], ids=str)
def test_scores_of_other_episodes_and_of_other_weights_are_not_taken_over(run, other):
    own = json.loads((run / run_folder.EVALUATION).read_text())["deterministic"]
    if not other:
        finished.forget(run, finished.EVALUATE)
    stored = own | {"mean": 12345.0} | other
    (run / run_folder.EVALUATION).write_text(json.dumps({"deterministic": stored, "sampled": own}))
    scores = ship.evaluation_of(ship.training_of(run))
    assert scores["deterministic"]["mean"] == own["mean"]


def test_the_card_has_the_stored_commands_and_what_they_do_not_repeat(run, without_exports, monkeypatch, capsys):
    content = json.loads((run / run_folder.CONFIG).read_text())
    content["resumed"] = [
        {"after_epoch": 1, "changed": {}, "command": "python -m programs resume runs/tiny"},
        {"after_epoch": 2, "changed": {"epochs": [2, 3]}, "command": "python -m programs resume runs/tiny --epochs 3"},
    ]
    (run / run_folder.CONFIG).write_text(json.dumps(content))
    table = run_folder.read_results(run)
    table["hp_clip_range"] = np.array([0.2, 0.2, 0.1])
    monkeypatch.setattr(run_folder, "read_results", lambda _: table)
    _, agents = ships(monkeypatch, run)
    card = json.loads((agents / "swinger" / shipped.CARD).read_text())
    assert card["trained_by"] == f"{content['command']} && python -m programs resume runs/tiny --epochs 3"
    assert card["not_repeated"] == ["Its setting clip_range was changed during training."]
    assert capsys.readouterr().out.count("do not repeat this") == 1


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["python -m programs train", "pendulum", "--env-kwargs", '{"g": 9}'], "pendulum --env-kwargs '{\"g\": 9}'"),
        (["PPOAgentTrainer.py", "pendulum"], "python PPOAgentTrainer.py pendulum"),
        ([str(run_folder.ROOT / "companions" / "SACAgentTrainer.py")], "python -m companions.SACAgentTrainer"),
    ],
)
def test_a_command_is_stored_as_it_is_typed(monkeypatch, argv, command):
    monkeypatch.setattr(sys, "argv", argv)
    assert run_folder.typed_command().endswith(command) and run_folder.typed_command().startswith("python ")
