"""Figures: what each draws from which columns, of long, short and empty runs, and one line for every mistake."""

from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from matplotlib.cbook import is_math_text
from run_program import call

from Agent import Agent
from common.errors import UserError
from common.figures import curves as curve_figures
from common.figures import policy_view
from common.figures.five_panels import five_panels, near_best_epochs
from common.figures.importances import importances
from common.figures.style import stacked_panels
from common.results import columns_of
from common.runs import run_folder
from companions.config import OffPolicyConfig
from companions.DDPGAgent import DDPGAgent
from ppo.config import PPOConfig
from ppo.results import PPOResult
from programs import plot

CONFIG = PPOConfig(env="Pendulum-v1", hidden_sizes=(8,))
WALKER = Path(__file__).resolve().parents[2] / "experiments" / "results" / "walker"


def curves(epochs=6, **changes):
    """A run whose every column is the epoch's number."""
    number = np.arange(1.0, epochs + 1)
    return {name: number.copy() for name in columns_of(PPOResult)} | {"steps": 100 * number} | changes


def labels(figure):
    return [axis.get_ylabel() for axis in figure.axes]


def drawn(figure):
    """Renders it, since matplotlib finds some faults only then."""
    figure.canvas.draw()
    return figure


def write_run(folder, columns):
    """A run folder with a results.csv."""
    folder.mkdir(parents=True)
    rows = [",".join(columns), *(",".join(map(repr, map(float, row))) for row in zip(*columns.values()))]
    (folder / run_folder.RESULTS).write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize("epochs", [1, 6, 500])
def test_every_figure_of_runs_of_any_length(epochs):
    run = curves(epochs)
    drawn(curve_figures.reward_and_steps("run", run))
    drawn(curve_figures.diagnostics({"run": run, "other": run}))
    drawn(curve_figures.time_per_stage("run", run))
    drawn(curve_figures.over_seeds({"arm": [run, run]}, (("avg_steps", "Steps"),)))


def judged(total_reward, avg_reward, avg_steps):
    columns = {"total_reward": total_reward, "avg_reward": avg_reward, "avg_steps": avg_steps}
    return curves(len(total_reward)) | {name: np.array(column, float) for name, column in columns.items()}


def test_epochs_near_their_best_on_all_three_curves_worked_by_hand():
    # Of a range of 100, 5 below the best is near. Epochs 2 and 3 stand side by side, and 3 is the better.
    run = judged([0, 96, 98, 50, 100, 97], [0, 95, 100, 100, 94, 96], [0, 100, 100, 100, 100, 99])
    assert near_best_epochs(run).tolist() == [2, 5]
    assert near_best_epochs(run, most=1).tolist() == [2]
    # None is near on all three: the last misses 20 of 100 steps at most, the others more.
    run = judged([0, 100, 60, 95], [0, 90, 60, 100], [100, 0, 70, 80])
    assert near_best_epochs(run).tolist() == [3]
    # No episode has ended in the best epoch, or in any.
    run = judged([0, 90, 100], [0, 90, np.nan], [0, 50, np.nan])
    assert near_best_epochs(run).tolist() == [1]
    assert near_best_epochs(judged([1, 2], [np.nan] * 2, [np.nan] * 2)).tolist() == []
    assert near_best_epochs(judged([5, 5], [1, 1], [9, 9])).tolist() == [0]


@pytest.mark.parametrize("run", sorted(WALKER.glob("*-seed*"))[:2], ids=lambda run: run.name)
def test_recorded_walkers_have_dashed_lines_through_all_panels_and_green_circles_on_three(run):
    curves = run_folder.read_results(run)
    figure = drawn(five_panels({run.name: curves}))
    marked = curves["epoch"][near_best_epochs(curves)].tolist()
    assert 1 <= len(marked) <= 8
    for i, axis in enumerate(figure.axes):
        assert [line.get_xdata()[0] for line in axis.lines if line.get_linestyle() == "--"] == marked
        circles = [line.get_xdata().tolist() for line in axis.lines if line.get_marker() == "o"]
        assert circles == ([marked] if i < 3 else [])


def test_reward_and_steps_are_two_panels_with_the_longest_episode():
    run = curves(total_reward_orig=np.zeros(6), episodes=np.array([0, 1, 1, 1, 1, 1]))
    figure = drawn(curve_figures.reward_and_steps("run", run))
    reward, steps = figure.axes
    assert [line.get_label() for line in reward.lines] == ["trained on", "unshaped"]
    run["total_reward_orig"] = run["total_reward"] * (1 + 1e-13)  # sums in another order are the same curve
    assert len(drawn(curve_figures.reward_and_steps("run", run)).axes[0].lines) == 1
    assert [line.get_label() for line in steps.lines] == ["mean", "longest episode"]
    assert "no episode finished" in figure.get_suptitle()


def test_the_band_over_seeds():
    seeds = [curves(avg_steps=np.full(6, level)) for level in (0.0, 1.0, 2.0, 3.0, 10.0)]
    for band, low, high in (("range", 0, 10), ("interquartile", 1, 3)):
        figure = drawn(curve_figures.over_seeds({"arm": seeds}, (("avg_steps", "Steps"),), band))
        [axis] = figure.axes
        np.testing.assert_array_equal(axis.lines[0].get_ydata(), 2)
        area = axis.collections[0].get_paths()[0].vertices
        assert (area[:, 1].min(), area[:, 1].max()) == (low, high)
        words = {"range": "lowest to highest", "interquartile": "middle half"}[band]
        assert words in figure.legends[0].get_title().get_text()

    def line_of(*arms, column="avg_steps"):
        [axis] = drawn(curve_figures.over_seeds({"arm": [*arms]}, ((column, "Steps"),))).axes
        return axis.lines[0]

    assert len(line_of(curves(6), curves(4)).get_xdata()) == 4  # as far as all have come
    gaps = [[np.nan, 1, np.nan, 3, 4, np.nan], [np.nan, np.nan, 5, 5, 5, 5]]  # epochs without an episode
    medians = line_of(*(curves(avg_steps=np.array(row)) for row in gaps)).get_ydata()
    np.testing.assert_array_equal(medians, [np.nan, 1, 3, 4, 4.5, 4.5])  # repeat what was known
    with pytest.raises(UserError, match="different lengths"):
        line_of(curves(), curves(steps=np.arange(6.0)))
    with pytest.raises(UserError, match="no column wings"):
        line_of(curves(), column="wings")


def test_diagnostics_leave_out_what_has_no_numbers():
    everything = labels(curve_figures.diagnostics({"run": curves()}))
    without = labels(curve_figures.diagnostics({"run": curves(mean_std=np.full(6, np.nan))}))
    assert len(everything) == 5 and set(everything) - set(without) == {curve_figures.LABELS["mean_std"]}
    assert "KL (nats)" in everything
    of_sac = labels(curve_figures.diagnostics({"run": curves(temperature=np.ones(6))}))
    assert set(of_sac) - set(everything) == {curve_figures.LABELS["temperature"]}
    other = curves(mean_value=np.arange(6.0), mean_target=np.arange(6.0))  # of another method
    other |= {name: np.full(6, np.nan) for name in ("approximate_kl", "clip_fraction", "entropy", "mean_std")}
    [legend] = drawn(curve_figures.diagnostics({"ppo": curves(), "td3": other})).legends
    assert [text.get_text() for text in legend.get_texts()] == ["ppo", "td3"]
    with pytest.raises(UserError, match="none of the columns"):
        curve_figures.diagnostics({"run": {"epoch": np.arange(3.0)}})


def test_time_is_stacked_and_shared_out():
    stages = dict.fromkeys(("seconds_environment", "seconds_policy", "seconds_update"), np.ones(6))
    figure = drawn(curve_figures.time_per_stage("run", curves(**stages, seconds_validation=np.zeros(6))))
    [axis] = figure.axes
    assert axis.get_ylabel() == "Seconds of training\nper epoch"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["environment (33%)", "policy (33%)", "update (33%)"]
    assert max(patch.get_data().values.max() for patch in axis.patches) == 3
    validation = np.array([0, 0, 3, 0, 0, 3.0])
    figure = drawn(curve_figures.time_per_stage("run", curves(**stages, seconds_validation=validation)))
    training, apart = figure.axes
    assert apart.get_ylabel() == "Seconds of validation\nper epoch"
    assert max(patch.get_data().values.max() for patch in training.patches) == 3
    np.testing.assert_array_equal(apart.patches[0].get_data().values, validation)
    assert figure.legends[0].get_texts()[-1].get_text() == "validation (25%)"


# -- the policy's view --


def ppo(observations, actions):
    return Agent(Box(-1.0, 1.0, (observations,)), actions, CONFIG, seed=0)


def test_the_pendulum_is_seen_over_angle_and_velocity(tmp_path, monkeypatch):
    agent = ppo(3, Box(-2.0, 2.0, (1,)))
    run_folder.write_config(tmp_path, CONFIG, "preset")
    agent.save_weights(tmp_path / run_folder.BEST_AGENT)
    assert call(monkeypatch, plot, tmp_path, "--kind", "policy", "--out", tmp_path / "policy.png") == 0
    assert (tmp_path / "policy.png").stat().st_size > 10_000
    figure = drawn(policy_view.policy_view(agent, policy_view.grid_for("Pendulum-v1", agent)))
    action, value, action_bar, value_bar = figure.axes
    assert "rad" in action.get_xlabel() and "rad/s" in value.get_ylabel()
    assert action_bar.get_ylabel() == "Torque (N·m)" and "Value" in value_bar.get_ylabel()
    assert [axis.collections[0].get_cmap().name for axis in (action, value)] == ["PuOr", "viridis"]
    assert action.collections[0].get_clim() == (-2.0, 2.0)
    # Row 0, column 0 is the angle −π at −8 rad/s.
    expected = agent.action_map(agent.acting_policy().act(np.array([[-1, 0, -8]], np.float32)))
    assert action.collections[0].get_array().reshape(161, 181)[0, 0] == pytest.approx(expected[0, 0], abs=1e-5)
    value_there = agent.critic(agent.normalize(np.array([[1, 0, 0]], np.float32)))
    assert value.collections[0].get_array().reshape(161, 181)[80, 90] == pytest.approx(
        float(value_there[0, 0]), abs=1e-5
    )


def test_td3s_value_is_its_first_critics():
    agent = DDPGAgent(Box(-1.0, 1.0, (3,)), Box(-2.0, 2.0, (1,)), OffPolicyConfig(hidden_sizes=(8,)), seed=0)
    drawn(policy_view.policy_view(agent, policy_view.PENDULUM))
    observations = np.zeros((1, 3), np.float32)
    actions, values = policy_view.actions_and_values(agent, observations)
    expected = agent.critics[0](np.concatenate([observations, actions / 2], axis=1).astype(np.float32))
    assert values[0] == pytest.approx(float(expected[0, 0]), abs=1e-6)


@pytest.mark.parametrize("size, panels", [(1, 2), (2, 4)])
@pytest.mark.parametrize("actions", [Box(-np.inf, np.inf, (1,)), Discrete(3, start=1)])
def test_other_environments_of_few_numbers(size, panels, actions):
    agent = ppo(size, actions)
    agent.observe(np.random.default_rng(0).normal(5, 2, (100, size)))
    grid = policy_view.grid_for("Pendulum-v1", agent)  # of which it sees one or two numbers
    assert all(4 < values.mean() < 6 for _, values in grid.axes)  # about what was seen
    assert len(drawn(policy_view.policy_view(agent, grid)).axes) == panels
    with pytest.raises(UserError, match="3 numbers"):
        policy_view.grid_for("Some-v0", ppo(3, actions))


# -- the program --


@pytest.mark.parametrize("kind", ["five", "reward", "diagnostics", "time", "seeds"])
def test_every_kind_is_written(kind, tmp_path, monkeypatch, capsys):
    run = write_run(tmp_path / "run-seed0", curves())
    for suffix in ("png", "svg"):
        picture = tmp_path / f"picture.{suffix}"
        assert call(monkeypatch, plot, run, "--kind", kind, "--out", picture) == 0
        assert capsys.readouterr().out == f"wrote {picture}\n"
    assert imageio.imread(tmp_path / "picture.png").std() > 0
    assert (tmp_path / "picture.svg").read_text().lstrip().startswith("<?xml")


def test_real_seeds_are_grouped_by_name(tmp_path, monkeypatch):
    seen = []
    over_seeds = curve_figures.over_seeds
    monkeypatch.setattr(curve_figures, "over_seeds", lambda *a: seen.append(a) or over_seeds(*a))
    runs = sorted(WALKER.glob("*-seed?"))
    columns = ["--columns", "avg_steps", "mean_std"]
    assert call(monkeypatch, plot, *runs, "--kind", "seeds", *columns, "--out", tmp_path / "seeds.png") == 0
    [(arms, panels, band, _)] = seen
    assert {arm: len(seeds) for arm, seeds in arms.items()} == {"envpool": 3, "gymnasium": 3}
    assert [column for column, _ in panels] == ["avg_steps", "mean_std"] and band == "range"


def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys):
    run, other = (write_run(tmp_path / name, curves()) for name in ("a", "b"))
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    for arguments, word, out in (
        ([run, other, "--kind", "reward"], "2 runs given", "picture.png"),
        ([run, other, "--kind", "time"], "2 runs given", "picture.png"),
        ([run, "--kind", "pie"], "pie", "picture.png"),
        ([run, "--kind", "policy"], "config.json", "picture.png"),
        ([run, "--kind", "seeds", "--columns", "wings"], "wings", "picture.png"),
        ([run, "--kind", "seeds", "--band", "wide"], "wide", "picture.png"),
        ([run, "--kind", "seeds", "--columns"], "no columns given", "picture.png"),
        ([run, "--title", "no"], "title no has no effect with kind five", "picture.png"),
        ([run], str(tmp_path), "folder.png"),
        ([run], str(tmp_path), "file/picture.png"),
    ):
        assert call(monkeypatch, plot, *arguments, "--out", tmp_path / out) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1 and word in error, error
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "folder.png", "file"}


def test_the_figure_of_a_search_shows_what_mattered_and_the_best_so_far():
    left, right = importances({"gamma": 0.3, "passes": 0.7}, [1.0, 3.0, 2.0], "score").axes
    assert [(text.get_text(), bar.get_width()) for text, bar in zip(left.get_yticklabels(), left.patches)] == [
        ("gamma", 0.3), ("passes", 0.7),
    ]  # fmt: skip
    trials, best = right.lines
    assert list(trials.get_ydata()) == [1.0, 3.0, 2.0]
    assert list(best.get_ydata()) == [1.0, 3.0, 3.0]
    assert (left.get_xlabel(), right.get_xlabel(), right.get_ylabel()) == (
        "Share of the differences between trials", "Completed trial", "score (median over the trial's seeds)",
    )  # fmt: skip
    assert all(tick == round(tick) for tick in right.get_xticks())  # trials are counted in whole numbers
    assert left.get_title("left") == "passes made 70% of the differences"
    assert right.get_title("left") == "Best of 3 completed trials: 3, number 2"
    left, right = importances({}, [], "score").axes
    assert left.get_title("left").startswith("Too few") and right.get_title("left") == "No trial is complete"


def test_the_five_panels_explain_circles_and_mark_the_best_parameters():
    run = curves(is_best=np.array([0.0, 1, 0, 1, 0, 0]))
    figure = drawn(five_panels({"one": run, "other": curves(is_best=np.full(6, np.nan))}))
    assert labels(figure)[:3] == ["Mean reward\nper episode", "Mean steps\nper episode", "Reward per epoch"]
    [legend] = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts.count("near the best in all three upper panels") == 1
    assert "one: best parameters, epoch 4" in texts and not any(text.startswith("other: best") for text in texts)
    for axis in figure.axes[:3]:
        [mark] = [line for line in axis.lines if line.get_marker() == "v" and len(line.get_xdata())]
        assert (mark.get_xdata(), mark.get_ydata()) == ([4], [4])
    assert not any(line.get_marker() == "v" for axis in figure.axes[3:] for line in axis.lines)


def test_a_title_takes_the_legends_place_and_makes_a_dark_version(tmp_path, monkeypatch):
    for name in ("a-seed0", "b-seed0"):
        write_run(tmp_path / name, curves())
    arguments = [tmp_path / "a-seed0", tmp_path / "b-seed0", "--kind", "seeds", "--columns", "avg_reward_orig"]
    assert call(monkeypatch, plot, *arguments, "--title", "b is better", "--output", tmp_path / "t.png") == 0
    assert (tmp_path / "t.png").exists() and (tmp_path / "t-dark.png").exists()
    assert call(monkeypatch, plot, *arguments, "--output", tmp_path / "u.png") == 0
    assert not (tmp_path / "u-dark.png").exists()
    run = {"a": [curves()], "b": [curves()]}
    figure = curve_figures.over_seeds(run, (("avg_steps", "Steps"),), "range", "b is better")
    assert figure.get_suptitle() == "b is better" and not figure.legends and figure.axes[0].get_legend() is not None


@pytest.mark.parametrize("name", [r"x$\z$y", "a$b_c$", "_hidden", "plain"])
def test_any_name_of_a_run_is_shown_as_it_is(name):
    run = curves(loss_actor=np.arange(6.0))
    for figure in (
        five_panels({name: run}),
        curve_figures.diagnostics({name: run}),
        curve_figures.reward_and_steps(name, run),
        curve_figures.time_per_stage(name, run),
        curve_figures.over_seeds({name: [run]}, (("total_reward", "reward"),)),
    ):
        drawn(figure)
        shown = [text.get_text() for legend in figure.legends for text in (*legend.get_texts(), legend.get_title())]
        shown.append(figure.get_suptitle() or "")
        assert any(text.strip().replace(r"\$", "$").startswith(name) for text in shown), shown
        assert not any(map(is_math_text, shown))


def test_stacked_panels_are_as_high_as_asked():
    figure, panels = stacked_panels(3, 2.0)
    assert (figure.get_size_inches().tolist(), len(panels)) == ([9, 7], 3)
