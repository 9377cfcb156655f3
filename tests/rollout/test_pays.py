"""Workers that nobody asked for: taken where measured steps say that they save time, with the same numbers."""

import importlib.util
import threading
import time

import gymnasium
import numpy as np
import pytest

from common.envs.environment import find_environment
from common.envs.shards import resolve_shards, shards_for_workers
from common.errors import UserError
from common.learning import trainer_base
from common.rollout.workers import pays
from common.rollout.workers.cluster import Workers
from common.rollout.workers.pays import measured, step_seconds
from companions.config import OffPolicyConfig
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer


class Slow(gymnasium.Env):
    """A step takes some milliseconds."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, milliseconds: float = 4.0):
        self.seconds = milliseconds / 1000

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(self.seconds)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), float(action[0]), False, False, {}


SLOW = find_environment("", 20, maker=Slow)


@pytest.fixture
def machine(monkeypatch):
    """Pretends to be a machine with so many cores, with or without Ray."""

    def pretend(cores: int, ray: bool = True) -> None:
        monkeypatch.setattr(pays.worker_processes, "cores", lambda: cores)
        monkeypatch.setattr(pays.importlib.util, "find_spec", lambda _: "ray" if ray else None)

    return pretend


def test_a_step_is_measured_with_resets_and_an_environment_that_fails_is_left_to_training():
    assert 0.004 <= step_seconds(SLOW) < 0.02
    assert step_seconds(find_environment("tests/Raising-v0")) >= 0


class Ends(Slow):
    """Is not to be stepped after an episode's end."""

    def reset(self, seed=None, options=None):
        self.left = 3
        return super().reset(seed=seed)

    def step(self, action):
        self.left -= 1
        assert self.left >= 0
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.left == 0, False, info


def test_an_episode_that_ends_is_followed_by_another_one():
    assert step_seconds(find_environment("", 20, maker=Ends)) > 0


def test_workers_are_taken_where_they_save_a_fifth(machine, monkeypatch):
    monkeypatch.setattr(pays, "step_seconds", lambda _: 0.01)
    machine(cores=4)
    assert measured(SLOW, 8, 100, 1000).workers == 4  # 1000 s alone, 270 s together
    assert measured(SLOW, 2, 100, 1000).workers == 2  # no more than shards
    assert measured(SLOW, 8, 1, 1000) == (0, "")  # 10 s alone; Ray takes longer to start
    assert measured(SLOW, 1, 100, 1000) == (0, "")
    assert measured(SLOW, 8, 100, 1000, 20).workers == 4  # 20 exchanges an epoch take 100 s in all
    assert measured(SLOW, 8, 100, 1000, 1000) == (0, "")  # one for each step
    machine(cores=1)
    assert measured(SLOW, 8, 100, 1000) == (0, "")
    assert measured(find_environment("tests/Dot-v0"), 8, 100, 1000) == (0, "")  # images


def test_what_was_measured_is_said(machine, monkeypatch):
    monkeypatch.setattr(pays, "step_seconds", lambda _: 0.01)
    machine(cores=2)
    line = measured(SLOW, 4, 100, 1000).line
    assert "a step of Slow() takes 10 ms, 16.7 minutes in this run: 2 worker processes take over" in line
    assert "leaves 8.7 minutes (--workers 0: none)" in line
    machine(cores=2, ray=False)
    found = measured(SLOW, 4, 100, 1000)
    assert found.workers == 0
    assert found.line.endswith("would save about 8.0 minutes: pip install -r requirements/cluster.txt")


def test_workers_that_were_asked_for_get_up_to_sixteen_shards():
    config = PPOConfig(num_envs=32)
    assert shards_for_workers(config) == 16
    assert shards_for_workers(config.replace(num_envs=4)) == 4
    assert shards_for_workers(config.replace(shards=3)) == 3


def test_only_auto_that_stands_for_gymnasium_is_divided():
    config = PPOConfig(num_envs=16)
    assert resolve_shards(config, "gymnasium", SLOW) == 4
    assert resolve_shards(config.replace(num_envs=2, steps_per_epoch=2000), "gymnasium", SLOW) == 2
    assert resolve_shards(config.replace(shards=3), "gymnasium", SLOW) == 3
    assert resolve_shards(config.replace(backend="gymnasium"), "gymnasium", SLOW) is None
    assert resolve_shards(config, "envpool", SLOW) is None
    assert resolve_shards(config, "gymnasium", find_environment("tests/Dot-v0")) is None


@pytest.fixture
def trained(monkeypatch, capsys, tiny, eager):
    """Trains where so many workers were measured to save time; parameters, and what was said."""

    def train(workers: int, make_env) -> tuple[dict, str]:
        monkeypatch.setattr(trainer_base, "measured", lambda *_: pays.Measured(workers, f"{workers} take over"))
        config = tiny.replace(backend="auto", num_envs=4, steps_per_epoch=64, epochs=1)
        trainer = PPOAgentTrainer(config, make_env=make_env, workers=Workers(None))
        trainer.train()
        parameters = trainer.agent.parameters()
        trainer.close()
        return parameters, capsys.readouterr().out

    return train


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra")
def test_the_numbers_do_not_depend_on_what_was_measured(trained):
    (one, said), (other, _) = (trained(workers, lambda: Slow(0.1)) for workers in (2, 0))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])
    assert said == "2 take over\n"


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra")
def test_what_cannot_be_sent_to_workers_that_nobody_asked_for_is_stepped_here(trained):
    lock = threading.Lock()
    _, said = trained(2, lambda: Slow(0.1) if lock else None)
    assert "this process steps the environments: " in said and "cannot be sent to workers" in said


def test_a_trainer_that_cannot_be_built_leaves_no_cluster(monkeypatch, trained):
    closed = []

    class Crew:
        def __init__(self, *_):
            pass

        def __call__(self, recipe):
            raise UserError("no workers")

        def close(self):
            closed.append(self)

    monkeypatch.setattr(trainer_base, "Crew", Crew)
    with pytest.raises(UserError, match="no workers"):
        trained(2, lambda: Slow(0.1))
    assert len(closed) == 1


def test_a_method_says_how_often_it_waits_for_steps(tiny):
    off_policy = OffPolicyConfig(num_envs=4, steps_per_epoch=400, warmup_steps=100)
    configs = [tiny.replace(updates_per_epoch=2), *(off_policy.replace(train_every=every) for every in (2, 50))]
    assert [config.exchanges_per_epoch for config in configs] == [2, 100, 8]
