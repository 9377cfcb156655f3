"""Shows files of the repository that stand outside docs/: pages, and the figures and tables that pages link to.

Links are written as they work in the repository. The site has the files of docs/ at its top, the pages of PAGES beside
them, and every other file at its path in the repository.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {  # path in the repository → path in the site
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LEADERBOARD.md": "leaderboard.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "experiments/log/README.md": "log.md",
}
REMOTE_PICTURE = re.compile(r"!\[([^]]*)\]\(https?://[^)]*\)")  # a badge: the site fetches nothing and shows its text
LINK = re.compile(r"""(\]\(|(?:src|srcset)=")([^)\s#"]+)""")  # what stands before it, and the address


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and whatever the pages link to."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    waiting += [ROOT / name for name in PAGES]
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(place(path)) is None:
            files.append(File.generated(config, place(path), abs_src_path=str(path)))
        if path.suffix == ".md":
            linked = [path.parent / link for link in links(path.read_text(encoding="utf-8"))]
            waiting += [other.resolve() for other in linked if missing(other.resolve(), files)]
    return files


def missing(path: Path, files: Files) -> bool:
    """Whether a file is there that the site does not have."""
    return path.is_file() and path.is_relative_to(ROOT) and files.get_file_from_path(place(path)) is None


def links(markdown: str) -> Iterator[str]:
    """Every link to a file, without its anchor."""
    return (link for _, link in LINK.findall(markdown) if ":" not in link)


def place(path: Path) -> str:
    """Where the site has a file."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return PAGES.get(name, name)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links as they must be in the site."""
    here = Path(page.file.abs_src_path or "").parent

    def relinked(match: re.Match[str]) -> str:
        path = (here / match[2]).resolve()
        if ":" in match[2] or not path.is_relative_to(ROOT):
            return match[0]
        return f"{match[1]}{os.path.relpath(place(path), os.path.dirname(page.file.src_uri) or '.')}"

    return LINK.sub(relinked, REMOTE_PICTURE.sub(r"\1", markdown))
