"""How an actor acts that sees images: through Keras."""

import keras
import numpy as np
import tensorflow as tf

from common.learning.compiled import Compiled

IMAGES_A_CALL = 8  # when acting, whatever their number


class ImageHeads:
    """The heads of an actor that sees images, and the values if its network has them; it is the live one, no copy."""

    def __init__(self, network: keras.Model) -> None:
        self.compiled = Compiled(network)

    def __call__(self, images: np.ndarray) -> list[np.ndarray]:
        """images [n, height, width, channels] → each of its outputs, [n, ...]; one shape, so one compilation."""
        parts = []
        for first in range(0, len(images), IMAGES_A_CALL):
            part = images[first : first + IMAGES_A_CALL]
            missing = IMAGES_A_CALL - len(part)
            padded = np.pad(part, [(0, missing), (0, 0), (0, 0), (0, 0)]) if missing else part
            parts.append([output.numpy()[: len(part)] for output in tf.nest.flatten(self.compiled(padded))])
        return [np.concatenate(outputs) for outputs in zip(*parts)]
