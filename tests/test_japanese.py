"""README.ja.md says what README.md says: the same headings, commands, links and numbers."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGLISH, JAPANESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ja.md"))
TEN_THOUSAND = 10_000


def commands(text):
    """The lines between fences, without comments and spaces at their ends."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]


def links(text):
    """Where links and pictures lead; those between both languages are left out."""
    targets = re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", text)
    return sorted("".join(target) for target in targets if not "".join(target).startswith("README"))


def cells(text):
    """The numbers of the table of scores, those in words written out."""
    rows = [line.split("|")[3:-1] for line in text.splitlines() if line.startswith("|") and "---" not in line][1:]
    return [[number(cell.strip().strip("*").replace("−", "-")) for cell in row] for row in rows]


def number(cell):
    if cell == "–":
        return None
    found = re.fullmatch(r"([-\d.,]+) ?(million|万)?", cell)
    factor = {"million": 1_000_000, "万": TEN_THOUSAND, None: 1}[found[2]]
    return round(float(found[1].replace(",", "")) * factor, 1)


def test_both_have_the_same_commands():
    assert commands(JAPANESE) == commands(ENGLISH) != []


def test_both_lead_to_the_same_places():
    assert links(JAPANESE) == links(ENGLISH) != []


def test_both_have_as_many_headings():
    assert len(re.findall("^## ", JAPANESE, re.MULTILINE)) == len(re.findall("^## ", ENGLISH, re.MULTILINE)) > 5


def test_both_have_the_same_scores():
    assert cells(JAPANESE) == cells(ENGLISH) and len(cells(ENGLISH)) == 9


def test_both_name_the_same_files_and_settings():
    def named(text):
        return set(re.findall(r"`([^`\s]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))

    assert named(JAPANESE) == named(ENGLISH)


def test_what_both_say_in_numbers_is_the_same():
    for english, japanese in (
        (r"\[(\d+) seconds in the median\]", r"中央値で (\d+) 秒"),
        (r"\[(\d+ MB)\]", r"\[(\d+ MB)\]"),
        (r"about ([\d,]+) lines", r"約 ([\d,]+) 行"),
        (r"took (\d) to (\d) hours", r"(\d) ～ (\d) 時間"),
    ):
        assert re.findall(japanese, JAPANESE) == re.findall(english, ENGLISH) != []
