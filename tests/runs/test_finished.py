"""What follows training belongs to a number of epochs, and each part of it is resumed by itself."""

import json
import shutil
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from run_program import call

import PPOAgentTrainer as main_program
from common.rollout import evaluation
from common.runs import after_training, checkpoint, finished, run_folder
from common.runs.options import RunOptions
from common.runs.terminal import Terminal
from ppo.config import PPOConfig
from programs import evaluate, methods

SETTINGS = (  # noqa: SIM905  (as it is typed)
    "pendulum --backend gymnasium --epochs 2 --num-envs 2 --steps-per-epoch 64 --minibatch-size 64 --passes 1 "
    "--hidden-sizes 4 --max-episode-steps 20"
).split()
TAIL = ["--evaluation-episodes", "2", "--record", "video", "--checkpoint-every", "1"]
RESULTS = [run_folder.BEST_AGENT, run_folder.EVALUATION, run_folder.VIDEO]
pytestmark = pytest.mark.usefixtures("eager_module")


def program(monkeypatch, *arguments) -> int:
    return call(monkeypatch, main_program, *arguments)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """A run of two epochs, with its score and its film."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert program(monkeypatch, *SETTINGS, *TAIL, "--runs-folder", folder, "--name", "run") == 0
    return folder / "run"


@pytest.fixture
def run(done, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(done, tmp_path / "run"))


def cut_at(monkeypatch, place, name):
    """From now on a function ends the process as a kill would, as far as the run is concerned."""

    def cut(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, name, cut)


def cut_after_epoch(monkeypatch, epoch):
    write = Terminal.row

    def cut(self, row):
        write(self, row)
        if row.epoch == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(Terminal, "row", cut)


def contents(folder: Path, names=RESULTS) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def test_a_run_that_has_everything_says_so_and_changes_nothing(monkeypatch, run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert program(monkeypatch, "--resume", run, *TAIL) == 2
    said = capsys.readouterr()
    assert "has all its 2 epochs, and nothing is left to do" in said.err
    assert said.out == ""  # at once: no environment repeats its actions
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("place", "name", "left"),
    [
        (evaluation, "evaluate_both", [run_folder.EVALUATION, run_folder.VIDEO]),
        (after_training, "film_episode", [run_folder.VIDEO]),
        (finished, "note", RESULTS),
    ],
)
def test_what_was_cut_off_after_training_is_done_by_itself(monkeypatch, done, tmp_path, capsys, place, name, left):
    with monkeypatch.context() as patch:
        cut_at(patch, place, name)
        assert program(patch, *SETTINGS, *TAIL, "--runs-folder", tmp_path, "--name", "run") == 130
    folder = tmp_path / "run"
    at_hand = contents(folder, [name for name in RESULTS if name not in left])
    capsys.readouterr()
    with monkeypatch.context() as patch:
        if run_folder.BEST_AGENT not in left:  # nothing is trained, no environment repeats its actions
            cut_at(patch, main_program.PPOAgentTrainer, "train")
            cut_at(patch, main_program.PPOAgentTrainer, "load_state")
        assert program(patch, "--resume", folder, *TAIL) == 0
    assert contents(folder, at_hand) == at_hand
    assert (folder / run_folder.VIDEO).stat().st_size > 0
    same = [run_folder.EVALUATION]
    assert contents(folder, same) == contents(done, same)
    with np.load(folder / run_folder.BEST_AGENT) as mine, np.load(done / run_folder.BEST_AGENT) as theirs:
        assert all(np.array_equal(mine[key], theirs[key]) for key in theirs.files)


def test_a_longer_run_does_not_take_over_what_the_shorter_one_ended_with(monkeypatch, run, capsys):
    shorter = contents(run)
    with monkeypatch.context() as patch:
        cut_after_epoch(patch, 3)
        assert program(patch, "--resume", run, "--epochs", 5, *TAIL) == 130
    assert f"earlier results are now in {run / 'after-2-epochs'}" in capsys.readouterr().out
    assert contents(run) == {}
    assert contents(run / "after-2-epochs") == shorter

    assert call(monkeypatch, evaluate, run, "--episodes", 1, "--no-video") == 2
    assert "--weights last" in capsys.readouterr().err
    assert call(monkeypatch, evaluate, run, "--episodes", 1, "--no-video", "--weights", "last") == 0
    score = (run / run_folder.EVALUATION).read_bytes()

    assert program(monkeypatch, "--resume", run, *TAIL) == 0  # without --epochs: the longer number
    assert run_folder.read_results(run)["epoch"].tolist() == [1, 2, 3, 4, 5]
    assert len(contents(run)) == 3 and contents(run)[run_folder.EVALUATION] != score
    assert contents(run / "after-2-epochs") == shorter
    assert program(monkeypatch, "--resume", run, *TAIL) == 2


def test_scores_and_film_of_another_agent_do_not_pass_for_the_best_ones(monkeypatch, run):
    assert call(monkeypatch, evaluate, run, "--episodes", 1, "--weights", "last") == 0
    assert finished.missing(run, 2, RunOptions()) == [finished.EVALUATE, finished.FILM]
    assert call(monkeypatch, evaluate, run, "--episodes", 1) == 0
    assert finished.missing(run, 2, RunOptions()) == []


def test_a_run_that_is_extended_again_before_it_wrote_a_checkpoint(monkeypatch, run):
    shorter = contents(run)
    with monkeypatch.context() as patch:
        cut_at(patch, Terminal, "row")
        assert program(patch, "--resume", run, "--epochs", 4, *TAIL) == 130
    assert program(monkeypatch, "--resume", run, "--epochs", 3, *TAIL) == 0
    assert contents(run / "after-2-epochs") == shorter
    assert methods.read_config(run)[1].epochs == 3
    assert finished.missing(run, 3, RunOptions()) == []


def test_moving_aside_that_was_cut_off_is_continued(run):
    shorter = contents(run)
    (run / "after-2-epochs").mkdir()
    (run / run_folder.BEST_AGENT).rename(run / "after-2-epochs" / run_folder.BEST_AGENT)
    assert finished.set_aside(run, 2) == run / "after-2-epochs"
    assert contents(run / "after-2-epochs") == shorter and contents(run) == {}
    assert finished.set_aside(run, 2) is None


def test_what_was_not_noted_is_not_taken_for_the_longer_run(monkeypatch, run):
    (run / finished.FILE).unlink()
    shorter = contents(run)
    with monkeypatch.context() as patch:
        cut_after_epoch(patch, 3)
        assert program(patch, "--resume", run, "--epochs", 4, *TAIL) == 130
    assert contents(run) == {} and contents(run / "after-2-epochs") == shorter


def test_a_resumed_run_keeps_the_options_that_were_typed_unless_others_are(monkeypatch, run):
    assert program(monkeypatch, "--resume", run, "--epochs", 3, "--keep-checkpoints", 1) == 0
    scores = json.loads((run / run_folder.EVALUATION).read_text())
    assert scores["sampled"]["episodes"] == 2 and (run / run_folder.VIDEO).exists()
    assert not (run / run_folder.TENSORBOARD).exists()
    assert checkpoint.generations(run / run_folder.CHECKPOINTS) == [3]
    assert run_folder.read_options(run, {"ppo": PPOConfig}).keep_checkpoints == 1


def test_fewer_epochs_than_there_are_is_refused(monkeypatch, run, capsys):
    assert program(monkeypatch, "--resume", run, "--epochs", 1, *TAIL) == 2
    assert "has 2 epochs already" in capsys.readouterr().err
    assert methods.read_config(run)[1].epochs == 2


def test_what_changes_nothing_that_is_learned_may_be_changed(monkeypatch, run, capsys):
    assert program(monkeypatch, "--resume", run, *TAIL, "--epochs", 3, "--gamma", "0.5") == 2
    assert "gamma 0.5 would make" in capsys.readouterr().err
    changes = ["--environment-restarts", 9]
    changes += ["--on-not-finite", "skip", "--device", "cpu"]
    first = json.loads((run / run_folder.CONFIG).read_text())
    assert program(monkeypatch, "--resume", run, *TAIL, "--epochs", 3, "--environment-time-limit", 5) == 2
    refused = "environment_time_limit 5.0 has no effect with backend gymnasium: leave --environment-time-limit out"
    assert refused in capsys.readouterr().err
    assert program(monkeypatch, "--resume", run, *TAIL, "--epochs", 3, *changes) == 0
    config = methods.read_config(run)[1]
    assert (config.environment_restarts, config.on_not_finite, config.device) == (9, "skip", "cpu")
    written = json.loads((run / run_folder.CONFIG).read_text())
    assert [written[key] for key in ("started", "versions")] == [first[key] for key in ("started", "versions")]
    [entry] = written["resumed"]
    assert entry["after_epoch"] == 2 and entry["versions"] == first["versions"] and entry["started"]
    assert entry["changed"] == {
        "epochs": [2, 3],
        "environment_restarts": [3, 9],
        "on_not_finite": ["stop", "skip"],
        "device": ["auto", "cpu"],
    }
    assert program(monkeypatch, "--resume", run, *TAIL, "--epochs", 4) == 0
    assert len(json.loads((run / run_folder.CONFIG).read_text())["resumed"]) == 2


@pytest.mark.parametrize("damage", ["missing", "cut short", "a setting that is none"])
def test_checkpoints_hold_the_configuration(monkeypatch, run, capsys, damage):
    path = run / run_folder.CONFIG
    before = json.loads(path.read_text())
    if damage == "missing":
        path.unlink()
    else:
        text = path.read_text()
        path.write_text(
            {
                "cut short": text[: len(text) // 2],
                "a setting that is none": text.replace('"gamma"', '"gamna"'),
            }[damage]
        )
    assert methods.read_config(run) == (before["preset"], PPOConfig(**before["config"]))
    assert program(monkeypatch, "--resume", run, *TAIL, "--epochs", 3) == 0
    assert "is written again from a checkpoint" in capsys.readouterr().out
    after = json.loads(path.read_text())
    assert after["started"] == before["started"] and after["config"] == before["config"] | {"epochs": 3}


def test_a_config_that_is_not_the_checkpoints_is_told(monkeypatch, run, capsys):
    path = run / run_folder.CONFIG
    path.write_text(path.read_text().replace('"gamma": 0.9,', '"gamma": 0.5,'))
    assert program(monkeypatch, "--resume", run, *TAIL, "--epochs", 3) == 2
    assert "says gamma 0.5, the run's checkpoint 0.9" in capsys.readouterr().err
    path.unlink()  # as the line says
    assert program(monkeypatch, "--resume", run, *TAIL, "--epochs", 3) == 0


def test_a_film_that_broke_off_does_not_stand_beside_the_run(monkeypatch, tmp_path):
    def killed(path, **_):
        Path(path).write_bytes(b"half a film")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(imageio, "get_writer", killed)
        assert program(patch, *SETTINGS, *TAIL, "--runs-folder", tmp_path, "--name", "run") == 130
    assert not [path for path in (tmp_path / "run").iterdir() if "video" in path.name]
    assert finished.missing(tmp_path / "run", 2, RunOptions()) == [finished.FILM]
