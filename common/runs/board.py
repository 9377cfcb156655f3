"""Writes a run's TensorBoard log: its table as curves, its settings, scores, figure and film."""

import contextlib
import dataclasses
import functools
import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import tensorflow as tf
from PIL import Image
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.image import metadata as image_metadata

from common.config import TrainingConfig
from common.results import EpochResult

Say = Callable[[str], None]
FILM_SECONDS, FILM_FPS, FILM_WIDTH = 8.0, 12.5, 320  # of the film, which then has less than a megabyte


def _while_it_can(method: Callable) -> Callable:
    """A method that gives the log up at the first failed write, and does nothing from then on."""

    @functools.wraps(method)
    def write(self: "Board", *arguments: object) -> None:
        if self._writer is None:
            return
        try:
            method(self, *arguments)
        except Exception as error:  # whatever it is, the run is worth more than its log
            self._give_up(error)

    return write


class Board:
    """Event files in a folder of a run; a context manager.

    If the log cannot be written, for example on a full disk, one warning is logged and the run continues without it.
    """

    def __init__(self, folder: Path, say: Say = print) -> None:
        self._folder, self._say = folder, say
        self._writer: Any = None  # a tf.summary.SummaryWriter; None once the log was given up
        self._write: tf.types.experimental.PolymorphicFunction | None = None
        try:
            self._writer = tf.summary.create_file_writer(str(folder))
        except tf.errors.OpError as error:
            self._give_up(error)

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give_up(self, error: Exception) -> None:
        writer, self._writer = self._writer, None
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__.removesuffix("Error")
        self._say(f"warning: {self._folder} cannot be written ({reason}): the run continues without TensorBoard")
        if writer is not None:
            with contextlib.suppress(tf.errors.OpError):
                writer.close()

    @_while_it_can
    def close(self) -> None:
        """Write what is still buffered, and close the files."""
        self._writer.close()

    @_while_it_can
    def settings(self, name: str, config: TrainingConfig) -> None:
        """Write every setting to TensorBoard's table of hyperparameters."""
        values = dataclasses.asdict(config)
        plain = {
            key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in values.items()
        }
        with self._writer.as_default():
            hparams.hparams(plain, trial_id=name)

    @_while_it_can
    def row(self, row: EpochResult) -> None:
        """Write all numbers of an epoch in one compiled call; one by one they would take 1% of the run time."""
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

    @_while_it_can
    def scores(self, group: str, summaries: dict[str, dict[str, object]], epoch: int) -> None:
        """Write the mean scores of an evaluation.

        Args:
            summaries: kind → `Evaluation.summary`.
        """
        with self._writer.as_default():
            for kind, summary in summaries.items():
                tf.summary.scalar(f"{group}/{kind}", summary["mean"], step=epoch)

    @_while_it_can
    def figure(self, png: Path, epoch: int) -> None:
        """Write the five panels from the PNG file in which they were saved."""
        with self._writer.as_default():
            tf.summary.image("figure", imageio.imread(png)[None], step=epoch)

    @_while_it_can
    def film(self, path: Path, epoch: int) -> None:
        """Write the first seconds of a film as a small GIF, the only kind that TensorBoard plays."""
        reader: Any
        with imageio.get_reader(path) as reader:
            about = reader.get_meta_data()
            rate = about["fps"] if "fps" in about else 1000 / about["duration"]
            every = max(1, round(rate / FILM_FPS))
            shown = [*itertools.islice(reader, 0, max(1, int(FILM_SECONDS * rate)), every)]  # each [H, W, 3]
        width, height = FILM_WIDTH, round(shown[0].shape[0] * FILM_WIDTH / shown[0].shape[1])
        first, *others = (Image.fromarray(frame).resize((width, height)) for frame in shown)
        content = io.BytesIO()
        first.save(content, "GIF", save_all=True, append_images=others, duration=1000 * every / rate, loop=0)
        kind = image_metadata.create_summary_metadata(display_name=None, description="")
        with self._writer.as_default():
            tf.summary.write("film", tf.constant([str(width), str(height), content.getvalue()]), epoch, metadata=kind)


def _tag(group: str, name: str) -> str:
    """TensorBoard's name of a column: hp_passes of group hp is hp/passes."""
    return f"{group}/{name.removeprefix(group + '_')}"
