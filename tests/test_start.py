"""How soon a program answers: what it imports before it has read its arguments, and how long that takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"tensorflow", "tensorflow_probability", "keras", "tf_keras", "tensorboard", "scipy", "envpool", "ale_py"}
PROGRAMS = {
    "PPO": ["PPOAgentTrainer.py"],
    "off-policy": ["-m", "companions.OffPolicyAgentTrainer"],
    "evaluate": ["evaluate.py"],
    "export": ["-m", "common.export"],
    "plots": ["-m", "common.plots"],
}
MISTAKES = {
    "a setting": ("PPO", ["--gama", "0.9"]),
    "a value": ("PPO", ["pendulum", "--gamma", "2"]),
    "a preset": ("PPO", ["bipedal-waker"]),
    "an environment": ("PPO", ["--env", "Pendulun-v1"]),
    "a setting off policy": ("off-policy", ["td3", "--tau", "2"]),
    "an environment off policy": ("off-policy", ["--env", "Pendulun-v1"]),
    "no run to evaluate": ("evaluate", ["no/such/run"]),
    "no run to export": ("export", ["no/such/run"]),
    "no run to plot": ("plots", ["no/such/run"]),
}
LONGEST = 1.5  # seconds of processor time, on machines that do other work as well


def imported(*arguments):
    """The exit code of a program, and the packages that it imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    packages = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}
    assert "tyro" in packages
    return done.returncode, packages


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_waits_for_nothing_heavy(program):
    code, packages = imported(*PROGRAMS[program], "--help")
    assert code == 0
    assert not HEAVY & packages
    assert program == "plots" or "matplotlib" not in packages


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_waits_for_nothing_heavy(mistake):
    program, arguments = MISTAKES[mistake]
    code, packages = imported(*PROGRAMS[program], *arguments)
    assert code == 2
    assert not HEAVY & packages


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_quick(program):
    def seconds():
        before = os.times()
        subprocess.run([sys.executable, *PROGRAMS[program], "--help"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])  # of children that have ended

    assert min(seconds() for _ in range(2)) < LONGEST
