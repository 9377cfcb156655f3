"""The replay buffer of observations with images: each is stored once, and images of uint8 as bytes."""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from common.envs.image_rows import ImagePart
from common.envs.spaces import is_image
from common.records import Transitions
from companions.config import OffPolicySettings
from companions.replay import ReplayBuffer, packed


class PackedObservations:
    """S = `size` numbers of an observation as bytes: an image of uint8 has one for each number, others are float32.

    Attributes:
        size: D, bytes of an observation.
        parts: slices of the S numbers; with each the number that 255 of an image of uint8 is in it, 0 for others.
    """

    def __init__(self, size: int, images: tuple[ImagePart, ...]) -> None:
        parts, end = [], 0
        for image in images:
            if image.is_uint8:
                start, before = image.start, end
                end = start + math.prod(image.shape)
                parts += [(slice(before, start), 0), (slice(start, end), 1 if image.is_scaled else 255)]
        self.images = images
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
        waiting: observations that may be stored before the transition that begins with the first of them is added.

    Attributes:
        row_size: bytes of a packed row: of two observations, and of A + 2 numbers between them.
    """

    row_type = np.uint8

    def __init__(self, capacity: int, layout: PackedObservations, action_size: int, waiting: int) -> None:
        slots = min(capacity + waiting, 2**24)  # whose numbers float32 holds
        super().__init__(slots, 1, action_size, (layout.size, np.uint8), (1, np.bool_))
        self._layout, self._filled = layout, 0
        self._seen, begins = self._others
        self._begins = begins[:, 0]  # [slots], whether a transition begins there
        self.row_size = 2 * layout.size + 4 * (action_size + 2)

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
        self._rows[slots] = packed(transitions)
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
        super().load_state(state)
        self._filled, slots = len(state["rows"]), state["rows"][:, [0, -1]]
        if self._filled and not 0 <= slots.min() <= slots.max() < self._filled:
            raise ValueError("transitions cannot hold observations that are not stored")
        self._seen[: self._filled], self._begins[: self._filled] = state["observations"], state["begins"]
        self.size = int(np.count_nonzero(self._begins))


def packed_observations(space: gymnasium.Space) -> PackedObservations | None:
    """How observations with images are stored; None for numbers alone."""
    shape: Any = space.shape
    images = getattr(space, "images", ())
    if is_image(space):
        images = (ImagePart(0, shape, False, 0.0, 255.0, is_uint8=True, scaled_by_network=True),)
    return PackedObservations(math.prod(shape), images) if images else None


def new_replay(config: OffPolicySettings, agent: Any) -> ReplayBuffer:
    """The replay buffer of an agent; UserError if there is not enough memory."""
    if agent.packed is None:
        return ReplayBuffer(config.replay_size, agent.observation_size, agent.action_size)
    waiting = config.train_every + (config.n_step + 2) * config.num_envs
    return ImageReplayBuffer(config.replay_size, agent.packed, agent.action_size, waiting)
