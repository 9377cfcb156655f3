"""Whole games of Atari as Stable-Baselines3's own wrappers show them to its agents."""

from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.atari_wrappers import AtariWrapper

FRAMES = 4


class WholeGame(gymnasium.Wrapper):
    """A game of all lives in `AtariWrapper`, with four images and the game's own points.

    After a lost life comes what comes in training: three steps (none, FIRE, RIGHT), then an emptied stack.
    """

    def __init__(self, game: str) -> None:
        super().__init__(AtariWrapper(gymnasium.make(game), clip_reward=False))
        self._images: list[np.ndarray] = []

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """The stack [84, 84, 4] with the first image alone, and info."""
        image, info = self.env.reset(**kwargs)
        self._images = [np.zeros_like(image)] * FRAMES
        return self._stacked(image), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """A step; the game is over with its last life."""
        image, reward, terminated, truncated, info = self.env.step(action)
        if terminated and not truncated and info["lives"]:
            return self.reset()[0], float(reward), False, False, info
        return self._stacked(image), float(reward), terminated, truncated, info

    def _stacked(self, image: np.ndarray) -> np.ndarray:
        self._images = [*self._images[1:], image]
        return np.concatenate(self._images, axis=-1)
