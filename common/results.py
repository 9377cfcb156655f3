"""The results of an epoch: one row of results.csv, of TensorBoard and of the console."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from common.config import TrainingConfig, info_column


def column(group: str, timing: bool = False) -> Any:
    """A column of the table, in a section of TensorBoard; one of `timing` differs between runs otherwise equal."""
    return field(metadata={"group": group, "timing": timing})


@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """The columns that every method has. Means over episodes are NaN in an epoch in which no episode finished."""

    epoch: int
    steps: int  # environment steps since training began, autoreset steps included
    loss_actor: float = column("losses")
    loss_critic: float = column("losses")
    metric: float = column("reward")  # decides which parameters are best; NaN in an epoch without a validation
    total_reward: float = column("reward")  # of the epoch, shaped
    total_reward_orig: float = column("reward")
    avg_reward: float = column("reward")  # per finished episode, shaped
    avg_reward_orig: float = column("reward")
    avg_steps: float = column("episodes")  # per finished episode
    max_steps: float = column("episodes")  # of the longest of them
    episodes: int = column("episodes")  # finished in this epoch
    score: float = column("reward")  # mean unshaped reward of the last `score_window` episodes; NaN before so many
    score_steps: float = column("episodes")  # mean steps of the same episodes
    total_episodes: int = column("episodes")  # finished since training began
    validation_steps: int = column("episodes")  # environment steps of this epoch's validation, not among `steps`
    is_best: bool
    seconds: float = column("time", timing=True)  # of all below
    seconds_environment: float = column("time", timing=True)
    seconds_policy: float = column("time", timing=True)
    seconds_update: float = column("time", timing=True)
    seconds_validation: float = column("time", timing=True)
    steps_per_second: float = column("time", timing=True)  # of training: without validation

    SHOWN: ClassVar[dict[str, tuple[str, str]]] = {}
    """Columns of one method that the console shows: heading → column, format; an empty one is that of scores."""


def with_info(kind: type[EpochResult], log_info: Sequence[str]) -> type[EpochResult]:
    """A method's columns, and one for each number of info that is logged."""
    if not log_info:
        return kind
    columns = [(info_column(name), float, column("info")) for name in log_info]
    return dataclasses.make_dataclass(kind.__name__, columns, bases=(kind,), frozen=True, kw_only=True)


TIMING_COLUMNS = [column.name for column in dataclasses.fields(EpochResult) if column.metadata.get("timing")]


def columns_of(kind: type[EpochResult]) -> list[str]:
    """The headings of the table, in order."""
    return [column.name for column in dataclasses.fields(kind)]


def to_columns(rows: Sequence[EpochResult], kind: type[EpochResult]) -> dict[str, np.ndarray]:
    """Every column by its name, [epochs] float64."""
    return {name: np.array([getattr(row, name) for row in rows], np.float64) for name in columns_of(kind)}


def from_columns(columns: Mapping[str, np.ndarray], kind: type[EpochResult]) -> list[EpochResult]:
    """The rows of `to_columns`' columns. Columns missing in an older version's table are NaN, 0 or False.

    Raises ValueError if the seconds of an epoch are NaN or infinity.
    """
    if not np.isfinite(columns["seconds"]).all():
        raise ValueError("the seconds of an epoch are NaN or infinity")
    fields: Any = dataclasses.fields(kind)  # of the types int, float and bool, which are called below
    epochs = len(columns["epoch"])
    missing = {field.name: np.full(epochs, np.nan if field.type is float else 0) for field in fields}
    table = zip(*({**missing, **columns}[field.name] for field in fields))
    return [kind(**{field.name: field.type(cell) for field, cell in zip(fields, row)}) for row in table]


def results_dictionary(
    name: str, description: str, rows: Sequence[EpochResult], best_metric: float, config: TrainingConfig
) -> dict[str, object]:
    """The results of all epochs so far, under the keys of the 2021 study, and the settings."""
    seconds = sum(row.seconds for row in rows)

    def column(name: str) -> list[float]:
        return [getattr(row, name) for row in rows]

    return {
        "name": name,
        "description": description,
        "loss_actor_epochs": column("loss_actor"),
        "loss_critic_epochs": column("loss_critic"),
        "epoch_metrics_epochs": column("metric"),
        "total_reward_epochs": column("total_reward"),
        "total_reward_orig_epochs": column("total_reward_orig"),
        "avg_steps_epochs": column("avg_steps"),
        "avg_reward_epochs": column("avg_reward"),
        "avg_reward_orig_epochs": column("avg_reward_orig"),
        "max_epoch_metrics": best_metric,
        "processing_time_total": seconds,
        "processing_time_total_string": format_seconds(seconds),
        **dataclasses.asdict(config),
    }


def is_true(value: object) -> bool:
    """Whether a function of the user's returned True, Python's or NumPy's."""
    return isinstance(value, bool | np.bool_) and bool(value)


def score_text(score: float) -> str:
    """One decimal, as in '307.1'; below 10 three significant digits, as in '0.955', unless one decimal is exact."""
    text = f"{score:z.1f}"
    return f"{score:#.3g}" if abs(score) < 10 and float(text) != score else text


def format_seconds(seconds: float) -> str:
    """Hours, minutes and seconds: 3725.4 → '1:02:05'."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
