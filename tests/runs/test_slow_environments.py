"""Slow environments: what is chosen for them, what is seen meanwhile, and how a signal ends a long epoch."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from run_program import call

import PPOAgentTrainer
from common import progress
from common.envs.environment import find_environment
from common.results import TIMING_COLUMNS
from common.rollout import probe
from common.runs import checkpoint, fit, recorder, run_folder, session, terminal
from common.runs.options import RunOptions
from common.runs.terminal import Terminal
from companions import OffPolicyAgentTrainer
from ppo.config import PPOConfig

ROOT = Path(PPOAgentTrainer.__file__).parent


class Stops(gymnasium.Env):
    """Episodes of five steps; once `left` is set, the process gets a signal after so many steps."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    left: int | None = None
    rest = 0.0  # seconds that the step with the signal takes

    def __init__(self, seconds: float = 0.0, ends: bool = True):
        self._seconds, self._ends = seconds, ends

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        time.sleep(self._seconds)
        if Stops.left is not None:
            Stops.left -= 1
            if Stops.left == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(Stops.rest)
        self._steps += 1
        observation = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return observation, -abs(float(action[0])), self._ends and self._steps == 5, False, {}


gymnasium.register("tests/Stops-v0", Stops, max_episode_steps=8)
gymnasium.register("tests/StopsEndless-v0", Stops, kwargs={"ends": False})
QUIET = ["--record", "--evaluation-episodes", "0"]
PPO = (  # noqa: SIM905  (as it is typed)
    "--env tests/Stops-v0 --workers 0 --epochs 4 --num-envs 2 --steps-per-epoch 64 --minibatch-size 32 --passes 1 "
    "--hidden-sizes 4 --validate-every 1 --validate-from 0 --validation-episodes 4"
).split()
TD3 = (  # noqa: SIM905  (as it is typed)
    "td3 --env tests/Stops-v0 --workers 0 --epochs 4 --steps-per-epoch 64 --replay-size 500 --warmup-steps 32 "
    "--batch-size 8 --train-every 16 --updates-per-train 2 --hidden-sizes 4 --best-metric mean_episode_reward"
).split()


def learned(folder: Path) -> list[str]:
    """The table without its timing, and the weights."""
    table = run_folder.read_results(folder)
    with np.load(folder / run_folder.BEST_AGENT) as file:
        weights = [file[name].tobytes() for name in file.files]
    return [repr({name: table[name].tolist() for name in table if name not in TIMING_COLUMNS}), repr(weights)]


@pytest.mark.parametrize(
    ("module", "settings", "steps", "unsaved"),
    [(PPOAgentTrainer, PPO, 66, 0), (OffPolicyAgentTrainer, TD3, 40, 0), (PPOAgentTrainer, PPO, 66, 1)],
    ids=["validating", "collecting", "after an epoch that is not saved"],
)
def test_a_long_epoch_is_given_up_and_the_resumed_run_is_the_same(
    monkeypatch, tmp_path, capfd, eager, module, settings, steps, unsaved
):
    def arguments(name):
        return *settings, *QUIET, "--runs-folder", tmp_path, "--name", name

    assert call(monkeypatch, module, *arguments("whole")) == 0
    write = Terminal.row

    def arm(self, row):
        write(self, row)
        if row.epoch == 2 + unsaved:
            Stops.left = steps

    with monkeypatch.context() as patch:
        patch.setattr(Terminal, "row", arm)
        patch.setattr(recorder, "LONG_EPOCH", 0.0)
        patch.setattr(recorder, "LARGEST_SHARE_OF_LONG", math.inf)
        patch.setattr(Stops, "rest", 2.0 * unsaved)
        every = ("--checkpoint-every", 1 + unsaved)
        assert call(patch, module, *arguments("run"), *every) == 128 + signal.SIGTERM
    Stops.left = None
    assert "stopped after epoch 2 of 4; continue with " in capfd.readouterr().err
    assert len(run_folder.read_results(tmp_path / "run")["epoch"]) == 2 + unsaved
    assert checkpoint.generations(tmp_path / "run" / session.CHECKPOINTS)[0] == 2
    assert call(monkeypatch, module, "--resume", tmp_path / "run", *QUIET) == 0
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")


HANGING = """
import ctypes, runpy, signal, sys, time
sys.path[:0] = [".", "tests"]
import without_xla, tiny_envs
from common.runs import recorder, signals
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.process_group import ProcessGroup
from common.runs.terminal import Terminal

recorder.LONG_EPOCH = signals.PATIENCE = 0.3
recorder.LARGEST_SHARE_OF_LONG = 1.0
Group = {group}
write, send, epochs = Terminal.row, Group.send, []

def record(self, row):
    write(self, row)
    time.sleep(0.4)
    epochs.append(row)

def hang(self, actions):  # in C, where Python's handlers wait
    send(self, actions)
    if len(epochs) == {epoch} and signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # a run that has begun
        print("hangs", *(one.process.pid for one in getattr(self, "_workers", {}).values()), flush=True)
        ctypes.CDLL(None).sleep(60)

without_xla.install()
Terminal.row, Group.send = record, hang
sys.argv = {arguments}
runpy.run_module("PPOAgentTrainer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX's signals")
@pytest.mark.parametrize(
    ("backend", "epoch", "line"),
    [
        ("gymnasium", 0, "stopped before the first epoch was saved, so nothing is kept; start again with "),
        ("processes", 1, "stopped after epoch 1 of 4; continue with "),
    ],
)
def test_a_step_that_hangs_does_not_keep_a_signal_waiting(tmp_path, backend, epoch, line):
    arguments = ["train", "pendulum", "--best-metric", "validation", *PPO[2:], *QUIET, "--backend", backend]
    arguments += ["--runs-folder", str(tmp_path)]
    group = "ProcessGroup" if backend == "processes" else "GymnasiumGroup"
    program = HANGING.replace("{epoch}", str(epoch)).replace("{arguments}", repr(arguments)).replace("{group}", group)
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        workers = next(told.split()[1:] for told in process.stdout if told.startswith("hangs"))
        assert len(workers) == (1 if backend == "processes" else 0)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=30)
        assert time.monotonic() - began < 5
        assert process.returncode == 128 + signal.SIGTERM and line in error
    for _ in range(50):
        if not any(Path(f"/proc/{pid}").exists() for pid in workers):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the environments' processes are still there")


# -- what is chosen --

FAST, SLOW, EPISODES = fit.Pace(0.001, 20), fit.Pace(0.05, math.nan), fit.Pace(0.05, 40)
LONG = fit.Pace(0.001, math.nan)  # of which epochs are short


@pytest.mark.parametrize(
    ("pace", "env", "typed", "wanted", "evaluation"),
    [
        (FAST, "Stops", {}, {}, 100),
        (SLOW, "Stops", {}, dict(steps_per_epoch=400, minibatch_size=100), 100),
        (SLOW, "Stops", dict(num_envs=64), dict(steps_per_epoch=448, minibatch_size=112), 100),
        (SLOW, "Stops", dict(steps_per_epoch=3200), {}, 100),
        (SLOW, "Stops", dict(minibatch_size=500), dict(steps_per_epoch=512), 100),
        (SLOW, "Stops", dict(epochs=1), dict(steps_per_epoch=400, minibatch_size=100, validation_episodes=2), 1),
        (SLOW, "StopsEndless", {}, dict(steps_per_epoch=400, minibatch_size=100, validation_episodes=1), 1),
        (EPISODES, "StopsEndless", {}, dict(steps_per_epoch=400, minibatch_size=100, validation_episodes=10), 20),
        (LONG, "Stops", dict(max_episode_steps=10_000), dict(validation_episodes=1), 2),
    ],
)  # fmt: skip
def test_a_slow_environment_gets_short_epochs_and_few_episodes_unless_others_are_typed(
    monkeypatch, pace, env, typed, wanted, evaluation
):
    monkeypatch.setattr(fit, "measured_pace", lambda *_: pace)
    config = PPOConfig(env=f"tests/{env}-v0").replace(**typed)
    said: list[str] = []
    found, options = fit.fitted(config, RunOptions(), typed, said.append)
    assert found == config.replace(**wanted)
    assert options.evaluation_episodes == evaluation
    assert len(said) == bool(wanted) and all(f"{1000 * pace.step:.0f} ms a step" in line for line in said)


def test_the_pace_is_measured():
    slow = fit.measured_pace(find_environment("", maker=Stops, env_kwargs={"seconds": 0.02}), 0.3)
    assert 0.02 <= slow.step < 0.06 and slow.episode == 5
    assert fit.measured_pace(find_environment("", maker=Stops), 0.3).step < 0.001
    masked = find_environment("tests/Doors-v0", action_masks=True)  # which raises at a forbidden action
    assert 1 < fit.measured_pace(masked, 0.3).episode <= 6


# -- what is seen --


@pytest.mark.parametrize("is_shown", [False, True])
def test_how_far_an_epoch_a_validation_and_the_evaluation_are_is_shown(monkeypatch, tmp_path, capsys, eager, is_shown):
    if is_shown:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(fit, "MEASURED_SLOW", 0.1)
    monkeypatch.setattr(probe, "PATIENCE", 0.1)
    monkeypatch.setattr(terminal, "SILENCE", 0.0)
    monkeypatch.setattr("common.rollout.playing.LONG", 0.0)
    followed = progress.followed
    monkeypatch.setattr(progress, "followed", lambda show, check=lambda: None: followed(show, check, every=0.0))
    arguments = [*PPO, *QUIET[:-1], 6, "--env-kwargs", '{"seconds": 0.02}', "--epochs", 1, "--steps-per-epoch", 32]
    assert call(monkeypatch, PPOAgentTrainer, *arguments, "--runs-folder", tmp_path) == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    for text in (r"epoch 1: \d+ of 32 steps", r"epoch 1: \d of 4 episodes", r"evaluation: \d+ of 12 episodes"):
        assert re.search(text, shown), text
    assert re.search(r"a validation of 4 episodes takes about \d+ seconds: .*--validation-episodes", shown)
    assert re.search(r"evaluating 6 episodes, .* about \d+ seconds: --evaluation-episodes", shown)


def test_an_evaluation_is_expected_to_have_episodes_as_long_as_the_last_that_ended(
    monkeypatch, tmp_path, capsys, eager
):
    """The second epoch's three steps are all of an episode of five that began before, so none ends in it."""
    monkeypatch.setattr("common.rollout.playing.LONG", 0.0)
    arguments = [*PPO, *QUIET[:-1], 2, "--env-kwargs", '{"seconds": 0.02}', "--num-envs", 1, "--epochs", 2]
    arguments += ["--steps-per-epoch", 3, "--minibatch-size", 3]
    assert call(monkeypatch, PPOAgentTrainer, *arguments, "--runs-folder", tmp_path) == 0
    assert re.search(r"evaluating 2 episodes, .* about \d+ seconds: --evaluation-episodes", capsys.readouterr().out)
