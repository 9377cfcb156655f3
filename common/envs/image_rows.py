"""Observations of numbers and images in one row, and where its images stand."""

from dataclasses import dataclass

import gymnasium
import numpy as np


@dataclass(frozen=True)
class ImagePart:
    """An image among the numbers of a row."""

    start: int  # position of its first number
    shape: tuple[int, ...]  # [height, width, channels]
    channels_first: bool  # whether the channels are the first axis in the row
    low: float  # of its numbers, which are scaled to 0 to 1; infinite ones are not scaled
    high: float
    is_uint8: bool = False  # whether the environment shows it as uint8
    scaled_by_network: bool = False  # whether the row has its numbers from 0 to 255, as of images alone

    @property
    def columns(self) -> np.ndarray:
        """Where the numbers of the image [H, W, C] stand in the row, [H · W · C]."""
        height, width, channels = self.shape
        numbers = np.arange(self.start, self.start + height * width * channels)
        if not self.channels_first:
            return numbers
        return numbers.reshape(channels, height, width).transpose(1, 2, 0).ravel()

    @property
    def is_scaled(self) -> bool:
        """Whether its numbers in the row are scaled to 0 to 1."""
        return not self.scaled_by_network and bool(np.isfinite([self.low, self.high]).all() and self.low < self.high)


class RowWithImagesSpace(gymnasium.spaces.Box):
    """Observations of numbers and images in one row [S] of float32; what the images are is in `images`."""

    def __init__(self, space: gymnasium.spaces.Box, images: tuple[ImagePart, ...]) -> None:
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)  # [S], [S]
        for image in images:
            if image.is_scaled:
                low[image.columns], high[image.columns] = 0, 1
        super().__init__(low, high, dtype=np.float32)
        self.images = images

    def scaled(self, row: np.ndarray) -> np.ndarray:
        """A row [S] as the environment has it → one whose images have values from 0 to 1."""
        row = row.astype(np.float32)
        for image in self.images:
            if image.is_scaled:
                row[image.columns] = (row[image.columns] - image.low) / (image.high - image.low)
        return row
