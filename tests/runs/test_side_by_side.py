"""Episodes side by side in one GIF: what is over grows pale, and a film that is too large gets smaller."""

import io

import numpy as np
import pytest
from PIL import Image

from common.runs import side_by_side


def picture(shade):
    return Image.new("RGB", (20, 10), (shade, shade, shade))


def test_an_episode_that_is_over_grows_pale_while_the_others_go_on():
    episodes = [[picture(0)], [picture(10 * i) for i in range(3)]]
    frames = [np.asarray(frame) for frame in side_by_side.side_by_side([("a", "b"), ("c", "d")], episodes, 1)]
    assert [frame.shape for frame in frames] == [(54, 48, 3)] * 4
    shades = [(frame[50, 5, 0], frame[50, 35, 0]) for frame in frames]
    pale = [round(255 * (1 - side_by_side.PALE) + side_by_side.PALE * shade) for shade in (0, 20)]
    assert shades[0] == (0, 0)
    np.testing.assert_allclose(shades[1:], [(pale[0], 10), (pale[0], 20), pale], atol=1)
    for first, last in ((0, 20), (22, side_by_side.HEADING)):
        assert (frames[0][first:last] < 128).any(), "a line of the heading is not written"


@pytest.mark.parametrize(("whole", "drawn"), [(False, 6), (True, 20)])
def test_only_the_opening_is_kept(whole, drawn):
    class FilmedEpisode:
        frame_rate, drawn = 10.0, 0

        def __iter__(self):
            for _ in range(20):
                self.drawn += 1
                yield np.zeros((30, 60, 3), np.uint8)

    take = FilmedEpisode()
    frames = side_by_side.opening(take, 20, 0.4, whole)
    assert [frame.size for frame in frames] == [(20, 10)] * 5
    assert take.drawn == drawn


def test_a_film_that_is_too_large_gets_fewer_colours_and_then_fewer_frames():
    rng = np.random.default_rng(0)
    frames = [Image.fromarray(rng.integers(0, 256, (40, 60, 3)).astype(np.uint8)) for _ in range(24)]
    films = [side_by_side.small_gif(frames, 12.5, 10**9)]
    films += [side_by_side.small_gif(frames, 12.5, largest) for largest in (len(films[0]) - 1, 1)]
    shown = []
    for film in films:
        with Image.open(io.BytesIO(film)) as opened:
            shown.append((opened.n_frames, opened.info["duration"]))
    assert shown == [(24, 80), (24, 80), (12, 160)]
    assert len(films[0]) > len(films[1]) > len(films[2])


def test_a_score_has_a_true_minus():
    shown = [side_by_side.with_minus(score) for score in (-92.4, 312.5, 7.0, 0.955, -1.09e-5)]
    assert shown == ["−92", "312", "7", "0.955", "−1.09e−05"]
