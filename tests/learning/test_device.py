"""Graphics cards are for images, unless somebody says otherwise."""

import subprocess
import sys

import pytest

from common.errors import UserError
from common.learning import device
from companions.presets import PRESETS as COMPANIONS
from ppo.presets import PRESETS

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
    [
        ("auto", False, []),
        ("auto", True, [CARD]),
        ("cpu", False, []),
        ("cpu", True, []),
        ("gpu", False, [CARD]),
        ("gpu", True, [CARD]),
    ],
)
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
    import Agent
    from companions import DDPGAgent, OffPolicyAgentTrainer
    from PPOAgentTrainer import PPOAgentTrainer

    asked = []
    for module in (Agent, DDPGAgent):
        monkeypatch.setattr(module, "choose_device", lambda *arguments: asked.append(arguments))
    PPOAgentTrainer(PRESETS["pendulum"].replace(device="cpu", backend="gymnasium")).close()
    seeing = PRESETS["default"].replace(env="tests/Dot-v0", filters=(4,), kernel_sizes=(3,), strides=(3,))
    PPOAgentTrainer(seeing.replace(device="gpu")).close()
    OffPolicyAgentTrainer.OffPolicyAgentTrainer(COMPANIONS["pendulum-td3-fast"]).close()
    assert asked == [("cpu", False), ("gpu", True), ("auto", False)]


def test_looking_for_cards_says_nothing():
    """In a process of its own: what C++ writes goes past Python."""
    code = (
        "from common.learning.device import choose_device; choose_device('auto', True); import keras; "
        "keras.ops.ones(3) + 1"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
