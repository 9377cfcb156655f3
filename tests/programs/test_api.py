"""Training, loading, acting, evaluating and filming from a program of one's own."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from common.envs import stored_spaces
from common.envs.stored_spaces import from_json, to_json
from common.errors import UserError
from common.files import read_json, write_json
from common.rollout.evaluation import EVALUATION_SEED
from common.runs import run_folder
from programs import shipped
from programs.api import load, train

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"epochs": 2, "num_envs": 2, "steps_per_epoch": 64, "minibatch_size": 32, "passes": 1, "hidden_sizes": (4,),
         "best_metric": "mean_episode_reward", "score_window": 2, "evaluation_episodes": 0, "record": ()}  # fmt: skip
pytestmark = pytest.mark.usefixtures("eager")
SPACES = [
    Box(np.float32([-1.5, -np.inf]), np.float32([0.1, np.inf])),
    Box(0, 255, (3, 4, 3), np.uint8),
    Box(np.array([False, False]), np.array([True, True]), dtype=np.bool_),
    Discrete(3, start=-1),
    Dict(b=Tuple([Discrete(2), MultiBinary([2, 2])]), a=MultiDiscrete([[2, 3]], start=[[1, 0]])),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_stored_space_is_the_same(space, tmp_path):
    write_json(tmp_path / "space.json", to_json(space))
    stored = from_json(read_json(tmp_path / "space.json"))
    assert stored == space and repr(stored) == repr(space)  # equal ones may differ in the order of a Dict's parts


def test_discrete_spaces_are_read_with_gymnasium_before_1_2_2(monkeypatch):
    class Older(Discrete):
        def __init__(self, n, seed=None, start=0):
            super().__init__(n, seed, start)

    monkeypatch.setattr(stored_spaces.spaces, "Discrete", Older)
    assert from_json(to_json(Older(3, start=-1))) == Discrete(3, start=-1)


@pytest.mark.parametrize("env", [f"tests/{name}-v0" for name in ("Matching", "Nested", "DotAndSign", "Dot", "Target")])
def test_an_agent_acts_on_raw_observations_without_its_environment(env, tmp_path, monkeypatch):
    settings = SMALL | ({"convolutions": ("4x3/2",)} if "Dot" in env else {})
    trained = train(env=env, runs_folder=str(tmp_path), **settings)
    envs = gymnasium.make_vec(env, num_envs=3, vectorization_mode="sync")
    one = gymnasium.make(env)
    monkeypatch.delitem(gymnasium.registry, env)
    agent = load(trained.folder)
    observations, _ = envs.reset(seed=0)
    actions = agent.act(observations)
    assert envs.action_space.contains(actions)
    envs.step(actions)
    for i in range(3):
        observation, _ = one.reset(seed=i)
        action = agent.act(observation)
        assert one.action_space.contains(action) and np.array_equal(action, actions[i])
        one.step(action)
    drawn = [agent.act(observations, rng=np.random.default_rng(seed)) for seed in (0, 0, *range(1, 9))]
    assert envs.action_space.contains(drawn[0]) and np.array_equal(drawn[0], drawn[1])
    assert np.ptp(drawn, axis=0).all()  # each action differs between seeds
    with pytest.raises(UserError, match=r"Matching|Nested|Dot|Target"):
        agent.evaluate(1)
    with pytest.raises(UserError, match=r"the observation is .*: expected one of"):
        agent.act(np.zeros((2, 2, 7)))


def test_a_trained_agent_plays_without_its_module_being_typed_again(tmp_path):
    agent = train(env="tiny_envs:tests/Target", runs_folder=str(tmp_path), **SMALL)
    assert agent.evaluate(1)["deterministic"]["episodes"] == 1
    with pytest.raises(UserError, match="type it yourself with --env tiny_envs:tests/Target-v0"):
        load(agent.folder).evaluate(1)


def test_the_agent_of_a_machine_with_a_card_acts_on_one_without(tmp_path):
    agent = train(env="tests/Target-v0", runs_folder=str(tmp_path), **SMALL)
    content = read_json(agent.folder / run_folder.CONFIG)
    content["config"]["device"] = "gpu"
    write_json(agent.folder / run_folder.CONFIG, content)
    assert np.isfinite(load(agent.folder).act(np.zeros(2, np.float32))).all()


@pytest.mark.parametrize("which", [{"weights": "Best"}, {"weights": "last"}, {"stage": "halfway"}])
def test_weights_and_stages_that_an_agent_has_not_are_refused(which):
    with pytest.raises(UserError, match=r"expected (best|untrained or half-way or trained)$"):
        load("pendulum", **which)
    of_a_run = {"weights": "newest"} if "weights" in which else which
    with pytest.raises(UserError, match=r"expected (best or last|trained)$"):
        load(Path(__file__).parents[1] / "data" / "run", **of_a_run)


def test_a_mask_is_given_with_the_observation(tmp_path):
    agent = train(env="tests/Doors-v0", action_masks=True, runs_folder=str(tmp_path), **SMALL)
    env = gymnasium.make("tests/Doors-v0")
    observation, info = env.reset(seed=0)
    action = agent.act(observation, info["action_mask"])
    assert isinstance(action, int) and info["action_mask"][action - 2]
    assert list(agent.act(np.array([observation] * 2), [info["action_mask"]] * 2)) == [action] * 2
    assert agent.act(observation, (info["action_mask"],)) == action  # a part for each dimension
    both = gymnasium.make_vec("tests/DoorsByMethod-v0", num_envs=2, vectorization_mode="sync")
    assert list(agent.act(both.reset(seed=0)[0], both.call("action_masks"))) == [action] * 2  # a tuple
    with pytest.raises(UserError, match="give act an action_mask of 40 numbers"):
        agent.act(observation)


@pytest.mark.compiled
def test_an_agent_with_a_memory_acts_as_in_its_evaluation(tmp_path):
    agent = train(env="tests/Target-v0", memory="gru", memory_size=4, runs_folder=str(tmp_path), **SMALL)
    env, scores = gymnasium.make("tests/Target-v0"), []
    for forgets in (True, True, False):
        if forgets:
            agent.forget()
        observation, _ = env.reset(seed=EVALUATION_SEED)
        score, over = 0.0, False
        while not over:
            observation, reward, over, _, _ = env.step(agent.act(observation))
            score += reward
        scores.append(score)
    assert scores[0] == scores[1] == pytest.approx(agent.evaluate(1)["deterministic"]["mean"]) != scores[2]


@pytest.mark.parametrize("name", shipped.names())
def test_agents_that_come_with_the_project_act_without_their_environments(name, monkeypatch):
    monkeypatch.setattr("programs.api.played_environment_of", None)
    agent = load(name)
    with np.load(shipped.AGENTS / name / shipped.RECORDED) as recorded:
        actions = agent.act(recorded["observations"])
        assert actions.shape == recorded["actions"].shape and actions.dtype == recorded["actions"].dtype
        single = agent.act(recorded["observations"][0])
    assert np.allclose(single, actions[0], atol=1e-5)


def test_an_episode_of_acts_scores_as_evaluated_and_is_filmed(tmp_path):
    agent = load("cartpole")
    env = agent.environment.make()
    observation, _ = env.reset(seed=EVALUATION_SEED)
    score, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        score, over = score + reward, terminated or truncated
    assert agent.evaluate(1)["deterministic"]["mean"] == score
    assert agent.film(tmp_path / "short.gif").stat().st_size > 1000
    with pytest.raises(UserError, match=r"end it in .mp4 or .gif"):
        agent.film(tmp_path / "film")


@pytest.mark.parametrize(
    "judged", [{}, {"best_metric": "validation", "stop_score": 0.0, "validate_from": (0.9,), "validation_episodes": 1}]
)
def test_a_run_that_a_callback_ended_is_resumed(judged, tmp_path):
    first = train("pendulum-td3-fast", steps_per_epoch=40, epochs=3, warmup_steps=20, updates_per_train=1,
                  max_episode_steps=20, score_window=1, evaluation_episodes=0, record=(), runs_folder=str(tmp_path),
                  on_epoch=lambda row: np.bool_(row.epoch == 1), **judged)  # fmt: skip
    rows = []
    agent = train(resume=first.folder, on_epoch=rows.append)
    assert agent.folder == first.folder and [row.epoch for row in rows] == [2, 3]
    with pytest.raises(UserError, match=r"would make .* a different run"):
        train(resume=first.folder, seed=5)
    with pytest.raises(UserError, match="leave 'pendulum' out"):
        train("pendulum", resume=first.folder)
    with pytest.raises(UserError, match="--runs-folder have no effect with --resume"):
        train(resume=first.folder, runs_folder="elsewhere")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"preset": "cartpol"}, "did you mean cartpole"),
        ({"preset": "cartpol", "resume": None}, "did you mean cartpole"),
        ({"preset": "missing.json"}, "missing.json cannot be read .No such file"),
        ({"env": None}, "env is None"),
        ({"epoch": 3}, "default: .*'epoch'"),
        ({"resume": "runs/x"}, "runs/x holds no run"),
    ],
)
def test_mistakes_are_one_line(settings, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=line):
        train(**settings)
    assert not [*tmp_path.iterdir()]


def test_spaces_of_a_damaged_file_are_one_line(tmp_path):
    agent = train(env="tests/Target-v0", runs_folder=str(tmp_path), **SMALL)
    content = read_json(agent.folder / run_folder.CONFIG)
    content["spaces"]["action"]["shape"] = [10**6, 10**6]
    write_json(agent.folder / run_folder.CONFIG, content)
    with pytest.raises(UserError, match="spaces that cannot be read"):
        load(agent.folder)


SCRIPT = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, Discrete
print("the script begins")
from programs.api import load, train

class Mine(gymnasium.Env):
    observation_space = Dict(place=Box(-1, 1, (2,)), side=Discrete(2))
    action_space = Discrete(2)
    def _seen(self):
        return {"place": np.zeros(2, np.float32), "side": self.side}
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.side = 5, int(self.np_random.integers(2))
        return self._seen(), {}
    def step(self, action):
        self.left -= 1
        return self._seen(), float(action == self.side), self.left == 0, False, {}

agent = train(make_env=Mine, backend="processes", epochs=6, num_envs=2, steps_per_epoch=64, minibatch_size=32,
              hidden_sizes=(8,), learning_rate=0.01, evaluation_episodes=4)
env = Mine()
observation, _ = env.reset(seed=3)
print("acts", load(agent.folder).act(observation), "in", agent.folder)
"""


def test_a_script_without_a_guard_in_another_folder_is_run_once(tmp_path, processes_without_xla):
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{SCRIPT}"
    (tmp_path / "mine.py").write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script begins") == 1
    assert "in runs/default-seed0" in done.stdout.replace("\\", "/") and (tmp_path / "runs").is_dir()
    assert "acts 0" in done.stdout or "acts 1" in done.stdout


def test_a_shipped_agent_needs_no_tensorflow(tmp_path):
    program = "import sys; from programs.api import load; load('walker').act([0.0] * 24); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "tensorflow" not in {name.split(".")[0] for name in done.stdout.split()}
