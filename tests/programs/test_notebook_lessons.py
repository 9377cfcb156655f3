"""The notebook's lessons: whether the reader's functions are the project's, their figures, and what a plan says."""

import base64
import io
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from common.envs.environment import environment_of, find_environment
from common.errors import UserError
from common.funcs import generalized_advantages
from ppo.presets import PRESETS
from programs import methods, notebook
from programs.notebook import display, figures, films, lessons
from programs.notebook.lessons import Episode, play


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


# -- whether a function is the project's --


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


def results(score=0.0, reward_std=1.0):
    """What an episode needs of a run's table."""
    return {"score": np.array([np.nan, score, score - 1.0]), "reward_std": np.array([7.0, reward_std])}


def test_an_episode_is_as_training_sees_it(tiny):
    config = tiny.replace(reward_design="steps_at_end", reward_scaling="rewards")
    environment = find_environment(config.env, config.max_episode_steps)
    agent = methods.new_agent(config, environment)
    episode = play(agent, config, environment, results(reward_std=2.0))
    assert episode.rewards.shape == (20,) and episode.values.shape == (21,)
    assert not episode.terminated.any() and episode.truncated.tolist() == [False] * 19 + [True]
    assert episode.rewards[-1] == pytest.approx(20 * 0.005 / 2.0, rel=1e-3)
    again = play(agent, config.replace(reward_scaling="none"), environment, results())
    np.testing.assert_allclose(again.rewards, episode.rewards * 2.0001)
    ended = play(agent, config.replace(quirks=("truncation_is_terminal",)), environment, results())
    assert ended.terminated[-1] and not ended.truncated.any()
    design = config.replace(reward_design="function")
    assert play(agent, design, environment, results()).rewards[-1] < 0  # Pendulum's own


def test_an_environment_may_use_the_array_of_its_observation_again(tiny):
    class Reusing(gymnasium.ObservationWrapper):
        array = np.zeros(3, np.float32)

        def observation(self, observation):
            self.array[:] = observation
            return self.array

    config = tiny.replace(env="Pendulum-v1")
    environment = environment_of(config, lambda **named: Reusing(gymnasium.make("Pendulum-v1", **named)))
    agent = methods.new_agent(config, environment)
    assert len(np.unique(play(agent, config, environment, results()).values)) > 1


def test_actions_cost_what_they_cost_in_training_at_the_highest_score(tiny):
    config = tiny.replace(reward_scaling="none")
    environment = find_environment(config.env, config.max_episode_steps)
    agent = methods.new_agent(config, environment)
    free, before, after, never = (
        play(agent, config.replace(**costs), environment, results(score)).rewards
        for costs, score in (
            ({}, 5.0),
            ({"action_cost": ("0.5@6",)}, 5.0),
            ({"action_cost": ("0.5@5",)}, 5.0),
            ({"action_cost": ("0.5@5",)}, np.nan),
        )
    )
    assert (before == free).all() and (never == free).all()
    assert (after < free).all() and (after >= free - 0.5).all()


def test_the_figure_has_the_projects_line_and_the_readers():
    rng, ends = np.random.default_rng(0), np.arange(30) == 29
    episode = Episode(rng.normal(size=30), rng.normal(size=31), ends, ends & False)
    before = lessons.project_advantages(*episode, 0.99, 0.95)
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


@pytest.mark.parametrize(
    ("preset", "changes", "backend", "said"),
    [
        ("bipedal-walker-fast", {}, "envpool", "553 epochs of 3,072 steps, at most 1,698,816 steps, until it"),
        ("bipedal-walker-hardcore", {}, "envpool", "55 minutes on two cores. Set epochs to 219 for about ten min"),
        ("bipedal-walker-hardcore", {}, "gymnasium", "1,200 epochs of 16,384 steps, 19,660,800 steps in all\n"),
        ("bipedal-walker-hardcore", {"epochs": 660}, "gymnasium", "about 2 hours on two cores"),  # 90.1 minutes
        ("bipedal-walker-td3", {}, "gymnasium", "this is long"),
    ],
)
def test_what_will_be_trained_is_announced_with_a_warning_where_it_is_long(
    preset, changes, backend, said, monkeypatch, capsys
):
    monkeypatch.setattr(notebook, "resolve_backend", lambda *_: backend)
    notebook.announce(preset, notebook.PRESETS[preset].replace(**changes))
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("preset", ["cartpole", "pendulum-td3-fast"])
def test_a_short_training_is_announced_without_a_warning(preset, capsys):
    notebook.announce(preset, notebook.PRESETS[preset])
    assert capsys.readouterr().out.count("\n") == 1


def test_every_flat_part_is_found():
    parts = figures.flat_parts(np.arange(9.0), np.array([5.0, 5, 5, 6, 7, 7, 8, 9, 9]))
    assert parts == [(0, 2), (4, 5), (7, 8)]


def test_a_figure_is_shown_as_a_picture_of_few_colours():
    shown = display.picture(Figure(figsize=(2, 1)), dpi=50)
    with Image.open(io.BytesIO(base64.b64decode(shown["image/png"]))) as read:
        assert (read.mode, read.size) == ("P", (100, 50))


def test_a_part_of_a_run_begins_without_the_lines_of_the_part_before(tmp_path):
    screen = display.Screen(tmp_path)
    screen.lines.append("of the part before")
    screen.begin(3, 1)
    assert (screen.lines, screen.epochs, screen.done) == ([], 3, 1)


class Take(list):
    """Pictures of an episode, one a second."""

    frame_rate, score, steps = 1.0, 3.0, 9


@pytest.mark.parametrize(("seconds", "rest"), [(3, 2), (9, 0)])
def test_the_last_picture_rests_only_where_the_episode_is_over(monkeypatch, seconds, rest):
    rests, side_by_side = [], films.side_by_side
    monkeypatch.setattr(films, "put", lambda _: SimpleNamespace(update=lambda *_, **__: None))
    monkeypatch.setattr(films, "side_by_side", lambda *given: rests.append(given[2]) or side_by_side(*given))
    films.show_films({"trained": Take([np.zeros((40, 60, 3), np.uint8)] * seconds)})
    assert rests == [rest]
