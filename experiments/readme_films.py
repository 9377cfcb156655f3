"""The films of README, one of them also for the notebook: python experiments/readme_films.py

One shows `best-hardcore` on rough ground, where the ground fills the picture. The other shows `fast-walker` before and
after its training.
"""

import io
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from common.files import replace_file  # noqa: E402
from common.runs.film import FilmedEpisode  # noqa: E402
from common.runs.side_by_side import small_gif  # noqa: E402
from experiments.gallery import card_of  # noqa: E402
from programs import shipped  # noqa: E402

FOLDER = ROOT / "docs" / "films"
FRAMES_PER_SECOND = 25
LARGEST = 1_500_000  # bytes
WIDTH, HEIGHT = 600, 300  # pixels; the sky above is cut off
ROUGH_GROUND = 4.0, 12.0  # seconds of the episode; before and after them a part of the picture has no ground
IN_NOTEBOOK = 6.0  # seconds of it, with half the frames
BEFORE, AFTER = (0.0, 2.0), (4.0, 9.0)


def seconds_of(name: str, stage: str, part: tuple[float, float]) -> tuple[list[Image.Image], float]:
    """A part of the episode with the median score, and how many frames make a second."""
    agent, _, environment = shipped.load(shipped.AGENTS / name, stage)
    seed = card_of(name)["stages"][stage]["median_seed"]
    take = FilmedEpisode(agent.acting_policy(), agent.action_map, environment, seed, FRAMES_PER_SECOND)
    begin, end = (round(second * take.frame_rate) for second in part)
    frames = []
    for number, frame in enumerate(take):
        if number >= begin:
            picture = Image.fromarray(frame)
            frames.append(picture.crop((0, picture.height - HEIGHT, WIDTH, picture.height)))
        if number == end:
            break
    return frames, take.frame_rate


def main() -> None:
    """Write the films."""
    rough, rate = seconds_of("best-hardcore", "trained", ROUGH_GROUND)
    replace_file(FOLDER / "rough-ground.gif", small_gif(rough, rate, LARGEST))
    first, *others = rough[: round(IN_NOTEBOOK * rate) : 2]
    small = io.BytesIO()
    settings = {"duration": round(2000 / rate), "loop": 0, "quality": 30, "method": 6}
    first.save(small, "WEBP", save_all=True, append_images=others, **settings)
    replace_file(FOLDER / "rough-ground.webp", small.getvalue())
    before, rate = seconds_of("fast-walker", "untrained", BEFORE)
    after, _ = seconds_of("fast-walker", "trained", AFTER)
    replace_file(FOLDER / "first-command.gif", small_gif([*before, *after], rate, LARGEST))


if __name__ == "__main__":
    main()
