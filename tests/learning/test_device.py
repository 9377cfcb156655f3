"""Graphics cards are for images, unless somebody says otherwise."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from common.errors import UserError
from common.learning import device
from common.user_code import held_back_errors
from companions.presets import PRESETS as COMPANIONS
from ppo.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
CARD = "PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')"


class Config:
    """`tf.config` of a machine with some cards."""

    def __init__(self, cards, started=False):
        self.cards, self.visible, self.started = cards, cards, started

    def list_physical_devices(self, kind):
        return self.cards

    def get_visible_devices(self, kind):
        return self.visible

    def set_visible_devices(self, devices, kind):
        if self.started:
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        self.visible = devices


@pytest.fixture
def machine(monkeypatch):
    def make(*arguments, **options):
        config = Config(*arguments, **options)
        monkeypatch.setattr(device, "tf", type("TensorFlow", (), {"config": config, "__version__": "2.21.0"}))
        return config

    return make


@pytest.mark.parametrize(
    ("asked", "sees_images", "visible"),
    [("auto", False, []), ("auto", True, [CARD]), *(("cpu", images, []) for images in (False, True)),
     *(("gpu", images, [CARD]) for images in (False, True))],
)  # fmt: skip
def test_which_device_computes(machine, asked, sees_images, visible):
    config = machine([CARD])
    device.choose_device(asked, sees_images)
    assert config.visible == visible


def test_without_a_card(machine):
    machine([])
    device.choose_device("auto", sees_images=True)
    device.choose_device("cpu", sees_images=True)
    with pytest.raises(UserError, match="no graphics card: use --device cpu"):
        device.choose_device("gpu", sees_images=False)


def test_what_a_process_has_begun_on_it_keeps(machine):
    config = machine([CARD], started=True)
    device.choose_device("gpu", sees_images=False)
    device.choose_device("auto", sees_images=False)
    assert config.visible == [CARD]
    with pytest.raises(UserError, match="another device than cpu already: start a new one"):
        device.choose_device("cpu", sees_images=False)


def test_agents_choose(monkeypatch):
    from common.learning import agent_base
    from companions import OffPolicyAgentTrainer
    from PPOAgentTrainer import PPOAgentTrainer

    asked = []
    monkeypatch.setattr(agent_base, "choose_device", lambda *arguments: asked.append(arguments))
    PPOAgentTrainer(PRESETS["pendulum"].replace(device="cpu", backend="gymnasium")).close()
    seeing = PRESETS["default"].replace(env="tests/Dot-v0", convolutions=("4x3/3",))
    PPOAgentTrainer(seeing.replace(device="gpu")).close()
    OffPolicyAgentTrainer.OffPolicyAgentTrainer(COMPANIONS["pendulum-td3-fast"]).close()
    assert asked == [("cpu", False), ("gpu", True), ("auto", False)]


def test_an_agent_is_imported_and_looks_for_cards_without_a_word():
    """In a process of its own: what C++ writes goes past Python."""
    code = (
        "import companions.TQCAgent; from common.learning.device import choose_device; choose_device('auto', True); "
        "import keras; keras.ops.ones(3) + 1"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(("version", "introduces"), [("2.18.1", True), ("2.19.0", True), ("2.20.0", False)])
def test_older_versions_introduce_xla_where_nobody_hears_it(machine, monkeypatch, version, introduces):
    machine([])
    called = []
    for name, value in {
        "__version__": version,
        "negative": None,
        "constant": float,
        "function": lambda *_, **options: called.append(options["jit_compile"]) or called.append,
    }.items():
        monkeypatch.setattr(device.tf, name, staticmethod(value) if callable(value) else value, raising=False)
    device.let_xla_introduce_itself.cache_clear()
    device.choose_device("cpu", sees_images=False)
    assert called == ([True, 0.0] if introduces else [])
    device.let_xla_introduce_itself.cache_clear()


def test_errors_that_are_held_back_are_shown_if_an_exception_comes_out(capfd):
    with held_back_errors():
        os.write(2, b"no driver\n")
    assert capfd.readouterr().err == ""
    with pytest.raises(ImportError), held_back_errors():
        os.write(2, b"a library is missing\n")
        raise ImportError
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "a library is missing\nlater\n"


VARIABLES = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "SDL_AUDIODRIVER": "dummy",
    "SDL_FRAMEBUFFER_ACCELERATION": "0",
    "SDL_RENDER_DRIVER": "software",
    "XDG_RUNTIME_DIR": tempfile.gettempdir(),
}


@pytest.mark.parametrize("already", [False, True])
def test_variables_are_set_before_tensorflow_and_sdl_start(already):
    code = f"import os, common; print(*(os.environ[name] for name in {[*VARIABLES]}))"
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= dict.fromkeys(VARIABLES, "mine") if already else {}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment, check=True
    )
    assert ran.stdout.split() == (["mine"] * len(VARIABLES) if already else [*VARIABLES.values()])


WATCH = """
import os, sys
class Watch:
    def find_spec(self, name, *_):
        if name == "tensorflow":
            raise SystemExit(os.environ.get("TF_ENABLE_ONEDNN_OPTS", "not set"))
sys.meta_path.insert(0, Watch())
"""


@pytest.mark.parametrize("module", ["Agent", "ppo.losses", "companions.DDPGAgent", "programs.policy_files"])
def test_every_process_of_a_run_does_the_same_arithmetic(module):
    """Whichever module is imported first."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    ran = subprocess.run(
        [sys.executable, "-c", f"{WATCH}import {module}"], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert ran.stderr == "1\n"
