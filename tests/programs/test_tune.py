"""The search for better settings: its space, its trials, and what it leaves in its folder."""

import json
import math
import re
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pytest
from filelock import FileLock
from run_program import call

from common.errors import UserError
from common.runs.one_process import LOCK
from companions.config import OffPolicyConfig
from ppo.config import PPOConfig
from programs import notebook, preset_files, train, tune
from programs.api import train as train_in_python
from programs.methods import METHODS
from programs.tuning.space import default_space, read_space

optuna = pytest.importorskip("optuna")

from programs.tuning import trial as tuning_trial  # noqa: E402
from programs.tuning.journal import Journal, open_study  # noqa: E402
from programs.tuning.search import Search  # noqa: E402

SPACE = {
    "learning_rate": {"from": 1e-5, "to": 1e-2, "log": True},
    "passes": {"from": 1, "to": 20},
    "hidden_sizes": {"choices": [[8], [16, 16]]},
}
TINY = {
    "env": "Pendulum-v1", "max_episode_steps": 10, "backend": "gymnasium", "num_envs": 2, "steps_per_epoch": 32,
    "minibatch_size": 32,
    "epochs": 2, "passes": 1, "score_window": 1, "hidden_sizes": [4],
}  # fmt: skip


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_space_that_fits_all_its_presets(name):
    for preset in METHODS[name].presets.values():
        if not preset.env.startswith("ALE"):
            space = read_space(default_space(preset), preset)
            assert "learning_rate" in space


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ({}, "names no settings"),
        ({"learning_rat": {"from": 1, "to": 2}}, "'learning_rat' is not a setting of ppo"),
        ({"seed": {"from": 1, "to": 9}}, "'seed' is not tuned"),
        ({"networks": {"choices": ["theirs:a", "theirs:b"]}}, "'networks' is not tuned"),
        ({"passes": 3}, "'passes' is 3: expected {"),
        ({"passes": {"low": 3}}, "expected {"),
        ({"passes": {"from": 3}}, "expected {"),
        ({"passes": {"from": True, "to": 3}}, "expected {"),
        ({"passes": {"from": 9, "to": 3}}, "the lower one first"),
        ({"passes": {"from": 0, "to": 3}}, "may become 0, which is refused"),
        ({"learning_rate": {"from": 0.0, "to": 1.0, "log": True}}, "above 0 with"),
        ({"activation": {"choices": ["relu"]}}, "or two or more"),
        ({"activation": {"choices": ["relu", "wide"]}}, "may become 'wide', which is refused"),
    ],
)
def test_a_wrong_space_is_refused_in_one_line(tmp_path, content, words):
    with pytest.raises(UserError) as refusal:
        read_space(written(tmp_path / "space.json", content), PPOConfig())
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def height(config):
    """A score that is highest at a step size of 1e-3 and ten passes."""
    return -abs(math.log10(config.learning_rate) + 3) - abs(config.passes - 10) / 10


def search_in(folder, base=PPOConfig(), **changes):  # noqa: B008  (it is immutable)
    space = read_space(written(folder / "space.json", SPACE), PPOConfig())
    known = {"seeds": (0, 1), "metric": "score", "seed": 3} | changes
    return Search(Journal(str(folder / "journal.log"), "tiny"), base, space, **known)


def here(function, *arguments):
    """In place of a process."""
    future = Future()
    future.set_result(function(*arguments))
    return future


def run_all(searched, trials, workers=1, stop_after=math.inf):
    """Settings and states of the trials; the one after `stop_after` is begun and killed."""

    def score_of(config, metric, on_epoch):
        if len(searched.finished()) >= stop_after:
            raise KeyboardInterrupt
        if config.passes <= 3:
            raise UserError("it diverged")
        return height(config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning_trial, "score_of", score_of)
        try:
            searched.run(trials, workers, here, lambda _: None)
        except KeyboardInterrupt:
            assert stop_after < trials
    return [(trial.params, trial.state) for trial in searched.finished()]


def test_a_search_that_was_stopped_continues_as_if_it_had_not_been(tmp_path):
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = run_all(search_in(tmp_path / "whole"), 14)
    assert len(whole) == 14
    run_all(search_in(tmp_path / "parts"), 14, stop_after=4)
    run_all(search_in(tmp_path / "parts"), 14, stop_after=9)
    assert run_all(search_in(tmp_path / "parts"), 14) == whole
    assert run_all(search_in(tmp_path / "parts"), 14) == whole  # nothing is left to do
    assert {state.name for _, state in whole} >= {"COMPLETE"}


def test_a_search_whose_last_line_is_torn_continues(tmp_path):
    (tmp_path / "whole").mkdir()
    whole = run_all(search_in(tmp_path / "whole"), 4)
    run_all(search_in(tmp_path), 2)
    journal = tmp_path / "journal.log"
    journal.write_bytes(journal.read_bytes()[:-40])
    assert run_all(search_in(tmp_path), 4) == whole
    assert run_all(search_in(tmp_path), 4) == whole  # what was appended can be read


def test_a_damaged_journal_is_named_in_one_line(tmp_path):
    run_all(search_in(tmp_path), 1)
    journal = tmp_path / "journal.log"
    journal.write_bytes(b"{" + journal.read_bytes())
    with pytest.raises(UserError, match=r"journal\.log is damaged .*: use a copy of it, or begin another search with"):
        search_in(tmp_path)


def test_optuna_writes_no_lines_of_its_own(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.INFO)
    search_in(tmp_path)
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR


def test_the_preset_file_keeps_what_trials_leave_out(tmp_path, monkeypatch):
    preset = PPOConfig(
        epochs=50, best_metric="validation", average_weights=0.5, stop_score=300.0, confirming_margin=0.5
    )
    base = tune.base_of(preset, tune.Arguments("pendulum", epochs=3))
    assert (base.epochs, base.best_metric, base.stop_score) == (3, "mean_episode_reward", None)
    assert tune.base_of(preset, tune.Arguments("pendulum", metric="metric")) == preset
    searched = search_in(tmp_path, base)
    report = tune.Report(tmp_path, searched, preset)
    monkeypatch.setattr(tuning_trial, "score_of", lambda *_: 1.0)
    searched.run(1, 1, here, report)
    found = {name: getattr(searched.best(), name) for name in SPACE}
    assert searched.best() == base.replace(**found) != base
    assert preset_files.read_preset(tmp_path / tune.TUNED)[2] == preset.replace(**found)


def test_every_trial_is_told_with_its_scores_its_settings_or_what_went_wrong(tmp_path, monkeypatch, capsys):
    searched = search_in(tmp_path)
    outcomes = iter([1.5, 2.5, 0.5, optuna.TrialPruned(), UserError("it diverged")])

    def score_of(*_):
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(tuning_trial, "score_of", score_of)
    searched.run(3, 1, here, tune.Report(tmp_path, searched, PPOConfig()))
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split("learning_rate")[0].rstrip() for line in lines]
    assert shown == ["trial   1  2.0  [1.5, 2.5]", "trial   2  pruned  [0.5]", "trial   3  failed: it diverged  []"]
    assert [trial.state.name for trial in searched.finished()] == ["COMPLETE", "PRUNED", "FAIL"]


def test_trials_that_run_at_the_same_time_are_drawn_differently(tmp_path, monkeypatch):
    searched, asked = search_in(tmp_path), []

    def submit(function, *arguments):
        asked.append(arguments)
        return here(function, *arguments)

    monkeypatch.setattr(tuning_trial, "score_of", lambda *_: 1.0)
    searched.run(3, 2, submit, lambda _: None)
    assert len({trial.params["learning_rate"] for trial in searched.finished()}) == 3
    assert all(several for *_, several in asked)


def test_a_trial_that_was_killed_is_given_up(tmp_path):
    search_in(tmp_path).study.ask()
    again = search_in(tmp_path)
    assert [trial.state.name for trial in again.study.get_trials()] == ["FAIL"]
    assert again.finished() == []  # nothing went wrong with its settings


def test_a_lost_process_ends_the_search_and_its_trial_is_drawn_again(tmp_path):
    lost = Future()
    lost.set_exception(BrokenProcessPool("it was killed"))
    with pytest.raises(UserError, match="a process that trained was lost"):
        search_in(tmp_path).run(3, 1, lambda *_: lost, lambda *_: None)
    assert search_in(tmp_path).finished() == []


def test_two_searches_in_one_folder_at_once_are_refused(tmp_path, monkeypatch, capsys):
    with FileLock(tmp_path / LOCK):
        assert call(monkeypatch, tune, "pendulum", "--into", tmp_path) == 2
    assert "another process is training in" in capsys.readouterr().err


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    run_all(search_in(tmp_path), 1)
    with pytest.raises(UserError, match=r"holds a search with seeds \[0, 1\]"):
        search_in(tmp_path, seeds=(5,))


def test_the_search_of_another_preset_in_the_same_folder_is_refused(tmp_path):
    run_all(search_in(tmp_path), 1)
    with pytest.raises(UserError, match=r"a search with gamma 0\.995, and not 0\.5: begin another one with --into"):
        search_in(tmp_path, PPOConfig(gamma=0.5))
    with pytest.raises(UserError, match="holds a search of tiny: choose another folder with --into"):
        open_study(Journal(str(tmp_path / "journal.log"), "small"))


def test_a_search_is_for_the_environment_that_is_typed():
    asked = tune.Arguments("default", env="FrozenLake-v1", env_kwargs='{"map_name": "8x8"}')
    preset = tune.preset_of(asked)
    assert (preset.env, preset.env_kwargs) == ("FrozenLake-v1", {"map_name": "8x8"})
    for wrong in ("{", "[1]"):
        with pytest.raises(UserError, match=r"env_kwargs is .*: expected a JSON object like"):
            tune.preset_of(tune.Arguments("default", env_kwargs=wrong))


class Watched:
    """A stand-in for a method's trainer: its score rises by the step size an epoch."""

    def __init__(self, config):
        self.config, self.warn = config, print

    def train(self, on_epoch):
        for epoch in range(1, self.config.epochs + 1):
            score = math.nan if epoch == 1 else epoch * self.config.learning_rate + self.config.seed
            on_epoch(type("Row", (), {"epoch": epoch, "score": score}))

    def close(self):
        pass


def test_a_trial_scores_the_median_of_its_seeds_and_may_be_pruned_in_each_epoch(monkeypatch, tmp_path):
    monkeypatch.setitem(METHODS, "ppo", METHODS["ppo"]._replace(trainer=Watched))
    config, journal = PPOConfig(epochs=3, learning_rate=0.5), Journal(str(tmp_path / "journal.log"), "tiny")
    searched = Search(journal, config, {}, (0, 10, 4), "score", 0)
    searched.run(1, 1, here, lambda _: None)
    pruned = iter([False, False, True])
    with monkeypatch.context() as patch:
        patch.setattr(optuna.trial.Trial, "should_prune", lambda _: next(pruned))
        searched.run(2, 1, here, lambda _: None)
    first, second = searched.finished()
    assert first.value == 5.5 and first.user_attrs["scores"] == [1.5, 11.5, 5.5]
    assert first.intermediate_values == {2: 1.0, 3: 1.5, 5: 6.25, 6: 6.5, 8: 5.0, 9: 5.5}
    assert second.state.name == "PRUNED" and second.user_attrs["scores"] == [1.5]
    assert "score never had a value" in tuning_trial.score_or_fault(config.replace(epochs=1), "score")


def test_tuned_settings_are_written_compared_and_trained(tmp_path, monkeypatch, capsys, processes_without_xla):
    preset = written(tmp_path / "tiny.json", {"method": "ppo", "config": TINY})
    space = written(tmp_path / "space.json", {"learning_rate": {"from": 1e-4, "to": 1e-2, "log": True}})
    command = [preset, "--space", space, "--trials", 1, "--seeds", 0, "--held-out-seeds", 7, "--into", tmp_path / "t"]
    assert call(monkeypatch, tune, *command) == 0
    assert {path.name for path in (tmp_path / "t").iterdir()} >= {
        tune.JOURNAL, tune.TUNED, tune.TRIALS, tune.FIGURE, tune.HELD_OUT,
    }  # fmt: skip
    out = capsys.readouterr().out
    assert "trial   1  " in out and "tuned   median" in out
    held_out = json.loads((tmp_path / "t" / tune.HELD_OUT).read_text())
    assert held_out.keys() == {"metric", "preset", "tuned"} and held_out["tuned"].keys() == {"7"}
    name, method, config = preset_files.read_preset(tmp_path / "t" / tune.TUNED)
    assert (name, method.config) == ("tuned", PPOConfig) and 1e-4 <= config.learning_rate <= 1e-2
    quiet = ["--evaluation-episodes", 0, "--record", "--runs-folder", tmp_path]
    assert call(monkeypatch, train, tmp_path / "t" / tune.TUNED, *quiet) == 0
    stored = json.loads((tmp_path / "tuned-seed0" / "config.json").read_text())
    assert (stored["preset"], stored["config"]["learning_rate"]) == ("tuned", config.learning_rate)


def test_a_column_of_info_is_a_metric(tmp_path):
    preset = written(
        tmp_path / "logs.json", {"method": "ppo", "config": {"env": "Pendulum-v1", "log_info": ["goals"]}}
    )
    assert tune.preset_of(tune.Arguments(str(preset), metric="info_goals")).log_info == ("goals",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pendulun"], "unknown preset 'pendulun'"),
        (["pendulum", "--trials", "0"], "trials is 0: expected 1 or more"),
        (["pendulum", "--metric", "scores"], "metric is 'scores': expected a column"),
        (["pendulum", "--seeds", "1", "2", "--held-out-seeds", "2"], "seed 2 is used to tune"),
        (["pendulum", "--held-out-seeds", "-1"], "held_out_seeds is (-1,): expected 0 to"),
        (["pendulum", "--cluster", "10.0.0.1:6379"], "has no effect with workers 0: add --workers 2"),
        (["none.json"], "none.json"),
        ([], "no preset is named"),
    ],
)
def test_a_wrong_argument_is_one_line(monkeypatch, tmp_path, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, tune, *arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "is not a preset"),
        ([], "is not a preset"),
        ({"method": "sarsa", "config": {}}, "is not a preset (KeyError: 'sarsa'): expected an object"),
        ({"method": "ppo", "config": 3}, "is not a preset"),
        ({"method": "ppo", "config": {"gama": 0.9}}, "has a setting that is not known"),
        ({"method": "off-policy", "config": {"tau": 2.0}}, "tau is 2.0"),
    ],
)
def test_a_file_that_is_no_preset_is_refused(tmp_path, content, words):
    with pytest.raises(UserError, match=re.escape(words)):
        preset_files.read_preset(written(tmp_path / "preset.json", content))


def test_a_preset_file_written_by_hand_has_the_defaults_and_may_not_have_what_does_nothing(tmp_path):
    mine = {"method": "ppo", "config": {"env": "Pendulum-v1"}}
    assert preset_files.read_preset(written(tmp_path / "a.json", mine))[2] == PPOConfig(env="Pendulum-v1")
    mine["config"]["fall_cost"] = ["50"]
    with pytest.raises(UserError, match=r"fall_cost .* has no effect"):
        preset_files.read_preset(written(tmp_path / "a.json", mine))


def test_what_a_preset_file_needs_typed_is_typed_in_python_too(tmp_path):
    preset_files.write_preset(tmp_path / "mine.json", PPOConfig(env="tiny_envs:tests/Target-v0"), score=1.5)
    for choose in (train_in_python, notebook.choose):
        with pytest.raises(UserError, match="type it yourself with --env tiny_envs:tests/Target-v0"):
            choose(str(tmp_path / "mine.json"), epochs=3)
    with pytest.raises(UserError, match="epochs is 0"):
        train_in_python(str(tmp_path / "mine.json"), env="tiny_envs:tests/Target-v0", epochs=0)
    assert notebook.choose(str(tmp_path / "mine.json"), epochs=3, env="tiny_envs:tests/Target-v0")[1].epochs == 3


def test_a_preset_file_returns_what_was_written(tmp_path):
    for config in (PPOConfig(hidden_sizes=(3, 4)), OffPolicyConfig(tau=0.1)):
        preset_files.write_preset(tmp_path / "mine.json", config, score=1.5)
        name, method, read = preset_files.read_preset(tmp_path / "mine.json")
        assert (name, method.config, read) == ("mine", type(config), config)
