"""Code on the pages: every block of Python runs, with little training; what is deployed answers."""

import json
import re
import sys
import threading
import types
import urllib.error
import urllib.request
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from common.learning.trainer_base import TrainerBase
from companions.config import OffPolicyConfig
from companions.DDPGAgent import DDPGAgent
from programs import policy_files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
SMALL = {"backend": "gymnasium", "num_envs": 2, "steps_per_epoch": 64, "best_metric": "mean_episode_reward",
         "max_episode_steps": 30, "minibatch_size": 32, "passes": 1, "hidden_sizes": (4,)}  # fmt: skip
EXAMPLES = [
    (page, i, block)
    for page in PAGES
    for i, block in enumerate(
        re.findall(
            r'^```python(?: title="here")?\n(.*?)^```',
            (ROOT / page).read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    )
]


@pytest.fixture
def little_training(monkeypatch):
    """Trainers with small networks that make one epoch a call."""
    build, train = TrainerBase.__init__, TrainerBase.train

    def build_small(self, config, *arguments, **named):
        build(self, config.replace(**SMALL), *arguments, **named)

    monkeypatch.setattr(TrainerBase, "__init__", build_small)
    monkeypatch.setattr(TrainerBase, "train", lambda self, epochs=None, on_epoch=None: train(self, 1, on_epoch))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with `pendulum-policy`, exported by an untrained agent."""
    folder = tmp_path_factory.mktemp("deployed")
    observations = Box(-np.inf, np.inf, (3,))
    agent = DDPGAgent(observations, Box(-2.0, 2.0, (1,)), OffPolicyConfig(hidden_sizes=(4,)), seed=0)
    policy_files.export(agent, folder / "pendulum-policy", onnx=True)
    return folder


def test_the_pages_have_examples():
    assert {page for page, _, _ in EXAMPLES} >= {"docs/from-a-script.md", "docs/coming-from.md", "docs/deploy.md"}


@pytest.mark.parametrize(("page", "number", "code"), EXAMPLES, ids=[f"{page}-{i}" for page, i, _ in EXAMPLES])
def test_an_example_runs(page, number, code, little_training, exported, eager, monkeypatch):
    monkeypatch.chdir(exported)
    exec(compile(code, f"{page}, block {number + 1}", "exec"), {})  # the project's own pages


def file_of_the_page(name):
    """A file that deploy.md prints, as a module."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    [code] = re.findall(rf'^```python title="{name}"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    module = types.ModuleType(name.removesuffix(".py"))
    exec(compile(code, name, "exec"), vars(module))  # the project's own pages
    return module


def test_the_server_answers_with_the_policys_actions(exported):
    folder = exported / "pendulum-policy" / "saved_model"
    server = file_of_the_page("serve.py").server(str(folder), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(body):
        request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}", body.encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    try:
        observations = [[-1.0, 0.0, 0.0], [1.0, 0.0, 2.0]]
        actions = ask(json.dumps({"observations": observations}))["actions"]
        np.testing.assert_allclose(actions, policy_files.read_saved_model(folder)(np.float32(observations)), rtol=1e-5)
        for wrong in ("{}", '{"observations": [[1, 2]]}', '{"observations": [[NaN, 0, 0]]}', "no JSON"):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                ask(wrong)
    finally:
        server.shutdown()
        server.server_close()


def test_the_board_plays_an_episode(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)  # TensorFlow's interpreter, whatever is installed
    file = exported / "pendulum-policy" / "policy.tflite"
    score = file_of_the_page("act.py").play(str(file), gymnasium.make("Pendulum-v1"))
    assert -2000 < score < -100  # 200 steps of a policy that knows nothing
