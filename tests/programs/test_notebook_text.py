"""The text of training.ipynb: a line under every output, numbers as stored, and the same in Japanese."""

import itertools
import re
from pathlib import Path

import nbformat
import pytest

from common.errors import UserError
from experiments import notebook as program

ROOT = Path(__file__).resolve().parents[2]

ENGLISH, JAPANESE = (nbformat.read(path, as_version=4).cells for path in (program.NOTEBOOK, program.JAPANESE))
PAIRS = [(one, two) for one, two in zip(ENGLISH, JAPANESE) if one.cell_type == "markdown"]
QUOTED = r"\*\*([−-]?[\d,.]*\d)\*\*"


def shown(cell):
    """What a code cell's stored outputs say in words."""
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        texts += [output.get("text", ""), data.get("text/plain", ""), data.get("text/markdown", "")]
    return "\n".join(texts)


def test_a_line_follows_every_output():
    cells = [cell for cell in ENGLISH if cell.cell_type == "code"]
    after = {cell.id: following for cell, following in itertools.pairwise(ENGLISH)}
    assert len(cells) > 12
    for cell in cells:
        assert after[cell.id].id == f"{cell.id}-seen" and after[cell.id].cell_type == "markdown", cell.id


def test_numbers_that_are_quoted_are_those_of_the_stored_outputs():
    quoted = 0
    for cell, following in itertools.pairwise(ENGLISH):
        if following.id.endswith("-seen"):
            for number in re.findall(QUOTED, following.source):
                assert re.search(rf"(?<![\d.,]){re.escape(number.replace('−', '-'))}(?![\d,]|\.\d)", shown(cell)), (
                    number
                )
                quoted += 1
    assert quoted >= 5


def test_what_is_said_of_the_scores_holds_for_the_stored_ones():
    """Deterministic actions score more than sampled ones, and the training's figure ends where the text says."""
    scores = {cell.id: re.findall(r"\| (\w+) \| (-?[\d.]+) \[", shown(cell)) for cell in ENGLISH if "outputs" in cell}
    _, _, (_, deterministic), (_, sampled) = scores["score"][:4]
    assert float(deterministic) > 280 and float(deterministic) > float(sampled)
    _, _, (_, deterministic), (_, sampled) = scores["td3"][:4]
    assert abs(float(deterministic) - float(sampled)) < 20


def test_both_have_the_same_cells_code_and_outputs():
    assert [(cell.id, cell.cell_type) for cell in ENGLISH] == [(cell.id, cell.cell_type) for cell in JAPANESE]
    for one, two in zip(ENGLISH, JAPANESE):
        if one.cell_type == "code":
            assert one == two


def test_the_japanese_notebook_is_what_the_program_writes(tmp_path, monkeypatch):
    stored = program.JAPANESE.read_text(encoding="utf-8")
    monkeypatch.setattr(program, "JAPANESE", tmp_path / "training.ja.ipynb")
    program.write_japanese()
    assert program.JAPANESE.read_text(encoding="utf-8") == stored


def test_a_cell_without_its_text_is_named(tmp_path, monkeypatch):
    text = program.TRANSLATION.read_text(encoding="utf-8").replace("<!-- cell td3-text -->", "<!-- cell td4-text -->")
    (tmp_path / "notebook_ja.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(program, "TRANSLATION", tmp_path / "notebook_ja.md")
    with pytest.raises(
        UserError, match=r"notebook_ja\.md and training\.ipynb differ in the text cells td[34]-text, td"
    ):
        program.write_japanese()


def without(text, *patterns):
    for pattern in patterns:
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return text


CODE, MATH, ADDRESS = r"`[^`]+`", r"\$\$?[^$]+\$\$?", r"\]\([^)]+\)"


def numbers(text):
    """The numbers of a text, without those up to 3, which are words in one language and digits in the other."""
    plain = without(text, CODE, MATH, ADDRESS)
    found = re.findall(r"[−-]?\d[\d,.]*\d|[−-]?\d", plain)
    return sorted({number for number in found if number not in ("1", "2", "3")})


@pytest.mark.parametrize(("one", "two"), PAIRS, ids=[one.id for one, _ in PAIRS])
def test_both_say_the_same_numbers_formulas_commands_and_addresses(one, two):
    assert re.search("[ぁ-ん]", two.source), "not translated"
    assert not re.search("[ぁ-ん一-龯]", one.source.replace("日本語", ""))
    assert numbers(two.source) == numbers(one.source)
    assert re.findall(QUOTED, two.source) == re.findall(QUOTED, one.source)
    for pattern in (CODE, MATH):
        assert sorted(set(re.findall(pattern, two.source))) == sorted(set(re.findall(pattern, one.source)))
    if one.id != "title":
        assert re.findall(ADDRESS, two.source) == re.findall(ADDRESS, one.source)
    assert re.findall(r"^(#+)", two.source, re.MULTILINE) == re.findall(r"^(#+)", one.source, re.MULTILINE)
    assert two.source.count("\n|") == one.source.count("\n|")


def test_each_leads_to_the_other():
    for cells, other in ((ENGLISH, "training.ja.ipynb"), (JAPANESE, "training.ipynb")):
        assert f"]({other})" in cells[0].source


def test_both_are_small():
    for path in (program.NOTEBOOK, program.JAPANESE):
        assert path.stat().st_size < program.MOST_BYTES
