"""Pages in Japanese say so, from which browsers choose the shapes of their characters."""

from mkdocs.structure.pages import Page


def on_post_page(output: str, page: Page, **_: object) -> str:
    """The page with its language."""
    if page.file.src_uri.endswith(".ja.md"):
        return output.replace('<html lang="en"', '<html lang="ja"', 1)
    return output
