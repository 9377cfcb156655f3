"""Evaluation apart from training: Gymnasium's own unshaped environment, seeds of its own, nothing learned."""

from dataclasses import dataclass
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
from PIL import Image

from common import run_folder
from common.behaviour import NormalBehaviour
from common.environment import Environment
from common.errors import UserError
from common.files import replacing
from common.spaces import ActionMap

GIF_FRAMES_PER_SECOND = 30
SMALL_WIDTH = 320  # pixels
EVALUATION_SEED = 1_000_003  # far from the small seeds people train with


@dataclass(frozen=True)
class Evaluation:
    """Scores of whole episodes, one each from seeds `seed`, `seed` + 1, …"""

    returns: np.ndarray  # [E] original rewards summed
    lengths: np.ndarray  # [E] steps

    def summary(self) -> dict[str, object]:
        """Mean with a 95% bootstrap interval, spread, extremes, mean length, and every episode's score."""
        from scipy.stats import bootstrap  # a tenth of what is imported before the first line

        low = high = float(self.returns.mean())
        if len(self.returns) > 1 and np.ptp(self.returns) > 0:
            interval = bootstrap(
                (self.returns,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(0)
            ).confidence_interval
            low, high = float(interval.low), float(interval.high)
        return {
            "mean": float(self.returns.mean()),
            "low": low,
            "high": high,
            "std": float(self.returns.std()),
            "min": float(self.returns.min()),
            "max": float(self.returns.max()),
            "mean_steps": float(self.lengths.mean()),
            "episodes": len(self.returns),
            "returns": [round(float(score), 3) for score in self.returns],
        }


def evaluate(
    behaviour: NormalBehaviour,
    action_map: ActionMap,
    environment: Environment,
    episodes: int,
    deterministic: bool,
    seed: int = EVALUATION_SEED,
) -> Evaluation:
    """Plays `episodes` whole episodes side by side, one environment each.

    Episode i starts from seed + i and is stepped until it ends, so short episodes weigh no more than
    long ones. No generator of training is touched.
    """
    envs = [environment.make() for _ in range(episodes)]
    observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])  # [E, *shape]
    noise = np.random.default_rng(seed)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)  # [E], [E]
    running = np.arange(episodes)
    while len(running):
        drawn = None if deterministic else noise.standard_normal((len(running), action_map.noise_size), np.float32)
        actions = action_map(behaviour.act(observations[running], drawn))  # [n, *action]
        still = []
        for i, action in zip(running, actions):
            observations[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += reward
            lengths[i] += 1
            if not (terminated or truncated):
                still.append(i)
        running = np.array(still, dtype=np.int64)
    for env in envs:
        env.close()
    return Evaluation(returns, lengths)


def evaluate_both(
    behaviour: NormalBehaviour, action_map: ActionMap, environment: Environment, episodes: int
) -> dict[str, dict[str, object]]:
    """Summaries of a deterministic and a sampled evaluation."""
    return {
        kind: evaluate(behaviour, action_map, environment, episodes, kind == "deterministic").summary()
        for kind in ("deterministic", "sampled")
    }


def film(
    behaviour: NormalBehaviour,
    action_map: ActionMap,
    environment: Environment,
    seed: int = EVALUATION_SEED,
) -> tuple[list[np.ndarray], float, int]:
    """One deterministic episode as frames [H, W, 3] uint8, its score, and its frames per second.

    Raises:
        UserError: the environment draws no pictures.
    """
    if "rgb_array" not in environment.render_modes:
        raise UserError(f"{environment.id} draws no pictures (render mode rgb_array): it can be trained, not filmed")
    env = environment.make(render_mode="rgb_array")
    observation, _ = env.reset(seed=seed)
    frames, score, over = [env.render()], 0.0, False
    while not over:
        action = action_map(behaviour.act(np.asarray(observation)[None]))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        frames.append(env.render())
        score += float(reward)
        over = terminated or truncated
    fps = int(env.metadata.get("render_fps", 30))
    env.close()
    return frames, score, fps


def save_video(frames: list[np.ndarray], fps: float, path: Path, ffmpeg: list[str] | None = None) -> Path:
    """MP4 by imageio's own ffmpeg, or a GIF of 30 frames a second where `path` ends so.

    Where ffmpeg is missing, an MP4 becomes a GIF of every second frame beside it, played as fast.

    Args:
        ffmpeg: arguments of its own.

    Returns:
        The file written.
    """
    if path.suffix == ".gif":
        with replacing(path) as unfinished:
            imageio.mimsave(unfinished, frames, duration=1000 / GIF_FRAMES_PER_SECOND, loop=0)
        return path
    try:
        with (
            replacing(path) as unfinished,
            imageio.get_writer(unfinished, fps=fps, macro_block_size=2, output_params=ffmpeg) as writer,
        ):
            for frame in frames:
                writer.append_data(frame)
        return path
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # which ended ffmpeg, too
            raise error.__context__ from None
        path = path.with_suffix(".gif")
        with replacing(path) as unfinished:
            imageio.mimsave(unfinished, frames[::2], duration=2000 / fps, loop=0)
        return path


def film_into(
    folder: Path,
    behaviour: NormalBehaviour,
    action_map: ActionMap,
    environment: Environment,
    gif: bool = False,
) -> tuple[str, tuple[list[np.ndarray], int] | None]:
    """Film an episode into a run folder; returns a line that says what came of it, and its frames with their rate."""
    try:
        frames, score, fps = film(behaviour, action_map, environment)
    except UserError as error:
        return f"not filmed: {error}", None
    path = (folder / run_folder.VIDEO).with_suffix(".gif" if gif else ".mp4")
    return f"filmed an episode of {score:.1f}: {save_video(frames, fps, path)}", (frames, fps)


def beginning(frames: list[np.ndarray], frame_rate: int, seconds: float, fps: float) -> tuple[list[np.ndarray], float]:
    """A film's first seconds, small, at about `fps` frames a second; and at how many exactly."""
    every = max(1, round(frame_rate / fps))
    height = round(frames[0].shape[0] * SMALL_WIDTH / frames[0].shape[1] / 2) * 2
    kept = frames[: int(seconds * frame_rate) : every]
    size, filter_ = (SMALL_WIDTH, height), Image.Resampling.BILINEAR
    return [np.asarray(Image.fromarray(frame).resize(size, filter_)) for frame in kept], frame_rate / every
