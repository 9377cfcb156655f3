"""A study's figure: every seed is a dot, the median is a line, and dark pages get colours of their own."""

import imageio.v2 as imageio
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from common.figures.study_figure import ArmScores, ReferenceScore, compare, tasks
from common.figures.style import COLOURS, colour_of, entitle, save_light_and_dark

PANELS = (("avg_reward_orig", "Reward"), ("avg_steps", "Steps"))


def curve(rewards):
    epochs = np.arange(1.0, len(rewards) + 1)
    return {"steps": 100 * epochs, "avg_reward_orig": np.array(rewards, float), "avg_steps": epochs}


ARMS = {
    "plain": ArmScores(
        [curve([1, 2, 3]), curve([3, np.nan, 9, 7]), curve([2, 5, 6])], [1.0, 2.0, 4.0], [0.5, 1.5, 2.5]
    ),
    "tuned": ArmScores([curve([8, 9, 10])], [11.0], [10.0]),
}


def drawn(figure):
    figure.canvas.draw()
    return figure


def test_every_seed_is_a_dot_and_names_have_the_curves_colours():
    dots, reward, steps = drawn(compare("finding", ARMS, PANELS, (ReferenceScore(10.0, "solved"),), -2.0)).axes
    assert steps.xaxis.get_major_formatter()(12_000) == "12k"
    points = {tuple(line.get_xdata()): line for line in dots.lines if line.get_linestyle() == "None"}
    assert set(points) == {(1.0, 2.0, 4.0), (0.5, 1.5, 2.5), (11.0,), (10.0,)}
    assert (
        points[1.0, 2.0, 4.0].get_markerfacecolor() == COLOURS[0] and points[11.0,].get_markeredgecolor() == COLOURS[1]
    )
    assert points[0.5, 1.5, 2.5].get_markerfacecolor() == "none"
    assert set(points[11.0,].get_ydata()) != set(points[10.0,].get_ydata())
    labels = dots.get_yticklabels()
    assert [label.get_text() for label in labels] == ["plain (3 seeds)", "tuned (1 seed)"]
    assert [to_hex(label.get_color()).upper() for label in labels] == [*COLOURS[:2]]
    assert any(np.array_equal(line.get_xdata(), [10, 10]) for line in dots.lines)
    assert any(np.array_equal(line.get_ydata(), [10, 10]) for line in reward.lines)
    assert [text.get_text() for text in dots.texts] == [text.get_text() for text in reward.texts] == ["solved"]
    assert reward.get_ylim()[0] == -2.0


def test_dots_of_equal_scores_are_apart_and_those_outside_are_written():
    scores = [-99.0, -99.0, 1.0, 1.0, 5.0]
    figure = drawn(
        compare(
            "finding",
            {"plain": ArmScores([curve([1])] * 5, scores, [2.0])},
            PANELS,
            (ReferenceScore(4.0, "solved"),),
            None,
            -5.0,
        )
    )
    [left, right] = figure.axes[0].get_xlim()
    assert left == -5.0 and 5.0 < right < 6.0
    assert [text.get_text() for text in figure.axes[0].texts] == ["solved", "← −99.0, −99.0"]
    [rows] = [line.get_ydata() for line in figure.axes[0].lines if list(line.get_xdata()) == scores]
    np.testing.assert_allclose(rows, [-0.3, -0.25, -0.2, -0.15, -0.1])


def test_triangles_mark_the_milestone_on_the_seeds_curves():
    arm = ArmScores([curve([1, 2, 3]), curve([3, 4, 5])], [1.0, 2.0], [1.0, 2.0], 20, [None, 1])
    figure = drawn(compare("finding", {"plain": arm}, PANELS, milestone="a first"))
    [mark] = [line for line in figure.axes[1].lines if line.get_marker() == "v"]
    assert (mark.get_xdata(), mark.get_ydata()) == ([200.0], [4.0])
    assert figure.get_supxlabel().endswith("\ntriangles: a first")
    assert figure.axes[0].get_xlabel() == "Score: mean of 20 episodes"


def test_the_thick_line_is_the_median_as_far_as_all_seeds_have_come():
    reward = compare("finding", ARMS, PANELS).axes[1]
    lines = [line for line in reward.lines if line.get_color() == COLOURS[0]]
    *seeds, median = sorted(lines, key=lambda line: line.get_linewidth())
    assert len(seeds) == 3 and sorted(len(line.get_xdata()) for line in seeds) == [3, 3, 4]
    np.testing.assert_array_equal(median.get_xdata(), [100, 200, 300])
    np.testing.assert_array_equal(median.get_ydata(), [2, 3, 6])  # the gap keeps the number before it
    [alone] = [line for line in reward.lines if line.get_color() == COLOURS[1]]
    np.testing.assert_array_equal(alone.get_ydata(), [8, 9, 10])
    other = curve([1, 2, 3]) | {"steps": np.array([50.0, 99.0, 300.0])}  # seeds whose epochs differ have no median
    apart = compare("finding", {"plain": ArmScores([curve([1, 2, 3]), other], [1.0, 2.0], [1.0, 2.0])}, PANELS)
    assert len(apart.axes[1].lines) == 2
    one_seed = compare("finding", {"tuned": ARMS["tuned"]}, PANELS)  # says nothing of medians
    assert one_seed.get_supxlabel().endswith("; line: training")


@pytest.mark.parametrize("count", [1, 4, 5])
def test_tasks_have_a_panel_each_with_its_own_level(count):
    arms = {f"Task-{i}": ARMS["plain"] for i in range(count)}
    figure = drawn(tasks("finding", arms, {"Task-0": 3.5}))
    shown = [axis for axis in figure.axes if axis.axison]
    assert len(shown) == count
    assert shown[0].get_title() == "Task-0\nmedian 2, 1 of 3 ≥ 3.5"
    assert any(np.array_equal(line.get_ydata(), [3.5, 3.5]) for line in shown[0].lines)
    assert any(np.array_equal(line.get_ydata(), [1.0, 2.0, 4.0]) for line in shown[0].lines)
    if count > 1:
        assert shown[1].get_title() == "Task-1\nmedian 2, no solved score"
    assert [bool(axis.get_xlabel()) for axis in shown] == [i >= count - 4 for i in range(count)]
    higher = tasks("finding", {"Task": ARMS["plain"]}, {"Task": 8.0}, lowest={"Task": 3.0}).axes[0]
    assert higher.get_ylim() == pytest.approx((3.0, 9.3))


def test_minus_signs_of_numbers_alone():
    figure = Figure(layout="constrained")
    entitle(figure, "rl-zoo3 -89 to -25, 20-episode", "")
    assert figure.get_suptitle() == "rl-zoo3 −89 to −25, 20-episode"


def test_dark_pages_get_lighter_colours(tmp_path):
    seen = []

    def draw():
        seen.append([colour_of(i) for i in range(8)])
        return Figure(figsize=(1, 1))

    save_light_and_dark(draw, tmp_path / "a.png")
    light, dark = seen
    assert light == [*COLOURS, COLOURS[0]] and not set(light) & set(dark) and dark[7] == dark[0]
    assert colour_of(0) == COLOURS[0]  # the mode ends with the figure
    shades = {name: imageio.imread(tmp_path / name)[0, 0, :3].tolist() for name in ("a.png", "a-dark.png")}
    assert shades == {"a.png": [255, 255, 255], "a-dark.png": [13, 17, 23]}
