"""The newest transitions, for methods that learn from them many times, and minibatches that were drawn of them.

Transitions of numbers are rows of float32. Images are large: `ImageReplayBuffer` stores each observation once.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.envs.image_rows import ImagePart
from common.errors import UserError
from common.records import Transitions
from common.state import check_array


def memory() -> float:
    """GiB of this machine's memory; infinity where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (AttributeError, ValueError, OSError):
        return math.inf


class ReplayBuffer:
    """A ring of transitions, each packed into one row, so that any number of minibatches is one gather.

    Args:
        capacity: number of transitions that are kept.
        observation_size, action_size: S and A.

    Attributes:
        observation_size: S.
        row_size: W = 2·S + A + 2, numbers of a row.
        size: transitions that are there.

    Raises:
        UserError: it would take more than half of the memory. A checkpoint holds it, too, and takes the other half.
    """

    row_type: type = np.float32
    """Of the numbers of packed rows."""

    def __init__(self, capacity: int, observation_size: int, action_size: int) -> None:
        self.capacity, self.observation_size = capacity, observation_size
        self._cuts = np.cumsum([observation_size, action_size, 1, 1])
        self.row_size = int(self._cuts[-1]) + observation_size
        self._position = 0  # of the next row
        self.size = 0
        try:
            if self.gigabytes > memory() / 2:  # NumPy takes memory only as it is written
                raise MemoryError
            self._allocate()
        except MemoryError:
            fitting = int(0.45 * min(memory(), self.gigabytes) * 2**30 / self.bytes_each)
            fitting -= fitting % 10 ** max(0, len(str(fitting)) - 2)  # two digits
            raise UserError(
                f"there is not enough memory for a replay buffer of {self.gigabytes:,.1f} GiB, and as much again for "
                f"checkpoints: use --replay-size {fitting} or less"
            ) from None

    def _allocate(self) -> None:
        self._rows = np.zeros((self.capacity, self.row_size), np.float32)  # [capacity, W]

    @property
    def bytes_each(self) -> int:
        """Bytes that a transition takes."""
        return 4 * self.row_size

    @property
    def gigabytes(self) -> float:
        """GiB that all transitions take."""
        return self.capacity * self.bytes_each / 2**30

    def stored(self, observations: np.ndarray) -> np.ndarray:
        """What transitions hold of raw observations [K, N, S]: these themselves."""
        return observations

    def sizes(self) -> tuple[float, float]:
        """Mean absolute values of the observations' numbers and of the rewards."""
        observations, _, rewards, *_ = np.split(self._rows[: self.size], self._cuts, axis=1)
        return float(np.abs(observations).mean()), float(np.abs(rewards).mean())

    def add(self, transitions: Transitions) -> None:
        """Append K transitions; once the buffer is full, they replace the oldest."""
        count = len(transitions.rewards)
        if count > self.capacity:
            transitions = Transitions(*(column[-self.capacity :] for column in transitions))
            count = self.capacity
        rows = _packed(transitions)  # [K, W]
        first = min(count, self.capacity - self._position)
        self._rows[self._position : self._position + first] = rows[:first]
        self._rows[: count - first] = rows[first:]
        self._position = (self._position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, updates: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        """Packed minibatches drawn with replacement, [updates, batch_size, W] float32; see `unpack`."""
        return np.take(self._rows, rng.integers(self.size, size=(updates, batch_size)), axis=0)

    def unpack(self, rows: np.ndarray) -> Transitions:
        """The columns of packed rows [..., W], arrays or tensors."""
        first, second, third, fourth = (int(cut) for cut in self._cuts)
        return Transitions(
            observations=rows[..., :first],
            actions=rows[..., first:second],
            rewards=rows[..., second],
            terminated=rows[..., third],
            next_observations=rows[..., fourth:],
        )

    def state(self) -> dict[str, np.ndarray]:
        """The stored rows [size, W], and the position of the next one."""
        return {"rows": self._rows[: self.size].copy(), "position": np.array(self._position, np.int64)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError if it does not fit a buffer of this capacity."""
        size, position = len(state["rows"]), int(state["position"])
        self._check_position(size, position)
        self._rows[:size] = state["rows"]
        self.size, self._position = size, position

    def _check_position(self, size: int, position: int) -> None:
        if not 0 <= position < self.capacity or (size < self.capacity and position != size):
            raise ValueError(f"the next of {size} transitions cannot be number {position}")


def _packed(transitions: Transitions) -> np.ndarray:
    """The columns of K transitions side by side, [K, W]."""
    return np.concatenate(
        [
            transitions.observations,
            transitions.actions,
            transitions.rewards[:, None],
            transitions.terminated[:, None],
            transitions.next_observations,
        ],
        axis=1,
        dtype=np.float32,
    )


class PackedObservations:
    """Observations as rows of bytes: an image of uint8 has one for each number, all others are float32.

    Args:
        size: S, numbers of an observation.
        images: those among them.

    Attributes:
        size: D, bytes of an observation.
        parts: slices of the S numbers; with each the number that 255 of an image of uint8 is in it, 0 for others.
    """

    def __init__(self, size: int, images: Sequence[ImagePart]) -> None:
        parts, end = [], 0
        for image in images:
            if image.is_uint8:
                start, before = image.start, end
                end = start + math.prod(image.shape)
                parts += [(slice(before, start), 0), (slice(start, end), 1 if image.is_scaled else 255)]
        self.parts = [(part, most) for part, most in (*parts, (slice(end, size), 0)) if part.start < part.stop]
        self._ends = np.cumsum([(part.stop - part.start) * (1 if most else 4) for part, most in self.parts]).tolist()
        self.size = self._ends[-1]

    def packed(self, observations: np.ndarray) -> np.ndarray:
        """Observations [K, N, S], or images [K, N, H, W, C] → [K, N, D] uint8."""
        rows, packed = observations.reshape(*observations.shape[:2], -1), []  # [K, N, S]
        for part, most in self.parts:
            numbers = np.ascontiguousarray(rows[..., part])
            if most == 1:
                numbers = np.rint(255 * numbers).astype(np.uint8)
            packed.append(numbers.view(np.uint8))
        return np.concatenate(packed, axis=-1)

    def cut(self, packed: Any) -> list[tuple[Any, int]]:
        """Packed observations [..., D], an array or a tensor → the bytes of each part, and its number of 255."""
        starts = 0, *self._ends
        return [(packed[..., a:b], most) for a, b, (_, most) in zip(starts, self._ends, self.parts)]


class ImageReplayBuffer(ReplayBuffer):
    """A replay buffer that stores each observation once, in one slot of a ring, images of uint8 as such.

    A transition is kept with the observation that it begins with. It holds the numbers of that slot and of the slot
    of its last observation. No transition begins with the final observation of an episode.

    Args:
        capacity: number of observations that are kept.
        layout: of an observation.
        action_size: A.
        waiting: observations that may be stored before the transition that begins with the first of them is added.

    Attributes:
        row_size: bytes of a packed row: of two observations, and of A + 2 numbers between them.
    """

    row_type = np.uint8

    def __init__(self, capacity: int, layout: PackedObservations, action_size: int, waiting: int) -> None:
        self._layout, self._filled = layout, 0
        super().__init__(min(capacity + waiting, 2**24), 1, action_size)  # float32 holds these numbers of slots
        self.row_size = 2 * layout.size + 4 * (action_size + 2)

    def _allocate(self) -> None:
        super()._allocate()
        self._seen = np.zeros((self.capacity, self._layout.size), np.uint8)  # [slots, D]
        self._begins = np.zeros(self.capacity, bool)  # [slots], whether a transition begins there

    @property
    def bytes_each(self) -> int:
        """Bytes that an observation takes, and the transition that begins with it."""
        return self._layout.size + 4 * (int(self._cuts[-1]) + 1) + 1

    def stored(self, observations: np.ndarray) -> np.ndarray:
        """Store raw observations [K, N, ...] of consecutive steps; the numbers of their slots, [K, N, 1] float32.

        The first ones are usually the last ones of the call before, and stored already. They are others where
        environments were built again.
        """
        rows = self._layout.packed(observations)  # [K, N, D]
        slots = self._position + np.arange(rows.shape[0] * rows.shape[1])  # [K · N]
        count = rows.shape[1]
        newest = (slots[:count] - count) % self.capacity  # [N]
        if self._filled and np.array_equal(rows[0], self._seen[newest]):
            slots -= count
        new = slots[slots >= self._position] % self.capacity
        self._begins[new] = False
        self._filled = min(self._filled + len(new), self.capacity)
        self._position = int(slots[-1] + 1) % self.capacity
        slots %= self.capacity
        self._seen[slots] = rows.reshape(len(slots), -1)
        return slots.reshape(*rows.shape[:2], 1).astype(np.float32)

    def add(self, transitions: Transitions) -> None:
        """Add K transitions, whose observations are what `stored` returned, [K, 1]."""
        slots = transitions.observations[:, 0].astype(int)
        self._rows[slots] = _packed(transitions)
        self._begins[slots] = True
        self.size = int(np.count_nonzero(self._begins))

    def sizes(self) -> tuple[float, float]:
        """See `ReplayBuffer.sizes`; images of uint8 are left out, and observations after the first thousand."""
        parts = self._layout.cut(self._seen[: min(self._filled, 1000)])
        means = [np.abs(np.ascontiguousarray(part).view(np.float32)).mean() for part, most in parts if not most]
        return max(map(float, means), default=0.0), float(np.abs(self.unpack(self._rows[self._begins]).rewards).mean())

    def sample(self, updates: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        """Packed minibatches drawn with replacement, [updates, batch_size, `row_size`] uint8."""
        begins, size = np.flatnonzero(self._begins), self._layout.size
        drawn = self._rows[begins[rng.integers(len(begins), size=(updates, batch_size))]]  # [K, B, A + 4]
        packed = np.empty((updates, batch_size, self.row_size), np.uint8)
        packed[..., size:-size] = np.ascontiguousarray(drawn[..., 1:-1]).view(np.uint8)
        for minibatch, rows in zip(packed, drawn):
            minibatch[:, :size] = self._seen[rows[:, 0].astype(int)]
            minibatch[:, -size:] = self._seen[rows[:, -1].astype(int)]
        return packed

    def state(self) -> dict[str, np.ndarray]:
        """What is stored, and the next slot; views, since copies might not fit the memory."""
        stored = {"observations": self._seen, "rows": self._rows, "begins": self._begins}
        kept = {name: array[: self._filled] for name, array in stored.items()}
        return kept | {"position": np.array(self._position, np.int64)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError if it does not fit this buffer."""
        filled, slots = len(state["begins"]), state["rows"][:, [0, -1]]
        self._check_position(filled, int(state["position"]))
        if filled and not 0 <= slots.min() <= slots.max() < filled:
            raise ValueError("transitions cannot hold observations that are not stored")
        self._seen[:filled], self._rows[:filled] = state["observations"], state["rows"]
        self._begins[:filled] = state["begins"]
        self._filled, self._position = filled, int(state["position"])
        self.size = int(np.count_nonzero(self._begins))


class WaitingMinibatches:
    """Minibatches of updates that wait until their cycle of `policy_delay` updates is complete, and their noise.

    Args:
        batch_size, row_size, noise_size: B, W and X: transitions of a minibatch, numbers of a packed transition, and
            standard normal numbers that an update takes for each.
        row_type: of the numbers of a packed transition.
    """

    def __init__(self, batch_size: int, row_size: int, noise_size: int, row_type: type = np.float32) -> None:
        self._rows = np.empty((0, batch_size, row_size), row_type)
        self._noise = np.empty((0, batch_size, noise_size), np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: np.ndarray, noise: np.ndarray) -> None:
        """Append K minibatches [K, B, W] and their noise [K, B, X]."""
        if len(self):
            rows, noise = np.concatenate((self._rows, rows)), np.concatenate((self._noise, noise))
        self._rows, self._noise = rows, noise

    def take(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `count` minibatches [count, B, W] and their noise [count, B, X], which wait no more."""
        taken = self._rows[:count], self._noise[:count]
        self._rows, self._noise = self._rows[count:], self._noise[count:]
        return taken

    def clear(self) -> None:
        """Drop all of them."""
        self.take(len(self))

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        """The minibatches [K, B, W] and their noise [K, B, X]; nothing where none waits."""
        return {"rows": self._rows, "noise": self._noise} if len(self) else {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError for minibatches of other sizes."""
        self.take(len(self))
        if state:
            count = len(state["rows"])
            for name, own in (("rows", self._rows), ("noise", self._noise)):
                check_array(name, state[name], (count, *own.shape[1:]), own.dtype)
            self.add(state["rows"], state["noise"])
