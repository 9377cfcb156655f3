"""Callbacks: the examples of docs/extending.md, and what a run does with a function of the user's."""

import dataclasses
import math
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from common.errors import UserError
from common.runs import run_folder, session
from common.runs.options import RunOptions
from ppo import presets
from PPOAgentTrainer import PPOAgentTrainer
from programs import methods

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r'^```python title="(\S+)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))
SMALL = presets.PRESETS["pendulum"].replace(
    backend="gymnasium", num_envs=2, epochs=4, steps_per_epoch=64, passes=1, minibatch_size=64, hidden_sizes=(4,),
    validation_episodes=1,
)  # fmt: skip
QUIET = RunOptions(record=(), evaluation_episodes=0, checkpoint_every=1)


@pytest.fixture
def example(tmp_path, monkeypatch, eager):
    """Executes an example of the page in an empty folder, with a small pendulum; its variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(presets.PRESETS, "pendulum", SMALL)

    def run(name):
        variables = {}
        exec(compile(EXAMPLES[name], name, "exec"), variables)
        return variables

    return run


def test_the_example_of_a_callback(example, tmp_path, monkeypatch):
    assert "epochs=40" in EXAMPLES["keep_agents.py"] and "row.epoch % 10 == 0" in EXAMPLES["keep_agents.py"]
    source = EXAMPLES["keep_agents.py"].replace("epochs=40", "epochs=4").replace("% 10", "% 2")
    monkeypatch.setitem(EXAMPLES, "keep_agents.py", source)
    trainer = example("keep_agents.py")["trainer"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pendulum-epoch2.npz", "pendulum-epoch4.npz"]
    assert trainer.epoch == 4


def test_the_example_of_another_tracker(example, monkeypatch):
    tracker = MagicMock()  # where MLflow is not installed
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    folder = example("train_with_mlflow.py")["folder"]
    table = run_folder.read_results(folder)
    logged = [(one.kwargs["step"], one.args[0]) for one in tracker.log_metrics.call_args_list]
    assert [step for step, _ in logged] == [*table["steps"]]
    for epoch, (_, metrics) in enumerate(logged):
        known = {name for name, column in table.items() if math.isfinite(column[epoch])}
        assert metrics.keys() == known and metrics["loss_critic"] == pytest.approx(table["loss_critic"][epoch])
    tracker.log_params.assert_called_once_with(dataclasses.asdict(SMALL.replace(seed=1)))
    tracker.set_experiment.assert_called_once_with("pendulum")
    [[artifacts]] = [one.args for one in tracker.log_artifacts.call_args_list]
    assert {"config.json", "results.csv", "best_agent.npz"} <= {path.name for path in Path(artifacts).iterdir()}
    calls = [name for name, *_ in tracker.mock_calls]
    begun, ended = calls.index("start_run().__enter__"), calls.index("start_run().__exit__")
    assert all(begun < at < ended for at, name in enumerate(calls) if name.startswith("log_"))


def test_a_callback_sees_every_epoch_once_it_is_saved_and_may_end_the_run(tmp_path, eager):
    seen = []

    def callback(row):
        seen.append(row.epoch)
        folder = tmp_path / "runs" / "mine"
        assert len(run_folder.read_results(folder)["epoch"]) == row.epoch
        assert (folder / run_folder.CHECKPOINTS / f"{row.epoch:08}").exists()
        if row.epoch == 2 and not resumed:
            raise RuntimeError("enough")

    resumed = False
    options = QUIET.replace(runs_folder=str(tmp_path / "runs"), name="mine")
    with pytest.raises(RuntimeError, match="enough"):
        session.run(PPOAgentTrainer, "pendulum", SMALL, options, on_epoch=callback)
    resumed = True
    folder = tmp_path / "runs" / "mine"
    _, config = methods.read_config(folder)
    session.run(PPOAgentTrainer, "pendulum", config, QUIET.replace(resume=folder), on_epoch=callback)
    assert seen == [1, 2, 3, 4]


def test_workers_that_the_trainer_was_not_given_are_refused(tmp_path):
    options = dataclasses.replace(QUIET, workers=2, runs_folder=str(tmp_path))
    with pytest.raises(UserError, match="2 workers are asked for, and the trainer has none"):
        session.run(PPOAgentTrainer, "pendulum", SMALL, options)
    assert not list(tmp_path.iterdir())
