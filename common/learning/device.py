"""Which processor TensorFlow computes on."""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import functools

import tensorflow as tf

from common.errors import UserError
from common.user_code import held_back_errors


def choose_device(device: str, sees_images: bool) -> None:
    """Hide the graphics cards from TensorFlow where they would slow it down; see `TrainingConfig.device`.

    What a process has computed on already, it keeps: with "auto" a later agent of the same process follows the first.

    Raises:
        UserError: a device was asked for by name and is not there, or the process already uses another.
    """
    with held_back_errors():  # looking for cards is what makes C++ tell of drivers that are missing
        cards = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not cards:
        raise UserError("TensorFlow finds no graphics card: use --device cpu")
    wanted = cards if device == "gpu" or (device == "auto" and sees_images) else []
    if tf.config.get_visible_devices("GPU") != wanted:
        try:
            tf.config.set_visible_devices(wanted, "GPU")
        except RuntimeError:  # TensorFlow has begun to compute
            if device != "auto":
                raise UserError(
                    f"this process computes on another device than {device} already: start a new one (in a notebook, "
                    "restart the kernel)"
                ) from None
    let_xla_introduce_itself()


@functools.cache
def let_xla_introduce_itself() -> None:
    """TensorFlow 2.18 and 2.19 tell of XLA, once, when it first compiles something."""
    if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 20):
        with held_back_errors():
            tf.function(tf.negative, jit_compile=True, autograph=False)(tf.constant(0.0))
