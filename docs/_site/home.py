"""The home page, README, has no neighbours: its left column is left out."""

from mkdocs.structure.pages import Page


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """The text as it is."""
    if page.is_homepage:
        page.meta.setdefault("hide", ["navigation"])
    return markdown
