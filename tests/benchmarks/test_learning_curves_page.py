"""The page of learning curves says what the raw results say."""

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import learning_curves_page as curves  # noqa: E402


def test_the_page_is_made_of_the_raw_results():
    tasks = curves.found()
    assert tasks and curves.PAGE.read_text(encoding="utf-8") == curves.page(tasks)
    assert {path.stem for path in curves.FIGURES.glob("*.png")} - {"first-command"} == set(tasks)


def test_the_pages_of_memories_and_masks_show_them_too(tmp_path, monkeypatch):
    for path, shown in curves.COMPARED.items():
        assert curves.BLOCK.findall(path.read_text(encoding="utf-8")) == [curves.compared(curves.found(), *shown)]
    rows = "| setting |\n| --- |\n| RecurrentPPO, A |\n| MaskablePPO, B |"
    (tmp_path / "speed.md").write_text(f"{rows}\n\nMedians.\n\n2026-11-29, 2 cores.\n", encoding="utf-8")
    monkeypatch.setattr(curves, "SPEED", tmp_path / "speed.md")
    run = {"steps": [1000], "final": {"deterministic": [1.5], "sampled": [0.0]}}
    text = curves.compared({"taxi-masked": {"ours-masked": [run]}}, ("queens-masked", "taxi-masked"), "MaskablePPO")
    assert "taxi-masked: Taxi-v4, 200,000 steps:\n\n| contestant" in text and "| ours-masked | 1 | 1.5 |" in text
    assert "| setting |\n| --- |\n| MaskablePPO, B |\n\n2026-11-29, 2 cores.\n" in text


def test_of_all_pairs_of_runs_a_draw_counts_half():
    assert curves.improvement(np.array([3.0, 1.0]), np.array([1.0, 2.0])) == (1 + 1 + 0.5 + 0) / 4


def test_an_interval_needs_seeds_that_differ():
    assert curves.interval([np.array([5.0])], curves.iqm) is None
    assert curves.interval([np.array([5.0, 5.0])], curves.iqm) is None
    low, high = curves.interval([np.arange(10.0)], curves.iqm)
    assert curves.iqm(np.arange(10.0)) == 4.5 and low < 4.5 < high


def test_a_row_counts_the_steps_of_validations():
    run = {"steps": [1000], "validation_steps": 5000, "final": {"deterministic": [1.0], "sampled": [0.0]}}
    run |= {"date": "2026-11-30T12:00:00+00:00", "cpu": "Abacus", "commit": "0123456789abcdef-dirty"}
    text = curves.page({"pendulum-sac": {"ours": [run]}})
    assert "| ours | 1 | 1.0 | 0.0 | 1 | 5 | – |" in text
    assert ": 2026-11-30, Abacus, commits 0123456789-dirty.\n" in text
    assert "- pendulum-sac: sbx-zoo, sbx-defaults, ours-zoo, ours-mirror\n" in text  # not run yet


def test_a_peer_has_the_seconds_of_the_faster_way_to_run_it():
    ways = (("SB3", 50.0), ("SB3, one thread", 100.0), ("SB3, one thread", 200.0), ("ours", 1000.0))
    race = [
        {"contestant": name, "steps_per_second": speed, "steps_per_epoch": 300, "instants": [5.0, 9.0]}
        for name, speed in ways
    ]
    assert curves.pace(race, "SB3") == (5.0 - 300 / 150, 150.0)
    assert curves.pace(race, "ours") == (5.0 - 0.3, 1000.0)
