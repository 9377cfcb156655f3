"""Numbers of `info` that are logged (`--log-info`): what episodes report in their last step, an epoch at a time."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from common.config import info_column


def logged_numbers(info: Mapping[str, Any], names: Sequence[str]) -> tuple[float, ...]:
    """The numbers with these names; NaN for what is missing or is not a number."""
    return tuple(_number(info.get(name)) for name in names)


def _number(value: Any) -> float:
    try:
        return float(np.asarray(value, float).item())
    except (TypeError, ValueError):
        return float("nan")


class LoggedInfo:
    """Counts what finished episodes report, an epoch at a time.

    Args:
        names: K of them.
        warn: called with a line for each name that the first finished episodes lack.
    """

    def __init__(self, names: Sequence[str], warn: Callable[[str], None]) -> None:
        self._names, self._warn, self._unseen = names, warn, True
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the episodes of the epoch before."""
        self._reports = [np.empty((0, len(self._names)))]  # [E, K] each

    def add(self, reports: np.ndarray) -> None:
        """Count what E finished episodes report, [E, K]."""
        self._reports.append(reports)
        if self._unseen and len(reports):
            self._unseen = False
            for name in itertools.compress(self._names, np.isnan(reports).all(axis=0)):
                self._warn(
                    f"warning: the first finished episodes report no number {name!r} in info: its column "
                    f"{info_column(name)} has no values until one does; check --log-info"
                )

    def columns(self) -> dict[str, float]:
        """The mean of each number, over the episodes since `begin_epoch` that report it; NaN where none does."""
        reported = [column[~np.isnan(column)] for column in np.concatenate(self._reports).T]  # [≤ E] each
        means = (float(values.mean()) if len(values) else float("nan") for values in reported)
        return dict(zip(map(info_column, self._names), means))
