"""Numbers of info as columns, and training that a callback ends."""

import dataclasses

import numpy as np
import pytest

from common.config import info_column
from common.envs.environment import environment_of
from common.envs.vector_env import resolve_backend
from common.errors import UserError
from common.rollout.workers.shard import Recipe, Rows, ShardRunner
from common.runs import run_folder, session
from common.runs.options import RunOptions
from companions.config import OffPolicyConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

LOGGED = ("is_success", "time/steps", "is_sucess", "words")
SMALL = {
    "env": "tests/Reaching-v0", "num_envs": 2, "steps_per_epoch": 64, "epochs": 4, "score_window": 5,
    "log_info": LOGGED, "hidden_sizes": (4,), "best_metric": "mean_episode_reward",
}  # fmt: skip
PPO = PPOConfig(**SMALL, minibatch_size=32, passes=1)
QUIET = {"evaluation_episodes": 0, "record": ("tensorboard",), "checkpoint_every": 3}
pytestmark = pytest.mark.usefixtures("eager")


@pytest.mark.parametrize(
    ("trainer", "config"),
    [
        (PPOAgentTrainer, PPO.replace(backend="gymnasium")),
        (PPOAgentTrainer, PPO.replace(backend="processes", action_repeat=(2,))),
        (OffPolicyAgentTrainer, OffPolicyConfig(**SMALL, warmup_steps=10, train_every=32, batch_size=8)),
    ],
    ids=["ppo", "processes", "td3"],
)
def test_what_the_last_steps_report_becomes_columns(trainer, config, tmp_path, capsys):
    folder = session.run(trainer, "tiny", config, RunOptions(runs_folder=str(tmp_path), **QUIET))
    table, said = run_folder.read_results(folder), capsys.readouterr().out
    assert (table["info_is_success"] == table["avg_reward_orig"]).all() and 0 < table["info_is_success"].mean() < 1
    assert (table["info_time_steps"] == 4).all()
    assert np.isnan(table["info_is_sucess"]).all() and np.isnan(table["info_words"]).all()
    for name in LOGGED:
        assert said.count(f"no number {name!r} in info") == (name in LOGGED[2:])
    assert b"info/is_success" in next((folder / "tensorboard").glob("events*")).read_bytes()


def test_a_resumed_run_has_the_same_columns(tmp_path):
    def stop(row):
        return row.epoch == 2

    options = RunOptions(runs_folder=str(tmp_path), **QUIET)
    whole = session.run(PPOAgentTrainer, "tiny", PPO, options)
    cut = session.run(PPOAgentTrainer, "tiny", PPO, options, on_epoch=stop)
    assert list(run_folder.read_results(cut)["epoch"]) == [1, 2] and (cut / run_folder.BEST_AGENT).exists()
    session.run(PPOAgentTrainer, "tiny", PPO, options.replace(resume=cut, runs_folder="runs"))
    tables = [run_folder.read_results(folder) for folder in (whole, cut)]
    for name in ("info_is_success", "loss_actor", "score"):
        np.testing.assert_array_equal(tables[0][name], tables[1][name])


def test_a_callback_ends_training_without_a_folder():
    trainer = PPOAgentTrainer(PPO)
    trainer.train(on_epoch=lambda row: row.info_time_steps == 4)
    trainer.close()
    assert trainer.epoch == 1


def test_a_worker_reports_them():
    environment = environment_of(PPO)
    agent = PPOAgentTrainer(PPO).agent
    host = ShardRunner(Recipe(environment, 2, "gymnasium", 1, "episodes", 60.0, agent.action_map))
    seen = host.reset(0, 3)
    rows = Rows(0, np.zeros((9, 2, 1), np.float32), False, np.zeros(2, bool), np.zeros((2, 0), np.float32))
    columns = host.collect(0, agent.acting_policy(), seen, rows)
    host.leave(0)
    infos, ended = columns.stepped["infos"], columns.stepped["ended"]
    assert infos.shape == (9, 2, 4) and ended.sum() == 4
    assert (infos[ended][:, 1] == 4).all() and np.isnan(infos[~ended]).all()


def test_envpool_reports_what_it_has():
    pytest.importorskip("envpool")
    config = PPO.replace(env="Ant-v4", log_info=("x_position",))
    assert resolve_backend("auto", environment_of(config)) == "envpool"
    trainer = PPOAgentTrainer(config.replace(env="Ant-v4", max_episode_steps=20))
    trainer.train(1)
    trainer.close()
    assert trainer.config.backend == "envpool" and np.isfinite(trainer.results[0].info_x_position)
    other = environment_of(config.replace(log_info=("is_success",)))
    assert resolve_backend("auto", other) == "gymnasium"
    with pytest.raises(UserError, match="EnvPool reports no info is_success here: use --backend gymnasium"):
        resolve_backend("envpool", other)


def test_two_names_of_one_column_are_refused():
    with pytest.raises(UserError, match="would name a column twice"):
        dataclasses.replace(PPO, log_info=("a/b", "a_b"))
    assert info_column("a/b") == "info_a_b"
