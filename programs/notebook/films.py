"""Films in the notebook: episodes side by side in one GIF that is stored in the page itself."""

import base64
import math
from collections.abc import Mapping

from common.runs.film import FilmedEpisode
from common.runs.side_by_side import opening, side_by_side, small_gif, with_minus
from programs.notebook.display import put

FRAMES_PER_SECOND = 10.0  # at most
WIDTH, SECONDS, REST = 260, 6.0, 1.5  # pixels of an episode; seconds of it; seconds that the last frame is shown
LARGEST = 140_000  # bytes of a film; the page holds it as text, which takes a third more


def show_films(takes: Mapping[str, FilmedEpisode]) -> None:
    """Play an episode of each stage and show them side by side, each below its stage, score and number of steps."""
    shown = put({"text/plain": "playing ..."})
    episodes = [opening(take, WIDTH, SECONDS, whole=True) for take in takes.values()]
    headings = [(stage, f"score {with_minus(take.score)} in {take.steps:,} steps") for stage, take in takes.items()]
    frame_rate = next(iter(takes.values())).frame_rate
    cut = any(len(frames) > SECONDS * frame_rate for frames in episodes)  # then the longest is not over
    frames = list(side_by_side(headings, episodes, 0 if cut else math.ceil(REST * frame_rate)))
    film = base64.b64encode(small_gif(frames, frame_rate, LARGEST)).decode()
    text = ", ".join(f"{stage}: {line}" for stage, line in headings)
    html = f'<img width="{frames[0].size[0]}" alt="{text}" src="data:image/gif;base64,{film}">'
    shown.update({"text/html": html, "text/plain": text}, raw=True)
