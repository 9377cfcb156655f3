"""Writes the project's public address everywhere: python experiments/address.py https://github.com/OWNER/NAME

It goes into the notebooks, from where they are cloned, into the Colab badges of notebooks and READMEs, and into the
files of ROWS. '' takes it away.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import nbformat  # noqa: E402

from common.errors import UserError  # noqa: E402
from common.runs.command_line import one_line_errors, parse_settings  # noqa: E402
from experiments import notebook  # noqa: E402

GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?")
PAGES = {"README.md": "training.ipynb", "README.ja.md": "training.ja.ipynb"}
ROWS = {  # file: the beginning of the row below which the address stands, and how it is written there
    "mkdocs.yml": ("site_description:", "site_url: {site}\nrepo_url: {code}\n"),
    "CITATION.cff": ("license:", "repository-code: {code}\nurl: {site}\n"),
    "pyproject.toml": ("dynamic =", 'urls = {{Source = "{code}", Documentation = "{site}"}}\n'),
}


def set_address(address: str) -> None:
    """Write an address everywhere in place of the one before.

    Args:
        address: https://github.com/OWNER/NAME; empty if there is none, and so no badge.

    Raises:
        UserError: this is not an address of a repository on GitHub.
    """
    found = GITHUB.fullmatch(address)
    if address and found is None:
        raise UserError(f"{address} is not an address of a repository: expected https://github.com/OWNER/NAME")
    owner, name = found.groups() if found else ("", "")
    repository = f"{owner}/{name}" if found else ""
    code, site = f"https://github.com/{repository}", f"https://{owner}.github.io/{name}/"
    stored = nbformat.read(notebook.NOTEBOOK, as_version=4)
    for cell in stored.cells:
        cell.source = notebook.ADDRESS.sub(f'REPOSITORY = "{code if found else ""}"', cell.source)
        cell.source = notebook.with_badge(cell.source, repository)
    nbformat.write(stored, notebook.NOTEBOOK)
    notebook.write_japanese()
    for page, opened in PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(notebook.with_badge(text, repository, opened), encoding="utf-8")
    for file, (above, rows) in ROWS.items():
        keys = tuple(row.partition(" ")[0] + " " for row in rows.splitlines())
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines(keepends=True)
        lines = [line for line in lines if not line.startswith(keys)]
        if found:
            place = next(number for number, line in enumerate(lines, 1) if line.startswith(above))
            lines.insert(place, rows.format(code=code, site=site))
        (ROOT / file).write_text("".join(lines), encoding="utf-8")


@dataclass(frozen=True)
class Arguments:
    """Write the project's public address everywhere."""

    address: str = field(metadata={"example": "ADDRESS"})
    """https://github.com/OWNER/NAME; '' takes it away."""


def main() -> None:
    """Write the address that the command line names."""
    with one_line_errors():
        set_address(parse_settings(Arguments, prog="python experiments/address.py").address)


if __name__ == "__main__":
    main()
