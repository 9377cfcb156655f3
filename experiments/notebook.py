"""Executes `training.ipynb` and stores it with its outputs, or sets the public address it is opened from.

    python experiments/notebook.py                                           # the walker
    python experiments/notebook.py --quick                                   # the pendulum, to test a change
    python experiments/notebook.py --address https://github.com/OWNER/NAME   # in notebook and README

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

NOTEBOOK, README = ROOT / "training.ipynb", ROOT / "README.md"
ADDRESS = re.compile(r'^REPOSITORY = "(https://github\.com/[\w.-]+/[\w.-]+)"', re.MULTILINE)
BADGE = re.compile(r"https://colab\.research\.google\.com/github/([\w.-]+/[\w.-]+)/blob/main/training\.ipynb")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "results")
MOST_BYTES = 1_000_000


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the project does without: LEFT_OUT everywhere, and its own runs."""
    return LEFT_OUT(folder, names) | ({"runs"} & set(names) if Path(folder) == ROOT else set())


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
    """The notebook without execution times and the kernel's version, which differ between machines."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def set_address(address: str) -> None:
    """Set the repository from which the notebook is cloned and opened, in notebook and README.

    Raises:
        UserError: this is no address of a repository on GitHub.
    """
    if not ADDRESS.fullmatch(f'REPOSITORY = "{address}"'):
        raise UserError(f"{address} is no address of a repository: expected https://github.com/OWNER/NAME")
    address = address.removesuffix(".git")
    badge = "https://colab.research.google.com/github/{}/blob/main/training.ipynb"
    owner_and_name = address.removeprefix("https://github.com/")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = ADDRESS.sub(f'REPOSITORY = "{address}"', cell.source)
        cell.source = BADGE.sub(badge.format(owner_and_name), cell.source)
    nbformat.write(notebook, NOTEBOOK)
    README.write_text(BADGE.sub(badge.format(owner_and_name), README.read_text(encoding="utf-8")), encoding="utf-8")


@dataclass(frozen=True)
class Arguments:
    """Execute training.ipynb and store it with its outputs, or set its public address."""

    quick: bool = False
    """Train the pendulum for few epochs: two or three minutes instead of ten or more."""
    address: str | None = None
    """Set the code's address, https://github.com/OWNER/NAME, in notebook and README; nothing is executed."""


def main() -> None:
    """Do what the command line asks for."""
    with one_line_errors():
        arguments = parse_settings(Arguments)
        if arguments.address is not None:
            set_address(arguments.address)
            return
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(Path(folder) / "project", arguments.quick)
        content = nbformat.writes(notebook)
        if len(content) > MOST_BYTES:
            raise UserError(f"the notebook would have {len(content):,} bytes: expected {MOST_BYTES:,} or fewer")
        NOTEBOOK.write_text(content + "\n", encoding="utf-8")
        print(f"stored {NOTEBOOK.name}, {len(content):,} bytes")


if __name__ == "__main__":
    main()
