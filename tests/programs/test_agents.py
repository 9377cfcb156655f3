"""The agents that come with the project: they load, act as they did when they were shipped, and are small."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from run_program import call

from common.rollout import policy_file
from common.rollout.evaluation import EVALUATION_SEED, evaluate
from programs import evaluate as evaluate_program
from programs import export, shipped, watch
from programs.policy_files import READ

NAMES = shipped.names()
STAGED = [name for name in NAMES if name != "breakout"]  # whose earlier policies are kept, too
FILES = {"config.json", "evaluation.json", shipped.CARD, shipped.RECORDED, shipped.EXPORT, *shipped.STAGES.values()}


def card(name):
    return json.loads((shipped.AGENTS / name / shipped.CARD).read_text())


def recorded(name):
    with np.load(shipped.AGENTS / name / shipped.RECORDED) as arrays:
        return arrays["observations"], arrays["actions"]


def assert_same(actions, expected):
    assert actions.dtype == expected.dtype and actions.shape == expected.shape
    if np.issubdtype(expected.dtype, np.floating):
        np.testing.assert_allclose(actions, expected, rtol=1e-3, atol=1e-3)
    else:  # two choices that are all but equal may change places
        assert np.mean(actions == expected) >= 0.98


def test_there_are_agents():
    assert set(NAMES) >= {"walker", "cartpole"}


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_acts_as_it_did_when_it_was_shipped(name):
    agent, config, environment = shipped.load(shipped.AGENTS / name)
    observations, actions = recorded(name)
    assert_same(agent.action_map(agent.acting_policy().act(observations)), actions)
    assert len(observations) >= 16 and environment.id == config.env == card(name)["environment"]


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_is_small_and_whole(name):
    folder = shipped.AGENTS / name
    assert {path.name for path in folder.iterdir()} <= FILES
    for file in shipped.STAGES.values():
        if (folder / file).exists():
            layout = policy_file.layout_of(policy_file.read_arrays(folder / file))
            largest = 8 * 2**20 if layout["kind"] == shipped.ACTOR else 2**20
            assert (folder / file).stat().st_size <= largest
    assert {path.name for path in (folder / shipped.EXPORT).iterdir()} == set(READ)


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_what_the_other_files_say(name):
    said, folder = card(name), shipped.AGENTS / name
    scores = json.loads((folder / "evaluation.json").read_text())["deterministic"]
    _, config, _ = shipped.load(folder)
    assert said["name"] == name and said["seed"] == config.seed and said["licence"].startswith("MIT")
    assert scores["episodes"] == len(scores["returns"]) == said["stages"]["trained"]["episodes"] == 100
    assert said["stages"]["trained"]["mean"] == pytest.approx(scores["mean"], abs=1e-3)
    assert scores["mean"] == pytest.approx(np.mean(scores["returns"]), abs=1e-2)
    for stage in said["stages"] if name in STAGED else ("trained",):
        assert (folder / shipped.STAGES[stage]).exists()
    assert said["preset"] in said["trained_by"] or said["preset"] == "bipedal-walker-fast"  # the first command's
    assert re.fullmatch(r"[0-9a-f]{7,40}\+?", said["commit"])


@pytest.mark.parametrize("name", STAGED)
def test_an_episode_played_now_scores_like_those_that_were_recorded(name):
    agent, _, environment = shipped.load(shipped.AGENTS / name)
    played = evaluate(agent.acting_policy(), agent.action_map, environment, 1, True, EVALUATION_SEED).returns[0]
    returns = json.loads((shipped.AGENTS / name / "evaluation.json").read_text())["deterministic"]["returns"]
    reach = 0.1 * abs(np.median(returns))  # other processors round differently
    assert min(returns) - reach <= played <= max(returns) + reach
    untrained, _, _ = shipped.load(shipped.AGENTS / name, "untrained")
    before = evaluate(untrained.acting_policy(), agent.action_map, environment, 1, True, EVALUATION_SEED).returns[0]
    assert before < np.mean(returns)


@pytest.mark.parametrize("file", ["saved_model", "policy.tflite", "policy.onnx"])
@pytest.mark.parametrize("name", NAMES)
def test_exported_policies_act_as_the_agent(name, file):
    if file == "policy.onnx":
        pytest.importorskip("onnxruntime")
    observations, actions = recorded(name)
    assert_same(READ[file](shipped.AGENTS / name / shipped.EXPORT / file)(observations), actions)


# -- the programs --


@pytest.mark.parametrize("program", [watch, evaluate_program, export])
def test_an_unknown_name_is_one_line_with_all_names(program, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, program, "wolker") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "did you mean walker?" in error and all(name in error for name in NAMES)


def test_a_run_of_that_name_goes_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert shipped.folder_of(Path("walker")) == shipped.AGENTS / "walker"
    (tmp_path / "walker").mkdir()
    assert shipped.folder_of(Path("walker")) == shipped.AGENTS / "walker"  # exports, say
    (tmp_path / "walker" / "config.json").touch()
    assert shipped.folder_of(Path("walker")).resolve() == tmp_path / "walker"


def test_watch_films_an_agent_by_its_name(monkeypatch, tmp_path, capsys):
    asked = "--folder", tmp_path, "--max-episode-steps", 20
    assert call(monkeypatch, watch, "cartpole", *asked) == 0
    assert call(monkeypatch, watch, shipped.AGENTS / "cartpole", *asked, "--stage", "untrained", "--gif") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cartpole.gif", "cartpole.mp4"]
    trained, untrained = capsys.readouterr().out.splitlines()
    assert trained.startswith("filmed an episode of 20.0: ") and "of 20.0" not in untrained


def test_watch_shows_a_window_where_there_is_a_screen(screen, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, watch, "cartpole", "--max-episode-steps", 5) == 0
    assert capsys.readouterr().out == "an episode of 5.0 in 5 steps\n" and not list(tmp_path.glob("*.mp4"))
    assert call(monkeypatch, watch, "cartpole", "--max-episode-steps", 5, "--film") == 0
    assert list(tmp_path.glob("*.mp4")) == [Path("cartpole.mp4").resolve()]


@pytest.mark.parametrize("other", ["--film", "--gif"])
def test_a_window_and_a_film_exclude_each_other(other, monkeypatch, capsys):
    assert call(monkeypatch, watch, "cartpole", "--window", other) == 2
    assert "has no effect with window True: add --no-window, or leave" in capsys.readouterr().err


def test_evaluate_prints_the_scores_of_an_agent_and_leaves_it_alone(monkeypatch, capsys):
    folder = shipped.AGENTS / "cartpole"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert call(monkeypatch, evaluate_program, "cartpole", "--episodes", 1, "--max-episode-steps", 30) == 0
    assert "deterministic 30.0 [30.0, 30.0]" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_export_says_where_the_exported_policies_are(monkeypatch, capsys):
    assert call(monkeypatch, export, "cartpole") == 2
    assert "holds the exported policies already: copy them with --out FOLDER" in capsys.readouterr().err


def test_the_exports_of_an_agent_are_copied_to_a_folder_of_choice(monkeypatch, tmp_path, capsys):
    assert call(monkeypatch, export, "cartpole", "--out", tmp_path / "mine") == 0
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["policy.tflite", "saved_model"]
    observations, actions = recorded("cartpole")
    assert_same(READ["policy.tflite"](tmp_path / "mine" / "policy.tflite")(observations), actions)
    assert capsys.readouterr().out.count("largest difference 0\n") == 2


@pytest.mark.parametrize("file", ["saved_model", "policy.tflite", "policy.onnx"])
@pytest.mark.parametrize("name", ["pendulum", "cartpole", "best-walker"])
def test_what_a_file_says_of_nan_is_nan_or_an_action(name, file):
    """So says docs/deploy.md: which of the two depends on the file and its network."""
    if file == "policy.onnx":
        pytest.importorskip("onnxruntime")
    _, _, environment = shipped.load(shipped.AGENTS / name)
    [size] = environment.observation_space.shape
    [action] = READ[file](shipped.AGENTS / name / shipped.EXPORT / file)(np.full((1, size), np.nan, np.float32))
    assert np.isnan(action).all() or environment.action_space.contains(action)


def test_export_takes_runs(monkeypatch, tmp_path, capsys):
    """An agent that somebody shipped with an older version may lack exports."""
    (tmp_path / shipped.CARD).write_text("{}")
    assert call(monkeypatch, export, tmp_path) == 2
    assert "was shipped without exports: export takes the folder of a run" in capsys.readouterr().err


@pytest.mark.parametrize("program", [evaluate_program, watch])
@pytest.mark.parametrize("flag", [("--weights", "last"), ("--device", "cpu")])
def test_flags_of_runs_are_refused_for_agents(program, flag, monkeypatch, capsys):
    assert call(monkeypatch, program, "cartpole", *flag) == 2
    assert f"cartpole comes with the project: leave out {flag[0]}" in capsys.readouterr().err


def test_a_stage_that_was_not_shipped_and_a_stage_of_a_run_are_refused(monkeypatch, tmp_path, capsys):
    copy = tmp_path / "cartpole"
    copy.mkdir()
    for name in ("config.json", shipped.CARD):
        (copy / name).write_bytes((shipped.AGENTS / "cartpole" / name).read_bytes())
    assert call(monkeypatch, watch, copy, "--stage", "half-way", "--film") == 2
    assert "holds no half-way.npz" in capsys.readouterr().err
    assert call(monkeypatch, watch, tmp_path, "--stage", "half-way", "--film") == 2
    assert "is a run: --stage is for agents" in capsys.readouterr().err
