"""The gallery: its page says what the agents' files say, and its films are small and move."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "experiments"))

import gallery  # noqa: E402

FILMS = sorted((ROOT / "docs" / "gallery").glob("*.gif"))


def test_the_page_is_what_the_script_writes():
    assert (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8") == gallery.page()


def test_every_agent_has_a_film_and_the_walker_comes_first():
    assert [film.stem for film in FILMS] == sorted(gallery.order())
    assert gallery.order()[0] == "walker"


@pytest.mark.parametrize("film", FILMS, ids=lambda film: film.stem)
def test_a_film_is_as_wide_as_the_page_small_and_moves(film):
    with Image.open(film) as shown:
        assert shown.size[0] == 640 and shown.n_frames > 20
        first = np.asarray(shown.convert("RGB"))
        shown.seek(shown.n_frames // 2)
        later = np.asarray(shown.convert("RGB"))
    for panel in (slice(0, 208), slice(432, 640)):  # untrained and trained
        assert (first[gallery.HEADING :, panel] != later[gallery.HEADING :, panel]).any()
    np.testing.assert_array_equal(first[: gallery.HEADING], later[: gallery.HEADING])
    assert film.stat().st_size < 1_500_000


def picture(shade):
    return Image.new("RGB", (20, 10), (shade, shade, shade))


def test_an_episode_that_is_over_grows_pale_while_the_others_go_on():
    episodes = [[picture(0)], [picture(10 * i) for i in range(3)]]
    frames = [np.asarray(frame) for frame in gallery.side_by_side([("a", "b"), ("c", "d")], episodes, 1)]
    assert [frame.shape for frame in frames] == [(54, 48, 3)] * 4
    shades = [(frame[50, 5, 0], frame[50, 35, 0]) for frame in frames]
    pale = [round(255 * (1 - gallery.PALE) + gallery.PALE * shade) for shade in (0, 20)]
    assert shades[0] == (0, 0)
    np.testing.assert_allclose(shades[1:], [(pale[0], 10), (pale[0], 20), pale], atol=1)
    assert (frames[0][: gallery.HEADING] < 128).any(), "no heading is written"


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (0, "0 steps"),
        (9_999, "9,999 steps"),
        (524_288, "524k steps"),
        (999_499, "999k steps"),
        (999_500, "1.0M steps"),
    ],
)
def test_steps_in_few_letters(steps, text):
    assert gallery.steps_of(steps) == text


def test_a_heading_has_steps_and_a_score_with_a_true_minus():
    assert gallery.heading("untrained", {"steps": 0, "mean": -92.4}) == ("untrained", "0 steps, score −92")


def test_a_film_that_is_too_large_gets_fewer_colours(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    frames = [Image.fromarray(rng.integers(0, 256, (40, 60, 3)).astype(np.uint8)) for _ in range(12)]
    sizes = {}
    for largest in (10**9, 1):
        monkeypatch.setattr(gallery, "LARGEST", largest)
        gallery.write_gif(frames, 12.5, tmp_path / "film.gif")
        sizes[largest] = (tmp_path / "film.gif").stat().st_size
        with Image.open(tmp_path / "film.gif") as film:
            assert film.n_frames == 12 and film.info["duration"] == 80
    assert sizes[1] < 0.8 * sizes[10**9]
