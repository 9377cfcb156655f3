"""Turns the equations of a page into MathML, which browsers draw themselves: no script, no font, no network."""

import html
import re

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
SPACE = '<mspace width="0.17em"/>'
BEFORE = re.compile("</mi>(?=<mi>(log|tanh)</mi>)")  # α log π
AFTER = re.compile(r'<mi>(log|tanh)</mi>(?!<mo stretchy="false">&#x00028;)')  # tanh u, but tanh(u)


def on_page_content(content: str, **_: object) -> str:
    """The page with its equations drawn."""
    content = BLOCK.sub(lambda match: f'<div class="equation">{mathml(match[1], "block")}</div>', content)
    return INLINE.sub(lambda match: mathml(match[1], "inline"), content)


def mathml(latex: str, display: str) -> str:
    """An equation in LaTeX as MathML; a function and "is drawn from" keep their distance, as in print."""
    drawn: str = convert(html.unescape(latex).strip(), display=display)
    drawn = drawn.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
    return AFTER.sub(rf"\g<0>{SPACE}", BEFORE.sub(rf"\g<0>{SPACE}", drawn))
