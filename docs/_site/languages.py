"""Pages in Japanese and Chinese say so, from which browsers choose the shapes of their characters."""

from mkdocs.structure.pages import Page

LANGUAGES = {".ja.md": "ja", ".zh.md": "zh-Hant"}


def on_post_page(output: str, page: Page, **_: object) -> str:
    """The page with its language."""
    for ending, language in LANGUAGES.items():
        if page.file.src_uri.endswith(ending):
            return output.replace('<html lang="en"', f'<html lang="{language}"', 1)
    return output
