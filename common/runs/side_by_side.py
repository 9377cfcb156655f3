"""Several episodes side by side in one GIF, each below two lines of text."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from common.results import score_text
from common.runs.film import FilmedEpisode

GAP, HEADING = 8, 44  # pixels
COLORS, SMALLEST_COLORS = 64, 16
FEWEST_FRAMES = 12
PAPER, INK, PALE = (255, 255, 255), (20, 20, 20), 0.55  # PALE: what stays of an episode that is over

Heading = tuple[str, str]
"""The two lines above an episode."""


def opening(take: FilmedEpisode, width: int, seconds: float, whole: bool = False) -> list[Image.Image]:
    """The first seconds of an episode as small pictures; a `whole` one is played on, to know its score and steps."""
    frames: list[Image.Image] = []
    for number, frame in enumerate(take):
        if number <= seconds * take.frame_rate:
            height = round(frame.shape[0] * width / frame.shape[1])
            frames.append(Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS))
        elif not whole:
            break
    return frames


def side_by_side(
    headings: Sequence[Heading], episodes: Sequence[list[Image.Image]], rest: int
) -> Iterator[Image.Image]:
    """The frames of a film: an episode that is over grows pale; the last frame is shown `rest` times more."""
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    bold, plain = (ImageFont.truetype(str(fonts / f"{name}.ttf"), 15) for name in ("DejaVuSans-Bold", "DejaVuSans"))
    width, height = episodes[0][0].size
    paper = Image.new("RGB", (len(episodes) * (width + GAP) - GAP, HEADING + height), PAPER)
    draw = ImageDraw.Draw(paper)
    for i, lines in enumerate(headings):
        for line, (text, letters) in enumerate(zip(lines, (bold, plain))):
            draw.text((i * (width + GAP) + 2, 3 + 20 * line), text, INK, letters)
    blank = Image.new("RGB", (width, height), PAPER)
    for number in range(max(map(len, episodes)) + rest):
        film = paper.copy()
        for i, frames in enumerate(episodes):
            picture = frames[min(number, len(frames) - 1)]
            if number >= len(frames):
                picture = Image.blend(blank, picture, PALE)
            film.paste(picture, (i * (width + GAP), HEADING))
        yield film


def small_gif(frames: Sequence[Image.Image], frame_rate: float, largest: int) -> bytes:
    """A GIF of frames with one palette, with as many colours as its size allows; then every second frame is left out.

    Args:
        largest: bytes that the GIF may have, unless even 16 colours and 12 frames take more.
    """
    colors = COLORS
    while True:
        content = _gif(frames, frame_rate, colors)
        if len(content) <= largest or (colors <= SMALLEST_COLORS and len(frames) <= FEWEST_FRAMES):
            return content
        if colors > SMALLEST_COLORS:
            colors //= 2
        else:
            frames, frame_rate = frames[::2], frame_rate / 2


def _gif(frames: Sequence[Image.Image], frame_rate: float, colors: int) -> bytes:
    shown = [frames[i] for i in np.linspace(0, len(frames) - 1, 12).astype(int)]
    mosaic = Image.fromarray(np.concatenate([np.asarray(frame) for frame in shown]))
    palette = mosaic.quantize(colors, dither=Image.Dither.NONE)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    file, duration = io.BytesIO(), round(1000 / frame_rate)
    first.save(file, "GIF", save_all=True, append_images=others, duration=duration, loop=0, disposal=1)
    return file.getvalue()


def with_minus(number: float) -> str:
    """A score without decimals, unless they are needed, and with a true minus."""
    text = score_text(number) if abs(number) < 10 and number != round(number) else f"{number:.0f}"
    return text.replace("-", "−")
