"""What `tensorboard --logdir runs` shows of a run: its table as curves, settings, scores, figure and film."""

import dataclasses
import io
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.image import metadata as image_metadata

from common.config import TrainingConfig
from common.results import EpochResult


class Board:
    """Event files in a folder of a run; a context manager.

    Args:
        folder: TensorBoard's, beside the run's table.
    """

    def __init__(self, folder: Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder))
        self._write: tf.types.experimental.PolymorphicFunction | None = None

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is still held back."""
        self._writer.close()

    def settings(self, name: str, config: TrainingConfig) -> None:
        """A line of TensorBoard's table of hyperparameters; `name`: of the run."""
        values = dataclasses.asdict(config)
        plain = {
            key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in values.items()
        }
        with self._writer.as_default():
            hparams.hparams(plain, trial_id=name)

    def row(self, row: EpochResult) -> None:
        """All numbers of an epoch in one compiled call: one by one they would cost a percent of the run."""
        fields = [field for field in dataclasses.fields(row) if "group" in field.metadata]
        if self._write is None:
            tags = [_tag(field.metadata["group"], field.name) for field in fields]
            self._write = tf.function(
                lambda epoch, values: self._write_all(tags, epoch, values),
                input_signature=(tf.TensorSpec((), tf.int64), tf.TensorSpec((len(tags),), tf.float32)),
                autograph=False,
            )
        values = [float(getattr(row, field.name)) for field in fields]
        self._write(tf.constant(row.epoch, tf.int64), tf.constant(values, tf.float32))

    def _write_all(self, tags: list[str], epoch: tf.Tensor, values: tf.Tensor) -> None:
        with self._writer.as_default():
            for i, tag in enumerate(tags):
                tf.summary.scalar(tag, values[i], step=epoch)

    def scores(self, group: str, summaries: dict[str, dict[str, object]], epoch: int) -> None:
        """Means of an evaluation: kind → `Evaluation.summary`."""
        with self._writer.as_default():
            for kind, summary in summaries.items():
                tf.summary.scalar(f"{group}/{kind}", summary["mean"], step=epoch)

    def figure(self, png: Path, epoch: int) -> None:
        """The five panels, as they were saved."""
        content = png.read_bytes()
        height, width = imageio.imread(content, format="png").shape[:2]
        self._image("figure", content, width, height, epoch)

    def film(self, frames: list[np.ndarray], fps: float, epoch: int) -> None:
        """Frames [H, W, 3] uint8 as a GIF, the one kind of film that TensorBoard plays."""
        content = io.BytesIO()
        imageio.mimsave(content, frames, format="gif", duration=1000 / fps, loop=0)
        height, width = frames[0].shape[:2]
        self._image("film", content.getvalue(), width, height, epoch)

    def _image(self, tag: str, content: bytes, width: int, height: int, epoch: int) -> None:
        """Encoded already; `tf.summary.image` takes pixels, of which it makes a PNG."""
        kind = image_metadata.create_summary_metadata(display_name=None, description="")
        with self._writer.as_default():
            tf.summary.write(tag, tf.constant([str(width), str(height), content]), step=epoch, metadata=kind)


def _tag(group: str, name: str) -> str:
    """Under which TensorBoard shows a column: hp_passes of group hp as hp/passes."""
    return f"{group}/{name.removeprefix(group + '_')}"
