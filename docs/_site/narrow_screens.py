"""Marks what narrow screens need: where code in the text may be broken, and which cells of a table are wordy.

A flag keeps its dashes, and a long path may be broken after a slash. Blocks of code stay as they are.
"""

import html
import re

CODE = re.compile(r"(?<!<pre>)(?<!<span></span>)(<code[^>]*>)([^<]+)(?=</code>)")
FLAG = re.compile(r"(?<![\w-])-{1,2}\w+")
LONG_PATH = re.compile(r"[\w./-]{24,}")
SLASH = re.compile(r"(?<=\w)/(?=\w)")
CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)
NO_WORDS = re.compile(r"<code.*?</code>|<[^>]+>", re.DOTALL)
WORDY = 30  # characters besides code


def on_page_content(content: str, **_: object) -> str:
    """The page with these places and cells marked."""
    content = CODE.sub(lambda match: match[1] + breakable(match[2]), content)
    return CELL.sub(lambda match: f"<td{match[1]}{wordy(match[2])}>{match[2]}</td>", content)


def breakable(code: str) -> str:
    """Code with its flags and long paths marked."""
    code = LONG_PATH.sub(lambda match: SLASH.sub("/<wbr>", match[0]), code)
    return FLAG.sub(r'<span class="flag">\g<0></span>', code)


def wordy(cell: str) -> str:
    """The attribute of a cell with many words, to which site.css gives room."""
    return ' class="wordy"' if len(html.unescape(NO_WORDS.sub("", cell)).strip()) >= WORDY else ""
