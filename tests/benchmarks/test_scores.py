"""The numbers of README, Scores, Studies and the leaderboard are those of the raw files."""

import csv
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import leaderboard  # noqa: E402
import scores  # noqa: E402

LOG = ROOT / "experiments" / "log" / "2026-11.md"
SHOWING = [path for path in scores.PAGES if scores.BLOCK.search(path.read_text(encoding="utf-8"))]
STUDIES = sorted((ROOT / "docs" / "studies").glob("*.md"))
KNOWN = {"100", "1000", "2000", "2021", "2026"}  # episodes, the study's step limit and SciPy's resamples, years
KNOWN |= {"1.7", "44032"}  # of others: the pages name their sources


def numbers(text):
    """Every number of at least three digits or with a decimal point, without its sign and commas."""
    found = (number.replace(",", "") for number in re.findall(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w%])", text))
    return {number for number in found if "." in number or len(number) > 2}


def prose(path):
    """A page without its tables, code, links and tags; of a README, the section with a table."""
    text = path.read_text(encoding="utf-8")
    if path.name.startswith("README"):
        text = text.split("\n## ")[3]
    for left_out in (scores.BLOCK, r"(?s)```.*?```", r"`[^`]*`", r"\]\([^)]*\)", r"<[^>]*>"):
        text = re.sub(left_out, " ", text)
    return text


def raw(path):
    """The tables of a page, and the raw files and pages of scores that it links to."""
    text = path.read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)#:]+\.(?:csv|md))[)#]", text)
    files = [(path.parent / link).resolve() for link in linked]
    pages = "LEADERBOARD.md", "learning-curves.md"
    files = [file for file in files if "results" in str(file.relative_to(ROOT)) or file.name in pages]
    tables = [match[0] for match in scores.BLOCK.finditer(text)]
    rows = [
        " ".join(row) for file in files if file.suffix == ".csv" for row in csv.reader(file.open(encoding="utf-8"))
    ]
    return " ".join([*tables, *rows, *(file.read_text("utf-8") for file in files if file.suffix == ".md")])


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: path.name)
def test_tables_are_made_of_the_raw_files(path):
    text = path.read_text(encoding="utf-8")
    assert text == scores.written(text), "python benchmarks/scores.py writes them"


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: path.name)
def test_every_number_in_the_text_stands_in_a_table_or_in_a_linked_raw_file(path):
    assert numbers(prose(path)) - numbers(raw(path)) - KNOWN == set()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_begins_with_its_answer_seeds_interval_and_date(path):
    heading, answer = path.read_text(encoding="utf-8").split("\n\n")[:2]
    assert heading.endswith("?") and answer.startswith("**")
    assert "seeds" in answer and "interval" in answer and re.search(r"\d [A-Z][a-z]+ 20\d\d", answer)
    assert f"](studies/{path.name})" in (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")


def test_records_that_were_ended_have_what_their_raw_files_say():
    with open(leaderboard.FOLDER / "ended.csv", newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert {"156", "157", "170 to 176", "180 to 186"} <= {row["seeds"] for row in rows}
    for row in rows:
        said = (ROOT / row["raw file"]).read_text(encoding="utf-8").replace(",", "")
        assert [number for number in numbers(row["what they have"]) | {row["commit"]} if number not in said] == []


def test_the_trial_that_only_the_log_has_is_as_logged():
    entry = LOG.read_text(encoding="utf-8").split("Rough ground with TQC at twice the pace")[1].split("\n## ")[0]
    trial = scores.TRIAL
    for said in (f"**{trial.scores[0]} [", f"{trial.sampled[0]} sampled", "2 million steps", "114 minutes"):
        assert said in entry
    assert (trial.steps, trial.seconds) == ([2_000_000], [114 * 60])


@pytest.mark.parametrize(("page", "most"), [("docs/results.md", 1500), ("LEADERBOARD.md", 800)])
def test_pages_of_scores_are_short(page, most):
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= most


@pytest.mark.parametrize(
    ("config", "seeds", "marks"),
    [
        ({}, [20], ""),
        ({"symmetry": True}, [100, 19], "MT"),
        ({"mirror_observation": [1]}, [100], "M"),
        ({"reward_design": "sign"}, [100], "R"),
        ({"fall_cost": ["1"], "action_cost": ["0"]}, [100], ""),
        ({"fall_costs": [0.1]}, [100], "R"),
        ({"action_cost": 0.05}, [100], "R"),
        ({"env": "ALE/Breakout-v5"}, [100], "T"),
        ({"env": "ALE/Breakout-v5"}, [301], ""),
    ],
)
def test_marks_are_read_from_settings_of_any_time(config, seeds, marks):
    assert scores.marks_of(config, seeds) == marks


def test_a_median_has_an_interval_over_seeds_that_differ():
    assert scores.median_cell([5.0]) == "5.0" and scores.median_cell([-5.0, -5.0]) == "−5.0"
    low, high = map(float, re.findall(r"[\d.]+", scores.median_cell(list(np.arange(11.0))))[1:])
    assert scores.median_cell(list(np.arange(11.0))).startswith("5.0 [") and 0 < low < 5 < high < 10


def test_validations_are_added_where_they_are_known():
    walker, pendulum = (scores.of_study(*name) for name in (("walker", "envpool"), ("pendulum", "pendulum-td3-fast")))
    assert walker.validation is None
    assert pendulum.validation == [5 * 30 * 200] * 5  # every second of ten epochs, 30 episodes of 200 steps
    assert scores.of_agent("lander").validation == [0]  # its best parameters are those of the best training episodes


def test_a_study_with_recorded_runs_is_on_a_page_and_one_without_is_open():
    shown = " ".join(path.read_text(encoding="utf-8") for path in (*SHOWING, ROOT / "docs" / "studies.md"))
    for name in tomllib.loads((ROOT / "experiments" / "studies.toml").read_text(encoding="utf-8")):
        recorded = any((scores.STUDIES / name).glob("*/evaluation.json"))
        assert recorded != (f"| `python -m programs study {name}` |" in shown), name
        assert not recorded or f"<!-- study {name}" in shown or f"`{name}`" in shown, name
