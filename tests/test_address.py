"""The public address: one program writes it everywhere, and takes it away again."""

import shutil
import tomllib

import pytest

from common.errors import UserError
from experiments import address, notebook


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the files that have the address."""
    for name in (*address.PAGES, *address.PAGES.values(), *address.ROWS):
        shutil.copy(address.ROOT / name, tmp_path)
    monkeypatch.setattr(address, "ROOT", tmp_path)
    monkeypatch.setattr(notebook, "NOTEBOOK", tmp_path / "training.ipynb")
    monkeypatch.setattr(notebook, "JAPANESE", tmp_path / "training.ja.ipynb")
    return tmp_path


def texts(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_an_address_is_written_everywhere_and_taken_away(project):
    address.set_address("")
    before = texts(project)
    address.set_address("https://github.com/some-one/another.git")
    address.set_address("https://github.com/some-one/a.name")
    now, badge = texts(project), "https://colab.research.google.com/github/some-one/a.name/blob/main/"
    assert not any("some-one/another" in text for text in now.values())
    for page, opened in address.PAGES.items():
        assert now[page].count(f"{badge}{opened})") == now[opened].count(f"{badge}{opened})") == 1
        assert r"REPOSITORY = \"https://github.com/some-one/a.name\"" in now[opened]
    rows = "site_url: https://some-one.github.io/a.name/\nrepo_url: https://github.com/some-one/a.name\n"
    assert now["mkdocs.yml"].count(rows) == 1
    assert "\nrepository-code: https://github.com/some-one/a.name\n" in now["CITATION.cff"]
    assert tomllib.loads(now["pyproject.toml"])["project"]["urls"]["Source"] == "https://github.com/some-one/a.name"
    address.set_address("")
    assert texts(project) == before


def test_another_address_is_refused(project):
    with pytest.raises(UserError, match="not an address of a repository"):
        address.set_address("https://example.org/a")
