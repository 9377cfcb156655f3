"""The replay buffer of images against the observations that it was given."""

import copy

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from common.envs.image_rows import ImagePart
from common.envs.supported_spaces import images_of
from common.errors import UserError
from common.records import Transitions
from companions import replay
from companions.image_replay import ImageReplayBuffer, PackedObservations
from companions.n_step import NStepReturns
from companions.replay import ReplayBuffer

ALONE = ImagePart(0, (2, 3, 1), False, 0.0, 255.0, is_uint8=True, scaled_by_network=True)
MIXED = Dict(
    camera=Box(0, 255, (12, 12), np.uint8), depth=Box(0.0, 1.0, (10, 10, 1)), speed=Box(-9.0, 9.0, (2,)),
    wheel=Box(0, 255, (3, 12, 12), np.uint8),
)  # fmt: skip
PARTS = {
    "alone": (PackedObservations(6, [ALONE]), 6),
    "mixed": (PackedObservations(144 + 100 + 2 + 432, images_of(MIXED)), 144 + 4 * 100 + 4 * 2 + 432),
}


def unpacked(layout: PackedObservations, packed: np.ndarray) -> np.ndarray:
    parts = [
        part.astype(np.float32) * np.float32(most / 255) if most else np.ascontiguousarray(part).view(np.float32)
        for part, most in layout.cut(packed)
    ]
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize("name", PARTS)
def test_an_image_of_uint8_takes_a_byte_for_each_number_and_all_others_four(name):
    layout, size = PARTS[name]
    assert layout.size == size
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 2, sum(part.stop - part.start for part, _ in layout.parts))).astype(np.float32)
    for part, most in layout.parts:
        if most:
            rows[..., part] = rng.integers(256, size=rows[..., part].shape) * np.float32(most / 255)
    packed = layout.packed(rows.astype(np.uint8).reshape(3, 2, 2, 3, 1) if name == "alone" else rows)
    assert (packed.shape, packed.dtype) == ((3, 2, size), np.uint8)
    np.testing.assert_array_equal(unpacked(layout, packed), rows)


class Played:
    """Episodes of known lengths in two environments, whose images are numbers that count up, and their transitions."""

    def __init__(self, replay: ImageReplayBuffer, n_step: int = 1) -> None:
        self.replay, self.images = replay, np.arange(2).repeat(6).reshape(2, 2, 3, 1).astype(np.uint8)  # [N, H, W, C]
        self.ended = np.zeros(2, bool)
        self.steps, self.expected = np.zeros(2, int), []
        self.n_step = NStepReturns(n_step, 0.5, 2, (1, 1))

    def play(self, rows: int) -> None:
        seen, valid, ended = [self.images], [], []
        for _ in range(rows):
            valid.append(~self.ended)
            self.steps = np.where(self.ended, 0, self.steps + 1)
            self.ended = self.steps == (3, 5)
            self.images = (self.images + 2).astype(np.uint8)
            seen.append(self.images)
            ended.append(self.ended)
        kept, valid, ended = self.replay.stored(np.stack(seen)), np.stack(valid), np.stack(ended)
        actions = np.stack(seen)[:-1, :, 0, 0].astype(np.float32)  # [K, N, 1]
        columns = Transitions(kept[:-1], actions, actions[..., 0], ended.astype(float), kept[1:])
        self.replay.add(self.n_step(columns, valid, ended, np.zeros_like(valid)))


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("capacity", [12, 1000])
def test_sampled_transitions_are_those_of_the_episodes(capacity, n_step):
    """Environment n shows the images n, n + 2, …; its episodes take 3 or 5 steps, and one more to begin again."""
    replay = ImageReplayBuffer(capacity, PARTS["alone"][0], 1, waiting=2 * (4 + n_step + 1))
    played = Played(replay, n_step)
    for rows in (1, 4, 2, 1, 1, 4, 3, 4):
        played.play(rows)
    rows = replay.sample(3, 200, np.random.default_rng(0)).reshape(600, -1)
    assert rows.shape[1] == replay.row_size == 6 + 4 * 3 + 6
    first, last = rows[:, 0].astype(int), rows[:, -1].astype(int)
    assert (rows[:, :6] == first[:, None]).all() and (rows[:, -6:] == last[:, None]).all()
    action, reward, terminated = np.ascontiguousarray(rows[:, 6:-6]).view(np.float32).T
    np.testing.assert_array_equal(action, first)
    step, period = first // 2, np.where(first % 2, 6, 4)
    left = period - 1 - step % period  # steps to the episode's end
    taken = np.minimum(n_step, left)
    assert left.min() == 1  # none begins with a final observation
    np.testing.assert_array_equal((last - first) // 2, taken)
    np.testing.assert_array_equal(terminated == 1, taken == left)
    np.testing.assert_array_equal(reward, [sum(0.5**i * (a + 2 * i) for i in range(m)) for a, m in zip(action, taken)])
    oldest = 0 if capacity == 1000 else 21 - replay.capacity // 2
    known = [2 * s + n for s in range(oldest, 21) for n, p in ((0, 4), (1, 6)) if s % p < p - 1 and s + n_step <= 20]
    assert {*known} <= {*first.tolist()}
    assert min(first) >= 2 * oldest and replay.size == len({*first.tolist()})


def test_environments_that_were_built_again_begin_with_observations_of_their_own():
    replay = ImageReplayBuffer(100, PARTS["alone"][0], 1, 8)
    played = Played(replay)
    played.play(2)
    played.images = np.full((2, 2, 3, 1), 100, np.uint8)
    played.steps[:] = 0
    played.play(1)
    rows = replay.sample(1, 100, np.random.default_rng(0))[0]
    assert {*zip(rows[:, 0].tolist(), rows[:, -1].tolist())} == {(0, 2), (1, 3), (2, 4), (3, 5), (100, 102)}


@pytest.mark.parametrize("played_before", [1, 8])
def test_it_goes_on_where_it_was(played_before):
    one, other = (ImageReplayBuffer(20, PARTS["alone"][0], 1, 8) for _ in range(2))
    played = Played(one)
    for _ in range(played_before):
        played.play(3)
    other.load_state({name: array.copy() for name, array in one.state().items()})
    goes_on = copy.copy(played)
    goes_on.replay = other
    played.play(3), goes_on.play(3)
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, other.state()[name])
    draws = [buffer.sample(5, 5, np.random.default_rng(2)) for buffer in (one, other)]
    np.testing.assert_array_equal(*draws)


def test_an_observation_takes_the_memory_of_one_image():
    layout = PackedObservations(84 * 84 * 4, [ImagePart(0, (84, 84, 4), False, 0.0, 255.0, is_uint8=True)])
    image = 84 * 84 * 4
    held = ImageReplayBuffer(1000, layout, 3, 0)
    arrays = held._seen, held._begins, held._rows  # noqa: SLF001
    taken = sum(array.nbytes for array in arrays)
    assert held.gigabytes == taken / 2**30 and 1000 * image < taken < 1.01 * 1000 * image


@pytest.mark.parametrize("kind", ["numbers", "images"])
def test_what_does_not_fit_is_refused_and_what_the_refusal_names_fits(kind, monkeypatch):
    monkeypatch.setattr(replay, "memory", lambda: 16.0)
    layout = PackedObservations(96 * 96 * 3, [ImagePart(0, (96, 96, 3), False, 0.0, 255.0, is_uint8=True)])
    make = {
        "numbers": lambda size: ReplayBuffer(size, 96 * 96 * 3, 3),
        "images": lambda size: ImageReplayBuffer(size, layout, 3, 8),
    }[kind]
    with pytest.raises(UserError, match=r"not enough memory for a replay buffer of [\d.]+ GiB, ") as refusal:
        make(1_000_000)
    fitting = int(str(refusal.value).split("--replay-size ")[1].split()[0])
    assert 6 < make(fitting).gigabytes < 8
