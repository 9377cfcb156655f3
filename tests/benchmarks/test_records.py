"""LEADERBOARD.md is what benchmarks/records.py makes of the recorded results."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import records  # noqa: E402


def found():
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(records.FOLDER.glob("*.json"))]


def test_the_page_is_made_of_the_recorded_results():
    assert found() and (ROOT / "LEADERBOARD.md").read_text(encoding="utf-8") == records.page(found())


def test_every_record_counts_all_of_its_seeds_and_none_that_was_tuned_on():
    for one in found():
        assert [row["seed"] for row in one["seeds"]] == list(range(100, 110))
        for row in one["seeds"]:
            assert len(row["returns"]) == 100
            assert row["scores"]["1600"] == pytest.approx(sum(row["returns"]) / 100, abs=0.06)


def test_a_row_has_medians_ranges_and_failures():
    seeds = [
        {"seed": 100 + i, "steps": 1000 * (i + 1), "seconds": 10.0 * (i + 1), "scores": {"1600": s, "2000": s + 1},
         "walks_at_seconds": walks}
        for i, (s, walks) in enumerate(((300.0, 5.0), (299.9, None), (310.0, 7.0)))
    ]  # fmt: skip
    one = {
        "metric": "Steps", "knowledge": "", "command": "train.py", "commit": "0123456789", "changed": "nothing",
        "machine": {"date": "2026-01-02T03:04:05", "cpu": "Some processor", "cores": 2}, "stepping_alone": 30_000.4,
        "seeds": seeds,
    }  # fmt: skip
    assert records.row(one) == (
        "| 2026-01-02 | 0123456 | `python train.py --seed S` | 100 to 102, 2 of 3 | 2,000 (1,000 to 3,000) | "
        "20 (10 to 30) | 6 (5 to 7) | 300.0 (299.9 to 310.0) | 301.0 (300.9 to 311.0) | "
        "Some processor, 2 cores; 30,000 steps/s | nothing |"
    )
    assert "## Steps, without knowledge of the environment\n" in records.page([one])
