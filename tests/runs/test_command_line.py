"""The programs as they are typed: what a run leaves behind, and one line for every mistake."""

import csv
import errno
import importlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import imageio.v2 as imageio
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from common.errors import StoppedError, UserError
from common.results import columns_of
from common.runs import run_folder, trust
from common.runs.command_line import one_line_errors, parse, typed_environment
from ppo.config import PPOConfig
from ppo.presets import PRESETS, preset_for
from ppo.results import PPOResult
from PPOAgentTrainer import PPOAgentTrainer
from programs import methods

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "--backend", "gymnasium", "--num-envs", "2", "--epochs", "2", "--steps-per-epoch", "64", "--passes", "1",
    "--minibatch-size", "64", "--max-episode-steps", "20", "--hidden-sizes", "8",
]  # fmt: skip
QUIET = ["--record", "--evaluation-episodes", "0"]


def typed(*arguments, **environment):
    """Runs a program of the repository in a process of its own."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, **environment}, check=False,
    )  # fmt: skip


def one_error_line(code, error):
    """The one line, without its "error: "."""
    assert code == 2
    assert error.startswith("error: ") and error.endswith("\n") and error.count("\n") == 1, error
    assert "Traceback" not in error and "│" not in error
    return error.removeprefix("error: ").strip()


@pytest.fixture
def program(monkeypatch, capfd, eager):
    """Calls a program's main() in this process: exit code, stdout, stderr."""

    def call(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            importlib.import_module(module).main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


# -- mistakes --

MISTAKES = {
    "unknown preset": (["bipedal-waker"], ["bipedal-waker", "bipedal-walker"]),
    "unknown version": (["--env", "Pendulum-v99"], ["Pendulum-v99", "Pendulum-v1"]),
    "no environment id": (["--env", ""], ["environment"]),
    "actions without a policy": (["--env", "tests/Texts-v0"], ["tests/Texts-v0", "actions", "Text", "Box"]),
    "observations without a network": (["--env", "tests/Sequences-v0"], ["observations", "Sequence", "Box"]),
    "minibatch larger than trajectory": (
        ["pendulum", "--minibatch-size", "5000"], ["minibatch_size 5000", "--minibatch-size 4096"],
    ),
    "restarts within an epoch": (
        ["pendulum", "--updates-per-epoch", "2", "--quirks", "restart_at_epoch_end"],
        ["updates_per_epoch 2", "restart_at_epoch_end", "--updates-per-epoch 1"],
    ),
    "trajectory not divisible": (
        ["pendulum", "--num-envs", "3"], ["4096", "not divisible", "num_envs 3", "--steps-per-epoch 4095"],
    ),
    "NaN": (["pendulum", "--gamma", "nan"], ["gamma is nan", "0 to 1"]),
    "no horizon": (["pendulum", "--gamma", "1", "--final-gamma", "0.9"], ["final_gamma 0.9", "below 1"]),
    "infinity": (["pendulum", "--learning-rate", "inf"], ["learning_rate is inf"]),
    "negative seed": (["pendulum", "--seed", "-1"], ["seed is -1"]),
    "empty layer": (["pendulum", "--hidden-sizes", "8", "0"], ["hidden_sizes"]),
    "misspelt setting": (["pendulum", "--gama", "0.9"], ["--gama", "did you mean --gamma?"]),
    "wrong type": (
        ["pendulum", "--epochs", "many"], ["--epochs is 'many': expected a whole number, such as --epochs 60"],
    ),
    "wrong types": (
        ["pendulum", "--hidden-sizes", "8", "x"], ["is 8 x: expected whole numbers, such as --hidden-sizes 64 64;"],
    ),
    "wrong type that may be None": (["pendulum", "--max-kl", "x"], ["--max-kl is 'x': expected a number or None;"]),
    "wrong choice": (
        ["pendulum", "--activation", "wide"], ["--activation is 'wide': expected one of tanh, relu"],
    ),
    "no value": (["pendulum", "--epochs"], ["--epochs has no value: type one after it"]),
    "a value that is not wanted": (["pendulum", "--adopt-best=3"], ["--adopt-best takes no value"]),
    "a negative number with an exponent": (["pendulum", "--gamma", "-1e-5"], ["gamma is -1e-05", "0 to 1"]),
    "one word too many": (["pendulum", "walker"], ["walker is not a setting: expected --setting value"]),
    "a preset with a flag": (["--preset", "pendulum"], ["--preset is not a setting: use the preset's name without a"]),
    "unlike any setting": (["pendulum", "--xyzzy", "1"], ["--xyzzy is not a setting; --help-all shows every setting"]),
    "images and workers": (
        ["--env", "tests/Dot-v0", "--workers", "2", "--convolutions", "4x3/2"],
        ["shows images", "leave --workers out"],
    ),
    "images among numbers and workers": (
        ["--env", "tests/DotAndSign-v0", "--workers", "2", "--convolutions", "4x3/2"],
        ["tests/DotAndSign-v0 shows images", "leave --workers out"],
    ),
    "negative evaluation": (["pendulum", "--evaluation-episodes", "-1"], ["evaluation_episodes is -1"]),
    "no folder name": (["pendulum", "--name", "a/b"], ["a/b"]),
    "EnvPool without the environment": (["--env", "tests/Target-v0", "--backend", "envpool"], ["EnvPool"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(program, tmp_path, monkeypatch, mistake):
    def train(*_, **__):
        raise AssertionError("taken for right")

    monkeypatch.setattr(PPOAgentTrainer, "train", train)
    arguments, words = MISTAKES[mistake]
    code, out, error = program("PPOAgentTrainer", *arguments, "--runs-folder", tmp_path / "runs")
    line = one_error_line(code, error)
    for word in words:
        assert word in line
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_a_taken_name_stays_as_it_is(program, tmp_path):
    taken = tmp_path / "mine"
    taken.mkdir()
    (taken / "results.csv").write_text("precious")
    code, _, error = program("PPOAgentTrainer", "pendulum", *SMALL, "--name", "mine", "--runs-folder", tmp_path)
    assert "mine" in one_error_line(code, error)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
    assert [(p.name, p.read_text()) for p in taken.iterdir()] == [("results.csv", "precious")]


def test_default_names_do_not_collide(program, tmp_path):
    for _ in range(3):
        code, _, _ = program("PPOAgentTrainer", "pendulum", *SMALL, *QUIET, "--epochs", "1", "--runs-folder", tmp_path)
        assert code == 0
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["pendulum-seed0", "pendulum-seed0-2", "pendulum-seed0-3"]


@pytest.mark.parametrize("below", ["", "deeper/runs"])
def test_a_runs_folder_that_cannot_be_made(program, tmp_path, below):
    file = tmp_path / "file"
    file.write_text("no folder")
    for name in ([], ["--name", "mine"]):
        code, _, error = program("PPOAgentTrainer", "pendulum", *SMALL, *name, "--runs-folder", file / below)
        assert str(file) in one_error_line(code, error)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "no folder"


def test_envpool_missing(program, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)  # importing it raises ImportError
    arguments = ["pendulum", *SMALL, *QUIET, "--epochs", "1", "--runs-folder", tmp_path]
    code, _, error = program("PPOAgentTrainer", *arguments, "--backend", "envpool")
    line = one_error_line(code, error)
    assert "EnvPool is not installed" in line and "requirements/fast.txt" in line
    assert (ROOT / "requirements" / "fast.txt").exists()
    assert not list(tmp_path.iterdir())

    code, _, _ = program("PPOAgentTrainer", *arguments, "--backend", "auto")  # auto does without
    assert code == 0
    [folder] = tmp_path.iterdir()
    assert methods.read_config(folder)[1].backend == "gymnasium"


@pytest.mark.parametrize(
    ("env", "steps_per_epoch", "left"),
    [("tests/Faulty-v0", "16", True), ("tests/Faulty-v0", "64", False), ("tests/Raising-v0", "64", False)],
)
def test_a_run_that_fails_in_its_first_epoch_leaves_nothing(program, tmp_path, env, steps_per_epoch, left):
    """Both environments fail in step 40 or 20. After an epoch of 16 steps, each has made 24."""
    arguments = ["--env", env, *SMALL, *QUIET, "--runs-folder", tmp_path, "--max-episode-steps", "1000"]
    arguments += f"--environment-restarts 0 --steps-per-epoch {steps_per_epoch} --minibatch-size 16 --epochs 4".split()
    code, _, error = program("PPOAgentTrainer", *arguments)
    one_error_line(code, error)
    assert [(folder / run_folder.RESULTS).exists() for folder in tmp_path.iterdir()] == [True] * left


def test_an_environment_that_cannot_be_filmed_is_trained_all_the_same(program, tmp_path):
    arguments = ["--env", "tests/Target-v0", *SMALL, "--evaluation-episodes", "2", "--runs-folder", tmp_path]
    code, out, error = program("PPOAgentTrainer", *arguments)
    [folder] = tmp_path.iterdir()
    assert (folder / run_folder.EVALUATION).exists() and (folder / run_folder.BEST_AGENT).exists()
    assert (code, error) == (0, "")
    assert "not filmed: tests/Target-v0 draws no pictures" in out.splitlines()[-1]


def test_an_environment_alone_starts_from_the_defaults_of_python(program, tmp_path):
    for env in (["--env", "Pendulum-v1"], ["--env=Pendulum-v1"]):
        preset, config, _ = parse(env, "program", PRESETS, "bipedal-walker", preset_for)
        assert (preset, config) == ("default", PPOConfig(env="Pendulum-v1"))
    program("PPOAgentTrainer", "--env", "Pendulum-v1", *SMALL, *QUIET, "--runs-folder", tmp_path)
    assert json.loads((tmp_path / "default-seed0" / run_folder.CONFIG).read_text())["preset"] == "default"


# -- the whole way --


@pytest.fixture(scope="module")
def walker(tmp_path_factory):
    """A walker trained in a process of its own for two tiny epochs: its folder and what was printed."""
    runs = tmp_path_factory.mktemp("runs")
    ended = typed(
        "PPOAgentTrainer.py", *SMALL, "--max-episode-steps", "30", "--evaluation-episodes", "2",
        "--runs-folder", str(runs),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    [folder] = runs.iterdir()
    return folder, ended.stdout


@pytest.mark.parametrize("fault", [PermissionError(errno.EPERM, "Operation not permitted"), OSError(errno.EIO, "I/O")])
def test_faults_that_concern_no_file_are_not_taken_for_its_users(fault):
    with pytest.raises(OSError, match=fault.strerror), one_line_errors():
        raise fault


def tensorboard_shows(folder):
    """Its scalars' tags, and the last picture of every other tag."""
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    shown = {"scalars": set()}
    for tag in accumulator.Tags()["tensors"]:
        content = tf.make_ndarray(accumulator.Tensors(tag)[-1].tensor_proto)
        if accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "images":
            width, height, shown[tag] = content
            assert imageio.imread(shown[tag]).shape[:2] == (int(height), int(width))
        else:
            shown["scalars"].add(tag)
    return shown


def test_a_run_leaves_its_traces(walker):
    folder, printed = walker
    assert folder.name == "bipedal-walker-fast-seed0"
    names = {p.name for p in folder.iterdir()}
    assert names >= {
        "config.json", "results.csv", "tensorboard", "figure.png", "weights.npz", "best_agent.npz",
        "evaluation.json", "video.mp4",
    }  # fmt: skip
    written = json.loads((folder / "config.json").read_text())
    assert written["preset"] == "bipedal-walker-fast"
    assert written["config"]["env"] == "BipedalWalker-v3" and written["config"]["max_episode_steps"] == 30
    assert written["versions"]["tensorflow"][0].isdigit()
    assert methods.read_config(folder)[1].steps_per_epoch == 64
    with open(folder / "results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert list(rows[0]) == columns_of(PPOResult)
    shown = tensorboard_shows(folder / "tensorboard")
    assert shown["scalars"] >= {"reward/avg_reward", "losses/loss_critic", "hp/clip_range", "final/deterministic"}
    assert shown["figure"].startswith(b"\x89PNG") and shown["film"].startswith(b"GIF8")
    # No curve's name: only the table of hyperparameters has it.
    assert any(b"reward_design" in events.read_bytes() for events in (folder / "tensorboard").iterdir())
    assert imageio.imread(folder / "figure.png").std() > 0
    with imageio.get_reader(folder / "video.mp4") as reader:
        assert 2 <= sum(1 for _ in reader) <= 31
    summaries = json.loads((folder / "evaluation.json").read_text())
    assert summaries["deterministic"]["episodes"] == summaries["sampled"]["episodes"] == 2
    assert "unshaped reward: deterministic" in printed and str(folder) in printed


def test_evaluate_scores_a_saved_run_as_the_run_did(walker):
    folder, _ = walker
    at_the_end = (folder / "evaluation.json").read_text()
    (folder / "evaluation.json").unlink()
    (folder / "video.mp4").unlink()
    ended = typed("-m", "programs", "evaluate", str(folder), "--episodes", "2")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "unshaped reward: deterministic" in ended.stdout
    assert str(folder / "video.mp4") in ended.stdout.splitlines()[-1]
    assert json.loads((folder / "evaluation.json").read_text()) == json.loads(at_the_end)
    assert (folder / "video.mp4").stat().st_size > 0


def test_evaluate_plays_several_step_limits_side_by_side(walker, program, tmp_path):
    folder, _ = walker
    before, output = (folder / "evaluation.json").read_text(), tmp_path / "scores.json"
    asked = "--episodes", 2, "--seed", 5, "--no-video", "--output", output
    code, out, error = program("programs.evaluate", folder, "--max-episode-steps", 12, 25, *asked)
    assert (code, error) == (0, "")
    assert (folder / "evaluation.json").read_text() == before  # --output named another file
    both = json.loads(output.read_text())
    assert list(both) == ["deterministic", "sampled", "step_limits"] and list(both["step_limits"]) == ["12", "25"]
    for limit in (12, 25):
        summaries = both["step_limits"][str(limit)]
        assert f"unshaped reward, {limit} steps: deterministic" in out
        assert all(s["max_episode_steps"] == s["mean_steps"] == limit and s["seed"] == 5 for s in summaries.values())
        assert summaries["sampled"]["noise"] == "drawn from the policy's Normal distribution"
        assert program("programs.evaluate", folder, "--max-episode-steps", limit, *asked)[0] == 0
        assert json.loads(output.read_text()) == summaries  # as if it had been played alone
    assert both["deterministic"] == both["step_limits"]["12"]["deterministic"]


def test_evaluate_takes_another_device_than_the_run(walker, program, tmp_path):
    folder, _ = walker
    for name in (run_folder.CONFIG, run_folder.BEST_AGENT):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    content = (tmp_path / run_folder.CONFIG).read_text()
    (tmp_path / run_folder.CONFIG).write_text(content.replace('"device": "auto"', '"device": "gpu"'))
    for name, extra in (
        ("programs.evaluate", ("--episodes", 1, "--no-video")),
        ("programs.export", ("--out", tmp_path / "out")),
    ):
        code, _, error = program(name, tmp_path, *extra)
        assert "--device cpu" in one_error_line(code, error)
        code, _, error = program(name, tmp_path, *extra, "--device", "cpu")
        assert (code, error) == (0, "")


def test_evaluate_tells_a_foreign_best_agent(walker, program, tmp_path):
    folder, _ = walker
    (tmp_path / run_folder.CONFIG).write_bytes((folder / run_folder.CONFIG).read_bytes())
    data = (folder / run_folder.BEST_AGENT).read_bytes()
    (tmp_path / run_folder.BEST_AGENT).write_bytes(data[: len(data) // 2])  # a copy that broke off
    code, _, error = program("programs.evaluate", tmp_path)
    assert run_folder.BEST_AGENT in one_error_line(code, error)


def test_runs_of_one_name_in_two_places_are_both_drawn(walker, program, tmp_path, monkeypatch):
    from common.figures import five_panels

    folder, _ = walker
    twin = tmp_path / folder.name
    twin.mkdir()
    (twin / "results.csv").write_bytes((folder / "results.csv").read_bytes())
    drawn, draw = [], five_panels.five_panels
    monkeypatch.setattr(five_panels, "five_panels", lambda runs: drawn.append(len(runs)) or draw(runs))
    code, _, _ = program("programs.plot", folder, twin, "--output", tmp_path / "figure.png")
    assert (code, drawn) == (0, [2])


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (UserError("wrong"), 2, "error: wrong"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "error: No space left on device: make room first"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), 2, "error: Permission denied, a/b: choose a fold"),
        (OSError(errno.ENOTCONN, "Not connected", "a"), 2, "error: Not connected, a: see that its disk is connected"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "a.tmp", None, "a"), 2, "error: Is a directory, a: choose"),
        (MemoryError("12 GiB"), 2, "error: there is not enough memory (12 GiB): use smaller settings"),
        (KeyboardInterrupt(), 130, "stopped"),
        (StoppedError("saved", 15), 143, "saved"),
    ],
)
def test_each_kind_of_error_has_its_line_and_its_exit_code(capsys, raised, code, line):
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise raised
    assert ended.value.code == code
    [said] = capsys.readouterr().err.strip().splitlines()
    assert said.startswith(line)


@pytest.mark.parametrize(
    ("name", "settings", "needed"),
    [
        ("my run", {}, ""),
        ("x", {"env": "FrozenLake-v1", "env_kwargs": {"map_name": "8x8"}}, "--env --env-kwargs"),
        ("x", {"env": "their_module:Theirs-v0"}, "--env"),
        ("x", {"env_kwargs": {"gravity": 3.7}}, ""),
        ("x", {"networks": "their_module:make"}, "--networks"),
        ("x", {"wrappers": ("common.hidden_speeds:A", "gymnasium.wrappers:FrameStackObservation(4)")}, ""),
        ("x", {"wrappers": ("gymnasium.wrappers:FrameStackObservation(4)", "their_module:Theirs")}, "--wrappers"),
        ("x", {"wrappers": ('gymnasium.wrappers:RecordVideo("films")',)}, "--wrappers"),
        ("x", {"wrappers": ("common.hidden_speeds.theirs:A",)}, "--wrappers"),
    ],
)
def test_the_command_that_continues_a_run_names_all_that_it_needs(tmp_path, name, settings, needed):
    config = PPOConfig(**({"env": "Pendulum-v1"} | settings))
    folder = tmp_path / name
    folder.mkdir()
    run_folder.write_config(folder, config, "default")
    python, _, module, program, run, *typed = shlex.split(trust.command("resume", folder, config))
    assert (python, module, program, run) == ("python", "programs", "resume", str(folder))
    assert [word for word in typed if word.startswith("--")] == needed.split()
    assert run_folder.read_config(Path(run), {"ppo": PPOConfig}, **typed_environment(typed))[1] == config
    if needed:
        with pytest.raises(UserError, match=f"type it yourself with {needed.split()[0]}"):
            run_folder.read_config(Path(run), {"ppo": PPOConfig})
    assert typed_environment([word.replace("env-kw", "env_kw") for word in typed]) == typed_environment(typed)
    windows = trust.command("resume", PureWindowsPath("runs", name), config)
    assert shlex.split(windows)[4] == f"runs/{name}"  # which needs no quotes but for the space
