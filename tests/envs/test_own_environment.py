"""An environment of one's own: the page's example as it stands, and what people get wrong with theirs."""

import contextlib
import importlib
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import tiny_envs
from collecting import next_trajectory
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from run_program import call

from common import user_code
from common.envs.environment import find_environment
from common.envs.environment_check import mismatch
from common.envs.gymnasium_group import GymnasiumGroup
from common.envs.process_group import ProcessGroup
from common.envs.vector_env import resolve_backend
from common.errors import UserError
from common.rollout.evaluation import evaluate
from common.runs import run_folder, session, trust
from common.runs.film import FilmedEpisode
from common.runs.options import RunOptions
from common.runs.terminal import Terminal
from companions.config import OffPolicyConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from programs import methods
from programs.methods import load_agent

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("own-environment.md", "action-masks.md")
PAGE = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES)
QUICK = ["--evaluation-episodes", "2", "--record"]
pytestmark = pytest.mark.usefixtures("eager")
PPO = PPOConfig(
    backend="gymnasium", num_envs=2, epochs=1, steps_per_epoch=32, passes=1, minibatch_size=32, hidden_sizes=(4,),
    best_metric="mean_episode_reward",
)  # fmt: skip
TD3 = OffPolicyConfig(
    num_envs=2, epochs=1, steps_per_epoch=32, warmup_steps=8, train_every=8, batch_size=8, hidden_sizes=(4,),
    best_metric="mean_episode_reward",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which the programs are called; modules imported from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    modules, registered, path = set(sys.modules), dict(gymnasium.registry), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    gymnasium.registry.clear()
    gymnasium.registry.update(registered)
    sys.path[:] = path


def files_of_the_page():
    return dict(re.findall(r'^```python title="(\S+)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))


def commands_of_the_page():
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


# -- the page --


@pytest.mark.compiled
def test_the_pages_commands_train_resume_evaluate_draw_and_export(folder, monkeypatch, capsys):
    for name, text in files_of_the_page().items():
        (folder / name).write_text(text)
    for words in commands_of_the_page():
        assert words[0] == "python"
        module, arguments = (words[2], words[3:]) if words[1] == "-m" else (words[1].removesuffix(".py"), words[2:])
        if "moon" in arguments or "resume" in arguments:  # trained as it stands, but evaluated less
            arguments += ["--evaluation-episodes", "10"]
        elif "--name" in arguments:
            fewer = ["--warmup-steps", "200"] if "td3" in arguments else ["--minibatch-size", "256", "--passes", "2"]
            arguments += ["--epochs", "2", "--steps-per-epoch", "256", *fewer, *QUICK]
        module = "programs.__main__" if module == "programs" else module
        code = call(monkeypatch, importlib.import_module(module), *arguments)
        assert code == 0, capsys.readouterr().err
    moon, mars, td3 = (folder / "runs" / name for name in ("moon", "mars", "moon-td3"))
    rewards = run_folder.read_results(moon)["avg_reward_orig"]
    assert len(rewards) == 25 and rewards[19] > max(2, rewards[0] + 3)
    assert json.loads((moon / "evaluation.json").read_text())["deterministic"]["mean"] > 2
    for file in (moon / "video.mp4", moon / "export" / "policy.tflite", folder / "moon.png"):
        assert file.stat().st_size > 1000
    settings = json.loads((mars / "config.json").read_text())["config"]
    assert (settings["env"], settings["env_kwargs"]) == ("rocket:Rocket-v0", {"gravity": 3.7})
    for run in (mars, td3):
        assert len(run_folder.read_results(run)["epoch"]) == 2 and (run / "best_agent.npz").exists()


def test_the_command_that_a_stopped_run_names_continues_it(folder, monkeypatch, capsys):
    for name, text in files_of_the_page().items():
        (folder / name).write_text(text)
    record = Terminal.row

    def stop(self, row):
        record(self, row)
        os.kill(os.getpid(), signal.SIGTERM)

    arguments = ["--env", "rocket:Rocket-v0", "--epochs", "2", "--steps-per-epoch", "64", "--minibatch-size", "64"]
    arguments += ["--passes", "1", "--name", "moon", *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(Terminal, "row", stop)
        assert call(patch, importlib.import_module("PPOAgentTrainer"), *arguments) == 128 + signal.SIGTERM
    words = shlex.split(capsys.readouterr().err.partition("continue with python -m programs ")[2])
    assert words[0] == "resume" and words[2:] == ["--env", "rocket:Rocket-v0"]
    assert call(monkeypatch, importlib.import_module("programs.__main__"), *words) == 0
    assert len(run_folder.read_results(folder / "runs" / "moon")["epoch"]) == 2


@pytest.mark.compiled
def test_the_pages_python_program_trains_resumes_evaluates_and_exports(folder, monkeypatch, capsys):
    for name, text in files_of_the_page().items():
        text = text.replace("epochs=20, steps_per_epoch=4096", "epochs=2, steps_per_epoch=2048")
        text = text.replace("epochs=25", "epochs=3").replace("RunOptions(", "RunOptions(evaluation_episodes=2, ")
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(folder)
    program = runpy.run_path("train_rocket.py", run_name="__main__")
    run = folder / "runs" / "mars-python"
    table = run_folder.read_results(run)
    assert len(table["epoch"]) == 3
    # What `hurry` makes of an episode: half of it less 0.05 a step, but at a timeout −5 for the last step.
    landed = table["avg_reward_orig"] / 2 - 0.05 * table["avg_steps"]
    assert np.all(np.abs(table["avg_reward"] - landed) < 5.1) and np.any(
        table["avg_reward"] != table["avg_reward_orig"]
    )
    assert (run / "export" / "policy.tflite").exists() and (run / "video.mp4").exists()
    assert "mean of 20 episodes: " in capsys.readouterr().out
    assert program["environment"].max_episode_steps == 200
    assert program["environment"].observation_space.shape == (3,)
    import PPOAgentTrainer as program_of_ppo

    assert call(monkeypatch, program_of_ppo, "--resume", run, "--epochs", "4") == 2
    assert "make_rocket() was made by a function of a Python program" in one_line(capsys.readouterr().err)


def test_a_module_in_the_current_folder_is_found_by_a_program_that_lies_elsewhere(folder, processes_without_xla):
    (folder / "rocket.py").write_text(files_of_the_page()["rocket.py"])
    words = ["--env", "rocket:Rocket", "--epochs", "1", "--steps-per-epoch", "64", "--minibatch-size", "64", *QUICK]
    done = subprocess.run(
        [sys.executable, ROOT / "PPOAgentTrainer.py", *words, "--name", "a"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert methods.read_config(folder / "runs" / "a", env="rocket:Rocket-v0")[1].env == "rocket:Rocket-v0"


def one_line(error):
    [line] = error.strip().splitlines()
    assert line.startswith("error: ") and len(line) < 500
    return line


# -- what people get wrong --

GOOD = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box

class Mine(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,)), Box(-1, 1, (1,))
    def __init__(self, size=1, render_mode=None):
        self.size, self.render_mode = size, render_mode
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}

gymnasium.register("Mine-v0", Mine, max_episode_steps=10)
"""
REGISTER, SPACES = (next(line for line in GOOD.splitlines() if word in line) for word in ("register(", "_space, "))
RESET, STEP = "return np.zeros(2, np.float32), {}", "return np.zeros(2, np.float32), 1.0, False, False, {}"
WRONG = {  # what is typed, and changed in the module, and what the line says
    "no such module": (["--env", "mien:Mine-v0"], {}, ["no module mien", "mien.py", "current folder"]),
    "nothing after the colon": (["--env", "mine:"], {}, ["expected", "module:id"]),
    "without its module": (["--env", "Mineral-v0"], {}, ["unknown environment", "module:id"]),
    "another id": (["--env", "mine:Mime-v0"], {}, ["registers no 'Mime-v0'", "mine:Mine-v0"]),
    "a class that is not registered": (
        ["--env", "mine:Mine"], {REGISTER: ""},
        ["class Mine", 'gymnasium.register("Mine-v0", Mine)', "--env mine:Mine-v0"],
    ),
    "nothing is registered": (
        [], {REGISTER: ""}, ["registers no environment", "register("],
    ),
    "a mistake in the syntax": ([], {"class Mine(": "class Mine)("}, ["mine", "SyntaxError", "mine.py, line 6"]),
    "an import that is not there": ([], {"import numpy": "import nunpy"}, ["No module named 'nunpy'", "install"]),
    "an error while importing": ([], {"class Mine(": "1 / 0\nclass Mine("}, ["ZeroDivisionError", "mine.py, line 6"]),
    "a program in the module": ([], {"class Mine(": "raise SystemExit\nclass Mine("}, ["the program", "__main__"]),
    "an error in the constructor": (
        [], {"self.size, ": "1 / 0; self.size, "},
        ["cannot be built", "ZeroDivisionError", "mine.py, line 9, in __init__"],
    ),
    "an argument that it needs": (
        [], {"size=1, ": "size, "}, ["cannot be built", "'size'", """--env-kwargs '{"size": 3}'"""],
    ),
    "a dash in the module's name": (["--env", "my-mine:Mine-v0"], {}, ["letters", "py: use my_mine:Mine-v0"]),
    "a dash in the file's name": (
        ["--env", "mine-too:Mine-v0"], {}, ["rename mine-too.py to mine_too.py", "use mine_too:Mine-v0"],
    ),
    "a file": (["--env", "mine.py:Mine-v0"], {}, ["module's name", "use mine:Mine-v0"]),
    "another id among many": (
        ["--env", "mine:Thirty-v0"],
        {REGISTER: REGISTER + "".join(f'\ngymnasium.register("{id}-v0", Mine)' for id in ("A", "B", "C", "Thirsty"))},
        ["registers no 'Thirty-v0': use mine:Thirsty-v0"],
    ),
    "a package that it asks for itself": (
        [], {"import numpy": "raise ImportError('no simulator')\nimport numpy"}, ["no simulator", "install"],
    ),
    "a package that its reset needs": ([], {RESET: "import nunpy"}, ["reset failed", "nunpy", "install"]),
    "no observation": ([], {RESET: RESET.replace("np.zeros(2, np.float32)", "None")}, ["observation None", "(2,)"]),
    "a constructor that ends the program": (
        [], {"self.size, ": "raise SystemExit; self.size, "}, ["cannot be built", "SystemExit", "mine.py, line 9"],
    ),
    "a reset that ends the program": ([], {RESET: "raise SystemExit"}, ["reset failed", "SystemExit", "line 12"]),
    "a step that ends the program": ([], {STEP: "raise SystemExit"}, ["step failed", "SystemExit", "line 14"]),
    "an argument that it does not take": (
        ["--env-kwargs", '{"seize": 2}'], {}, ["cannot be built", "seize", "--env-kwargs"],
    ),
    "arguments that are no JSON": (["--env-kwargs", "size=2"], {}, ["size=2", "JSON object", '{"gravity": 3.7}']),
    "a number too long": (["--env-kwargs", '{"a": ' + "1" * 5000 + "}"], {}, ["JSON object"]),
    "NaN for an argument": (["--env-kwargs", '{"size": NaN}'], {}, ["JSON object"]),
    "an argument that is a setting": (
        ["--env-kwargs", '{"max_episode_steps": 9}'], {}, ["--max-episode-steps"],
    ),
    "EnvPool with arguments": (
        ["--env-kwargs", '{"size": 2}', "--backend", "envpool"], {}, ["envpool takes no env_kwargs", "gymnasium"],
    ),
    "no observation space": (
        [], {SPACES: "    action_space = Box(-1, 1, (1,))"},
        ["no observation_space", "self.observation_space"],
    ),
    "a space that is none": ([], {"Box(-1, 1, (1,))": "(1,)"}, ["(1,) as action_space", "Box"]),
    "another class's child": ([], {"gymnasium.Env)": "object)"}, ["gymnasium.Env"]),
    "an error in reset": ([], {RESET: "1 / 0"}, ["reset failed", "ZeroDivisionError", "mine.py, line 12, in reset"]),
    "reset without a seed": (
        [], {"def reset(self, seed=None, options=None):": "def reset(self):"},
        ["reset failed", "reset(self, seed=None, options=None)"],
    ),
    "reset of the old interface": ([], {RESET: "return np.zeros(2)"}, ["reset returned", "(observation, info)"]),
    "an error in step": ([], {STEP: "1 / 0"}, ["step failed", "ZeroDivisionError", "mine.py, line 14, in step"]),
    "step of the old interface": (
        [], {STEP: "return np.zeros(2), 1.0, False, {}"}, ["step returned", "terminated, truncated"],
    ),
    "step returns nothing": ([], {STEP: "pass"}, ["step", "terminated, truncated"]),
    "an observation of another shape": ([], {RESET: "return np.zeros(3), {}"}, ["reset returned", "(3,)", "(2,)"]),
    "of another shape in step": (
        [], {STEP: "return np.zeros((2, 1)), 1.0, False, False, {}"}, ["step returned", "(2, 1)", "(2,)"],
    ),
    "an observation of texts": ([], {RESET: "return ['a', 'b'], {}"}, ["reset returned", "float32"]),
    "no reward": ([], {STEP: STEP.replace("1.0", "None")}, ["reward None", "number"]),
    "a reward of two numbers": ([], {STEP: STEP.replace("1.0", "np.zeros(2)")}, ["reward", "number"]),
    "terminated is a number": ([], {STEP: STEP.replace("False", "0.5", 1)}, ["0.5 as terminated", "True or False"]),
    "truncated is an info": ([], {STEP: STEP.replace("False, {}", "{}, {}")}, ["{} as truncated", "True or False"]),
    "a longer limit than its own": (
        ["--max-episode-steps", "30"],
        {"Mine, max_episode_steps=10": "lambda **k: gymnasium.wrappers.TimeLimit(Mine(**k), 10)"},
        ["max_episode_steps is 30", "--max-episode-steps 10"],
    ),
    "a reward design that only Python has": (["--reward-design", "function"], {}, ["Python", "--reward-design"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_line_that_says_what_to_do(folder, monkeypatch, capsys, mistake):
    program = ("PPOAgentTrainer", "companions.OffPolicyAgentTrainer")[list(WRONG).index(mistake) % 2]
    typed, changes, words = WRONG[mistake]
    text = GOOD
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    for name in ("mine.py", "mine-too.py"):
        (folder / name).write_text(text)
    named = [] if "--env" in typed else ["--env", "mine:Mine-v0"]
    assert call(monkeypatch, importlib.import_module(program), *named, *typed) == 2
    line = one_line(capsys.readouterr().err)
    for word in words:
        assert word in line, line
    assert not (folder / "runs").exists()


def test_nothing_is_wrong_with_the_module_that_the_mistakes_are_made_in(folder):
    (folder / "mine.py").write_text(GOOD)
    for trainer in (PPOAgentTrainer, OffPolicyAgentTrainer):
        config = (PPO if trainer is PPOAgentTrainer else TD3).replace(env="mine:Mine-v0", env_kwargs={"size": 2})
        trained = trainer(config)
        trained.train()
        assert trained.environment.make().unwrapped.size == 2


ONE = tiny_envs.Target()


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: 3, "lambda() returned 3"),
        (
            lambda: 1 / 0,
            r"lambda\(\) cannot be built \(ZeroDivisionError: division by zero, at test_own_environment.py",
        ),
        (ONE, "make_env is .*expected a function or class"),
        (lambda: ONE, "same environment twice"),
        (lambda gravity: tiny_envs.Target(), r"lambda\(\) cannot be built \(TypeError: .*gravity"),
    ],
)
def test_a_function_that_builds_no_new_environment_is_one_line(make, words):
    with pytest.raises(UserError, match=words.replace("lambda() ", r"lambda\(\) ")) as refusal:
        PPOAgentTrainer(PPO, make_env=make)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "design, words",
    [
        (3, "reward_design is 3"),
        (lambda rewards: rewards, "reward_design <lambda> failed .*rewards, terminated, truncated, steps"),
        (lambda rewards, *_: rewards.mean(), r"returned rewards of shape \(\): expected \(16, 2\)"),
        (lambda rewards, *_: rewards / 0, "returned NaN or infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_reward_design_that_does_not_work_is_one_line(design, words):
    with pytest.raises(UserError, match=words):
        PPOAgentTrainer(PPO.replace(env="tests/Plain-v0"), reward_design=design).train()


# -- functions --


def stepped(maker, backend="processes", steps=1, num_envs=1, arguments=None):
    """The last of some steps of a group, and the group's failures."""
    environment = find_environment("", 3, arguments, maker)
    with contextlib.closing(
        (GymnasiumGroup if backend == "gymnasium" else ProcessGroup)(environment, num_envs)
    ) as group:
        group.reset(0)
        for _ in range(steps):
            group.send(np.zeros((num_envs, 1), np.float32))
            step = group.recv()
        return step, group.faults


@pytest.mark.parametrize("backend", ["gymnasium", "processes"])
def test_functions_and_their_arguments_reach_every_environment(backend):
    class Sized(tiny_envs.Plain):
        """Known to no module, so that another process gets its code."""

        def __init__(self, size):
            self.size = size

        def step(self, action):
            return np.full(2, self.size, np.float32), float(self.size), False, False, {}

    step, _ = stepped(lambda size: Sized(size), backend, num_envs=2, arguments={"size": 7})
    assert step.rewards.tolist() == [7, 7]


@pytest.mark.parametrize("trainer, config", [(PPOAgentTrainer, PPO), (OffPolicyAgentTrainer, TD3)])
def test_a_reward_design_of_ones_own_is_learned_from_but_not_scored(trainer, config):
    def negative_and_in_place(rewards, terminated, truncated, steps):
        assert rewards.shape == terminated.shape == truncated.shape == steps.shape
        rewards *= -2
        return rewards

    one = trainer(config, make_env=tiny_envs.Plain, reward_design=negative_and_in_place)
    assert (one.config.env, one.config.reward_design) == ("Plain()", "function")
    one.train()
    assert one.results[0].total_reward == -2 * one.results[0].total_reward_orig < 0


def test_a_function_is_never_mistaken_for_what_envpool_has():
    plain, made = (
        find_environment("Pendulum-v1"),
        find_environment("", None, None, lambda: gymnasium.make("Pendulum-v1")),
    )
    heavy = find_environment("Pendulum-v1", None, {"g": 20.0})
    assert plain.gymnasium_id == "Pendulum-v1"
    assert made.gymnasium_id is heavy.gymnasium_id is None
    assert resolve_backend("auto", made) == resolve_backend("auto", heavy) == "gymnasium"
    assert heavy.make().unwrapped.g == 20.0
    assert made.max_episode_steps == 200


def test_a_run_of_a_function_resumes_from_python_to_the_same_bytes(folder):
    def make_trainer(config):
        return PPOAgentTrainer(config, make_env=tiny_envs.Target)

    quiet = {"evaluation_episodes": 0, "record": ()}
    config = PPO.replace(adopt_best=False, anneal=())
    whole = session.run(make_trainer, "mine", config.replace(epochs=3), RunOptions(name="whole", **quiet))
    half = session.run(make_trainer, "mine", config.replace(epochs=2), RunOptions(name="half", **quiet))
    session.run(make_trainer, "mine", config.replace(epochs=3), RunOptions(resume=half, **quiet))
    agents = [load_agent(run, make_env=tiny_envs.Target)[0] for run in (whole, half)]
    for ours, theirs in zip(*(agent.actor.get_weights() for agent in agents)):
        np.testing.assert_array_equal(ours, theirs)
    assert methods.read_config(half)[1].env == "Target()"
    with pytest.raises(UserError, match=r"Target\(\) was made by a function of a Python program"):
        load_agent(whole)


# -- spaces and what may be missing --


class Shows(gymnasium.Env):
    """Shows samples of a space and takes actions of another; without metadata, spec or a step limit."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def _observe(self):
        sample = self.observation_space.sample()
        return sample.tolist() if isinstance(sample, np.ndarray) and sample.dtype == np.float64 else sample

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action) if self.action_space.shape == () else action), action
        self.steps += 1
        return self._observe(), np.float64(1.0), self.steps == 4, False, {}


INF = np.inf
NUMBERS = Box(-1, 1, (2,))
OBSERVATIONS = {
    "float64": Box(-1, 1, (2,), np.float64),
    "infinite bounds": Box(-INF, INF, (2,)),
    "one-sided bounds": Box(np.array([0, -INF], np.float32), np.array([INF, 3], np.float32)),
    "integers": Box(-3, 9, (2,), np.int64),
    "a single number": Box(-1, 1, ()),
    "a table": Box(-1, 1, (2, 3)),
    "discrete from 5": Discrete(3, start=5),
    "nested": Dict(
        a=Tuple([Discrete(3), Box(-1, 1, (2,), np.float64)]), b=Dict(c=MultiBinary(2), d=Box(0, 9, (), int))
    ),
    "a grey image": Box(0, 255, (12, 14), np.uint8),
    "channels first": Box(0, 255, (3, 12, 14), np.uint8),
    "a dictionary with nothing but an image": Dict(camera=Box(0, 255, (12, 14, 3), np.uint8)),
}
ACTIONS = {
    "float64": Box(-2, 2, (2,), np.float64),
    "infinite bounds": Box(-INF, INF, (1,)),
    "asymmetric bounds": Box(np.array([-1, 2], np.float32), np.array([3, 9], np.float32)),
    "one-sided bounds": Box(np.array([0, -INF], np.float32), np.array([INF, -7], np.float32)),
    "integers": Box(0, 255, (2,), np.uint8),
    "a single number": Box(-1, 3, ()),
    "a table": Box(-1, 3, (2, 2)),
    "discrete from 5": Discrete(3, start=5),
}
CASES = [(name, space, Box(-1, 1, (1,))) for name, space in OBSERVATIONS.items()]
CASES += [("actions: " + name, NUMBERS, space) for name, space in ACTIONS.items()]


ALSO_TD3 = ("float64", "nested", "a grey image", "actions: one-sided bounds", "actions: discrete from 5")


@pytest.mark.parametrize(
    "observations, actions, method",
    [
        pytest.param(*case, method, id=f"{name}-{method}")
        for name, *case in CASES
        for method in ("ppo", "td3")
        if method == "ppo" or name in ALSO_TD3
    ],
)
def test_spaces_train_and_evaluate(observations, actions, method, tmp_path):
    def make():
        return Shows(observations, actions)

    if method == "td3" and isinstance(actions, Discrete):
        with pytest.raises(UserError, match="PPOAgentTrainer"):
            OffPolicyAgentTrainer(TD3, make_env=make)
        return
    images = {"convolutions": ("2x3/2",)}
    trainer = (
        PPOAgentTrainer(PPO.replace(**images), make_env=make)
        if method == "ppo"
        else OffPolicyAgentTrainer(TD3, make_env=make)
    )
    trainer.train()
    assert trainer.results[0].avg_steps == 4 and trainer.environment.max_episode_steps is None
    played = evaluate(
        trainer.agent.acting_policy(), trainer.agent.action_map, trainer.environment, 3, deterministic=False
    )
    assert played.returns.tolist() == [4, 4, 4]


def test_without_pictures_the_film_is_left_out_in_a_line():
    class NoMetadata(tiny_envs.Plain):
        metadata = None

    class NoRate(tiny_envs.Lengths):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    class NoPicture(NoRate):
        def render(self):
            raise RuntimeError("no paint")

    def films(make):
        trainer = PPOAgentTrainer(PPO.replace(max_episode_steps=4), make_env=make)
        return list(FilmedEpisode(trainer.agent.acting_policy(), trainer.agent.action_map, trainer.environment))

    for make, words in (
        (NoMetadata, "draws no pictures"),
        (lambda: NoRate(), "draws no pictures"),
        (NoPicture, "no paint"),
    ):
        with pytest.raises(UserError, match=words) as refusal:
            films(make)
        assert "\n" not in str(refusal.value)
    assert films(NoRate)


@pytest.mark.parametrize("program", ["PPOAgentTrainer", "companions.OffPolicyAgentTrainer"])
def test_without_a_version_the_newest_is_taken_and_stored(program):
    trainer = {"PPOAgentTrainer": PPOAgentTrainer, "companions.OffPolicyAgentTrainer": OffPolicyAgentTrainer}[program]
    config = PPO.replace(env="CartPole") if trainer is PPOAgentTrainer else TD3.replace(env="Pendulum")
    assert trainer(config).config.env == config.env + "-v1"


def test_an_environment_without_a_step_limit_is_given_one(folder):
    unlimited = GOOD.replace(", max_episode_steps=10", "")
    (folder / "mine.py").write_text(unlimited)
    for trainer, config in ((PPOAgentTrainer, PPO), (OffPolicyAgentTrainer, TD3)):
        endless = trainer(config.replace(env="mine:Mine-v0"))
        endless.train()
        assert endless.environment.max_episode_steps is None and endless.results[0].episodes == 0
        limited = trainer(config.replace(env="mine:Mine-v0", max_episode_steps=5))
        limited.train()
        assert limited.results[0].max_steps == 5


def test_a_fault_in_the_middle_of_training_shows_the_users_own_lines_alone(folder):
    (folder / "mine.py").write_text(
        GOOD.replace(STEP, "self.age = getattr(self, 'age', 0) + 1; 1 / (self.age - 4); " + STEP)
    )
    trainer = PPOAgentTrainer(PPO.replace(env="mine:Mine-v0", environment_restarts=99))
    warnings = []
    trainer.warn = warnings.append
    trainer.train()
    told = warnings[0].splitlines()
    assert "ZeroDivisionError: division by zero" in told[0]
    assert len(told) <= 6 and "mine.py" in told[2] and "gymnasium" not in "".join(told)


# -- what environments do that nobody thought of --


@pytest.mark.parametrize("backend", ["gymnasium", "processes"])
def test_an_awkward_environment_is_trained_scored_and_filmed(tmp_path, backend):
    trainer = PPOAgentTrainer(PPO.replace(backend=backend), make_env=tiny_envs.Awkward)
    trainer.train()
    assert trainer.results[0].episodes > 0 and trainer.state()["experience/collector/faults"] == 0
    trainer.close()
    policy, actions = trainer.agent.acting_policy(), trainer.agent.action_map
    scores = evaluate(policy, actions, trainer.environment, 2, True)
    assert scores.lengths.tolist() == [6, 6] and not scores.faults
    take = FilmedEpisode(policy, actions, trainer.environment)
    assert len(list(take)) == 7 and take.frame_rate == 1 and take.score == scores.returns[0]


class Grey(tiny_envs.Awkward):
    def render(self):
        return np.zeros((16, 16, 1), np.uint8)


def test_pictures_of_one_channel_are_refused_in_one_line():
    with pytest.raises(UserError, match="draws no pictures: expected uint8 of shape"):
        list(FilmedEpisode(None, None, find_environment("", maker=Grey)))


@pytest.mark.parametrize("backend", ["gymnasium", "processes"])
def test_an_info_that_is_none_is_a_fault_of_the_environment(backend):
    class Bare(tiny_envs.Awkward):
        def step(self, action):
            return *super().step(action)[:4], None

    step, [fault] = stepped(Bare, backend)
    assert step.failed.tolist() == [True] and "NoneType" in fault.error


def test_an_exception_that_cannot_be_pickled_is_a_fault_and_no_hang():
    class CrashError(Exception):
        def __reduce__(self):
            raise TypeError("it holds a lock")

    class Crashing(tiny_envs.Awkward):
        def step(self, action):
            raise CrashError("the simulator is gone")

    step, [fault] = stepped(Crashing)
    assert step.failed.tolist() == [True] and fault.error == "CrashError: the simulator is gone"
    assert "in step" in fault.details and fault.details.count("  File ") == 1


def test_a_process_that_cannot_reset_names_the_place_and_one_that_hangs_the_time():
    class Broken(tiny_envs.Awkward):
        def reset(self, seed=None, options=None):
            raise OSError("no display")

    class Hanging(tiny_envs.Awkward):
        def reset(self, seed=None, options=None):
            time.sleep(60)

    with pytest.raises(UserError, match=r"reset failed \(OSError: no display, at .*, line \d+, in reset\)"):
        stepped(Broken)
    group = ProcessGroup(find_environment("", maker=Hanging), 1, time_limit=1.0)
    with pytest.raises(UserError, match="did not answer within 1 s, see --environment-time-limit"):
        group.reset(0)


class Later(gymnasium.Env):
    """What it returns changes after the second step, which no check before training sees."""

    action_space = Box(-1.0, 1.0, (1,))

    def __init__(self, observation_space, first, then, reward=1.0):
        self.observation_space, self._first, self._then, self._reward = observation_space, first, then, reward

    def reset(self, seed=None, options=None):
        self._steps = 0
        return self._first, {}

    def step(self, action):
        self._steps += 1
        late = self._steps > 2
        return self._then if late else self._first, self._reward if late else 1.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "first", "then", "words"),
    [
        (Box(-1, 1, (2,)), np.zeros(2), np.zeros(1), r"of shape \(1,\), but observation_space says \(2,\)"),
        (Box(-1, 1, (2,)), np.zeros(2), 0, r"of shape \(\), but observation_space says \(2,\)"),
        (Box(-1, 1, (2,)), np.zeros(2), None, r"None, but observation_space says float32 of shape \(2,\)"),
        (Box(0, 255, (2,), np.uint8), np.array([1, 2]), np.array([-1, 256]), "from -1 to 256, which uint8 .* hold"),
        (Box(-9, 9, (2,), np.int64), np.zeros(2), np.array([0.63, 0.0]), "of fractions"),
        (MultiDiscrete([3, 3]), np.array([0, 2]), np.array([4, 1]), r"array\(\[4, 1\]\)"),
        (Discrete(5), 2, -1, "-1, but observation_space says Discrete"),
        (Dict({"a": Discrete(3), "b": Discrete(2)}), {"a": 2, "b": 1}, {"a": 2}, "without 'b'"),
    ],
)
def test_what_is_returned_later_is_checked_too(space, first, then, words):
    env = find_environment("", maker=lambda: Later(space, first, then)).make()
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(1))
    with pytest.raises(user_code.WrongReturnError, match=f"step returned an observation.*{words}"):
        env.step(np.zeros(1))


@pytest.mark.parametrize("backend", ["gymnasium", "processes"])
def test_a_wrong_observation_is_told_in_one_line_without_a_traceback(backend):
    step, [fault] = stepped(lambda: Later(Box(-1, 1, (2,)), np.zeros(2), np.zeros(1)), backend, steps=3)
    assert step.failed.tolist() == [True]
    assert fault[1:] == ("step returned an observation of shape (1,), but observation_space says (2,)", "")


@pytest.mark.parametrize("reward", [None, "1", np.ones(3), np.array([None]), np.array("1")])
def test_a_reward_that_becomes_no_number_is_said_to_be_one(reward):
    env = find_environment("", maker=lambda: Later(Box(-1, 1, (2,)), np.zeros(2), np.zeros(2), reward)).make()
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(1))
    with pytest.raises(user_code.WrongReturnError, match=r"step returned the reward .*: expected a number"):
        env.step(np.zeros(1))


def test_the_end_of_the_program_is_a_fault():
    class Leaving(tiny_envs.Awkward):
        def step(self, action):
            sys.exit("the window was closed")

        def render(self):
            sys.exit()

        def close(self):
            sys.exit()

    class Away(tiny_envs.Awkward):
        def reset(self, seed=None, options=None):
            sys.exit()

    env = find_environment("", maker=Leaving).make()
    env.reset(seed=0)
    for call_it in (lambda: env.step(np.zeros(1)), env.render, find_environment("", maker=Away).make().reset):
        with pytest.raises(RuntimeError, match="it ended the program"):
            call_it()


@pytest.mark.parametrize("image", [np.ones((40, 40, 1)), np.full((40, 40, 1), 0.5)])
def test_an_image_of_floats_is_refused_even_if_they_are_whole(image):
    space = Box(0, 255, (40, 40, 1), np.uint8)
    assert "of float64, but observation_space says uint8, an image from 0 to 255" in mismatch(space, image)
    assert mismatch(space, image.astype(np.int64)) is None


@pytest.mark.parametrize("fps", ["fast", float("inf"), float("nan"), 0, None, True])
def test_a_frame_rate_that_is_no_number_is_thirty(fps):
    class Filmed(tiny_envs.Awkward):
        metadata = tiny_envs.Awkward.metadata | {"render_fps": fps}

    assert find_environment("", maker=Filmed).render_fps == (1 if fps is True else 30)


def test_a_reset_without_options_is_enough():
    class Short(tiny_envs.Awkward):
        def reset(self, seed=None):
            return super().reset(seed=seed)

    assert find_environment("", maker=Short).make().reset(seed=0)[1] == {}


def test_a_constructor_that_fails_in_a_process_is_said_not_to_be_built():
    here = os.getpid()

    class Second(tiny_envs.Awkward):
        def __init__(self):
            if os.getpid() != here:
                raise OSError("no licence")
            super().__init__()

    with pytest.raises(UserError, match=r"cannot be built \(OSError: no licence"):
        stepped(Second)


def test_an_action_that_is_changed_in_place_is_held_as_it_was():
    taken = []

    class Halving(tiny_envs.Awkward):
        def step(self, action):
            taken.append(action.tolist())
            action *= 0.5
            return super().step(action)

    env = find_environment("", maker=Halving, action_repeat=3).make()
    env.reset(seed=0)
    env.step(np.ones(1, np.float32))
    assert taken == [[1.0]] * 3


def test_texts_of_a_dict_are_left_out_and_named_and_deeper_ones_refused_with_their_place(capsys):
    seen = {"where": np.zeros(2), "said": "abc"}
    space = Dict({"where": Box(-1, 1, (2,)), "said": Text(3)})
    trainer = PPOAgentTrainer(PPO.replace(max_episode_steps=8), make_env=lambda: Later(space, seen, seen))
    assert "warning: lambda(): observations have the text said, which is left out" in capsys.readouterr().out
    trainer.train()
    assert trainer.agent.observation_size == 2
    with pytest.raises(UserError, match=r"observations of type Text, at \['a'\]\['said'\].*--wrappers"):
        find_environment("", maker=lambda: Later(Dict(a=space, b=Discrete(2)), None, None))


def test_dimensions_of_an_action_that_cannot_change_are_named(capsys):
    class Stuck(Later):
        action_space = Box(np.array([-1, 2], np.float32), np.array([1, 2], np.float32))

    space, seen = Box(-1, 1, (2,)), np.zeros(2)
    PPOAgentTrainer(PPO, make_env=lambda: Stuck(space, seen, seen)).close()
    assert "1 of the 2 dimensions of action_space have one value only (number 2)" in capsys.readouterr().out


WRAPPERS = """
class First(gymnasium.Wrapper):
    def __init__(self, env, needed=0):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Dict(far=Box(-1, 1, (2, 1)), near=env.observation_space)
    def reset(self, **options):
        observation, info = self.env.reset(**options)
        return {"far": observation[:, None] + 1, "near": observation}, info
    def step(self, action):
        observation, *rest = self.env.step(action)
        return {"far": observation[:, None] + 1, "near": observation}, *rest

class Needy(gymnasium.Wrapper):
    def __init__(self, env, size):
        super().__init__(env)

class Half(First):
    def __init__(self, env):
        import nunpy
"""
TYPED = ["--env", "mine:Mine-v0", "--wrappers", "mine:First", "gymnasium.wrappers:FlattenObservation"]


def test_wrappers_are_applied_in_order_recorded_and_imported_again_only_if_named_again(folder, monkeypatch, capsys):
    (folder / "mine.py").write_text(GOOD + WRAPPERS)
    quick = [*QUICK, "--epochs", "2", "--steps-per-epoch", "64", "--minibatch-size", "64", "--name", "a"]
    assert call(monkeypatch, importlib.import_module("PPOAgentTrainer"), *TYPED, *quick, "--num-envs", "4") == 0
    stored = json.loads((folder / "runs" / "a" / "config.json").read_text())["config"]
    assert stored["wrappers"] == TYPED[3:]
    capsys.readouterr()
    run = str(folder / "runs" / "a")
    for program, rest in (("evaluate", ["--episodes", "2"]), ("resume", ["--epochs", "3", *QUICK])):
        module = importlib.import_module(f"programs.{program}")
        for typed in ([], TYPED[:2], TYPED[:-1]):
            assert call(monkeypatch, module, run, *typed, *rest[:2]) == 2
            assert one_line(capsys.readouterr().err).endswith(" ".join(TYPED))
        assert call(monkeypatch, module, run, *TYPED, *rest) == 0
    assert len(run_folder.read_results(Path(run))["epoch"]) == 3
    _, _, environment = load_agent(Path(run), env=TYPED[1], wrappers=TYPED[3:])
    env = environment.make()
    assert env.reset(seed=0)[0].tolist() == [1, 1, 0, 0]
    with pytest.raises(UserError, match=r"has the wrappers .*mine:First.*: leave --wrappers out, or type these"):
        trust.check_no_other_environment(
            Path(run), PPO.replace(wrappers=TYPED[3:]), trust.Typed(wrappers=("mine:Half",))
        )


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("mine", "expected module:Class, like gymnasium.wrappers:FlattenObservation"),
        ("mine:Frist", "mine has no class Frist"),
        ("mien:First", "there is no module mien"),
        (
            "mine:Needy",
            r"cannot be wrapped in mine:Needy \(TypeError.*'size'.*\): expected a class of this environment and",
        ),
        ("mine:Needy(x)", r"expected JSON in the brackets, like gymnasium.wrappers:FrameStackObservation\(4\)"),
        ("mine:Needy(3", "expected module:Class"),
        ("mine:Half", r"cannot be wrapped in mine:Half \(ModuleNotFoundError.*\): install the package"),
        ("mine:np", "module' object is not callable|has no class np"),
        ("builtins:str", "expected a gymnasium.Env"),
    ],
)
def test_a_wrapper_that_does_not_fit_is_one_line(folder, named, words):
    (folder / "mine.py").write_text(GOOD + WRAPPERS)
    with pytest.raises(UserError, match=words) as refusal:
        find_environment("mine:Mine-v0", wrappers=(named,))
    assert "\n" not in str(refusal.value)


def test_a_wrapped_environment_is_the_users_own_and_no_other_backends():
    pendulum = find_environment("Pendulum-v1", wrappers=("gymnasium.wrappers:FlattenObservation",))
    assert pendulum.gymnasium_id is None and resolve_backend("auto", pendulum) == "gymnasium"
    stacked = find_environment("Pendulum-v1", wrappers=("gymnasium.wrappers:FrameStackObservation(4)",))
    assert stacked.observation_space.shape == (12,)
    with pytest.raises(UserError, match="envpool takes no wrappers"):
        resolve_backend("envpool", pendulum)


def test_a_module_named_like_one_of_pythons_is_told_to_be_renamed(folder, monkeypatch, capsys):
    (folder / "colorsys.py").write_text(GOOD)
    assert call(monkeypatch, importlib.import_module("PPOAgentTrainer"), "--env", "colorsys:Mine-v0") == 2
    line = one_line(capsys.readouterr().err)
    assert "colorsys is also the name of another module" in line and "rename your colorsys.py" in line


def test_a_second_environment_that_cannot_be_built_is_one_line():
    built = []

    def make():
        if built:
            raise OSError("address already in use")
        built.append(1)
        return tiny_envs.Awkward()

    with pytest.raises(UserError, match=r"address already in use.*--num-envs 1") as refusal:
        find_environment("", maker=make)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "entry_point", ["gymnasium.envs.classic_control:CartPoleEnv", "__main__:Mine"], ids=["gymnasium's", "main"]
)
def test_what_a_program_registers_is_known_to_its_processes(folder, monkeypatch, entry_point):
    monkeypatch.setattr(sys.modules["__main__"], "Mine", tiny_envs.Plain, raising=False)
    gymnasium.register("Short-v0", entry_point, max_episode_steps=9)
    environment = find_environment("Short-v0")
    group = ProcessGroup(environment, 1)
    assert group.reset(0).shape == (1, *environment.observation_space.shape)
    group.close()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("Pendulm-v1", "did you mean Pendulum-v1"),
        ("walker", "did you mean .*BipedalWalker-v3"),
        ("Nothing-v9", r"see gymnasium.pprint_registry\(\) for the names"),
    ],
)
def test_a_name_that_there_is_not_is_answered_with_near_ones(typed, answer):
    with pytest.raises(UserError, match=f"unknown environment '{typed}': {answer}"):
        find_environment(typed)


@pytest.mark.timeout(10)
def test_errors_that_name_each_other_as_their_cause_are_explained():
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    assert user_code.explain(one) == "ValueError: one"


def test_what_an_own_info_says_changes_nothing(tiny):
    class Telling(tiny_envs.Plain):
        def step(self, action):
            return *super().step(action)[:4], {"life_lost": True, "action_replaced": np.ones(2)}

    trainer = PPOAgentTrainer(tiny.replace(env="", max_episode_steps=50), make_env=Telling)
    next_trajectory(trainer)
    trainer.close()
    assert not trainer.collector.trajectory.terminated.any() and not trainer.collector.trajectory.replaced.any()


def test_a_tuple_with_a_part_too_many_is_refused():
    space = gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)))
    assert mismatch(space, (0, 1)) is None
    assert mismatch(space, (0, 1, 1)) == " of 3 parts, but observation_space says 2"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("In a call:\n\x1b[1mExpected 2 axes\x1b[0m\nand more"), "ValueError: Expected 2 axes"),
        (ValueError("\n  first \nsecond"), "ValueError: first"),
        (ValueError("Error encountered:\n\nno shape\nsecond"), "ValueError: Error encountered: no shape"),
        (SyntaxError(), "SyntaxError"),
    ],
)
def test_an_error_is_described_in_one_line(error, line):
    assert user_code.describe(error) == line


@pytest.mark.parametrize(("file", "is_theirs"), [("ppo_rocket.py", True), ("ppo/rocket.py", False)])
def test_a_file_beside_the_projects_folders_is_the_users(file, is_theirs):
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile("1 / 0", ROOT / file, "exec"))
    assert (f"at {Path(file).name}, line 1" in user_code.explain(raised.value)) is is_theirs
