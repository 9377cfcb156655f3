"""Minibatches of observations with images, which come as bytes, in TensorFlow."""

import tensorflow as tf

from common.records import Transitions
from companions.image_replay import PackedObservations


def unpacked(packed: PackedObservations, rows: tf.Tensor) -> Transitions:
    """The columns of rows [B, W] uint8 that `ImageReplayBuffer` packed, in float32."""
    first, last = (_observations(packed, part) for part in (rows[:, : packed.size], rows[:, -packed.size :]))  # [B, S]
    numbers = _floats(rows[:, packed.size : -packed.size])  # [B, A + 2]
    return Transitions(first, numbers[:, :-2], numbers[:, -2], numbers[:, -1], last)


def _observations(packed: PackedObservations, rows: tf.Tensor) -> tf.Tensor:
    """[B, D] → [B, S]."""
    parts = packed.cut(rows)
    return tf.concat([tf.cast(x, tf.float32) * (most / 255) if most else _floats(x) for x, most in parts], axis=1)


def _floats(rows: tf.Tensor) -> tf.Tensor:
    """[B, 4K] → [B, K]."""
    return tf.bitcast(tf.reshape(rows, (-1, rows.shape[1] // 4, 4)), tf.float32)
