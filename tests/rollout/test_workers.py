"""Collecting by workers on Ray: the numbers do not depend on how many there are, nor on which of them are lost."""

import contextlib
import functools
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections import Counter
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from test_shards import SIZES, assert_equal, epochs, experience

from common.config import TrainingConfig
from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.errors import UserError
from common.learning import trainer_base
from common.results import TIMING_COLUMNS
from common.rollout.collector import Collector
from common.rollout.workers import cluster as clusters
from common.rollout.workers import team as teams
from common.rollout.workers.cluster import Cluster, WorkerPlacement
from common.rollout.workers.team import Team
from common.state import State
from companions.config import OffPolicyConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> str:
    """A folder in which this process finds modules."""
    folder = str(tmp_path_factory.mktemp("modules"))
    sys.path.append(folder)
    yield folder
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def cluster(modules):
    one = Cluster(None, 8)
    import ray  # not above: `Cluster` sets what it reads when it is imported

    yield one
    one.close()
    assert not ray.is_initialized()


@pytest.fixture
def on(cluster):
    """Makes a collector on so many workers; all end with the test."""
    made: list[Collector] = []

    def make(number: int, env="Pendulum-v1", said=None, **settings) -> tuple[Collector, Team]:
        found: list[Team] = []

        def make_team(recipe) -> Team:
            found.append(Team(recipe, cluster, number, print if said is None else said.append))
            return found[-1]

        made.append(experience(make_team, env, **({"shards": 4} | settings)))
        return made[-1], found[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(("backend", "number", "resumed"), [("gymnasium", 3, 2), ("envpool", 2, 1)])
def test_any_number_of_workers_collects_what_one_process_collects(on, backend, number, resumed):
    settings = {"env": "BipedalWalker-v3", "backend": backend, "max_episode_steps": 50}
    expected = epochs(experience(**settings, shards=4), 0, 4, SIZES["BipedalWalker-v3"])
    one, _ = on(number, **settings)
    for state, same in zip(epochs(one, 0, 2, SIZES["BipedalWalker-v3"]), expected):
        assert_equal(state, same)
    one.close()
    other, _ = on(resumed, **settings)
    other.load_state(expected[1])
    for state, same in zip(epochs(other, 2, 4, SIZES["BipedalWalker-v3"]), expected[2:], strict=True):
        assert_equal(state, same)


def test_a_worker_has_no_tensorflow_and_only_this_machine_reaches_it(on):
    import psutil  # which Ray brings
    import ray  # not above: `Cluster` sets what it reads when it is imported

    _, team = on(1)
    for worker in team.workers:
        problem, (address, _), _ = ray.get(worker.actor.hello.remote())
        assert (problem, address) == ("", "127.0.0.1")
        modules = ray.get(worker.actor.__ray_call__.remote(lambda _: {name.split(".")[0] for name in sys.modules}))
        assert ray.get(worker.actor.__ray_call__.remote(lambda _: os.nice(0))) == os.nice(0)  # not Ray's low priority
        assert "numpy" in modules and not {"tensorflow", "keras", "tf_keras", "matplotlib", "scipy"} & modules
    listening: dict[str, set[str]] = {}  # name of a process → the addresses that it listens on
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # Ray starts some that end at once
            waiting = [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
            addresses = {c.laddr.ip.removeprefix("::ffff:") for c in waiting}
            listening.setdefault(process.name(), set()).update(addresses)
    assert any("raylet" in name and addresses for name, addresses in listening.items())
    assert set().union(*listening.values()) == {"127.0.0.1"}, listening


def test_lost_workers_are_replaced_and_nothing_changes(on):
    """Workers are killed at random moments, while they collect, restore shards or wait."""
    settings = {"env": "BipedalWalker-v3", "steps_per_epoch": 1600, "max_episode_steps": 90}
    said: list[str] = []
    one, team = on(2, said=said, **settings)
    rng, killed = np.random.default_rng(0), []

    def kill() -> None:
        while len(killed) < 3:
            time.sleep(rng.uniform(0.1, 0.4))
            ready = [worker for worker in list(team.workers) if worker.is_ready and worker.process not in killed]
            if ready:
                killed.append(ready[rng.integers(len(ready))].process)
                os.kill(killed[-1], signal.SIGKILL)

    thread, states = threading.Thread(target=kill), []
    thread.start()
    while thread.is_alive():
        states += epochs(one, len(states), len(states) + 1, SIZES["BipedalWalker-v3"])
    states += epochs(one, len(states), len(states) + 1, SIZES["BipedalWalker-v3"])
    expected = epochs(experience(**settings, shards=4), 0, len(states), SIZES["BipedalWalker-v3"])
    for state, same in zip(states, expected, strict=True):
        assert_equal(state, same)
    assert sum("was lost (ActorDiedError); another one steps its" in line for line in said) >= 2
    assert len(team.workers) == 2


class Elsewhere(gymnasium.Env):
    """Fails in its second step, but only in another process than the one that it is described to: by its pid."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, how: str, home: int, marks: str = "") -> None:
        self.how, self.home, self.marks = how, home, Path(marks)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 2 and os.getpid() != self.home:
            if self.how == "die":
                os._exit(7)
            with contextlib.suppress(FileExistsError):  # one of the workers hangs, whichever comes first
                (self.marks / "hung").touch(exist_ok=False)
                time.sleep(3600)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), float(action[0]), False, False, {}


def of_own(maker, make_team=None) -> Collector:
    """Two environments of one's own, in two shards."""
    environment = find_environment("", 20, maker=maker)
    config = TrainingConfig(num_envs=2, steps_per_epoch=40, backend="gymnasium", shards=2)
    return Collector(config, environment, action_map(environment.action_space), 7, make_team=make_team)


def test_an_environment_that_crashes_its_process_ends_the_run(cluster):
    said: list[str] = []
    maker = functools.partial(Elsewhere, "die", os.getpid())
    one = of_own(maker, lambda recipe: Team(recipe, cluster, 1, said.append))
    with pytest.raises(UserError, match=r"5 workers were lost one after the other with shard 0 .*fix the environment"):
        epochs(one, 0, 1, (1, 1))
    one.close()
    assert len(said) == 4


class WorkerPoolFactory:
    """Stands for the one that starts a cluster: `make_team` is on a cluster that runs."""

    def __init__(self, make_team):
        self._make_team = make_team

    def __call__(self, recipe):
        return self._make_team(recipe)

    def close(self):
        pass


def trained(kind, config: TrainingConfig, workers: int) -> State:
    """The state of a trainer after all epochs, without times."""
    trainer = kind(config, workers=WorkerPlacement(workers))
    trainer.train()
    trainer.close()
    state = trainer.state()
    return {name: array for name, array in state.items() if name.rpartition("/")[2] not in TIMING_COLUMNS}


def test_a_method_that_learns_while_it_steps_learns_the_same_on_workers(cluster, monkeypatch, eager):
    """One of the two workers is killed whenever the policy was sent eight times."""
    config = OffPolicyConfig(
        env="BipedalWalker-v3", max_episode_steps=40, num_envs=4, shards=2, epochs=2, steps_per_epoch=240,
        hidden_sizes=(8,), warmup_steps=60, replay_size=500, batch_size=8, train_every=20, updates_per_train=3,
        best_metric="mean_episode_reward", score_window=1, adopt_best=False,
    )  # fmt: skip
    sent, said = [], []

    class Losing(Team):
        def perform(self, tasks, snapshot, policy=None):
            if policy is not None:
                sent.append(policy)
                if len(sent) % 8 == 0:
                    os.kill(self.ready[0].process, signal.SIGKILL)
            return super().perform(tasks, snapshot, policy)

    pool = WorkerPoolFactory(lambda recipe: Losing(recipe, cluster, 2, said.append))
    monkeypatch.setattr(trainer_base, "WorkerPoolFactory", lambda *_: pool)
    assert_equal(*(trained(OffPolicyAgentTrainer, config, workers) for workers in (2, 0)))
    assert len(sent) == 24 and sum("was lost" in line for line in said) >= 2


def test_columns_of_info_are_the_same_on_workers(cluster, monkeypatch, eager):
    config = PPOConfig(
        env="tiny_envs:tests/Reaching-v0", log_info=("is_success", "words"), num_envs=4, shards=2, epochs=2,
        steps_per_epoch=64, minibatch_size=32, passes=1, hidden_sizes=(4,), best_metric="mean_episode_reward",
    )  # fmt: skip
    pool = WorkerPoolFactory(lambda recipe: Team(recipe, cluster, 2, print))
    monkeypatch.setattr(trainer_base, "WorkerPoolFactory", lambda *_: pool)
    on_workers, alone = (trained(PPOAgentTrainer, config, workers) for workers in (2, 0))
    assert_equal(on_workers, alone)
    assert 0 < alone["results/info_is_success"].mean() < 1 and np.isnan(alone["results/info_words"]).all()


def test_a_worker_that_hangs_is_replaced(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(teams, "PATIENCE", 2.0)
    said: list[str] = []
    maker = functools.partial(Elsewhere, "hang", os.getpid(), str(tmp_path))
    one = of_own(maker, lambda recipe: Team(recipe, cluster, 2, said.append))
    [state], [same] = epochs(one, 0, 1, (1, 1)), epochs(of_own(maker), 0, 1, (1, 1))
    one.close()
    assert_equal(state, same)
    assert len(said) == 1 and "was lost (it did not answer within 2 s); another one steps its 1 shard again" in said[0]


def test_after_they_were_closed_workers_start_again(on):
    collector, team = on(2)
    epochs(collector, 0, 1)
    with collector.aside(1):
        assert not team.workers
    epochs(collector, 1, 2)
    assert team.ready


def test_shards_are_spread_evenly_over_workers_that_come_and_go(on):
    def load() -> list[int]:
        return sorted(Counter(worker.number for worker in team.homes.values()).values())

    one, team = on(4, said=[])
    states = epochs(one, 0, 1)
    assert load() == [1, 1, 1, 1]
    os.kill(team.workers[0].process, signal.SIGKILL)
    while len(team.ready) == 4:  # until it is noticed; another one is asked for then
        states += epochs(one, len(states), len(states) + 1)
    assert load() == [1, 1, 2]
    while len(team.ready) < 4:
        states += epochs(one, len(states), len(states) + 1)
    assert load() == [1, 1, 1, 1]
    for state, same in zip(states, epochs(experience(shards=4), 0, len(states)), strict=True):
        assert_equal(state, same)


def test_a_worker_that_cannot_work_is_left_out_while_others_can(on):
    import ray

    said: list[str] = []
    one, team = on(2, said=said)
    states = epochs(one, 0, 1)
    while len(team.ready) < 2:
        states += epochs(one, len(states), len(states) + 1)
    said.clear()
    team._content = ray.put(b"no recipe")  # noqa: SLF001  as on a machine that lacks a module
    os.kill(team.workers[0].process, signal.SIGKILL)
    while len(said) < 2:
        states += epochs(one, len(states), len(states) + 1)
    assert "was lost" in said[0]
    assert said[1].startswith("warning: worker 3 cannot build Pendulum-v1 (UnpicklingError")
    assert "so the run continues without it: install the same packages" in said[1]
    assert len(team.workers) == 1
    for state, same in zip(states, epochs(experience(shards=4), 0, len(states)), strict=True):
        assert_equal(state, same)
    os.kill(team.workers[0].process, signal.SIGKILL)  # the last one that can work
    with pytest.raises(UserError, match=r"^worker 4 cannot build Pendulum-v1 .*: install the same packages"):
        epochs(one, len(states), len(states) + 2)


@pytest.mark.parametrize("when", ["the policy is sent", "tasks are given"])
def test_a_run_whose_cluster_is_gone_ends_with_one_line(on, monkeypatch, when):
    import ray

    def gone(_):
        raise ConnectionError

    one, team = on(1)
    epochs(one, 0, 1)
    answers = iter([True])  # before anything is sent
    monkeypatch.setattr(Cluster, "answers", lambda _: next(answers, False))
    if when == "the policy is sent":
        monkeypatch.setattr(ray, "put", gone)
    for worker in team.workers:
        os.kill(worker.process, signal.SIGKILL)
    with pytest.raises(UserError, match=r"^the Ray cluster at 127.0.0.1:\d+ is gone: continue from the last"):
        epochs(one, 1, 3)


def test_a_signal_to_the_whole_process_group_ends_neither_workers_nor_cluster(on):
    import psutil

    said: list[str] = []
    one, _ = on(1, said=said)
    states = epochs(one, 0, 1)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    states += epochs(one, 1, 3)
    assert said == []
    for state, same in zip(states, epochs(experience(shards=4), 0, 3), strict=True):
        assert_equal(state, same)


def test_a_cluster_answers_while_its_control_process_does_and_is_asked_again_while_it_is_busy(cluster, monkeypatch):
    assert cluster.answers()
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "address", "127.0.0.1:1")
        assert not cluster.answers()
    tries: list[str] = []

    def busy(address):
        tries.append(address)
        if len(tries) < 3:
            raise TimeoutError

    monkeypatch.setattr(clusters, "_check_listens", busy)
    monkeypatch.setattr(clusters, "time", types.SimpleNamespace(sleep=lambda _: None))
    assert cluster.answers() and len(tries) == 3
    monkeypatch.setattr(clusters, "TRIES", 2)
    tries.clear()
    assert not cluster.answers() and len(tries) == 2


@pytest.mark.skipif(os.name != "posix", reason="paths of sockets")
@pytest.mark.parametrize(("usual", "chosen"), [("/tmp", None), ("/var/folders/xx/0123456789/T", "/tmp")])
def test_the_sockets_of_a_cluster_of_this_machine_have_short_paths(monkeypatch, usual, chosen):
    monkeypatch.setattr(clusters.tempfile, "gettempdir", lambda: usual)
    assert clusters._short_folder() == chosen  # noqa: SLF001
    longest = f"{chosen or usual}/ray-01234567/session_2026-11-28_21-27-42_123456_1234567/sockets/plasma_store"
    assert len(longest) <= 103


def test_processes_of_a_cluster_of_this_machine_find_the_modules_that_this_one_finds(cluster, modules):
    import ray

    found = ray.get(ray.remote(lambda: sys.path).remote())
    assert {modules, str(ROOT)} <= set(found)


def test_a_worker_that_may_round_otherwise_is_named(on, monkeypatch):
    said: list[str] = []
    here = teams.computing()
    monkeypatch.setattr(teams, "computing", lambda: here | {"numpy": "1.0"})
    one, _ = on(1, said=said)
    epochs(one, 0, 1)
    assert [line[:45] for line in said] == ["warning: worker 1 rounds otherwise than this "]


def test_more_workers_than_shards_are_not_started(on):
    said: list[str] = []
    one, team = on(4, said=said, shards=1)
    epochs(one, 0, 1)
    assert said == ["4 workers were asked for, and 1 started: a run of 1 shard has no work for more"]
    assert len(team.workers) == 1


def test_an_environment_reaches_the_workers_or_one_line_says_why_not(cluster):
    class Mine(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return self.np_random.uniform(-1, 1, 1).astype(np.float32), float(action[0]), False, False, {}

    def trained(maker, number: int):
        one = of_own(maker, None if not number else lambda recipe: Team(recipe, cluster, number))
        try:
            return epochs(one, 0, 1, (1, 1))[0]
        finally:
            one.close()

    assert_equal(trained(lambda: Mine(), 2), trained(Mine, 0))
    lock = threading.Lock()
    with pytest.raises(
        UserError, match=r"lambda\(\) cannot be sent to workers \(TypeError: cannot pickle '_thread.lock'"
    ):
        trained(lambda: Mine() if lock else None, 1)


def test_no_cluster_at_an_address_is_one_line():
    code = (
        "from common.errors import UserError\n"
        "from common.rollout.workers.team import WorkerPlacement, WorkerPoolFactory\n"
        "crew = WorkerPoolFactory(WorkerPlacement(1, '127.0.0.1:1'), print)\n"
        "try:\n    crew(None)\nexcept UserError as error:\n    print('error:', error)\ncrew.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("error: no Ray cluster at 127.0.0.1:1 ("), done
    assert done.stdout.count("\n") == 1


def test_a_call_has_the_time_that_its_steps_take_with_those_of_a_restore(on, monkeypatch):
    give, steps = Team._give, set()  # noqa: SLF001

    def noted(*arguments):
        give(*arguments)
        steps.update(call.steps for call in arguments[-1].values())

    one, team = on(2)
    epochs(one, 0, 1)
    team._step_seconds.extend([0.5] * 500)  # noqa: SLF001
    assert team._limit(120) == teams.SLOWEST * 60.0 and team._limit(1) == teams.PATIENCE  # noqa: SLF001
    monkeypatch.setattr(Team, "_give", noted)
    epochs(one, 1, 2)
    assert steps <= {120}  # of 240 steps an epoch
    os.kill(team.workers[0].process, signal.SIGKILL)
    epochs(one, 2, 3)
    assert max(steps) > 120
