"""Executes `training.ipynb` and stores it with its outputs.

    python experiments/notebook.py              # the walker
    python experiments/notebook.py --quick      # the pendulum, to test a change
    python experiments/notebook.py --japanese   # training.ja.ipynb alone, in a second

training.ja.ipynb is training.ipynb, code and outputs alike, with the text of experiments/notebook_ja.md.
The notebook is executed in a copy of the project, so that its runs do not mix with existing ones.
"""

import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.errors import UserError  # noqa: E402
from common.runs.command_line import one_line_errors, parse_settings  # noqa: E402

NOTEBOOK, JAPANESE = ROOT / "training.ipynb", ROOT / "training.ja.ipynb"
TRANSLATION = ROOT / "experiments" / "notebook_ja.md"
CELL = re.compile(r"^<!-- cell ([\w-]+) -->\n", re.MULTILINE)  # stands above a cell's text in the translation
ADDRESS = re.compile(r'^REPOSITORY = "(.*?)"', re.MULTILINE)  # the one constant; empty until there is an address
PLACE = re.compile(r"(<!-- Colab badge -->)(\n\[!\[Open in Colab\].*)?")  # where a page shows it
COLAB = "https://colab.research.google.com"
LINES = (ROOT / "experiments" / "light-zip.attributes").read_text(encoding="utf-8").splitlines()
LEFT_OUT = ("runs", ".git", *(line.split()[0] for line in LINES if not line.startswith("#")))  # as light.zip does
MOST_BYTES = 1_000_000
WIDGET = "application/vnd.jupyter.widget-view+json"  # names a state that a stored notebook does not have


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the project does without: LEFT_OUT, and caches everywhere."""
    place = Path("/") / Path(folder).relative_to(ROOT)
    caches = shutil.ignore_patterns(".venv*", "__pycache__", ".*_cache")(folder, names)
    return caches | {name for name in names if any((place / name).match(f"/{one}") for one in LEFT_OUT)}


def execute(folder: Path, quick: bool, seconds_a_cell: int = 3600) -> nbformat.NotebookNode:
    """Execute every cell of the notebook in a copy of the project, and return the notebook with its outputs.

    Args:
        folder: for the copy; the runs stay in it.
        quick: train the pendulum, in two or three minutes instead of ten or more.
        seconds_a_cell: after which a cell is taken to hang.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    shutil.copytree(ROOT, folder, ignore=left_out)
    notebook = nbformat.read(folder / NOTEBOOK.name, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=seconds_a_cell, resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager()
    # This Python's own kernel, whichever one the machine has registered under the notebook's name.
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute(env=os.environ | {"NOTEBOOK_QUICK": "1" if quick else "0"})
    return tidied(notebook)


def tidied(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without execution times and the kernel's version, which differ; sliders as text."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def with_badge(page: str, repository: str, notebook: str = "training.ipynb") -> str:
    """A page's text with the badge that opens a notebook of this repository; "" takes the badge away."""
    picture, link = f"{COLAB}/assets/colab-badge.svg", f"{COLAB}/github/{repository}/blob/main/{notebook}"
    badge = f"\n[![Open in Colab]({picture})]({link})"
    return PLACE.sub(lambda place: place[1] + (badge if repository else ""), page)


def translations() -> dict[str, str]:
    """The Japanese text of every text cell, by the cell's id."""
    _, *parts = CELL.split(TRANSLATION.read_text(encoding="utf-8"))
    return {cell: text.strip() for cell, text in zip(parts[::2], parts[1::2])}


def write_japanese() -> None:
    """Write the notebook with Japanese text; code cells and outputs stay.

    Raises:
        UserError: a text cell is not translated, or a translation belongs to no cell.
    """
    notebook, texts = nbformat.read(NOTEBOOK, as_version=4), translations()
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "markdown"}
    if different := cells.keys() ^ texts.keys():
        raise UserError(f"{TRANSLATION.name} and {NOTEBOOK.name} differ in the text cells {', '.join(different)}")
    [address] = (found[1] for cell in notebook.cells if (found := ADDRESS.search(cell.source)))
    for name, cell in cells.items():
        cell.source = with_badge(texts[name], address.removeprefix("https://github.com/"), JAPANESE.name)
    nbformat.write(notebook, JAPANESE)


@dataclass(frozen=True)
class Arguments:
    """Execute training.ipynb and store it with its outputs and in Japanese."""

    quick: bool = False
    """Train the pendulum for few epochs: two or three minutes instead of ten or more."""
    japanese: bool = False
    """Write training.ja.ipynb from training.ipynb as it is and experiments/notebook_ja.md. Nothing is executed."""


def main() -> None:
    """Do what the command line asks for."""
    with one_line_errors():
        arguments = parse_settings(Arguments)
        if arguments.japanese:
            write_japanese()
            print(f"stored {JAPANESE.name}")
            return
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(Path(folder) / "project", arguments.quick)
        content = nbformat.writes(notebook)
        if len(content) > MOST_BYTES:
            raise UserError(f"the notebook would have {len(content):,} bytes: expected {MOST_BYTES:,} or fewer")
        NOTEBOOK.write_text(content + "\n", encoding="utf-8")
        write_japanese()
        print(f"stored {NOTEBOOK.name}, {len(content):,} bytes")


if __name__ == "__main__":
    main()
