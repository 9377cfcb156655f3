"""README.ja.md trains what README.md trains, and its commands and bugs of the study are those of the study's page."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGLISH, JAPANESE, STUDY = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "README.ja.md", "docs/sources/study-of-2021.ja.md")
)


def blocks(text):
    """The lines of each block of commands, without comments."""
    found = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+#.*", "", block).splitlines() for block in found]


def test_both_begin_with_the_same_commands():
    assert blocks(JAPANESE)[0] == blocks(ENGLISH)[0] != []


def test_the_study_is_run_as_on_its_page():
    assert blocks(JAPANESE)[1] == blocks(STUDY)[0] != []


def test_the_bugs_are_those_of_the_studys_page():
    switches = [re.findall(r"^\| (`--[^|]+`) \|", text, re.MULTILINE) for text in (JAPANESE, STUDY)]
    assert switches[0] == switches[1] and len(switches[0]) == 5
