"""Settings that change while a run goes on: from Python, by the file, wrongly, and over a resume."""

import json
import os

import numpy as np
import pytest
from run_program import call

import PPOAgentTrainer as program
from common.errors import UserError
from common.runs import run_folder
from ppo.config import PPOConfig
from ppo.live_settings import FILE, Hyperparameters, LiveHyperparameters
from PPOAgentTrainer import PPOAgentTrainer

CONFIG = PPOConfig(learning_rate=4e-4, critic_learning_rate=8e-4, passes=3, clip_range=0.2)


def written(path, values) -> None:
    """As an editor does it, at a later time than the last write."""
    path.write_text(values if isinstance(values, str) else json.dumps({"values": values}))
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def test_values_are_the_configs_until_they_are_changed():
    live = LiveHyperparameters(CONFIG)
    assert live.now() == Hyperparameters.of(CONFIG)
    assert live.now(learning_rate_left=0.5, clip_range_left=0.25) == (2e-4, 4e-4, 3, 0.05, 0.5, 0.0)
    live["learning_rate"] = 1e-3
    live["passes"] = 16
    assert live["passes"] == 16 and live.now() == Hyperparameters.of(CONFIG)  # until the next update asks
    assert live.poll().changes == ["learning_rate 0.0004 → 0.001", "passes 3 → 16"]
    assert live.now() == (1e-3, 2e-3, 16, 0.2, 0.5, 0.0)  # the critic's rate stays twice the actor's
    wide = LiveHyperparameters(CONFIG.replace(learning_rate=3e-3))  # beyond the usual range, which it widens
    wide["learning_rate"] = 2e-3
    with pytest.raises(UserError, match=r"from 0 to 0\.003"):
        wide["learning_rate"] = 4e-3


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("learning_rate", 2e-3, "from 0 to 0.001"),
        ("learning_rate", -1e-9, "from 0 to 0.001"),
        ("passes", 0, "a whole number from 1 to 16"),
        ("passes", 17, "a whole number from 1 to 16"),
        ("passes", 2.5, "a whole number from 1 to 16"),
        ("clip_range", float("nan"), "a number from 0 to 1"),
        ("entropy_coefficient", "0.1", "a number from 0 to 1"),
        ("value_coefficient", True, "a number from 0 to 1"),
        ("passes", 10**400, "passes is 10000000"),
        ("clip_range", float("inf"), "a number from 0 to 1"),
        ("gamma", 0.9, "expected one of learning_rate"),
        ("value_coefficient", 0.1, "no effect in this run, since actor and critic are networks of their own"),
    ],
)
def test_wrong_values_are_refused_and_change_nothing(name, value, what):
    live = LiveHyperparameters(CONFIG)
    with pytest.raises(UserError, match=what):
        live[name] = value
    assert live.poll().changes == [] and live.now() == Hyperparameters.of(CONFIG)


def test_what_nothing_reads_is_refused_and_what_is_read_is_not():
    LiveHyperparameters(CONFIG.replace(shared_torso=True, critic_learning_rate=None))["value_coefficient"] = 0.1
    LiveHyperparameters(CONFIG.replace(objective="kl_penalty", value_loss="clipped"))["clip_range"] = 0.1
    assert "value_coefficient    0.5        no effect, since actor and critic" in repr(LiveHyperparameters(CONFIG))
    with pytest.raises(UserError, match="clip_range has no effect in this run, since nothing is clipped"):
        LiveHyperparameters(CONFIG.replace(objective="kl_penalty"))["clip_range"] = 0.1


def test_a_file_is_read_when_it_was_written_and_says_what_changed(tmp_path):
    live = LiveHyperparameters(CONFIG)
    assert live.poll().changes == []  # nothing is watched
    live.watch(tmp_path)
    shown = json.loads((tmp_path / FILE).read_text())
    assert shown["values"]["passes"] == 3 and shown["ranges"]["passes"] == [1, 16]
    assert live.poll().changes == []
    written(tmp_path / FILE, {"clip_range": 0.1, "passes": 3})
    assert live.poll().changes == ["clip_range 0.2 → 0.1"]
    assert live["clip_range"] == 0.1
    assert live.poll().changes == []
    (tmp_path / FILE).unlink()
    assert live.poll().changes == []
    live["passes"] = 5  # from Python: the file follows
    assert live.poll().changes == ["passes 3 → 5"]
    assert json.loads((tmp_path / FILE).read_text())["values"]["passes"] == 5
    assert live.poll().changes == []


def test_what_the_file_and_python_ask_for_between_two_updates_holds_both(tmp_path):
    live = LiveHyperparameters(CONFIG)
    live.watch(tmp_path)
    written(tmp_path / FILE, {"clip_range": 0.1, "passes": 4})
    live["passes"] = 5
    assert live.poll().changes == ["clip_range 0.2 → 0.1", "passes 3 → 5"]
    assert json.loads((tmp_path / FILE).read_text())["values"] == live.values
    written(tmp_path / FILE, "{")
    live["passes"] = 6
    changes, refused = live.poll()
    assert changes == ["passes 5 → 6"] and refused
    assert (tmp_path / FILE).read_text() == "{"  # is left to whoever is writing it


def test_an_edit_while_the_run_was_stopped_holds_from_its_first_update(tmp_path):
    live = LiveHyperparameters(CONFIG)
    live.watch(tmp_path)
    live["passes"] = 5  # asked for, but no update came any more
    written(tmp_path / FILE, live.values | {"clip_range": 0.1})
    other = LiveHyperparameters(CONFIG)
    other.load_state(live.state())
    other.watch(tmp_path)
    assert other["passes"] == 5
    assert sorted(other.poll().changes) == ["clip_range 0.2 → 0.1", "passes 3 → 5"]
    assert json.loads((tmp_path / FILE).read_text())["values"] == other.values


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "3", '{"values": {"clip_range": 0', '{"values": 3}', '{"clip_range": 0.1}', "\udcff",
        {"clip_range": 0.1, "passes": 99}, {"x": 1}, {"clip_range": None}, {"clip_range": "0.1"}, {"clip_range": True},
        {"entropy_coefficient": 0.1, "value_coefficient": 0.1}, '{"values": {"clip_range": NaN}}',
        '{"values": {"clip_range": 1e400}}', "[" * 100_000,
        *(f'{{"values": {{"passes": {"9" * digits}}}}}' for digits in (400, 5000)),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_in_anything_changes_nothing_and_is_told_once(tmp_path, content):
    live = LiveHyperparameters(CONFIG)
    live.watch(tmp_path)
    if content == "\udcff":
        (tmp_path / FILE).write_bytes(b"\xff\xfe\x00")
    else:
        written(tmp_path / FILE, content)
    changes, refused = live.poll()
    assert changes == [] and "\n" not in refused and refused.endswith("the values stay as they are")
    assert live.now() == Hyperparameters.of(CONFIG)
    assert live.poll() == ([], "")
    written(tmp_path / FILE, {"clip_range": 0.1})  # once it is right, it is taken
    assert live.poll().changes == ["clip_range 0.2 → 0.1"]


def test_a_change_holds_from_the_next_update_and_is_in_rows_and_checkpoints(tiny, eager, tmp_path):
    config = tiny.replace(epochs=4, anneal=())
    trainer = PPOAgentTrainer(config)
    lines = []
    trainer.warn = lines.append
    trainer.live.watch(tmp_path)

    def on_epoch(row):
        if row.epoch == 2:
            written(tmp_path / FILE, {"learning_rate": 1e-3, "passes": 4})
        if row.epoch == 3:
            written(tmp_path / FILE, {"learning_rate": 5.0})

    trainer.train(4, on_epoch)
    assert [row.hp_passes for row in trainer.results] == [2, 2, 4, 4]
    assert [row.learning_rate for row in trainer.results] == [1e-2, 1e-2, 1e-3, 1e-3]
    assert lines[:2] == [
        "hyperparameters: learning_rate 0.01 → 0.001 from epoch 3 on",
        "hyperparameters: passes 2 → 4 from epoch 3 on",
    ]
    assert len(lines) == 3 and lines[2].startswith("warning: ") and "learning_rate is 5.0" in lines[2]

    other = PPOAgentTrainer(config)
    other.load_state(trainer.state())
    assert other.live.values == trainer.live.values
    trainer.close(), other.close()


def test_a_change_from_python_is_told_and_dated_by_the_first_epoch_that_used_it(tiny, eager):
    trainer = PPOAgentTrainer(tiny.replace(epochs=3))
    lines = []
    trainer.warn = lines.append
    collect = trainer.collector.collect

    def collect_and_ask(*arguments):
        collect(*arguments)
        if trainer.epoch == 1:  # after the second epoch's update, before its row
            trainer.live["clip_range"] = 0.05

    trainer.collector.collect = collect_and_ask
    trainer.train(3)
    trainer.close()
    assert [row.hp_clip_range for row in trainer.results] == [0.2, 0.2, 0.05]
    assert lines == ["hyperparameters: clip_range 0.2 → 0.05 from epoch 3 on"]


def test_entropy_and_value_coefficients_reach_the_update(tiny, eager):
    def weights(**changes) -> list[np.ndarray]:
        trainer = PPOAgentTrainer(tiny.replace(shared_torso=True))
        for name, value in changes.items():
            trainer.live[name] = value
        trainer.train(1)
        trainer.close()
        return trainer.agent.network.get_weights()

    plain = weights()
    for changes in ({"entropy_coefficient": 0.5}, {"value_coefficient": 0.1}, {"clip_range": 1e-3}):
        assert any(not np.array_equal(a, b) for a, b in zip(plain, weights(**changes))), changes


def test_a_resumed_run_watches_the_file_in_its_folder(monkeypatch, tmp_path, eager):
    settings = "--evaluation-episodes 0 --record --checkpoint-every 1"
    new = f"pendulum --epochs 2 --num-envs 2 --steps-per-epoch 64 --minibatch-size 32 --passes 2 {settings}"
    assert call(monkeypatch, program, *new.split(), "--runs-folder", tmp_path) == 0
    folder = tmp_path / "pendulum-seed0"
    written(folder / FILE, {"passes": 3, "clip_range": 0.05})
    assert call(monkeypatch, program, "--resume", folder, "--epochs", 3, *settings.split()) == 0
    table = run_folder.read_results(folder)
    assert table["hp_passes"].tolist() == [2, 2, 3]
    assert table["hp_clip_range"][-1] == 0.05
