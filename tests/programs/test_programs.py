"""python -m programs COMMAND: every command on a run of PPO, TD3 and SAC, and one line for every mistake."""

import contextlib
import json
import os
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from run_program import call

from common.config import MAY_CHANGE
from common.errors import UserError
from common.figures.study_figure import ReferenceScore, compare
from common.results import TIMING_COLUMNS
from common.runs import run_folder, trust
from common.runs.options import RunOptions
from common.settings import described
from ppo.config import PPOConfig
from programs import __main__ as programs
from programs import study
from programs.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
QUIET = ("--record", "--evaluation-episodes", "0")
TRAIN = {
    "ppo": (
        "pendulum", "--backend", "gymnasium", "--num-envs", "2", "--epochs", "2", "--steps-per-epoch", "64",
        "--passes", "1", "--minibatch-size", "64", "--max-episode-steps", "20", "--hidden-sizes", "8",
        "--best-metric", "mean_episode_reward", "--score-window", "1", "--anneal",
    ),
    "td3": (
        "pendulum-td3-fast", "--epochs", "3", "--steps-per-epoch", "40", "--warmup-steps", "40", "--num-envs", "2",
        "--batch-size", "8", "--replay-size", "200", "--train-every", "20", "--updates-per-train", "2",
        "--max-episode-steps", "20", "--hidden-sizes", "8", "--best-metric", "mean_episode_reward",
        "--score-window", "1",
    ),
}  # fmt: skip
TRAIN["sac"] = ("pendulum-sac", *TRAIN["td3"][1:])
EPOCHS = {"ppo": 2, "td3": 3, "sac": 3}
pytestmark = pytest.mark.usefixtures("eager_module")


def typed(monkeypatch, command, *arguments):
    """The exit code of `python -m programs COMMAND ...`."""
    return call(monkeypatch, programs, command, *arguments)


def refused(monkeypatch, capsys, command, *arguments):
    """The one line by which wrong arguments are refused."""
    assert typed(monkeypatch, command, *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error


def learned(run):
    return {name: list(column) for name, column in run_folder.read_results(run).items() if name not in TIMING_COLUMNS}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One trained run of each method; tests that change a run copy it or write elsewhere."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name, settings in TRAIN.items():
            assert typed(patch, "train", *settings, *QUIET, "--runs-folder", folder, "--name", name) == 0
    return folder


@pytest.fixture(params=list(TRAIN))
def run(request, trained):
    """A trained run of each method in turn."""
    return trained / request.param


def test_train_finds_the_method_by_its_preset(run):
    method = json.loads((run / run_folder.CONFIG).read_text())["method"]
    assert method == {"ppo": "ppo", "td3": "off-policy", "sac": "sac"}[run.name]
    assert list(run_folder.read_results(run)["epoch"]) == list(range(1, EPOCHS[run.name] + 1))


@pytest.mark.parametrize(
    ("method", "form"),
    [("ppo", "resume RUN"), ("sac", "resume RUN"), ("td3", "train --resume RUN")],
)
def test_a_resumed_run_equals_one_that_was_longer_from_the_start(method, form, monkeypatch, tmp_path):
    more = EPOCHS[method] + 1
    settings = [*TRAIN[method], "--epochs", more, *QUIET, "--runs-folder", tmp_path]
    assert typed(monkeypatch, "train", *settings, "--name", "whole") == 0
    shorter = [*TRAIN[method], *QUIET, "--runs-folder", tmp_path, "--name", "cut"]
    assert typed(monkeypatch, "train", *shorter) == 0
    command, *flag = form.replace("RUN", str(tmp_path / "cut")).split()
    assert typed(monkeypatch, command, *flag, "--epochs", more, *QUIET) == 0
    cut, whole = learned(tmp_path / "cut"), learned(tmp_path / "whole")
    assert len(cut["epoch"]) == more
    assert str(cut) == str(whole)  # texts, since NaN is not equal to itself


def test_evaluate_writes_scores_of_every_method(run, monkeypatch, tmp_path, capsys):
    scores = tmp_path / "scores.json"
    assert typed(monkeypatch, "evaluate", run, "--episodes", 2, "--no-video", "--output", scores) == 0
    found = json.loads(scores.read_text())
    assert {kind: summary["episodes"] for kind, summary in found.items()} == {"deterministic": 2, "sampled": 2}
    assert f"{found['deterministic']['mean']:.1f}" in capsys.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes with names of files")
def test_scores_replace_no_link_and_no_pipe(run, monkeypatch, tmp_path, capsys):
    link, pipe = tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(tmp_path / "target")
    os.mkfifo(pipe)
    for path in (link, pipe):
        assert typed(monkeypatch, "evaluate", run, "--no-video", "--output", path) == 2
        said = capsys.readouterr()
        assert "is a link, a device or a pipe" in said.err and not said.out  # nothing was played
    assert link.is_symlink() and pipe.is_fifo()


def test_evaluate_of_no_episodes_makes_a_film_and_no_scores(trained, monkeypatch, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained / "ppo", run, ignore=shutil.ignore_patterns("video*", run_folder.EVALUATION))
    assert typed(monkeypatch, "evaluate", run, "--episodes", 0, "--gif") == 0
    assert (run / "video.gif").stat().st_size > 1000
    assert not (run / run_folder.EVALUATION).exists()
    assert "filmed an episode" in capsys.readouterr().out


def test_watch_films_the_first_episode_that_evaluate_plays(run, monkeypatch, tmp_path, capsys):
    scores = tmp_path / "scores.json"
    assert typed(monkeypatch, "evaluate", run, "--episodes", 1, "--no-video", "--output", scores) == 0
    assert typed(monkeypatch, "watch", run, "--folder", tmp_path, "--gif") == 0
    assert (tmp_path / "video.gif").stat().st_size > 1000
    score = json.loads(scores.read_text())["deterministic"]["returns"][0]
    assert f"filmed an episode of {score:.1f}" in capsys.readouterr().out


def test_watch_by_another_seed_films_another_episode(trained, monkeypatch, tmp_path, capsys):
    for seed in (1, 2):
        assert typed(monkeypatch, "watch", trained / "td3", "--folder", tmp_path, "--gif", "--seed", seed) == 0
    first, second = (line.split(":")[0] for line in capsys.readouterr().out.splitlines())
    assert first != second


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_plot_draws_runs_of_all_methods(trained, monkeypatch, tmp_path, suffix):
    picture = tmp_path / "pictures" / f"all.{suffix}"  # a folder that is not there is made
    assert typed(monkeypatch, "plot", *(trained / name for name in TRAIN), "--output", picture) == 0
    assert picture.stat().st_size > 1000


def test_study_trains_what_is_missing_and_summarises_it(monkeypatch, tmp_path, capsys, processes_without_xla):
    arms = {"short": shlex.join((*TRAIN["ppo"], "--evaluation-episodes", "2"))}
    small = study.Study(1, arms, ["avg_reward_orig"], low=0)
    monkeypatch.setitem(study.STUDIES, "pendulum", small)
    monkeypatch.chdir(tmp_path)
    assert typed(monkeypatch, "study", "pendulum", "--into", tmp_path) == 0
    assert "pendulum: short, seed 0" in capsys.readouterr().out
    assert "| short | 1 |" in (tmp_path / "pendulum" / "summary.md").read_text()
    command = json.loads((tmp_path / "pendulum" / "short-seed0" / "config.json").read_text())["command"]
    assert str(tmp_path) not in str(command)  # so that it works in another clone
    assert typed(monkeypatch, "study", "pendulum", "--into", tmp_path) == 0  # the run is there
    assert "pendulum: short, seed 0" not in capsys.readouterr().out


def test_a_studys_title_says_its_finding_once_every_setting_has_a_run(trained, monkeypatch, tmp_path):
    levels = (ReferenceScore(5.0, "solved"),)
    arms = {"one": "", "other": ""}
    finding = "{0.median:.1f} {0.lowest:.0f} {0.highest:.0f} {0.sampled:.0f} {1.seeds}"
    small = study.Study(3, arms, ["avg_reward_orig"], low=0, finding=finding, levels=levels)
    monkeypatch.setitem(study.STUDIES, "pendulum", small)
    titles, scored, tables = [], [], []
    monkeypatch.setattr(study, "compare", lambda *given: titles.append(given[0]) or compare(*given))
    for arm in arms:
        for seed in small.all_seeds:
            folder = study.folder_of("pendulum", arm, seed, tmp_path)
            folder.mkdir(parents=True)
            (folder / run_folder.RESULTS).write_bytes((trained / "ppo" / run_folder.RESULTS).read_bytes())
            scores = {
                kind: {"mean": mean + seed, "low": 0.0125, "high": 2.0, "returns": [1.0]}
                for kind, mean in (("deterministic", 1.5), ("sampled", -9.0))
            }
            (folder / run_folder.EVALUATION).write_text(json.dumps(scores | {"step_limits": {"200": scores}}))
        study.summarise("pendulum", tmp_path)
        _, runs, training = (tmp_path / "pendulum" / "summary.md").read_text("utf-8").split("\n\n")
        scored.append(runs)
        tables.append(training)
    assert titles == ["", "", "2.5 2 4 -8 3", "2.5 2 4 -8 3"]  # a light and a dark figure each
    curves = run_folder.read_results(trained / "ppo")
    minutes = f"{sum(curves['seconds']) / 60:.1f}"
    assert [line.split(" | ")[-1].rstrip(" |") for line in scored[1].splitlines()[2:]] == [minutes] * 6
    rewards = curves["avg_reward_orig"]
    mean = np.nanmean(rewards[-20:])
    row = f"| one | 1 | 2.5 | −8.0 | {mean:.1f} |".replace("-", "−")
    assert "2.5 [0.0125, 2.0]" in scored[1]
    assert tables[1].splitlines()[3] == row and len(tables[1].splitlines()) == 8
    light, dark = (imageio.imread(tmp_path / "pendulum" / name) for name in ("summary.png", "summary-dark.png"))
    assert light.shape == dark.shape and light.mean() > 200 > 60 > dark[..., :3].mean()


def test_a_finding_counts_the_seeds_that_reach_the_milestone(trained):
    curve = run_folder.read_results(trained / "ppo")
    steps = curve["steps"]
    milestone = study.Milestone("steps", steps[-1], "epoch", "the end")
    late = study.Milestone("steps", 2 * steps[-1], "epoch")
    assert (milestone.row(curve), late.row(curve)) == (len(steps) - 1, None)
    arm = study.ArmScores([curve] * 3, [1.0] * 3, [0.0] * 3, reached=[0, None, 2])
    assert "{0.reached_by} of {0.seeds}".format(study.summary_of(arm, milestone)) == "2 of 3"


def test_a_study_of_tasks_counts_the_seeds_that_solve_theirs(trained):
    curve = run_folder.read_results(trained / "ppo")
    arms = {
        "CartPole-v1": study.ArmScores([curve] * 2, [475.0, 474.9], [0.0, 0.0]),  # solved at 475
        "Pendulum-v1": study.ArmScores([curve], [-150.0], [0.0]),  # no score counts as solved
    }
    one = study.Study(2, dict.fromkeys(arms, ""), [], low=0, finding="{tasks} {reached} {scored}")
    assert study.figure_of(one, arms).get_suptitle() == "2 1 2"


# -- help --


def test_without_a_command_all_are_listed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["programs"])
    programs.main()
    overview = capsys.readouterr().out
    assert all(f"\n  {name} " in overview for name in programs.COMMANDS)


@pytest.mark.parametrize("command", programs.COMMANDS)
def test_every_command_has_a_help(command, monkeypatch, capsys):
    assert typed(monkeypatch, command, "--help") == 0
    shown = capsys.readouterr().out
    assert f"usage: python -m programs {command}" in shown
    assert "  " not in shown.split("usage: ")[1].split("\n\n")[1]  # what it does, one text of whole lines
    monkeypatch.delitem(sys.modules, f"programs.{command}", raising=False)
    with contextlib.suppress(SystemExit):  # python -m programs.command
        runpy.run_module(f"programs.{command}", run_name="__main__")
    assert f"usage: python -m programs {command}" in capsys.readouterr().out


def test_the_help_of_train_lists_the_presets_of_every_method(monkeypatch, capsys):
    assert typed(monkeypatch, "train", "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    for method in METHODS.values():
        assert ", ".join(method.presets) in " ".join(lines)
    assert len(lines) <= 40 and max(map(len, lines)) <= 100


@pytest.mark.parametrize("preset", [name for method in METHODS.values() for name in method.presets])
def test_the_help_of_a_preset_is_one_screen(preset, monkeypatch, capsys):
    assert typed(monkeypatch, "train", preset, "--help") == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 40 and max(map(len, out.splitlines())) <= 100
    config = next(method.presets[preset] for method in METHODS.values() if preset in method.presets)
    settings = [*described(type(config)).values(), *described(RunOptions).values()]
    shown = {line.split()[0] for line in out.splitlines() if line.startswith("  --")}
    assert shown == {f"--{setting.name.replace('_', '-')}" for setting in settings if setting.main}
    assert f"  --env {config.env} " in out and f"--help-all explains all {len(settings)} settings" in out
    assert f"with the values of {preset}:" in out


def test_the_help_of_a_run_shows_what_may_be_changed(monkeypatch, capsys):
    assert typed(monkeypatch, "resume", str(ROOT / "tests" / "data" / "run"), "--help") == 0
    out = capsys.readouterr().out
    shown = {line.split()[0][2:].replace("-", "_") for line in out.splitlines() if line.startswith("  --")}
    assert shown == set(MAY_CHANGE) and "PRESET" not in out


def test_no_two_methods_have_a_preset_of_one_name():
    names = [name for method in METHODS.values() for name in method.presets]
    assert len(names) == len(set(names)) > 20


# -- mistakes --


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("evalute runs/A", "did you mean evaluate?"),
        ("xyz", "expected one of train, resume"),
        ("train bipdal-walker", "did you mean bipedal-walker"),
        ("train xyzzy", "python -m programs train --help lists all presets"),
        ("train --gama 1", "did you mean --gamma?"),
        ("train --resume runs/none", "holds no run"),
        ("resume", "type python -m programs resume runs/NAME"),
        ("resume --epochs 3 runs/none", "type python -m programs resume runs/NAME, and settings after it"),
        ("resume runs/none", "holds no run"),
        ("resume runs/none --resume runs/other", "--resume is not needed here"),
        ("evaluate", "type python -m programs evaluate runs/NAME"),
        ("evaluate runs/none", "holds no run"),
        ("evaluate walker --episodes 0", "0 episodes leave nothing to do but a film: give --episodes 1"),
        ("evaluate walker --gif", "--gif has no effect for an agent that comes with its film"),
        ("watch", "type python -m programs watch runs/NAME"),
        ("watch runs/none --folder nowhere", "nowhere is not a folder"),
        ("dashboard", "type python -m programs dashboard runs/NAME"),
        ("dashboard runs/none", "holds no run"),
        ("plot", "type python -m programs plot runs/NAME"),
        ("plot runs/none", "holds no run"),
        ("plot runs/none --output overlay.txt", "end it in .png, .svg or .pdf"),
        ("export", "type python -m programs export runs/NAME"),
        ("export runs/none", "holds no run"),
        ("study", "type python -m programs study walker"),
        ("study walkr", "study is 'walkr': expected one of walker, "),
    ],
)
def test_a_mistake_is_one_line_with_advice(line, advice, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    command, *arguments = shlex.split(line)
    assert advice in refused(monkeypatch, capsys, command, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("evaluate RUN --episodes -1", "episodes is -1: expected 0 or more"),
        ("evaluate RUN --episodes 0 --no-video", "0 episodes leave nothing to do but a film"),
        ("evaluate RUN --episodes 0 --output scores.json", "output scores.json has no effect with episodes 0"),
        ("watch RUN --max-episode-steps 0", "max_episode_steps is 0: expected 1 or more"),
        ("evaluate RUN --max-episode-steps 5 0", "max_episode_steps is (5, 0): expected 1 or more"),
        ("watch RUN --seed -1", "seed is -1: expected 0 or more"),
        ("export RUN --max-episode-steps 0", "max_episode_steps is 0: expected 1 or more"),
        ("export RUN --seed -1", "seed is -1: expected 0 or more"),
        ("export RUN --episodes -1", "episodes is -1: expected 0 or more"),
        ("evaluate RUN --weights worst", "worst"),
        ("resume RUN", "python -m programs evaluate RUN"),  # it is finished
        ("resume RUN --gamma 0.5", "gamma 0.5 would make RUN a different run"),
        ("plot RUN RUN --kind time", "--kind time draws one"),
        ("plot RUN --kind seeds --columns", "no columns given"),
        ("plot RUN --columns score", "has no effect with kind five: add --kind seeds, or leave --columns out"),
        (
            "plot RUN --kind time --band interquartile",
            "has no effect with kind time: add --kind seeds, or",
        ),
        (
            "plot RUN --env Pendulum-v1",
            "has no effect with kind five: add --kind policy, or leave --env out",
        ),
        ("evaluate RUN --gif --no-video", "gif True has no effect with video False: add --video, or leave --gif out"),
        ("export RUN --seed 5", "seed 5 has no effect with episodes 0: add --episodes 100, or leave --seed out"),
        ("export RUN --max-episode-steps 5", "max_episode_steps 5 has no effect with episodes 0"),
        ("evaluate RUN --env CartPole-v1", "RUN was trained on Pendulum-v1, and plays on it alone: leave out --env"),
        ('watch RUN --env-kwargs {"g":1}', "the environment of RUN has no env_kwargs: leave --env-kwargs out"),
    ],
)
def test_a_wrong_setting_is_refused_for_every_method(line, complaint, run, monkeypatch, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    command, *arguments = line.replace("RUN", str(run)).split()
    quiet = QUIET if command == "resume" else ()
    assert complaint.replace("RUN", str(run)) in refused(monkeypatch, capsys, command, *arguments, *quiet)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize(
    ("known", "again", "accepted"),
    [
        ("Pendulum-v1", "Pendulum-v1", True),
        ("Pendulum-v1", "Pendulum", True),
        ("Pong", "ALE/Pong-v5", True),
        ("ALE/Pong-v5", "Pong", True),
        ("Pendulum-v1", "Pendulum-v0", False),
        ("Pendulum-v1", "CartPole", False),
    ],
)
def test_an_environment_that_is_typed_again_is_that_of_the_run(known, again, accepted):
    refused = contextlib.nullcontext() if accepted else pytest.raises(UserError, match="plays on it alone")
    with refused:
        trust.check_no_other_environment(Path("run"), PPOConfig(env=known), trust.Typed(again))
    trust.check_no_other_environment(Path("run"), PPOConfig(env_kwargs={"g": 1.0}), trust.Typed(None, '{"g": 1}'))
    with pytest.raises(UserError, match="leave --env-kwargs out, or type these"):
        trust.check_no_other_environment(Path("run"), PPOConfig(env_kwargs={"g": 1.0}), trust.Typed(None, "{"))
    with pytest.raises(UserError, match=r"^run has no networks: leave --networks out$"):
        trust.check_no_other_environment(Path("run"), PPOConfig(), trust.Typed(networks="mine:make_networks"))


def test_a_run_without_a_best_agent_says_the_command_that_finishes_it(trained, monkeypatch, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    for name in (run_folder.CONFIG, run_folder.WEIGHTS):
        (run / name).write_bytes((trained / "ppo" / name).read_bytes())
    advice = refused(monkeypatch, capsys, "evaluate", run)
    assert f"python -m programs resume {run}" in advice and "--weights last" in advice
    assert typed(monkeypatch, "evaluate", run, "--weights", "last", "--episodes", 1, "--no-video") == 0
