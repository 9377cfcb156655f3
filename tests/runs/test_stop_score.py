"""A run that ends as soon as its score is reached: once confirmed, and the same if it was cut off and resumed."""

import pytest
from test_session import QUIET, SETTINGS, learned, program, same

from common.records import Timing
from common.runs import finished, run_folder, session
from PPOAgentTrainer import PPOAgentTrainer

STOPS = [
    *["--stop-score", "-2000", "--best-metric", "validation", "--validate-from", "0.4", "--validate-every", "1"],
    *["--validation-episodes", "2", "--confirming-episodes", "3"],
]


@pytest.fixture
def stopped(monkeypatch, tmp_path, capsys):
    assert program(monkeypatch, *SETTINGS, *STOPS, *QUIET, "--runs-folder", tmp_path, "--name", "run") == 0
    return tmp_path / "run"


def test_a_run_that_has_reached_its_score_ends_and_says_so(monkeypatch, stopped, capsys):
    said = capsys.readouterr()
    metrics = run_folder.read_results(stopped)["metric"]
    assert len(metrics) == 3  # validations begin after 0.4 · 6 epochs
    line = f"solved after epoch 3 of 6: its score of {metrics[-1]:.1f} has reached stop_score -2000"
    assert line in said.out.replace("\n", " ")
    assert (stopped / session.CHECKPOINTS / "00000003").is_dir()
    assert program(monkeypatch, "--resume", stopped, *QUIET) == 2
    assert "has been trained to its end, and nothing is left to do" in capsys.readouterr().err
    assert program(monkeypatch, "--resume", stopped, *QUIET, "--stop-score", "None", "--epochs", "5") == 0
    assert len(run_folder.read_results(stopped)["metric"]) == 5


def test_cut_off_after_its_last_epoch_and_resumed_it_is_not_trained_further(monkeypatch, stopped):
    before = learned(stopped)
    assert len(run_folder.read_results(stopped)["metric"]) == 3
    (stopped / run_folder.BEST_AGENT).unlink()
    (stopped / finished.FILE).unlink()
    assert program(monkeypatch, "--resume", stopped, *QUIET) == 0
    assert same(learned(stopped), before)


def test_a_score_that_other_episodes_do_not_confirm_does_not_count(tiny, monkeypatch):
    """One that two groups of other episodes do not confirm, one that is too low, and one that all groups confirm."""
    scores, asked = iter([310.0, 305.0, 294.0, 299.0, 320.0, 300.0, 300.0, 300.0, 300.0]), []
    config = tiny.replace(
        epochs=6, best_metric="validation", validate_from=0.0, validate_every=1, stop_score=300.0,
        validation_episodes=20, confirming_episodes=90,
    )  # fmt: skip
    trainer = PPOAgentTrainer(config)

    def validate(timing: Timing, episodes=None, seed=None) -> float:
        asked.append((episodes, seed))
        return next(scores)

    monkeypatch.setattr(trainer.judge, "validate", validate)
    trainer.train()
    assert [row.metric for row in trainer.results] == [299.5, 299.0, 300.0]
    assert trainer.solved and trainer.agent.best.metric == trainer.results[-1].metric
    assert [episodes for episodes, _ in asked] == [None, 25, 25, None, None, 25, 25, 25, 15]
    assert len({seed for _, seed in asked}) == 7  # None, and other episodes each time
    trainer.train(2)  # it stays solved
    assert trainer.epoch == len(trainer.results) == 3
    trainer.close()


def test_scores_of_training_stop_it_as_well(tiny):
    trainer = PPOAgentTrainer(tiny.replace(epochs=4, stop_score=-1e9))  # of the mean episode's reward
    trainer.train()
    assert trainer.epoch < 4 and trainer.solved
    trainer.close()
