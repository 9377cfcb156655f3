"""Writes a run's TensorBoard log: its table as curves, its settings, scores, figure and film."""

import contextlib
import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import tensorflow as tf
from PIL import Image
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.image import metadata as image_metadata

from common.config import TrainingConfig
from common.results import EpochResult

FILM_SECONDS, FILM_FPS, FILM_WIDTH = 8.0, 12.5, 320  # of the film, which then has less than a megabyte


class Board:
    """Event files in a folder of a run; a context manager.

    If the log cannot be written, for example on a full disk, one warning is logged and the run continues without it.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = print) -> None:
        self._folder, self._say = folder, say
        self._writer, self._given_up = tf.summary.create_noop_writer(), False
        self._write: tf.types.experimental.PolymorphicFunction | None = None
        with self._log():
            self._writer = tf.summary.create_file_writer(str(folder))

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        with self._log():
            self._writer.close()

    @contextlib.contextmanager
    def _log(self) -> Iterator[None]:
        """What TensorFlow writes to within; at the first failed write it is given up for one that does nothing."""
        try:
            with self._writer.as_default():
                yield
        except Exception as error:  # whatever it is, the run is worth more than its log
            if self._given_up:
                return
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__.removesuffix("Error")
            self._say(f"warning: {self._folder} cannot be written ({reason}): the run continues without TensorBoard")
            failed, self._writer, self._write = self._writer, tf.summary.create_noop_writer(), None
            self._given_up = True
            with contextlib.suppress(tf.errors.OpError):
                failed.close()

    def settings(self, name: str, config: TrainingConfig) -> None:
        """Write every setting to TensorBoard's table of hyperparameters."""
        values = {
            key: value if isinstance(value, int | float | str) else str(value)
            for key, value in dataclasses.asdict(config).items()
        }
        with self._log():
            hparams.hparams(values, trial_id=name)

    def row(self, row: EpochResult) -> None:
        """Write all numbers of an epoch in one compiled call; one by one they would take 1% of the run time."""
        fields = [field for field in dataclasses.fields(row) if "group" in field.metadata]
        if self._write is None:

            def write(epoch: tf.Tensor, values: tf.Tensor) -> None:
                for i, field in enumerate(fields):
                    group = field.metadata["group"]  # hp_passes of group hp is hp/passes
                    tf.summary.scalar(f"{group}/{field.name.removeprefix(group + '_')}", values[i], step=epoch)

            signature = tf.TensorSpec((), tf.int64), tf.TensorSpec((len(fields),), tf.float32)
            self._write = tf.function(write, input_signature=signature, autograph=False)
        values = [float(getattr(row, field.name)) for field in fields]
        with self._log():
            self._write(tf.constant(row.epoch, tf.int64), tf.constant(values, tf.float32))

    def scores(self, group: str, summaries: dict[str, dict[str, object]], epoch: int) -> None:
        """Write the mean scores of an evaluation, kind → `Evaluation.summary`."""
        with self._log():
            for kind, summary in summaries.items():
                tf.summary.scalar(f"{group}/{kind}", summary["mean"], step=epoch)

    def figure(self, png: Path, epoch: int) -> None:
        """Write the five panels from the PNG file in which they were saved."""
        with self._log():
            tf.summary.image("figure", imageio.imread(png)[None], step=epoch)

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
        with self._log():
            tf.summary.write("film", tf.constant([str(width), str(height), content.getvalue()]), epoch, metadata=kind)
