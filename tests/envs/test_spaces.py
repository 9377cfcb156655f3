"""From policy actions in [−1, 1] to the environment's Box, and which spaces are refused."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from common.envs.image_rows import ImagePart, RowWithImagesSpace
from common.envs.spaces import BoxMap, action_map, choices, is_image
from common.envs.supported_spaces import as_numbers_or_image, check_continuous, check_spaces, image_layout
from common.errors import UserError

fast = settings(max_examples=100, deadline=None, derandomize=True, database=None)
INF = np.inf


def box(low, high, dtype=np.float32) -> Box:
    return Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


LARGEST, REACH = np.finfo(np.float64).max, np.iinfo(np.int64)


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (box([-1, -1], [1, 1]), [[0.25, -0.5], [3, -3]], [[0.25, -0.5], [1, -1]]),
        (box([-2], [2]), [[-1], [0], [0.25], [1], [1.5], [-9]], [[-2], [0], [0.5], [2], [2], [-2]]),
        # [0, 10]: centre 5, scale 5: −1 → 0, 0 → 5, .5 → 7.5, 1 → 10
        (box([0], [10]), [[-1], [0], [0.5], [1], [2], [-2]], [[0], [5], [7.5], [10], [10], [0]]),
        # [−3, −1]: centre −2, scale 1: the scale of the identity, but not its centre
        (box([-3], [-1]), [[-1], [0], [1], [5]], [[-3], [-2], [-1], [-1]]),
        # [−1, 1] · [0, 4] · [−8, 2]: centres 0, 2, −3; scales 1, 2, 5
        (box([-1, 0, -8], [1, 4, 2]), [[0.5] * 3, [2] * 3, [-2] * 3], [[0.5, 3, -0.5], [1, 4, 2], [-1, 0, -8]]),
        # half-bounded dimensions are clipped to the bound they have and not scaled
        (
            box([-1, -INF], [INF, 3]),
            [[0.5, 0.5], [-1.5, 2.5], [7, -7], [7, 7]],
            [[0.5, 0.5], [-1, 2.5], [7, -7], [7, 3]],
        ),
        # and shifted where that bound would cut the policy's range: [10, ∞) → −1 is its 10; (−∞, −4] → 1 is its −4
        (
            box([0, 10, -INF], [INF, INF, -4]),
            [[-1, -1, 1], [0.5, 1, 0], [-3, -3, 3]],
            [[0, 10, -4], [1.5, 12, -5], [0, 10, -4]],
        ),
        (box([-LARGEST], [LARGEST], np.float64), [[0.5], [-40]], [[0.5], [-40]]),  # as good as unbounded
        (box([-INF], [INF]), [[0.5], [-40], [1000]], [[0.5], [-40], [1000]]),
        (box([-2, -INF], [4, INF]), [[0.5, 0.5], [9, 9]], [[2.5, 0.5], [4, 9]]),  # 1 + 3 · .5
        # integers take the nearest, and are clipped and not wrapped
        (box([0], [255], np.uint8), [[-1], [0.5], [1.5], [-1.5], [99]], [[0], [191], [255], [0], [255]]),
        (box([-2], [3], np.int64), [[-1], [0.15], [1], [7], [-7]], [[-2], [1], [3], [3], [-2]]),
        (box([REACH.min], [REACH.max], np.int64), [[0.4], [2.6], [-1e30]], [[0], [3], [-(2**53)]]),
        (box([0], [np.iinfo(np.uint32).max], np.uint32), [[-1], [2]], [[0], [3]]),
        (Box(0, 1, (2,), dtype=np.bool_), [[-0.6, 0.6], [0.2, -0.2]], [[False, True], [True, False]]),
    ],
    ids=str,
)
def test_actions_are_mapped_as_worked_by_hand(space, actions, expected):
    assert BoxMap(space)(np.array(actions, np.float32)).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-1, 1), (-2, 2), (0, 3)])
def test_actions_have_the_dtype_of_the_space(dtype, low, high):
    space = box([low], [high], dtype)
    for given_dtype in (np.float32, np.float64):
        actions = BoxMap(space)(np.zeros((3, 1), given_dtype))
        assert actions.dtype == dtype
        assert all(space.contains(action) for action in actions)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_actions_have_the_shape_of_the_space(shape):
    space = Box(-2, 2, shape, np.float32)
    size = int(np.prod(shape))
    flat = np.linspace(-1, 1, 4 * size, dtype=np.float32).reshape(4, size)
    actions = BoxMap(space)(flat)
    assert actions.shape == (4, *shape)
    np.testing.assert_allclose(actions.reshape(4, size), 2 * flat, rtol=1e-6)
    assert all(space.contains(np.asarray(action)) for action in actions)


BOUNDS = st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(2**-6, 1e3, width=32))


@fast
@given(st.lists(st.tuples(BOUNDS, st.floats(-3, 3, width=32)), min_size=1, max_size=5))
def test_mapped_actions_always_lie_in_the_space_and_are_linear_inside(dimensions):
    low = np.array([bounds[0] for bounds, _ in dimensions], np.float32)
    high = low + np.array([bounds[1] for bounds, _ in dimensions], np.float32)
    policy = np.array([action for _, action in dimensions], np.float32)
    space = Box(low, high, dtype=np.float32)
    action = BoxMap(space)(policy[None])[0]
    assert space.contains(action)
    share = (np.clip(policy.astype(np.float64), -1, 1) + 1) / 2
    np.testing.assert_allclose(action, low + share * (high.astype(np.float64) - low), rtol=1e-5, atol=1e-4)


def test_the_policys_actions_are_not_changed():
    for high in (1, 2):
        actions = np.array([[3.0], [-0.5]], np.float32)
        BoxMap(box([-high], [high]))(actions)
        assert actions.tolist() == [[3], [-0.5]]


# -- check_spaces --


@pytest.mark.parametrize("shape", [(84, 84, 4), (96, 96, 3), (12, 12, 1)])
def test_images_are_accepted(shape):
    images, actions = Box(0, 255, shape, np.uint8), Box(-1, 1, (2,))
    assert is_image(images)
    check_spaces("Some-v0", images, actions)
    check_continuous("Some-v0", images, actions)


@pytest.mark.parametrize(
    "shape, actions, wrong",
    [
        ((20, 20, 13), Box(-1, 1, (2,)), "has an image in its observations, of shape .* 12 channels at most"),
        ((9, 12, 3), Box(-1, 1, (2,)), "has an image in its observations, of shape .* 10 × 10 pixels"),
        ((12, 12, 1), Discrete(3), "has actions of type Discrete; .*PPOAgentTrainer"),
    ],
)
def test_what_the_off_policy_methods_cannot_learn_from_is_refused_in_one_line(shape, actions, wrong):
    with pytest.raises(UserError, match=f"Some-v0 {wrong}") as refusal:
        check_continuous("Some-v0", Box(0, 255, shape, np.uint8), actions)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "space", [Box(0, 255, (128,), np.uint8), Box(0, 1, (8, 8, 3)), Discrete(3), MultiBinary((2, 2, 2))]
)
def test_other_spaces_are_no_images(space):
    assert not is_image(space)


NUMBERS = Discrete(3), Box(-1, 1, (2, 3)), Box(0, 255, (128,), np.uint8), Box(-1, 1, ()), Box(0, 9, (2,), np.int64)


@pytest.mark.parametrize(
    ("low", "high", "row", "expected"),
    [
        (-1.0, 3.0, [-1, 0, 1, 3], [0, 0.25, 0.5, 1]),
        (0.0, 255.0, [0, 51, 102, 255], [0, 0.2, 0.4, 1]),
        (-INF, INF, [-1, 0, 1, 3], [-1, 0, 1, 3]),
        (2.0, 2.0, [2, 2, 2, 2], [2, 2, 2, 2]),
    ],
)
def test_images_with_bounds_are_scaled_in_their_row(low, high, row, expected):
    image = ImagePart(0, (2, 2, 1), False, low, high)
    space = RowWithImagesSpace(Box(-INF, INF, (5,)), (image,))
    np.testing.assert_allclose(space.scaled(np.array([*row, 9.0])), [*expected, 9.0])


def image(*shape: int) -> Box:
    return Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    "space, layout",
    [
        (image(84, 84, 4), "HWC"),
        (image(4, 84, 84), "CHW"),
        (image(1, 12, 12), "CHW"),
        (image(12, 12, 1), "HWC"),
        (image(84, 96), "HW"),
        (Dict(camera=image(12, 12, 3)), "HWC"),
        (Tuple([Dict(camera=image(3, 12, 12))]), "CHW"),
        (Box(0, 1, (6, 7), np.uint8), None),  # a board, and no picture
        (Box(0, 2, (6, 7, 2), np.uint8), None),
        (Box(0, 1, (8, 8, 3)), None),
        *((numbers, None) for numbers in NUMBERS),
    ],
    ids=str,
)
def test_how_the_axes_of_images_lie(space, layout):
    assert image_layout(space) == layout
    check_spaces("Some-v0", space, Box(-1, 1, (2,)))


@pytest.mark.parametrize(
    "space, named",
    [
        (image(4, 84, 84, 3), "an image in its observations, of shape (4, 84, 84, 3)"),
        (Box(0, 1, (84, 84, 13)), "an image in its observations, of shape (84, 84, 13)"),
        (Dict(camera=image(9, 12, 3), speed=Box(-1, 1, (2,))), "an image in its observations, at ['camera']"),
        (Tuple([Discrete(3), Dict(eye=image(64, 9))]), "an image in its observations, at [1]['eye']"),
    ],
    ids=str,
)
def test_images_that_no_network_would_see_as_such_are_refused(space, named):
    with pytest.raises(UserError, match=re.escape(f"Some-v0 has {named}") + ".*wrappers") as refusal:
        check_spaces("Some-v0", space, Box(-1, 1, (2,)))
    assert "\n" not in str(refusal.value)


def test_images_and_numbers_become_one_row_in_which_each_image_is_found_again():
    space = Dict(
        camera=image(3, 12, 14), depth=Box(0.0, 4.0, (11, 10)), eyes=Tuple([image(10, 12, 1), Box(0, 2, (13, 10, 2))]),
        number=Discrete(3), speed=Box(-1, 1, (2,)),
    )  # fmt: skip
    native = Shows(space)
    env = as_numbers_or_image(native)
    check_spaces("Some-v0", space, native.action_space)
    row, _ = env.reset(seed=0)
    assert env.observation_space.contains(row) and row.dtype == np.float32
    found = [row[part.columns].reshape(part.shape) for part in env.observation_space.images]
    seen = native.seen
    expected = [np.moveaxis(seen["camera"], 0, -1) / 255, seen["eyes"][0] / 255, seen["eyes"][1] / 2]
    for one, other in zip(found, expected, strict=True):  # a depth map without channels is no picture unless uint8
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert row[-2:].tolist() == seen["speed"].tolist()


class Shows(gymnasium.Env):
    """Shows samples of a space."""

    action_space = Box(-1, 1, (1,))

    def __init__(self, observation_space):
        self.observation_space = observation_space

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.seen = self.observation_space.sample()
        return self.seen, {}


@pytest.mark.parametrize("shape", [(3, 5, 6), (5, 6), (5, 6, 3)])
def test_pixels_keep_their_places_whatever_the_layout(shape):
    native = Shows(image(*shape))
    env = as_numbers_or_image(native)
    height, width, channels = env.observation_space.shape
    assert (height, width) == (5, 6) and is_image(env.observation_space)
    seen, original = env.reset(seed=0)[0], native.seen
    for row, column, channel in np.ndindex(height, width, channels):
        place = {(3, 5, 6): (channel, row, column), (5, 6): (row, column)}.get(shape, (row, column, channel))
        assert seen[row, column, channel] == original[place]


@pytest.mark.parametrize("space", [Box(-1, 1, (0,)), Discrete(10**6), Dict()], ids=str)
def test_no_number_and_too_many_are_refused(space):
    with pytest.raises(UserError, match=r"Some-v0 has observations of [\d,]+ numbers.*expected 1 to 100,000"):
        check_spaces("Some-v0", space, Box(-1, 1, (2,)))


def test_actions_without_a_number_are_refused():
    with pytest.raises(UserError, match=r"Some-v0 has actions of shape \(0,\)"):
        check_spaces("Some-v0", Box(-1, 1, (2,)), Box(-1, 1, (0,)))


@pytest.mark.parametrize("space", [Discrete(4), MultiDiscrete([2, 3]), MultiBinary(3)], ids=str)
def test_discrete_spaces_are_accepted(space):
    check_spaces("Some-v0", space, Box(-1, 1, (2,)))
    check_spaces("Some-v0", Box(-1, 1, (2,)), space)


@pytest.mark.parametrize("space", [Text(3), Sequence(Discrete(2)), Graph(Box(-1, 1, (2,)), None)], ids=str)
def test_other_spaces_are_refused_by_name(space):
    kind = type(space).__name__
    with pytest.raises(UserError, match=f"Some-v0 has observations of type {kind}; supported are Box"):
        check_spaces("Some-v0", space, Box(-1, 1, (2,)))
    with pytest.raises(UserError, match=f"Some-v0 has actions of type {kind}; supported are Box"):
        check_spaces("Some-v0", Box(-1, 1, (2,)), space)
    with pytest.raises(UserError, match="Some-v0 has actions of type Dict; supported are Box"):
        check_spaces("Some-v0", Box(-1, 1, (2,)), Dict(a=Box(-1, 1, (2,))))


# -- discrete actions --


def test_discrete_actions_worked_by_hand():
    discrete = action_map(Discrete(3, start=5))
    assert (discrete.size, discrete.noise_size) == (1, 3)
    assert discrete(np.array([[0.0], [2.0]], np.float32)).tolist() == [5, 7]
    several = action_map(MultiDiscrete([3, 2], start=[1, -1]))
    assert (several.size, several.noise_size) == (2, 5)
    assert several(np.array([[2.0, 0.0]], np.float32)).tolist() == [[3, -1]]
    bits = action_map(MultiBinary((2, 2)))
    assert (bits.size, bits.noise_size) == (4, 8)
    assert bits(np.array([[1, 0, 0, 1]], np.float32)).tolist() == [[[1, 0], [0, 1]]]


@pytest.mark.parametrize("space", [Discrete(3, start=-1), MultiDiscrete([[2, 3], [4, 5]]), MultiBinary(3)], ids=str)
def test_every_choice_is_an_action_of_the_space(space):
    mapped, counts = action_map(space), choices(space)
    for values in np.ndindex(*counts):
        [action] = mapped(np.array([values], np.float32))
        assert space.contains(action)
