"""Films: an episode's frames, streamed into a file."""

import ctypes.util
import dataclasses
import os
import re
import sys
import tracemalloc

import cloudpickle
import imageio.v2 as imageio
import numpy as np
import pytest
import tiny_envs
from gymnasium.spaces import Box
from PIL import Image

from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.rollout import playing
from common.rollout.evaluation import evaluate
from common.runs import film, run_folder
from common.runs.film import FilmedEpisode, film_into, save_video


class Swinging:
    """Pendulum's observation decides."""

    is_plain = True

    def act(self, observations, noise=None):
        return np.sin(9 * observations[:, :1]).astype(np.float32)


PENDULUM_ACTIONS = action_map(Box(-2.0, 2.0, (1,)))
ACTIONS = action_map(Box(-1.0, 1.0, (1,)))


class Still:
    def act(self, observations, noise=None):
        return np.zeros((len(observations), 1), np.float32)


def take(env_id="tests/Lengths-v0", **options):
    return FilmedEpisode(Still(), ACTIONS, find_environment(env_id), **options)


@pytest.mark.skipif(not ctypes.util.find_library("EGL"), reason="no library that draws without a screen")
def test_mujoco_is_filmed_without_a_screen(tmp_path, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    environment = find_environment("InvertedPendulum-v5")
    assert film_into(tmp_path, Swinging(), ACTIONS, environment)[0].startswith("filmed an episode of ")
    assert imageio.get_reader(tmp_path / run_folder.VIDEO).get_data(0).std() > 10


def test_only_mujoco_is_filmed_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(film.worker_processes, "in_background", lambda _: pytest.fail("filmed in another process"))
    line, _ = film_into(tmp_path, Swinging(), PENDULUM_ACTIONS, find_environment("Pendulum-v1", 5))
    assert line.startswith("filmed an episode of ")
    assert find_environment("Reacher-v5").draws_with_mujoco and not find_environment("Pendulum-v1").draws_with_mujoco


@pytest.mark.parametrize(
    ("variables", "library"), [({}, None), ({"MUJOCO_GL": "osmesa"}, "osmesa"), ({"DISPLAY": ":55555"}, "egl")]
)
def test_mujoco_keeps_the_library_that_is_named_or_the_screen(screen, monkeypatch, variables, library):
    monkeypatch.setenv("MUJOCO_GL", "")  # what is set from here on is undone
    monkeypatch.delenv("MUJOCO_GL")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    film.draw_in_memory(find_environment("InvertedPendulum-v5"))
    assert os.environ.get("MUJOCO_GL") == library


def test_a_take_has_a_frame_for_the_start_and_every_step():
    one = take(seed=4)  # 5 steps
    for _ in range(2):  # it can be played again
        frames = list(one)
        assert [frame[0, 0, 0] for frame in frames] == [0, 20, 40, 60, 80, 100]
        assert all(frame.shape == (48, 64, 3) and frame.dtype == np.uint8 for frame in frames)
        assert (one.score, one.steps, one.frame_rate, one.was_cut) == (15.0, 5, 20, False)


@pytest.mark.parametrize(
    "most, drawn, rate", [(20, [0, 20, 40, 60, 80, 100], 20), (19, [0, 40, 80, 100], 10), (7, [0, 60, 100], 20 / 3)]
)
def test_a_take_leaves_out_frames_but_never_the_last(most, drawn, rate):
    one = take(seed=4, most_frames=most)  # 20 frames a second, 5 steps
    assert [frame[0, 0, 0] for frame in one] == drawn
    assert (one.score, one.steps) == (15.0, 5) and one.frame_rate == pytest.approx(rate)


@pytest.mark.parametrize("gif, frames", [(False, 10), (True, 26)])
def test_a_film_has_at_most_20_frames_a_second_and_a_gif_all(tmp_path, gif, frames):
    class Walking:
        def act(self, observations, noise=None):
            return np.zeros((len(observations), 4), np.float32)

    walker = find_environment("BipedalWalker-v3", 25)  # 50 frames a second
    film_into(tmp_path, Walking(), action_map(Box(-1.0, 1.0, (4,))), walker, gif=gif)
    [path] = tmp_path.iterdir()
    with imageio.get_reader(path) as reader:
        assert sum(1 for _ in reader) == frames
        assert gif or reader.get_meta_data()["fps"] == pytest.approx(50 / 3, abs=0.01)


def test_a_take_shows_the_first_evaluated_episode():
    environment = find_environment("Pendulum-v1", 40)
    one = FilmedEpisode(Swinging(), PENDULUM_ACTIONS, environment)
    frames = list(one)
    assert one.score == evaluate(Swinging(), PENDULUM_ACTIONS, environment, 10, True).returns[0]
    assert len(frames) == 41 and one.frame_rate == 30
    assert frames[0].std() > 0 and (frames[0] != frames[-1]).any()


@pytest.mark.parametrize(
    ("size", "why"), [(lambda t: (40 + t, 40), "different sizes.* one size"), (lambda _: (1, 4000), "OSError")]
)
def test_pictures_that_make_no_film_are_one_line(size, why, tmp_path, monkeypatch):
    drawn = iter(range(100))
    monkeypatch.setattr(tiny_envs.Lengths, "render", lambda _: np.zeros((*size(next(drawn)), 3), np.uint8))
    line, path = film_into(tmp_path, Still(), ACTIONS, find_environment("tests/Lengths-v0"))
    assert re.fullmatch(f"not filmed: .*{why}.*", line) and path is None
    assert not list(tmp_path.iterdir())
    line, path = film_into(tmp_path / "new", Still(), ACTIONS, find_environment("tests/Target-v0"))
    assert line.startswith("not filmed: ") and path is None


def test_a_film_of_an_environment_without_a_limit_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(playing, "FILM_BOUND", 7)
    line, path = film_into(tmp_path, Still(), ACTIONS, find_environment("tests/Strolling-v0"))
    assert line == f"filmed an episode of 7.0, cut after 7 steps: {tmp_path / run_folder.VIDEO}"
    with imageio.get_reader(path) as reader:
        assert sum(1 for _ in reader) == 5  # every second one, and the last
    line, path = film_into(tmp_path, Still(), ACTIONS, find_environment("tests/Strolling-v0", 9))
    assert line == f"filmed an episode of 9.0: {tmp_path / run_folder.VIDEO}"  # its limit holds, not ours


@pytest.mark.parametrize("restarts", [0, 1])
def test_an_environment_that_fails_once_is_filmed_again(tmp_path, monkeypatch, restarts):
    steps, step = [], film.FilmedEpisode.drawn

    def failing(one, env):
        steps.append(1)
        if len(steps) == 3:
            raise RuntimeError("the lens broke\nin two")
        return step(one, env)

    monkeypatch.setattr(film.FilmedEpisode, "drawn", failing)
    line, path = film_into(tmp_path, Still(), ACTIONS, find_environment("tests/Lengths-v0"), restarts=restarts)
    if restarts:
        assert line.startswith("filmed an episode of ") and path is not None
        assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]
    else:
        said = "not filmed: tests/Lengths-v0 failed while it was filmed (RuntimeError: the lens broke, at test_film.py"
        assert line.startswith(said) and "\n" not in line
        assert path is None and not list(tmp_path.iterdir())


# -- the file --


def some_frames(height=48, width=64):
    return [np.full((height, width, 3), shade, np.uint8) for shade in range(0, 240, 24)]


@pytest.mark.parametrize("size", [(48, 64), (49, 65)])
def test_video_is_an_mp4_that_reads_back(tmp_path, size, caplog):
    path = tmp_path / "video.mp4"
    save_video(iter(some_frames(*size)), 20, path)
    assert "macro_block_size" not in caplog.text  # a warning of the library that nobody can act on
    assert [p.name for p in tmp_path.iterdir()] == ["video.mp4"]
    with imageio.get_reader(path) as reader:
        assert reader.get_meta_data()["fps"] == 20
        frames = [np.asarray(frame) for frame in reader]
    assert len(frames) == 10
    assert abs(frames[0].shape[0] - size[0]) <= 1 and abs(frames[0].shape[1] - size[1]) <= 1
    np.testing.assert_allclose([frame.mean() for frame in frames], range(0, 240, 24), atol=6)


class Broken:
    """A writer that fails at its third frame, with half a film on disk."""

    def __init__(self, path, error, error_at_exit=None):
        self._error, self._error_at_exit, self._left = error, error_at_exit, 2
        path.write_bytes(b"half")

    def close(self):
        if self._error_at_exit is not None:
            raise self._error_at_exit

    def append_data(self, frame):
        self._left -= 1
        if self._left < 0:
            raise self._error


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_ffmpeg_that_ends_without_a_word_leaves_no_half_film(tmp_path, monkeypatch, share):
    real = imageio.get_writer

    class Cut:
        """Its disk is full once all frames are written."""

        def __init__(self, path, **options):
            self._path, self._writer = path, real(path, **options)

        def __getattr__(self, name):
            return getattr(self._writer, name)

        def __enter__(self):
            return self._writer

        def __exit__(self, *_):
            self.close()

        def close(self):
            self._writer.close()
            content = self._path.read_bytes()
            self._path.write_bytes(content[: int(share * len(content))])

    monkeypatch.setattr(imageio, "get_writer", Cut)
    environment = find_environment("tests/Lengths-v0")
    line, path = film_into(tmp_path, Still(), ACTIONS, environment)
    assert line.startswith("not filmed: ") and line.endswith("; a GIF needs no ffmpeg") and path is None
    assert not list(tmp_path.iterdir())
    assert film_into(tmp_path, Still(), ACTIONS, environment, gif=True)[1] == tmp_path / "video.gif"


def test_ctrl_c_while_a_film_is_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    (tmp_path / "video.mp4").write_bytes(b"an earlier film")
    heard = OSError("ffmpeg heard the Ctrl-C, too")
    monkeypatch.setattr(film.imageio, "get_writer", lambda path, **_: Broken(path, KeyboardInterrupt(), heard))
    with pytest.raises(KeyboardInterrupt):
        save_video(some_frames(), 20, tmp_path / "video.mp4")
    assert [p.name for p in tmp_path.iterdir()] == ["video.mp4"]
    assert (tmp_path / "video.mp4").read_bytes() == b"an earlier film"


@pytest.mark.parametrize("channels", [3, 4])
def test_a_gif_has_every_frame_at_30_a_second(tmp_path, channels):
    rng = np.random.default_rng(0)
    frames = some_frames()
    frames[3:3] = [frames[2]] * 2  # nothing moves
    frames.append(frames[-1].copy())
    frames[-1][10:20, 30:50] = rng.integers(0, 255, (1, 1, 3), np.uint8)  # a part moves
    frames = [np.dstack([frame, np.full(frame.shape[:2], 255, np.uint8)])[..., :channels] for frame in frames]
    path = tmp_path / "video.gif"
    save_video(iter(frames), 50, path)
    assert path.name == "video.gif"
    shown = imageio.mimread(path)
    assert len(shown) == len(frames)
    for one, other in zip(shown, frames):
        np.testing.assert_allclose(one[..., :3].astype(int), other[..., :3].astype(int), atol=3)
    with Image.open(path) as film:
        durations = [film.seek(i) or film.info["duration"] for i in range(film.n_frames)]
    assert sum(durations) == pytest.approx(len(frames) * 1000 / 30, abs=10)  # GIFs count in 1/100 s


@pytest.mark.parametrize("suffix", ["mp4", "gif"])
def test_a_long_film_takes_no_more_memory_than_a_short_one(tmp_path, suffix):
    def peak(count):
        tracemalloc.start()
        frames = (np.full((100, 200, 3), i % 256, np.uint8) for i in range(count))  # 60 kB each
        save_video(frames, 50, tmp_path / f"film.{suffix}")
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(12)
    assert peak(150) < peak(15) + 1_000_000  # of 8 million that the others have


# -- in a process of its own --


class Deadly(Still):
    """Pickled whole, since the process that draws does not import this module."""

    is_plain = True

    def act(self, observations, noise=None):
        os._exit(3)


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_what_kills_the_process_that_draws_does_not_kill_this_one(tmp_path):
    line, path = film_into(tmp_path, Deadly(), ACTIONS, find_environment("InvertedPendulum-v5", 9))
    assert (line, path) == ("not filmed: its process died (exit code 3)", None)
    assert not list(tmp_path.iterdir())


def test_a_film_is_made_here_where_no_process_starts(tmp_path, monkeypatch):
    def start(_):
        raise film.worker_processes.CannotStartError("no more processes")

    monkeypatch.setattr(film.worker_processes.Worker, "start", start)
    pendulum = find_environment("Pendulum-v1", 30)
    pendulum = dataclasses.replace(pendulum, draws_with_mujoco=True)
    assert film_into(tmp_path, Swinging(), PENDULUM_ACTIONS, pendulum)[0].startswith("filmed an episode of ")
