"""Environments that raise, die or hang; numbers that are none; a spread that runs away."""

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import tiny_envs
from collecting import next_trajectory
from gymnasium.envs.registration import EnvSpec
from run_program import is_there
from same_state import assert_same_state

import PPOAgentTrainer as main_program
from common.envs import worker_processes
from common.envs.environment import Environment, find_environment
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.process_group import ProcessGroup
from common.envs.seeded_episodes import RestorePoint
from common.envs.spaces import action_map
from common.errors import DivergedError, NotFiniteError, UserError
from common.nets import distributions
from common.nets.keras_layers import StateIndependentStd
from common.nets.network import MAX_STD
from common.rollout import collector
from common.rollout.evaluation import evaluate
from common.runs import run_folder, session
from common.runs.options import RunOptions
from common.runs.terminal import Terminal
from ppo.config import PPOConfig
from ppo.results import RUNAWAY
from PPOAgentTrainer import PPOAgentTrainer

CONFIG = PPOConfig(
    env="tests/Raising-v0", backend="gymnasium", num_envs=3, epochs=3, steps_per_epoch=120, minibatch_size=40,
    passes=1, hidden_sizes=(4,),
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def no_probe(monkeypatch):
    """It would meet the faults before the training does."""
    monkeypatch.setattr(collector, "find_restore_method", lambda *_: "episodes")


@pytest.fixture
def fails_once(no_probe, tmp_path, monkeypatch):
    for name in ("Raising", "Dying", "Hanging"):
        monkeypatch.setitem(gymnasium.registry[f"tests/{name}-v0"].kwargs, "marks", tmp_path)


def trained(config: PPOConfig, epochs: int = 3) -> tuple[PPOAgentTrainer, list[str]]:
    trainer, said = PPOAgentTrainer(config), []
    trainer.warn = said.append
    try:
        trainer.train(epochs)
    finally:
        trainer.close()
    return trainer, said


def stepped(group, steps: int) -> tuple[list, list]:
    """All a group says: observations before each step and after the last, and the steps' other arrays."""
    observations, rest = [np.array(group.reset(3))], []
    for _ in range(steps):
        group.send(np.zeros((group.num_envs, 1), np.float32))
        received = group.recv()
        observations.append(np.array(received[0]))
        rest.append([np.array(column) for column in received[1:]])
    return observations, rest


# -- an environment that fails --


@pytest.mark.parametrize(
    ("kind", "env_id", "error"),
    [
        ("gymnasium", "tests/Raising-v0", "RuntimeError: the floor gave way"),
        ("processes", "tests/Raising-v0", "RuntimeError: the floor gave way"),
        ("processes", "tests/Dying-v0", "its process died (exit code 7)"),
        ("processes", "tests/Hanging-v0", "its process did not answer within 2 s, see --environment-time-limit"),
    ],
)
def test_one_that_fails_is_replaced_and_the_others_notice_nothing(fails_once, kind, env_id, error):
    environment = find_environment(env_id)
    group = GymnasiumGroup(environment, 3) if kind == "gymnasium" else ProcessGroup(environment, 3, time_limit=2.0)
    observations, rest = stepped(group, 25)
    [fault] = group.faults
    assert fault.error == error
    if "Raising" in env_id:
        assert "in step" in fault.details and "and so did the roof" in fault.details
    for i in range(3):
        first = [*range(20), 19, 0, 1, 2, 3, 4]  # stood still in the step in which it failed, then was reset
        assert [int(row[i, 0]) for row in observations] == (first if i == fault.env_index else list(range(26)))
    rewards, terminated, truncated, ended, failed = (
        np.array([step[column][fault.env_index] for step in rest]) for column in range(5)
    )
    assert list(rewards) == [1.0] * 19 + [0.0, 0.0] + [1.0] * 4
    assert not terminated.any()
    assert not truncated.any()
    assert list(np.flatnonzero(ended)) == list(np.flatnonzero(failed)) == [19]
    processes = multiprocessing.active_children()
    assert len(processes) == (3 if kind == "processes" else 0)
    group.close()
    assert not any(process.is_alive() for process in processes)


def test_a_start_that_fails_leaves_the_other_environments_running(tmp_path):
    class Busy(tiny_envs.Plain):
        def reset(self, **options):
            if (tmp_path / "busy").exists():
                raise OSError("Address already in use")
            return super().reset(**options)

    group = ProcessGroup(find_environment("", 9, maker=Busy), 3)
    group.reset(0)
    (tmp_path / "busy").touch()
    with pytest.raises(UserError, match="cannot be started"):
        group.restore({1: RestorePoint(1)})
    (tmp_path / "busy").unlink()
    group.restore({1: RestorePoint(1)})
    group.send(np.zeros((3, 1), np.float32))
    assert list(group.recv().rewards) == [1.0] * 3
    group.close()


def test_processes_step_as_this_process_does():
    one, other = (
        GymnasiumGroup(find_environment("Pendulum-v1", 5), 2),
        ProcessGroup(find_environment("Pendulum-v1", 5), 2),
    )
    (mine, my_rest), (theirs, their_rest) = stepped(one, 12), stepped(other, 12)
    np.testing.assert_array_equal(mine, theirs)
    for my_step, their_step in zip(my_rest, their_rest, strict=True):
        for my_column, their_column in zip(my_step, their_step, strict=True):
            np.testing.assert_array_equal(my_column, their_column)
    one.close(), other.close()


def test_after_a_restore_and_a_failure_processes_begin_the_episodes_that_this_process_begins():
    class Fragile(tiny_envs.Lengths):
        def reset(self, seed=None, options=None):
            return np.full(2, seed % 997, np.float32), super().reset(seed)[1]

        def step(self, action):
            if action[0] == 9.0:
                raise OSError("it broke")
            return super().step(action)

    actions, answers = np.zeros((30, 1), np.float32), []
    for kind in (GymnasiumGroup, ProcessGroup):
        group = kind(find_environment("", maker=Fragile), 1)
        group.reset(0)
        answers.append([group.restore({0: RestorePoint(0, 0, actions)}).copy()])
        for action in (0.0, 0.0, 9.0, 0.0, 0.0):
            group.send(np.full((1, 1), action, np.float32))
            answers[-1].append(group.recv().observations.copy())
        group.close()
    np.testing.assert_array_equal(*answers)


def test_training_continues_with_a_new_environment_and_says_which_failed_where(fails_once):
    trainer, said = trained(CONFIG)
    assert trainer.epoch == 3
    [line] = said
    assert line.startswith("warning: environment 0 failed at step 19 of the epoch: RuntimeError: the floor gave way;")
    assert "(1 of 3)" in line
    assert "Traceback" in line


@pytest.mark.parametrize("backend", ["gymnasium", "processes"])
def test_one_that_fails_for_ever_ends_the_run(no_probe, backend):
    config = CONFIG.replace(backend=backend, num_envs=1, steps_per_epoch=60, minibatch_size=20)
    trainer, said = PPOAgentTrainer(config), []
    trainer.warn = said.append
    with pytest.raises(
        UserError, match=r"^environment 0 failed .*; 3 were replaced by new ones before: fix it, or"
    ) as error:
        trainer.train(20)
    assert "\n" not in str(error.value)
    assert len(said) == 4 and said[-1].startswith("Traceback")  # the last one's, above the line of the error
    assert ["Traceback" in line for line in said[:3]] == [True, False, False]  # shown once
    trainer.close()


class Flaky(tiny_envs.Plain):
    """Every fourth reset fails."""

    resets = 0

    def reset(self, **options):
        Flaky.resets += 1
        if Flaky.resets % 4 == 0:
            raise OSError("the simulator is busy")
        return super().reset(**options)


@pytest.mark.parametrize("first", range(4))
def test_resets_that_fail_at_the_start_and_later_count_as_those_of_steps_do(monkeypatch, first):
    monkeypatch.setattr(Flaky, "resets", first)
    config = CONFIG.replace(environment_restarts=1000, max_episode_steps=5, adopt_best=False)
    trainer, said = PPOAgentTrainer(config, make_env=Flaky), []
    trainer.warn = said.append
    trainer.train(2)
    trainer.collector.envs.restart()
    trainer.close()
    assert any("the simulator is busy" in line and "it is started again" in line for line in said)
    assert any("failed at step" in line for line in said) and len(trainer.results) == 2


@pytest.mark.parametrize("steps_per_epoch", [48, 60])
def test_a_seed_with_which_resets_fail_again_gives_way_to_the_next(steps_per_epoch):
    """Also where the last row of an epoch is a reset that failed, and the next one fails, too."""
    config = CONFIG.replace(environment_restarts=1000, max_episode_steps=5, steps_per_epoch=steps_per_epoch)
    for seed in range(8):
        one, other = (PPOAgentTrainer(config.replace(seed=seed), make_env=tiny_envs.Unlucky) for _ in range(2))
        next_trajectory(one)
        other.collector.load_state({name: np.array(array) for name, array in one.collector.state().items()})
        np.testing.assert_array_equal(next_trajectory(one).observations, next_trajectory(other).observations)
        for trainer in (one, other):
            trainer.collector.envs.restart()  # the next episodes, until none of them fails
            trainer.close()
        assert_same_state(one.collector.state(), other.collector.state())


def test_environments_that_are_rebuilt_get_other_seeds_where_resets_fail_again(monkeypatch):
    monkeypatch.setattr(collector, "find_restore_method", lambda *_: "history")
    config = CONFIG.replace(environment_restarts=200, max_episode_steps=5, steps_per_epoch=48)
    trainer = PPOAgentTrainer(config, make_env=tiny_envs.Unlucky)
    trainer.warn = lambda line: None
    for _ in range(4):
        next_trajectory(trainer)
        trainer.collector.envs.restart()
    trainer.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_evaluation_counts_episodes_that_cannot_begin_as_failed(workers):
    environment = find_environment("", 5, None, tiny_envs.Unlucky)
    played = evaluate(tiny_envs.Still(), action_map(environment.action_space), environment, 42, True, workers=workers)
    assert len(played.faults) == 18 and sorted(set(played.returns)) == [0.0, 5.0]
    assert "cannot be started, its reset failed (OSError: drawn badly" in played.faults[0]


def test_workers_that_meet_in_one_simulator_score_as_one_process(tmp_path):
    class Alone(tiny_envs.Plain):
        def __init__(self):
            self._lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_EXCL)

        def close(self):
            os.close(self._lock)
            (tmp_path / "lock").unlink()

    environment = find_environment("", 5, None, Alone)
    played = evaluate(tiny_envs.Still(), action_map(environment.action_space), environment, 12, True, workers=2)
    assert played.faults == () and played.returns.tolist() == [5.0] * 12
    (tmp_path / "lock").touch()
    with pytest.raises(UserError, match="cannot be built"):
        evaluate(tiny_envs.Still(), action_map(environment.action_space), environment, 3, True, workers=1)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("restarts", [0, 2])
def test_a_reset_that_always_fails_is_tried_as_often_as_may_be(no_probe, monkeypatch, checked, restarts):
    resets = []

    class Broken(tiny_envs.Plain):
        def reset(self, **options):
            resets.append(1)
            raise OSError("no simulator")

    if not checked:  # as if it failed later
        monkeypatch.setattr(Environment, "check", lambda *_: ())
    with pytest.raises(UserError, match=r"cannot be started, its reset failed .OSError: no simulator"):
        PPOAgentTrainer(CONFIG.replace(environment_restarts=restarts, max_episode_steps=5), make_env=Broken)
    assert len(resets) == 1 + restarts


@pytest.mark.parametrize("num_envs", [1, 3])
def test_environments_all_of_which_train_are_validated_and_evaluated(num_envs, tmp_path, monkeypatch):
    class Alone(tiny_envs.Plain):
        metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 20}
        there: ClassVar[set] = set()

        def __init__(self, render_mode=None):
            if len(Alone.there) == num_envs:
                raise OSError("Address already in use")
            self.render_mode = render_mode
            Alone.there.add(self)

        def render(self):
            return np.zeros((48, 64, 3), np.uint8)

        def close(self):
            Alone.there.discard(self)

    config = CONFIG.replace(
        num_envs=num_envs, steps_per_epoch=num_envs * 40, max_episode_steps=5, validation_episodes=12, epochs=4
    )
    said = []

    def make(config):
        trainer = PPOAgentTrainer(config.replace(validate_every=1), make_env=Alone)
        monkeypatch.setattr(trainer, "warn", said.append)
        return trainer

    options = RunOptions(runs_folder=str(tmp_path), name="a", evaluation_episodes=40, record=("video",))
    monkeypatch.setattr(Terminal, "say", lambda _, line: said.append(line))
    run = session.run(make, "default", config, options)
    assert sum("perhaps no more may exist" in line for line in said) == 2
    assert (run / "video.mp4").is_file()
    assert json.loads((run / "evaluation.json").read_text())["deterministic"]["returns"] == [5.0] * 40
    assert not Alone.there


@pytest.mark.parametrize("where", ["InReset", "WhenBuilt"])
@pytest.mark.parametrize("how", ["Dying", "Hanging", "Raising"])
def test_a_process_that_does_not_start_is_one_line_within_the_time_limit(how, where):
    entry = gymnasium.spec(f"tests/{how}{where}-v0")
    environment = dataclasses.replace(find_environment("tests/Raising-v0"), spec=entry)
    began = time.monotonic()
    with pytest.raises(UserError, match=r"cannot be (started, its reset failed|built)") as line:
        ProcessGroup(environment, 2, time_limit=2.0).reset(0)
    assert "\n" not in str(line.value)
    assert time.monotonic() - began < 20
    assert multiprocessing.active_children() == []


PARENT = """
import multiprocessing, sys, time
sys.path[:0] = {paths!r}
import numpy as np, tiny_envs
from common.envs.environment import Environment, find_environment
from common.envs.process_group import ProcessGroup
lock = open({lock!r}, "w")
import fcntl; fcntl.flock(lock, fcntl.LOCK_EX)
group = ProcessGroup(find_environment({env_id!r}), 2)
group.reset(0)
print(*(process.pid for process in multiprocessing.active_children()), flush=True)
while True:
    group.send(np.zeros((2, 1), np.float32))
    group.recv()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="processes are killed in another way here")
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "tests/Hanging-v0"])
def test_processes_end_with_a_parent_that_is_killed_and_hold_no_lock(tmp_path, env_id):
    import fcntl

    lock, here = tmp_path / "lock", Path(__file__).parents[1]
    program = PARENT.format(paths=[str(here), str(here.parent)], lock=str(lock), env_id=env_id)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        processes = [int(number) for number in parent.stdout.readline().split()]
        assert len(processes) == 2
        time.sleep(0.5)  # so that those that hang do
        parent.kill()
        parent.wait()
        with open(lock, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where another process still holds it
        deadline = time.monotonic() + 5
        while any(map(is_there, processes)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_there, processes))


GROUP = """
import os, signal, sys, time
sys.path[:0] = {paths!r}
import numpy as np
from common.envs.environment import find_environment
from common.envs.process_group import ProcessGroup
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
group = ProcessGroup(find_environment("Pendulum-v1"), 2)
group.reset(0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.killpg(0, signal.SIGINT)
os.killpg(0, signal.SIGTERM)
time.sleep(0.5)
group.send(np.zeros((2, 1), np.float32))
group.recv()
group.reset(1)  # new processes
print(group.faults, flush=True)
group.close()
"""


@pytest.mark.skipif(os.name != "posix", reason="there are no process groups")
def test_processes_leave_a_signal_to_the_whole_group_to_their_parent():
    program = GROUP.format(paths=[str(path) for path in Path(__file__).parents[1:3]])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, start_new_session=True
    )
    assert (done.stdout, done.stderr) == ("told\n[]\n", "")


CANNOT_START = """
import multiprocessing, resource, sys
sys.path[:0] = {paths!r}
from common.envs.environment import find_environment
from common.envs.process_group import ProcessGroup
from common.envs.worker_processes import CannotStartError, run_in_workers
from common.errors import UserError
def start():
    try:
        ProcessGroup(find_environment("Pendulum-v1"), 24).reset(0)
    except UserError as error:
        return f"{{type(error).__name__}}: {{error}}"
def work():
    try:
        run_in_workers(str, range(2), 2)
    except CannotStartError as error:
        return str(error)
def in_a_pool(function):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function)
if {files}:
    resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
print({what})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
@pytest.mark.parametrize(
    ("what", "files", "line"),
    [
        ("start()", 0, "AF_UNIX path too long): set TMPDIR to a folder with a shorter path"),
        ("start()", 64, "Too many open files): allow more with 'ulimit -n 4096', use fewer --num-envs"),
        ("in_a_pool(start)", 0, "since workers of multiprocessing.Pool may start none: use concurrent.futures.P"),
        ("in_a_pool(work)", 0, "AssertionError: daemonic processes are not allowed to have children"),
    ],
)
def test_what_keeps_processes_from_starting_is_named(tmp_path, what, files, line):
    program = CANNOT_START.format(paths=[str(path) for path in Path(__file__).parents[1:3]], what=what, files=files)
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
        env=os.environ | ({"TMPDIR": str(folder)} if "AF_UNIX" in line else {}),
    )  # fmt: skip
    assert (line in done.stdout, done.stdout.count("\n"), done.stderr) == (True, 1, ""), done
    assert "StartError" not in done.stdout  # after which it would be tried again


SUSPENDED = """
import sys
sys.path[:0] = {paths}
import time, gymnasium, numpy as np
from common.envs.environment import find_environment
from common.envs.process_group import ProcessGroup

class Computes(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {{}}

    def step(self, action):
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        return np.zeros(1, np.float32), 0.0, False, False, {{}}

group = ProcessGroup(find_environment("", 9, maker=Computes), 1, time_limit=2.0)
group.reset(0)
while not group.faults:
    group.send(np.zeros((1, 1), np.float32))
    group.recv()
    print(group.faults, flush=True)
group.close()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="there are no signals that suspend")
def test_the_time_limit_does_not_count_while_the_program_is_suspended():
    here = Path(__file__).parents[1]
    program = SUSPENDED.format(paths=[str(here), str(here.parent)])
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        try:
            assert parent.stdout.readline() == "[]\n"
            time.sleep(0.1)
            os.killpg(parent.pid, signal.SIGSTOP)
            time.sleep(2.2)
            os.killpg(parent.pid, signal.SIGCONT)
            assert [parent.stdout.readline() for _ in range(3)] == ["[]\n"] * 3
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.parametrize("way", ["episodes", "history"])
def test_a_run_resumed_after_a_fault_is_the_run_that_was_not_stopped(tmp_path, monkeypatch, way):
    monkeypatch.setattr(collector, "find_restore_method", lambda *_: way)
    rows = []
    for stopped in (False, True):
        marks = tmp_path / str(stopped)
        marks.mkdir()
        monkeypatch.setitem(gymnasium.registry["tests/Raising-v0"].kwargs, "marks", marks)
        trainer = PPOAgentTrainer(CONFIG.replace(adopt_best=False))
        trainer.warn = lambda line: None
        trainer.train(1)
        assert (marks / "failed").exists()
        if stopped:
            state = {name: np.array(array) for name, array in trainer.state().items()}
            trainer.close()
            trainer = PPOAgentTrainer(CONFIG.replace(adopt_best=False))
            trainer.load_state(state)
        trainer.train(2)
        trainer.close()
        rows.append([(row.loss_actor, row.avg_steps, row.total_reward) for row in trainer.results])
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_run_whose_environment_always_fails_at_the_same_step_can_be_resumed(monkeypatch, shards):
    """Its history ends with the failure, which repeating it would repeat."""
    monkeypatch.setattr(collector, "find_restore_method", lambda *_: "history")
    monkeypatch.setitem(gymnasium.registry["tests/Raising-v0"].kwargs, "marks", None)
    config = CONFIG.replace(adopt_best=False, environment_restarts=1000, shards=shards)
    trainer = PPOAgentTrainer(config)
    trainer.warn = lambda line: None
    trainer.train(1)
    state = {name: np.array(array) for name, array in trainer.state().items()}
    assert state["experience/collector/lost"].all()
    trainer.close()
    resumed = PPOAgentTrainer(config)
    resumed.warn = lambda line: None
    resumed.load_state(state)
    resumed.train(1)
    resumed.close()


def test_a_resumed_run_counts_the_faults_of_before(no_probe):
    config = CONFIG.replace(num_envs=1, steps_per_epoch=60, minibatch_size=20, adopt_best=False)
    trainer, said = PPOAgentTrainer(config.replace(environment_restarts=1000)), []
    trainer.warn = said.append
    trainer.train(1)
    trainer.close()
    assert said
    resumed, after = PPOAgentTrainer(config.replace(environment_restarts=len(said))), []
    resumed.warn = after.append
    resumed.load_state(trainer.state())
    with pytest.raises(UserError, match=f"{len(said)} were replaced by new ones before"):
        resumed.train(3)
    assert [line for line in after if line.startswith("warning")] == []
    resumed.close()


# -- numbers that are none --


def test_an_epoch_with_nan_is_collected_anew_or_ends_the_run():
    config = CONFIG.replace(
        env="tests/FaultyReward-v0", num_envs=1, steps_per_epoch=30, minibatch_size=10, best_metric="total_reward"
    )
    with pytest.raises(
        NotFiniteError, match="environment 0 returned NaN or infinity as reward at step 9 of the epoch"
    ):
        trained(config)
    trainer, said = trained(config.replace(on_not_finite="skip"))
    assert len(said) == 4  # it fails whenever it gets that old; the first trajectory only fills statistics
    assert all("returned NaN or infinity as reward at step 9 of the epoch" in line for line in said)
    assert trainer.epoch == 3
    assert all(np.isfinite(row.total_reward) for row in trainer.results)


def spoil(trainer: PPOAgentTrainer, epochs: list[int]) -> None:
    """Lets value targets be infinite in some epochs, so that a loss is."""
    make = trainer.prepare_batch

    def prepare_batch(trajectory, rewards, gamma):
        made = make(trajectory, rewards, gamma)
        if trainer.epoch + 1 in epochs:
            made.batch.value_targets[17] = np.inf
        return made

    trainer.prepare_batch = prepare_batch


def weights(trainer: PPOAgentTrainer) -> list[np.ndarray]:
    """And whatever else an update changes."""
    return [array for name, array in trainer.agent.state().items() if not name.startswith("best")]


SEEING = {"env": "tests/Dot-v0", "convolutions": ("4x3/3",)}  # by the plain graph, whose optimiser writes in place


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("choice", "settings"),
    [("stop", {}), ("skip", {}), pytest.param("stop", {}, marks=pytest.mark.xla), ("stop", SEEING)],
)
def test_an_update_that_diverges_is_undone(choice, settings):
    config = CONFIG.replace(**{"env": "Pendulum-v1"} | settings, on_not_finite=choice, adopt_best=False)
    trainer, said = PPOAgentTrainer(config), []
    trainer.warn = said.append
    spoil(trainer, [2])
    trainer.train(1)
    before = weights(trainer)
    if choice == "stop":
        with pytest.raises(DivergedError, match=r"loss_critic of minibatch [123] of 3 is NaN or infinite"):
            trainer.train(1)
    else:
        trainer.train(1)
        assert np.isnan(trainer.results[-1].loss_critic)
        [line] = said
        assert "the update of epoch 2 is undone" in line
    for one, other in zip(before, weights(trainer)):
        np.testing.assert_array_equal(one, other)
    if choice == "skip":
        trainer.train(1)
        assert np.isfinite(trainer.results[-1].loss_critic)
        assert any((one != other).any() for one, other in zip(before, weights(trainer)))
    trainer.close()


def test_weights_that_overflow_are_undone_too():
    trainer = PPOAgentTrainer(CONFIG.replace(env="Pendulum-v1", learning_rate=3e38, anneal=()))
    with pytest.raises(DivergedError, match="lower the learning rates"):
        trainer.train(1)
    assert all(np.isfinite(array).all() for array in weights(trainer))
    trainer.close()


def test_a_resumed_run_counts_the_skipped_updates_of_before():
    config = CONFIG.replace(env="Pendulum-v1", on_not_finite="skip", adopt_best=False, epochs=20)
    trainer, said = PPOAgentTrainer(config), []
    trainer.warn = said.append
    spoil(trainer, list(range(2, 100)))  # so that epochs and skipped updates are different numbers
    trainer.train(main_program.SKIPS_IN_A_ROW - 1)
    trainer.close()
    resumed, after = PPOAgentTrainer(config), []
    resumed.warn = after.append
    resumed.load_state(trainer.state())
    spoil(resumed, list(range(1, 100)))
    with pytest.raises(DivergedError):
        resumed.train(20)
    assert len(said) == main_program.SKIPS_IN_A_ROW - 2 and len(after) == 2
    resumed.close()


def test_the_program_keeps_the_last_good_weights(monkeypatch, tmp_path, capsys):
    make = PPOAgentTrainer.__init__

    def spoiled(self, *arguments, **named):
        make(self, *arguments, **named)
        spoil(self, [3])

    monkeypatch.setattr(PPOAgentTrainer, "__init__", spoiled)
    settings = (  # noqa: SIM905  (as it is typed)
        "pendulum --backend gymnasium --epochs 4 --num-envs 2 --steps-per-epoch 128 --minibatch-size 64 --passes 1 "
        "--hidden-sizes 4 --record video --name run --runs-folder"
    ).split()
    monkeypatch.setattr(sys, "argv", ["PPOAgentTrainer.py", *settings, str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main_program.main()
    assert stop.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("error: training diverged, loss_critic of minibatch")
    assert line.count("\n") == 1
    with np.load(tmp_path / "run" / run_folder.WEIGHTS) as file:
        assert all(np.isfinite(file[name]).all() for name in file.files if name != "best_metric")


# -- the spread --


def test_the_spread_is_bounded_and_the_frozen_copy_agrees():
    trainer = PPOAgentTrainer(CONFIG.replace(env="Pendulum-v1", initial_std=1e30))
    observations = np.zeros((1, 3), np.float32)
    assert float(trainer.agent.policy(observations).stddev()[0, 0]) == MAX_STD
    assert float(trainer.agent.acting_policy().mean_and_std(observations)[1][0]) == MAX_STD
    trainer.close()
    assert (
        float(distributions.normal_policy(np.zeros(1, np.float32), np.full(1, np.inf, np.float32)).stddev()[0])
        == MAX_STD
    )


@pytest.mark.parametrize("initial_std", [1e-6, 1e3])
def test_a_spread_beyond_its_bounds_comes_back(initial_std):
    trainer, _ = trained(CONFIG.replace(env="Pendulum-v1", initial_std=initial_std))
    [log_std] = [layer.log_std for layer in trainer.agent.actor.layers if isinstance(layer, StateIndependentStd)]
    with tf.GradientTape() as tape:
        std = trainer.agent.policy(np.zeros((1, 3), np.float32)).stddev()
    assert abs(tape.gradient(std, log_std.value).numpy()).min() > 0


def test_a_spread_that_runs_away_is_reported_once():
    config = CONFIG.replace(env="Pendulum-v1", entropy_coefficient=1e3, learning_rate=2.0, anneal=())
    trainer, said = trained(config, epochs=4)
    assert trainer.results[-1].mean_std > RUNAWAY["mean_std"][0]
    assert [line for line in said if "runs away" in line] == said
    assert len(said) == 1
    resumed = PPOAgentTrainer(config.replace(epochs=5))
    resumed.warn = said.append
    resumed.load_state(trainer.state())
    resumed.train(1)
    resumed.close()
    assert len(said) == 1  # it was reported before


def test_an_update_that_changes_the_policy_far_too_much_is_reported_once():
    fast = {"learning_rate": 10.0, "anneal": (), "activation": "relu", "hidden_sizes": (64, 64)}
    config = CONFIG.replace(env="Pendulum-v1", **fast)
    trainer, said = trained(config, epochs=3)
    assert max(row.approximate_kl for row in trainer.results) > RUNAWAY["approximate_kl"][0]
    assert sum("far too much" in line and "--learning-rate" in line for line in said) == 1


def test_an_epoch_is_collected_again_as_often_as_environments_may_restart(monkeypatch):
    config = CONFIG.replace(env="Pendulum-v1", on_not_finite="skip", environment_restarts=2)
    trainer, said = PPOAgentTrainer(config), []
    trainer.warn = said.append

    def fail(*_):
        raise NotFiniteError("an observation is NaN", ", or skip it")

    monkeypatch.setattr(trainer.collector.envs, "fill", fail)
    with pytest.raises(NotFiniteError, match=r"^an observation is NaN; attempts at this epoch that failed: 3$"):
        trainer.train(1)
    assert said == ["warning: an observation is NaN; the epoch is collected again"] * 2
    trainer.close()


def test_processes_end_where_one_cannot_be_started_again(tmp_path):
    built = tmp_path / "built"
    built.touch()

    class Once(tiny_envs.Plain):
        """Can be built three times: to be looked at, and for each process once; its steps fail."""

        def __init__(self):
            built.write_text(built.read_text() + "x")
            if len(built.read_text()) > 3:
                raise OSError("no licence")

        def step(self, action):
            raise ValueError("the simulator is gone")

    group = ProcessGroup(find_environment("", maker=Once), 1)
    group.reset(0)
    processes = multiprocessing.active_children()
    group.send(np.zeros((1, 1), np.float32))
    assert group.recv().failed.tolist() == [True]
    group.send(np.zeros((1, 1), np.float32))
    assert group.recv().failed.tolist() == [True] and "no licence" in group.faults[1].error
    assert not any(process.is_alive() for process in [*processes, *multiprocessing.active_children()])


def test_threads_that_start_processes_hide_the_program_one_after_another():
    program, seen = sys.modules["__main__"], []

    def hide(seconds):
        with worker_processes.without_program():
            seen.append(sys.modules["__main__"] is program)
            time.sleep(seconds)

    threads = [threading.Thread(target=hide, args=(seconds,)) for seconds in (0.2, 0.4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.modules["__main__"] is program and seen == [False, False]


class OfOneThread(tiny_envs.Plain):
    """May only be used by the thread that built it, like a connection of sqlite3."""

    def __init__(self, render_mode=None):
        super().__init__()
        self.thread = threading.get_ident()

    def step(self, action):
        assert threading.get_ident() == self.thread
        return super().step(action)


def test_an_environment_is_restored_by_the_thread_that_steps_it(monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry, "tests/Thread-v0", EnvSpec("tests/Thread-v0", OfOneThread, max_episode_steps=9)
    )
    config = PPOConfig(
        env="tests/Thread-v0", num_envs=2, steps_per_epoch=14, minibatch_size=7, passes=1, epochs=4, hidden_sizes=(4,)
    )
    trainer, _ = trained(config, 2)
    again, said = PPOAgentTrainer(config), []
    again.warn = said.append
    again.load_state(trainer.state())
    again.train(1)
    again.close()
    assert not said
