"""Films one episode as MP4 or GIF, frame by frame, so that a long film needs no more memory than a short one."""

import contextlib
import functools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import imageio.v2 as imageio
import numpy as np
from PIL import GifImagePlugin, Image, ImageChops

from common.envs import worker_processes
from common.envs.environment import Environment
from common.envs.spaces import ActionMap
from common.errors import UserError
from common.files import FULL, remove_unfinished, replacing
from common.results import score_text
from common.rollout.evaluation import EVALUATION_SEED
from common.rollout.playing import one_episode
from common.rollout.policies import Policy
from common.runs import run_folder, window
from common.user_code import closed, explain

T = TypeVar("T")
GIF_FRAMES_PER_SECOND = 30
MP4_FRAMES_PER_SECOND = 20  # at most: a frame of the walker takes as long as 30 of its steps
# One thread writes the same bytes on any machine, and leaves a core to what draws the frames.
FFMPEG = ["-preset", "veryfast", "-threads", "1"]


class FilmedEpisode:
    """One deterministic episode as frames [H, W, 3] uint8; iterating over it again plays it again.

    It is the first episode of an evaluation with the same seed.

    Args:
        most_frames: draw at most so many per second, by leaving out frames at equal distances.

    Attributes:
        frame_rate: frames per second at which the film runs at the environment's own speed.
        score, steps: of the episode, after its end.
        was_cut: whether it was cut after FILM_BOUND steps, because the environment has no limit.

    Raises:
        UserError: the environment draws no pictures; while iterating: the environment failed.
    """

    def __init__(
        self,
        policy: Policy,
        action_map: ActionMap,
        environment: Environment,
        seed: int = EVALUATION_SEED,
        most_frames: float = math.inf,
    ) -> None:
        if "rgb_array" not in environment.render_modes:
            raise UserError(
                f"{environment.id} draws no pictures (render mode rgb_array): it can be trained, not filmed"
            )
        self._environment = environment
        self._steps = functools.partial(one_episode, policy, action_map, environment, seed=seed)
        self._every = max(1, math.ceil(environment.render_fps / most_frames))
        self.frame_rate = environment.render_fps / self._every
        self._shape: tuple[int, ...] = ()  # of the frames so far

    def __iter__(self) -> Iterator[np.ndarray]:
        self.score, self.steps, self.was_cut, self._shape = 0.0, 0, False, ()
        draw_in_memory(self._environment)
        try:
            with closed(self._environment.make(render_mode="rgb_array")) as env:
                for now in self._steps(env=env):
                    self.score, self.steps, self.was_cut = now.score, now.steps, now.was_cut
                    if now.steps % self._every == 0 or now.over or now.was_cut:
                        yield self.drawn(env)
        except UserError:
            raise
        except Exception as error:  # somebody else's code: whatever it raises is a fault of the environment
            raise UserError(f"{self._environment.id} failed while it was filmed ({explain(error)})") from error

    def drawn(self, env: Any) -> np.ndarray:
        """The present frame of an environment, [H, W, 3] uint8."""
        frame = np.asarray(env.render())  # [H, W, 3]
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] not in (3, 4):
            raise UserError(
                f"{self._environment.id} draws no pictures: expected uint8 of shape [height, width, 3], its render "
                f"method returned {frame.dtype} of shape {list(frame.shape)}"
            )
        if frame.shape != (self._shape or frame.shape):
            raise UserError(
                f"{self._environment.id} draws pictures of different sizes, {list(self._shape)} and "
                f"{list(frame.shape)}: let its render method return one size"
            )
        self._shape = frame.shape
        return frame


def draw_in_memory(environment: Environment) -> None:
    """Let SDL open no window, and MuJoCo look for no screen where there is none: it would end the whole program."""
    if not environment.draws_with_mujoco:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not window.has_screen():
        os.environ.setdefault("MUJOCO_GL", "egl")


def save_video(film: Iterable[np.ndarray], fps: float, path: Path) -> None:
    """Write frames [H, W, 3] uint8 atomically, as an MP4, or as a GIF of 30 a second if `path` ends in .gif."""
    with replacing(path) as unfinished:
        if path.suffix == ".gif":
            _write_gif(film, unfinished)
        else:
            _write_mp4(film, fps, unfinished)


def _write_mp4(film: Iterable[np.ndarray], fps: float, path: Path) -> None:
    try:
        # As its own context manager it would leave ffmpeg running, and writing, if a frame could not be had.
        with contextlib.closing(imageio.get_writer(path, fps=fps, macro_block_size=2, output_params=FFMPEG)) as writer:
            for frame in film:
                height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2  # MP4 takes even numbers only
                writer.append_data(frame[:height, :width])
    except OSError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # which ended ffmpeg, too
            raise error.__context__ from None
        raise
    with imageio.get_reader(path):  # ffmpeg reports no error when its disk is full, but does not open such a film
        pass


def _write_gif(film: Iterable[np.ndarray], path: Path) -> None:
    """Write what changed in each frame, with a palette per frame; `imageio` and `Image.save` would keep all frames."""
    with open(path, "wb") as file:
        before = None
        for i, frame in enumerate(film):
            ends, began = (10 * (100 * end // GIF_FRAMES_PER_SECOND) for end in (i + 1, i))  # ms; a GIF has hundredths
            image = Image.fromarray(frame).convert("RGB")  # of RGBA only alpha would be compared
            box = (0, 0, *image.size)
            if before is not None:
                box = ImageChops.difference(image, before).getbbox() or (0, 0, 1, 1)
            part = image.crop(box).quantize(256)
            if before is None:
                header, _ = GifImagePlugin.getheader(part, info={"loop": 0})
                file.writelines(header)
            file.writelines(GifImagePlugin.getdata(part, box[:2], duration=ends - began, include_color_table=True))
            before = image
        file.write(b";")


def film_into(
    folder: Path,
    policy: Policy,
    action_map: ActionMap,
    environment: Environment,
    gif: bool = False,
    seed: int = EVALUATION_SEED,
    restarts: int = 0,
    name: str = Path(run_folder.VIDEO).stem,
) -> tuple[str, Path | None]:
    """Film an episode as FOLDER/NAME.mp4, or .gif; if the environment fails, `restarts` times again.

    Returns a line with the score and the file, or why there is no film; and the file, or None.
    """
    path = folder / f"{name}{'.gif' if gif else '.mp4'}"
    try:
        return draw_apart(
            functools.partial(_film, path, policy, action_map, environment, gif, seed, restarts), policy, environment
        )
    except BaseException as error:
        with contextlib.suppress(OSError):  # there may be no such folder
            remove_unfinished(folder, name)  # of a process that drew and was ended
        if not isinstance(error, UserError):
            raise
        return f"not filmed: {error}", None


def _film(
    path: Path, policy: Policy, action_map: ActionMap, environment: Environment, gif: bool, seed: int, restarts: int
) -> tuple[str, Path]:
    for left in range(restarts, -1, -1):
        try:
            take = FilmedEpisode(policy, action_map, environment, seed, math.inf if gif else MP4_FRAMES_PER_SECOND)
            save_video(take, take.frame_rate, path)
            break
        except UserError:  # the environment failed, perhaps just this once
            if not left:
                raise
        except Exception as error:  # whatever it is, what was trained is worth more
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            raise UserError(f"{explain(error)}{'' if gif else '; a GIF needs no ffmpeg'}") from None
    cut = f", cut after {take.steps:,} steps" if take.was_cut else ""
    return f"filmed an episode of {score_text(take.score)}{cut}: {path}", path


def draw_apart(draw: Callable[[], T], policy: Policy, environment: Environment) -> T:
    """What `draw` returns; MuJoCo draws in a process without TensorFlow, since it may crash if both are loaded.

    Raises:
        UserError: drawing ended the process.
    """
    if environment.draws_with_mujoco and getattr(policy, "is_plain", False):
        with contextlib.suppress(worker_processes.CannotStartError), worker_processes.in_background(draw) as drawn:
            return drawn()
    return draw()
