"""Names workers that take far longer than the others."""

import statistics
from collections import defaultdict
from collections.abc import Callable

TIMES, EPOCHS = 3.0, 3  # the median so many times over, in so many epochs in a row


class Stragglers:
    """Compares the seconds that workers spend on shards.

    Args:
        warn: called once with a line about each worker that is slow.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._seconds: dict[tuple[str, int], float] = defaultdict(float)  # of this epoch, by worker and shard
        self._slow: dict[str, int] = defaultdict(int)  # worker → in how many epochs in a row it was

    def note(self, worker: str, shard: int, seconds: float) -> None:
        """Seconds that a worker spent on a shard; several are added up."""
        self._seconds[worker, shard] += seconds

    def end_epoch(self) -> None:
        """Compare the epoch's seconds."""
        seconds: dict[str, list[float]] = defaultdict(list)  # of each shard
        for (worker, _), spent in self._seconds.items():
            seconds[worker].append(spent)
        self._seconds.clear()
        means = {worker: sum(own) / len(own) for worker, own in seconds.items()}
        usual = statistics.median_low(means.values()) if means else 0.0
        for worker, mean in means.items():
            self._slow[worker] = self._slow[worker] + 1 if mean > TIMES * usual else 0
            if self._slow[worker] == EPOCHS:
                self._warn(
                    f"warning: {worker} is slow: {mean:.1f} s for a shard's epoch, where {usual:.1f} s are usual; "
                    "look at what else its machine does"
                )
