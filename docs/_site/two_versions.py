"""Figures have a light and a dark version; the reader's palette chooses, which may not be the system's."""

import re

PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)


def on_page_content(content: str, **_: object) -> str:
    """Every such picture as two images, of which one is hidden; each links to its file, as phones show it small."""
    return PICTURE.sub(
        r'<a class="light-figure" href="\3"><img alt="\2" src="\3#only-light"></a>'
        r'<a class="dark-figure" href="\1"><img alt="\2" src="\1#only-dark"></a>',
        content,
    )
