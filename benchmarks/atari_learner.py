"""Trains Stable-Baselines3's PPO on Breakout for `atari_learning.py`: python atari_learner.py STEPS PASSES SEED

Prints a line of JSON after each `STEPS_PER_EPOCH` steps: columns of results.csv → values.
"""

import json
import sys
import time

import numpy as np
from atari_contestants import STEPS_PER_EPOCH, stable_baselines3_model
from stable_baselines3.common.callbacks import BaseCallback

FRAMES_A_STEP = 4  # its games count frames


class Epochs(BaseCallback):
    """Prints what the games had that ended in each epoch. A game has five lives, and its points are not clipped."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[float] = []  # of all games that have ended
        self.frames: list[int] = []  # and their length
        self.before = 0  # of them in earlier epochs
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self.points += [game["r"] for game in ended]
        self.frames += [game["l"] for game in ended]
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps % STEPS_PER_EPOCH:
            return
        points, seconds = self.points[self.before :], time.perf_counter() - self.began
        steps = [frames / FRAMES_A_STEP for frames in self.frames[self.before :]] or [np.nan]
        row = {
            "epoch": self.num_timesteps // STEPS_PER_EPOCH,
            "steps": self.num_timesteps,
            "total_reward": np.nan,  # of clipped rewards, which its games do not report
            "total_reward_orig": np.sum(points),
            "avg_reward": np.nan,
            "avg_reward_orig": np.mean(points) if points else np.nan,
            "avg_steps": np.mean(steps),
            "max_steps": np.max(steps),
            "episodes": len(points),
            "score": np.mean(self.points[-100:]) if len(self.points) >= 100 else np.nan,
            "total_episodes": len(self.points),
            "seconds": seconds,
            "steps_per_second": STEPS_PER_EPOCH / seconds,
        }
        print(json.dumps(row), flush=True)
        self.before, self.began = len(self.points), time.perf_counter()


def main() -> None:
    steps, passes, seed = map(int, sys.argv[1:])
    model = stable_baselines3_model(passes, seed)
    model.learn(steps, callback=Epochs(), log_interval=None)


if __name__ == "__main__":
    main()
