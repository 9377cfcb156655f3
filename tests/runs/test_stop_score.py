"""A run that ends as soon as its score is reached: once confirmed, and the same if it was cut off and resumed."""

import numpy as np
import pytest
from test_session import QUIET, SETTINGS, learned, program, same

from common.learning.scoring import validation_is_due
from common.records import Timing
from common.rollout import validation
from common.runs import finished, run_folder, session
from PPOAgentTrainer import PPOAgentTrainer

STOPS = [
    *["--stop-score", "-2000", "--best-metric", "validation", "--validate-from", "0.4", "--validate-every", "1"],
    *["--validation-episodes", "2", "--confirming-margin", "0.001"],
]
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def stopped(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(validation, "CONFIRMING_EPISODES", 3)
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


@pytest.mark.parametrize("epochs", ["4", "9"])
def test_other_epochs_alone_train_nothing_more_and_move_nothing(monkeypatch, stopped, capsys, epochs):
    before = sorted(stopped.iterdir())
    assert program(monkeypatch, "--resume", stopped, *QUIET, "--epochs", epochs) == 2
    error = capsys.readouterr().err
    assert "was solved after epoch 3: to train it further, give --stop-score None and more --epochs than that" in error
    assert sorted(stopped.iterdir()) == before
    (stopped / run_folder.RESULTS).write_text("damaged")
    assert program(monkeypatch, "--resume", stopped, *QUIET, "--epochs", epochs) == 0


@pytest.mark.parametrize("score", ["None", "-100"])
def test_without_its_stop_score_or_with_a_higher_one_it_goes_on(monkeypatch, stopped, capsys, score):
    whole = [*SETTINGS, *STOPS, *QUIET, "--runs-folder", stopped.parent, "--name", "whole", "--stop-score", "-100"]
    assert program(monkeypatch, *whole) == 0
    best = (stopped / run_folder.BEST_AGENT).read_bytes()
    capsys.readouterr()
    assert program(monkeypatch, "--resume", stopped, *QUIET, "--stop-score", score) == 0
    assert f"earlier results are now in {stopped / 'after-3-epochs'}" in capsys.readouterr().out
    assert (stopped / "after-3-epochs" / run_folder.BEST_AGENT).read_bytes() == best
    mine, others = (run_folder.read_results(folder)["loss_actor"] for folder in (stopped, stopped.parent / "whole"))
    assert len(mine) == 6 and np.array_equal(mine, others)
    assert program(monkeypatch, "--resume", stopped, *QUIET, "--stop-score", score) == 2


def test_a_lower_stop_score_or_an_unreadable_table_leaves_nothing_to_do(monkeypatch, stopped, capsys):
    assert program(monkeypatch, "--resume", stopped, *QUIET, "--stop-score", "-3000") == 2
    (stopped / run_folder.RESULTS).write_text("damaged")
    assert program(monkeypatch, "--resume", stopped, *QUIET, "--stop-score", "None") == 2
    assert capsys.readouterr().err.count("nothing is left to do") == 2


def test_cut_off_after_its_last_epoch_and_resumed_it_is_not_trained_further(monkeypatch, stopped):
    before = learned(stopped)
    assert len(run_folder.read_results(stopped)["metric"]) == 3
    (stopped / run_folder.BEST_AGENT).unlink()
    (stopped / finished.FILE).unlink()
    assert program(monkeypatch, "--resume", stopped, *QUIET) == 0
    assert same(learned(stopped), before)


def test_a_score_that_other_episodes_do_not_confirm_does_not_count(tiny, monkeypatch):
    """One that 25 episodes do not confirm, one that 65 more do not, one that is too low, one that all confirm."""
    scores, asked = iter([310.0, 299.5, 310.0, 309.0, 294.6, 299.0, 320.0, 300.0, 300.0]), []
    config = tiny.replace(
        epochs=6, best_metric="validation", validate_from=(0.0,), validate_every=1, stop_score=300.0,
        validation_episodes=20,
    )  # fmt: skip
    monkeypatch.setattr(validation, "CONFIRMING_EPISODES", 90)
    trainer = PPOAgentTrainer(config)

    def returns(timing: Timing, episodes=None, seed=None, reach=None) -> np.ndarray:
        asked.append((episodes, seed))
        return np.full(episodes or 20, next(scores))

    monkeypatch.setattr(trainer.validator, "returns", returns)
    trainer.train()
    assert [row.metric for row in trainer.results] == pytest.approx([299.5, 298.6, 299.0, 300.0])
    assert trainer.solved and trainer.agent.best_metric == trainer.results[-1].metric
    assert [episodes for episodes, _ in asked] == [None, 25, None, 25, 65, None, None, 25, 65]
    assert len({seed for _, seed in asked}) == 6  # None, and other episodes each time
    trainer.train(2)  # it stays solved
    assert trainer.epoch == len(trainer.results) == 4
    trainer.close()


@pytest.mark.parametrize(
    ("margin", "groups", "metric"),
    [(0.0, 2, 305.0), (1.0, 2, 303.0), (2.0, 2, 301.0), (2.7, 2, 299.6), (3.0, 1, 299.8)],
)
def test_the_margin_is_counted_in_standard_errors(tiny, monkeypatch, margin, groups, metric):
    """Of 100 episodes with a mean of 305 and a standard deviation of 20, which is 2 standard errors."""
    config = tiny.replace(
        epochs=1, best_metric="validation", validate_from=(0.0,), validate_every=1, stop_score=300.0,
        confirming_margin=margin,
    )  # fmt: skip
    trainer, played = PPOAgentTrainer(config), []

    def returns(timing: Timing, episodes=0, seed=None, reach=None) -> np.ndarray:
        first = sum(played)
        played.append(episodes)
        return 305.0 + 20.0 * (-1.0) ** np.arange(first, first + episodes) if episodes else np.full(20, 310.0)

    monkeypatch.setattr(trainer.validator, "returns", returns)
    trainer.train()
    assert played == [0, 25, 75][: 1 + groups]
    assert trainer.results[-1].metric == pytest.approx(metric, abs=0.01)
    assert trainer.solved == (metric >= 300.0)
    trainer.close()


def test_scores_of_training_stop_it_as_well(tiny):
    trainer = PPOAgentTrainer(tiny.replace(epochs=4, stop_score=-1e9))  # of the mean episode's reward
    trainer.train()
    assert trainer.epoch < 4 and trainer.solved
    trainer.close()


def test_validations_wait_for_the_share_of_training_the_score_and_their_turn(tiny):
    config = tiny.replace(epochs=10, best_metric="validation", validate_from=(0.3, -30.0), validate_every=2)
    for score, due in ((-30.0, [4, 6, 8, 10]), (-30.1, [10]), (float("nan"), [10])):  # NaN: too few episodes so far
        assert [epoch for epoch in range(1, 11) if validation_is_due(config, epoch, 10, score)] == due


def test_nothing_is_validated_before_the_score_is_reached(tiny, monkeypatch):
    """Pendulum's scores lie far below 0, so only the last epoch is validated."""
    config = tiny.replace(epochs=3, best_metric="validation", validate_from=(0.0,), validate_every=1, score_window=1)
    for wanted, expected in ((0.0,), [True, True, True]), ((0.0, 1.0), [False, False, True]):
        trainer = PPOAgentTrainer(config.replace(validate_from=wanted))
        monkeypatch.setattr(trainer.validator, "returns", lambda timing, *_: np.array([-500.0]))
        trainer.train()
        assert [row.metric == -500.0 for row in trainer.results] == expected
        trainer.close()
