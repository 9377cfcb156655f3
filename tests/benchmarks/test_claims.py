"""The page of claims says what the raw files say."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import claims  # noqa: E402


def test_the_page_is_made_of_the_raw_files():
    assert claims.PAGE.read_text(encoding="utf-8") == claims.page()


def test_facts_are_found_wherever_they_stand_and_missing_ones_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    machine = '{"machine": {"date": "2026-11-02T01:00", "cpu": "Abacus", "commit": null}'
    (tmp_path / "some.json").write_text(machine + ', "rows": [{"date": "2026-11-01T23:00"}]}', encoding="utf-8")
    text = claims.row(claims.Claim("It is so", "some.json", "some.py"))
    assert text.endswith("| `python benchmarks/some.py` | 2026-11-01 to 2026-11-02 | Abacus | not recorded |\n")
