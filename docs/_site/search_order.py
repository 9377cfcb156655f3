"""The search shows what was measured, tried and changed after the pages that explain."""

from mkdocs.structure.pages import Page

LAST = ("benchmarks/", "changelog.md", "experiments/", "log.md")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """The text as it is."""
    if page.file.src_uri.startswith(LAST):
        page.meta.setdefault("search", {"boost": 0.0001})  # a word of a heading counts a thousand times
    return markdown
