"""README.ja.md says what README.md says: the same headings, commands, links and numbers."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGLISH, JAPANESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ja.md"))
COLAB = "https://colab.research.google.com"


def commands(text):
    """The lines between fences, without comments and spaces at their ends."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]


def links(text):
    """Where links and pictures lead, but for those between both languages, and badges, which open a notebook each."""
    targets = re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", text)
    return sorted("".join(target) for target in targets if not "".join(target).startswith(("README", COLAB)))


def cells(text):
    """The numbers and names in the rows of the tables."""
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [re.findall(r"[A-Z]\w+-v\d|`[^`]+`|\d[\d,.]*", row) for row in rows][1:]


def test_both_have_the_same_commands():
    assert commands(JAPANESE) == commands(ENGLISH) != []


def test_both_lead_to_the_same_places():
    assert links(JAPANESE) == links(ENGLISH) != []


def test_both_have_as_many_headings():
    assert len(re.findall("^## ", JAPANESE, re.MULTILINE)) == len(re.findall("^## ", ENGLISH, re.MULTILINE)) > 5


def test_both_have_the_same_scores():
    assert cells(JAPANESE) == cells(ENGLISH) and len(cells(ENGLISH)) == 4


def test_both_name_the_same_files_and_settings():
    def named(text):
        return set(re.findall(r"`([^`\s]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))

    assert named(JAPANESE) == named(ENGLISH)


def test_what_both_say_in_numbers_is_the_same():
    for english, japanese in (
        (
            r"after ([\d,]+) steps of training it scores (\d+\.\d)",
            r"([\d,]+) ステップの学習後のスコアは (\d+\.\d)",
        ),
        (r"\[(\d+) seconds in the median\]", r"中央値で (\d+) 秒"),
        (r"median\] of (\d+) seeds \((\d+) to (\d+) s\)", r"シード (\d+) 個の\[中央値で \d+ 秒\]（(\d+)～(\d+) 秒）"),
        (r"(\d+) of the (?:\d+) agents score", r"エージェントのうち (\d+) 個のスコア"),
        (r"\[(\d+ MB)\]", r"\[(\d+ MB)\]"),
        (r"took (\d) to (\d) hours", r"(\d)～(\d) 時間"),
        (
            r"(\d+) kills, ([\d,]+) simulated power cuts, (\d+) full disks and ([\d,]+) damaged",
            r"強制終了 (\d+) 回、模擬停電 ([\d,]+) 回、"
            r"ディスクの容量不足 (\d+) 回、チェックポイントの破損 ([\d,]+) 回",
        ),
    ):
        in_english = re.findall(english, flat(ENGLISH), re.IGNORECASE)
        assert re.findall(japanese, flat(JAPANESE)) == in_english != [], english


def flat(text):
    """The text without line breaks and without the addresses of links."""
    return re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)", "]", text))
