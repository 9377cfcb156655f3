"""Tables in benchmarks/results are those of their raw files."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT / "benchmarks"))

import cluster  # noqa: E402
import mutants  # noqa: E402
import resume  # noqa: E402
import versions  # noqa: E402
from fault_table import record  # noqa: E402


@pytest.mark.parametrize(
    ("name", "raw", "text_of"),
    [
        ("faults.md", "faults.json", record.page),
        ("resume.md", "resume.json", lambda found: resume.page(found["machine"], found["rows"])),
        ("versions.md", "versions.json", lambda rows: versions.table(rows) + "\n"),
        ("mutants.md", "mutants.json", lambda content: mutants.page(content["rows"])),
        ("cluster_scaling.md", "cluster.json", lambda found: cluster.scaling_page(found["scaling"]["rows"])),
    ],
)
def test_a_table_is_made_of_its_raw_file(name, raw, text_of):
    assert (RESULTS / name).read_text(encoding="utf-8") == text_of(json.loads((RESULTS / raw).read_text("utf-8")))
