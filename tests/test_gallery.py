"""The gallery: its page says what the agents' files say, and its films are small and move."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "experiments"))

import gallery  # noqa: E402

from common.runs import side_by_side  # noqa: E402

FILMS = sorted((ROOT / "docs" / "gallery").glob("*.gif"))


def test_the_page_is_what_the_script_writes():
    assert (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8") == gallery.page()


def test_every_agent_has_a_film_and_a_place_by_delight():
    assert [film.stem for film in FILMS] == sorted(gallery.order())
    assert gallery.order()[: len(gallery.DELIGHT)] == list(gallery.DELIGHT)


@pytest.mark.parametrize("film", FILMS, ids=lambda film: film.stem)
def test_a_film_is_as_wide_as_the_page_small_and_moves(film):
    width = 216 * len(gallery.card_of(film.stem)["stages"]) - 8  # 640 with all three
    with Image.open(film) as shown:
        assert shown.size[0] == width and shown.n_frames > 20
        first = np.asarray(shown.convert("RGB"))
        shown.seek(shown.n_frames // 2)
        later = np.asarray(shown.convert("RGB"))
    for panel in (slice(0, 208), slice(width - 208, width)):  # untrained and trained
        assert (first[side_by_side.HEADING :, panel] != later[side_by_side.HEADING :, panel]).any()
    np.testing.assert_array_equal(first[: side_by_side.HEADING], later[: side_by_side.HEADING])
    assert film.stat().st_size < 1_500_000


@pytest.mark.parametrize(
    ("steps", "text"),
    [(0, "0"), (9_999, "9,999"), (524_288, "524k"), (999_499, "999k"), (999_500, "1.0M")],
)
def test_steps_in_few_letters(steps, text):
    assert gallery.steps_of(steps) == f"{text} steps"


def test_a_heading_has_steps_and_a_score_with_a_true_minus():
    assert gallery.heading("untrained", {"steps": 0, "mean": -92.4}) == ("untrained", "0 steps, score −92")
