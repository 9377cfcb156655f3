"""The notebook's lessons: whether the reader's functions are the project's, their figures, and what a plan says."""

import base64
import io
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from IPython.display import DisplayHandle
from matplotlib.figure import Figure
from PIL import Image

from common.envs.environment import environment_of, find_environment
from common.errors import UserError
from common.funcs import generalized_advantages
from common.runs import run_folder
from ppo.presets import PRESETS
from programs import methods, notebook
from programs.notebook import display, figures, films, lessons, plan
from programs.notebook.episode import Episode, highest_score, last_reward_std, play, shaping_of


def advantages(rewards, values, terminated, truncated, gamma, gae_lambda):
    found, following = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * (0.0 if terminated[t] else values[t + 1]) - values[t]
        following = delta + (0.0 if terminated[t] or truncated[t] else gamma * gae_lambda * following)
        found[t] = following
    return found


def surrogate(log_probs, old_log_probs, advantages, clip_range):
    ratio = np.exp(log_probs - old_log_probs)
    return -np.mean(np.minimum(ratio * advantages, np.clip(ratio, 1 - clip_range, 1 + clip_range) * advantages))


@pytest.fixture
def shown(monkeypatch):
    """Every bundle that was shown, in order."""
    bundles = []

    def keep(self, bundle, raw):
        assert raw  # else the bundle's own text would be shown
        bundles.append(bundle)

    for name in ("display", "update"):
        monkeypatch.setattr(DisplayHandle, name, keep)
    return bundles


# -- whether a function is the project's --


def test_equal_functions_are_said_to_be_equal():
    line = "your function equals common/funcs.generalized_advantages on 500 random steps (the largest difference is "
    assert lessons.check_advantages(advantages).startswith(line)
    line = "your function equals ppo/losses.clipped_surrogate on 1,000 random samples (the largest difference is "
    assert lessons.check_surrogate(surrogate).startswith(line)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda r, v, te, tr, g, lam: advantages(r, v, te, tr & False, g, lam),  # goes on after a timeout
        lambda r, v, te, tr, g, lam: advantages(r, v, te | tr, tr, g, lam),  # no value after a timeout
        lambda r, v, te, tr, g, lam: advantages(r, v, te & False, tr | te, g, lam),  # a value after a termination
        lambda r, v, te, tr, g, lam: advantages(r, v, te, tr, g, 1.0),
    ],
)
def test_each_mistake_in_the_advantages_is_found(wrong):
    assert " differs from common/funcs" in lessons.check_advantages(wrong)


def test_the_line_says_by_how_much_they_differ():
    shifted = lessons.check_advantages(lambda *arguments: advantages(*arguments) + 0.25)
    assert shifted.endswith("on 500 random steps, by up to 0.25")
    shifted = lessons.check_surrogate(lambda *arguments: surrogate(*arguments) - 0.125)
    assert shifted.endswith("on 1,000 random samples, by up to 0.125")
    for wrong in (
        lambda new, old, a, eps: -np.mean(np.exp(new - old) * a),  # never clipped
        lambda new, old, a, eps: -np.mean(np.clip(np.exp(new - old), 1 - eps, 1 + eps) * a),  # always clipped
    ):
        assert " differs from ppo/losses" in lessons.check_surrogate(wrong)


def test_what_a_function_does_wrong_is_one_line():
    for wrong, line in (
        (lambda *_: 1 / 0, r"failed \(ZeroDivisionError: division by zero, in line \d+ of the cell\)"),
        (lambda rewards, *_: rewards[:-1], r"an array of shape \(499,\): expected an array of 500 finite numbers"),
        (lambda rewards, *_: rewards * np.nan, "NaN or infinity: expected an array of 500 finite numbers"),
        (lambda *_: None, r"NaN or infinity|shape \(\)"),
    ):
        with pytest.raises(UserError, match=line):
            lessons.check_advantages(wrong)
    with pytest.raises(UserError, match="expected one finite number"):
        lessons.check_surrogate(lambda log_probs, *_: log_probs)


def test_a_function_that_writes_into_its_arguments_changes_nothing():
    def writes(rewards, *others):
        found = advantages(rewards, *others)
        rewards[:] = 0
        return found

    assert "equals" in lessons.check_advantages(writes)


# -- advantages of an episode --


@pytest.mark.parametrize(("table", "expected"), [({"reward_std": np.array([2.5, 3.5])}, 3.5), ({}, 1.0)])
def test_rewards_were_divided_by_the_last_standard_deviation_or_not_at_all(tmp_path, monkeypatch, table, expected):
    monkeypatch.setattr(run_folder, "read_results", lambda _: table)
    assert last_reward_std(tmp_path) == expected


@pytest.mark.parametrize(("scores", "expected"), [([np.nan, 3.0, 2.0], 3.0), ([np.nan, np.nan], -np.inf)])
def test_costs_are_those_of_the_highest_score(tmp_path, monkeypatch, scores, expected):
    monkeypatch.setattr(run_folder, "read_results", lambda _: {"score": np.array(scores)})
    assert highest_score(tmp_path) == expected


def test_an_episode_is_as_training_sees_it(tiny):
    config = tiny.replace(reward_design="steps_at_end", reward_scaling="rewards")
    environment = find_environment(config.env, config.max_episode_steps)
    agent = methods.new_agent(config, environment)
    episode = play(agent, config, environment, 2.0, 0.0)
    assert episode.rewards.shape == (20,) and episode.values.shape == (21,)
    assert not episode.terminated.any() and episode.truncated.tolist() == [False] * 19 + [True]
    assert episode.rewards[-1] == pytest.approx(20 * 0.005 / 2.0, rel=1e-3)
    again = play(agent, config.replace(reward_scaling="none"), environment, 2.0, 0.0)
    np.testing.assert_allclose(again.rewards, episode.rewards * 2.0001)
    ended = play(agent, config.replace(quirks=("truncation_is_terminal",)), environment, 2.0, 0.0)
    assert ended.terminated[-1] and not ended.truncated.any()
    design = config.replace(reward_design="function")
    assert play(agent, design, environment, 2.0, 0.0).rewards[-1] < 0  # Pendulum's own


def test_an_environment_may_use_the_array_of_its_observation_again(tiny):
    class Reusing(gymnasium.ObservationWrapper):
        array = np.zeros(3, np.float32)

        def observation(self, observation):
            self.array[:] = observation
            return self.array

    config = tiny.replace(env="Pendulum-v1")
    environment = environment_of(config, lambda **named: Reusing(gymnasium.make("Pendulum-v1", **named)))
    agent = methods.new_agent(config, environment)
    assert len(np.unique(play(agent, config, environment, 1.0, 0.0).values)) > 1


def test_actions_cost_what_they_cost_in_training(tiny):
    config = tiny.replace(reward_scaling="none")
    environment = find_environment(config.env, config.max_episode_steps)
    agent = methods.new_agent(config, environment)
    free, before, after = (
        play(agent, config.replace(**costs), environment, 1.0, 5.0).rewards
        for costs in ({}, *({"action_cost": (f"0.5@{score}",)} for score in (6, 5)))
    )
    assert (before == free).all() and (after < free).all() and (after >= free - 0.5).all()


def test_the_cost_of_a_fall_is_that_of_the_score(tiny):
    config = tiny.replace(reward_design="outcome_bonus", fall_cost=("1", "10@0"), reward_scaling="none")
    environment = find_environment(config.env, config.max_episode_steps)
    fell = (np.array([-100.0]), np.array([True]), np.array([False]), np.array([7]), np.zeros((1, 1)))
    assert shaping_of(config, environment, 0.0).shape(*fell).tolist() == [-10.0]
    assert shaping_of(config, environment, -1.0).shape(*fell).tolist() == [-1.0]


def test_the_figure_has_the_projects_line_and_the_readers():
    rng, ends = np.random.default_rng(0), np.arange(30) == 29
    episode = Episode(rng.normal(size=30), rng.normal(size=31), ends, ends & False)
    before = lessons.funcs_advantages(*episode, 0.99, 0.95)
    column = [array[:, None] for array in episode]
    expected = generalized_advantages(*column, np.ones((30, 1), bool), 0.99, 0.95)[:, 0]
    np.testing.assert_array_equal(before, expected)
    after = lessons.advantages_of(advantages, episode, 0.9, 0.0)
    figure = figures.advantages_figure(episode, before, after, (0.99, 0.95), (0.9, 0.0))
    names = [axis.get_ylabel() for axis in figure.axes]
    assert names == ["reward in\ntraining", "value V(s)", "advantage Â", "advantage Â,\nenlarged"]
    for axis in figure.axes[2:]:
        np.testing.assert_array_equal(axis.lines[0].get_ydata(), before)
        np.testing.assert_array_equal(axis.lines[1].get_ydata(), after)
    labels = [text.get_text() for text in figure.axes[2].get_legend().get_texts()]
    assert labels == ["project's: γ = 0.99, λ = 0.95", "yours: γ = 0.9, λ = 0"]
    assert "terminated after 30 steps" in figure.get_suptitle()


def test_how_far_an_advantage_looks_is_said():
    assert figures.horizons((0.99, 0.95), (0.99, 0.95)) == (
        "an advantage sums up about 16.8 steps of what follows: 1 / (1 − γλ)"
    )
    changed = figures.horizons((1.0, 1.0), (0.9, 0.0))
    assert (
        changed == "an advantage sums up about 1.0 steps of what follows, with the run's own γ and λ all: 1 / (1 − γλ)"
    )


def test_a_run_is_shown_with_the_readers_numbers(tiny, tmp_path, shown, eager, capsys):
    run = notebook.train("pendulum", tiny, tmp_path)
    lessons.show_advantages(run, advantages, 0.5)
    out = capsys.readouterr().out
    assert "your function equals" in out and "about 1.9 steps of what follows, with the run's own γ and λ" in out
    assert "image/png" in shown[-1]
    with pytest.raises(UserError, match="gae_lambda is 2: expected 0 to 1, or -1 for the preset's own"):
        lessons.show_advantages(run, advantages, -1, 2)
    with pytest.raises(UserError, match="not trained to its end"):
        lessons.show_advantages(None, advantages)


def test_a_method_without_v_is_said_to_have_none(tmp_path, shown, eager, capsys):
    config = notebook.choose(
        "pendulum-td3-fast", epochs=1, steps_per_epoch=64, warmup_steps=32, hidden_sizes=(8,), validation_episodes=1
    )[1]
    run = notebook.train("pendulum-td3-fast", config, tmp_path)
    lessons.show_advantages(run, advantages)
    assert "pendulum-td3-fast-seed0 has no critic V of states" in capsys.readouterr().out


# -- the clipped surrogate --


@pytest.mark.parametrize(("sign", "flat"), [(1.0, (1.2, 2.0)), (-1.0, (0.0, 0.8))])
def test_the_gradient_is_zero_where_clipping_gains_nothing(sign, flat):
    ratios = np.linspace(0.0, 2.0, 401)[1:]
    curve = lessons.objective(surrogate, ratios, sign, 0.2)
    [found] = figures.flat_parts(ratios, curve)
    np.testing.assert_allclose(found, flat, atol=0.011)
    np.testing.assert_allclose(curve, lessons.objective(lessons.project_surrogate, ratios, sign, 0.2))


def test_every_flat_part_is_found():
    curve = np.interp(np.arange(10), [0, 1, 3, 4, 5, 6, 9], [0, 1, 1, 2, 3, 4, 4])
    assert figures.flat_parts(np.arange(10.0), curve) == [(1.0, 3.0), (6.0, 9.0)]


def test_without_a_flat_part_nothing_is_grey():
    ratios = np.linspace(0.1, 2.0, 50)
    assert figures.flat_parts(ratios, ratios) == []


def test_the_surrogate_is_drawn_for_both_signs(monkeypatch, shown, capsys):
    drawn = []
    draw = figures.surrogate_figure
    monkeypatch.setattr(figures, "surrogate_figure", lambda *a: drawn.append(draw(*a)) or drawn[-1])
    lessons.show_surrogate(surrogate, 0.5, PRESETS["cartpole-minimal"])
    assert "your function equals ppo/losses.clipped_surrogate" in capsys.readouterr().out
    good, bad = drawn[0].axes
    assert (good.get_title(), bad.get_title()) == ("Â > 0", "Â < 0")
    assert [line.get_label() for line in good.lines[:2]] == ["project's: ε = 0.1", "yours: ε = 0.5"]
    assert (good.lines[0].get_ydata().max(), good.lines[1].get_ydata().max()) == pytest.approx((1.1, 1.5))
    with pytest.raises(UserError, match="clip_range is 3"):
        lessons.show_surrogate(surrogate, 3)
    lessons.show_surrogate(surrogate, -1, notebook.PRESETS["td3"])  # has no clip range: PPO's default


# -- what a training will take --


def test_a_plan_says_all_steps_and_warns_of_a_long_training(monkeypatch):
    backend = []
    monkeypatch.setattr(plan, "resolve_backend", lambda *_: backend[-1])
    backend.append("envpool")
    [line] = plan.plan("bipedal-walker-fast", PRESETS["bipedal-walker-fast"])
    assert line.startswith(
        "bipedal-walker-fast: BipedalWalker-v3, 553 epochs of 3,072 steps, at most 1,698,816 steps,"
    )
    assert line.endswith(" until it scores 303")
    hardcore = PRESETS["bipedal-walker-hardcore"].replace(epochs=1200)
    first, second = plan.plan("bipedal-walker-hardcore", hardcore)
    assert first.endswith("1,200 epochs of 16,384 steps, 19,660,800 steps in all")
    assert second == (
        "this is long: it may take about 55 minutes on two cores. Set epochs to 219 for about ten minutes, "
        "or choose another preset"
    )
    backend.append("gymnasium")
    assert len(plan.plan("bipedal-walker", PRESETS["bipedal-walker"])) == 2
    assert "about 3 hours" in plan.plan("bipedal-walker-hardcore", hardcore)[1]
    hour_and_a_half = hardcore.replace(epochs=660)  # 90.1 minutes
    assert "about 2 hours" in plan.plan("bipedal-walker-hardcore", hour_and_a_half)[1]
    assert len(plan.plan("cartpole", PRESETS["cartpole"])) == 1
    assert len(plan.plan("bipedal-walker-td3", notebook.PRESETS["bipedal-walker-td3"])) == 2
    assert len(plan.plan("pendulum-td3-fast", notebook.PRESETS["pendulum-td3-fast"])) == 1


# -- what is shown --


def test_a_part_of_a_run_begins_without_the_lines_of_the_part_before():
    quiet = display.Quiet()
    quiet.say("the first part")
    quiet.begin(4, 2)
    quiet.say("the second part")
    assert quiet.lines == ["the second part"]


def test_a_figure_is_shown_as_a_picture_of_few_colours():
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1])
    with Image.open(io.BytesIO(base64.b64decode(display.picture(figure)["image/png"]))) as shown:
        assert shown.mode == "P" and shown.size[0] == 2 * shown.size[1]
        assert len(shown.convert("RGB").getcolors()) > 2


def test_films_play_every_episode_to_its_end(monkeypatch, shown):
    scores = {"a": 150.0, "b": -250.0}
    takes = {stage: SimpleNamespace(score=score, steps=900, frame_rate=10.0) for stage, score in scores.items()}
    asked, frame = [], Image.new("RGB", (8, 8))
    monkeypatch.setattr(films, "opening", lambda take, *_, **options: asked.append(options) or [frame, frame])
    films.show_films(takes)
    assert asked == [{"whole": True}] * 2  # else their scores are not known
    assert shown[-1]["text/plain"] == "a: score 150 in 900 steps, b: score −250 in 900 steps"
