"""Mirrors that are known are true: a mirrored state with a mirrored action leads to the mirrored next state."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete

from common.envs.environment import find_environment
from common.envs.known_mirrors import KNOWN
from common.envs.mirror_settings import mirror_of
from common.envs.mirrors import Entries, Mirror
from common.envs.vector_env import make_vector_env
from common.errors import UserError
from ppo.config import PPOConfig

IDS = {  # and the largest difference that rounding makes
    "Acrobot-v1": 1e-5,
    "BipedalWalker-v3": 0.02,
    "BipedalWalkerHardcore-v3": 0.02,
    "CartPole-v1": 1e-5,
    "LunarLander-v3": 1e-3,
    "LunarLanderContinuous-v3": 1e-3,
    "Pendulum-v1": 1e-5,
    "Ant-v5": 1e-5,
    "InvertedDoublePendulum-v5": 1e-5,
    "InvertedPendulum-v5": 1e-5,
    "Reacher-v5": 1e-5,
    "Swimmer-v5": 1e-5,
    "Walker2d-v5": 1e-5,
}
LEANS = -0.00333333  # what an inverted pendulum's mirror adds to its angle
MUJOCO = {  # positions and velocities of the joints, in the mirror
    "Ant-v5": (
        Entries((1, -2, 3, 4, -5, 6, -7, -14, 15, -12, 13, -10, 11, -8, 9)),
        Entries((1, -2, 3, -4, 5, -6, -13, 14, -11, 12, -9, 10, -7, 8)),
    ),
    "InvertedDoublePendulum-v5": (Entries((-1, -2, -3)), Entries((-1, -2, -3))),
    "InvertedPendulum-v5": (Entries((-1, -2), (0.0, LEANS)), Entries((-1, -2))),
    "Reacher-v5": (Entries((-1, -2, 3, -4)), Entries((-1, -2, 3, -4))),
    "Swimmer-v5": (Entries((1, -2, -3, -4, -5)), Entries((1, -2, -3, -4, -5))),
    "Walker2d-v5": (Entries((1, 2, 3, 7, 8, 9, 4, 5, 6)), Entries((1, 2, 3, 7, 8, 9, 4, 5, 6))),
}
SWAPPED = ((1, 2, 3, 4), (3, 4, 1, 2))  # the walker's thighs and shanks


def known(env_id: str) -> Mirror:
    return KNOWN[name(env_id)]


def name(env_id: str) -> str:
    return env_id if env_id in MUJOCO else env_id.rpartition("-")[0]


class NoDispersion:
    """In place of the lander's random numbers: its engines' sparks push neither way."""

    def uniform(self, low, high):
        return (low + high) / 2


def copy_bodies(one, other, signs: float, pairs) -> None:
    """Puts the bodies of `other` where a mirror shows those of `one`; with −1 x changes its sign around the middle."""
    middle = 10.0 if signs < 0 else 0.0  # of the lander's world, 20 wide
    for source, target in pairs:
        x, y = source.position
        target.position = (middle + signs * (x - middle), y)
        target.angle = signs * source.angle
        target.linearVelocity = (signs * source.linearVelocity.x, source.linearVelocity.y)
        target.angularVelocity = signs * source.angularVelocity


def put_in_mirrored_state(env_id: str, one: gymnasium.Env, other: gymnasium.Env) -> None:
    a, b = one.unwrapped, other.unwrapped
    if env_id.startswith("Bipedal"):
        legs = [(a.legs[i - 1], b.legs[j - 1]) for i, j in zip(*SWAPPED)]
        copy_bodies(a, b, 1.0, [(a.hull, b.hull), *legs])
        b.prev_shaping = a.prev_shaping
    elif env_id.startswith("Lunar"):
        copy_bodies(a, b, -1.0, [(a.lander, b.lander), (a.legs[0], b.legs[1]), (a.legs[1], b.legs[0])])
        b.prev_shaping = a.prev_shaping
    elif env_id in MUJOCO:
        positions, velocities = MUJOCO[env_id]
        a.set_state(a.data.qpos.copy(), a.data.qvel.copy())  # both forget the last step's contacts
        b.set_state(positions(a.data.qpos), velocities(a.data.qvel))
    else:
        b.state = -np.asarray(a.state)


def put_where_all_entries_matter(env_id: str, env: gymnasium.Env, seed: int) -> None:
    """Most episodes begin where legs, backs or rails are touched, whose entries are 0 elsewhere."""
    env = env.unwrapped
    if env_id.startswith("Lunar"):
        down = env.lander.position.y - (env.helipad_y + 0.95)  # just above the ground, one leg before the other
        env.lander.angularVelocity += (-1) ** seed
        for body in (env.lander, *env.legs):
            body.position = (body.position.x, body.position.y - down)
    elif env_id == "Ant-v5":
        half, axis = np.pi * (0.5 + 0.25 * seed) / 2, np.random.default_rng(seed).normal(size=3)
        positions = env.data.qpos.copy()
        positions[2:7] = 0.3, np.cos(half), *(np.sin(half) * axis / np.linalg.norm(axis))  # height and orientation
        env.set_state(positions, env.data.qvel.copy())
    elif env_id == "InvertedDoublePendulum-v5":
        side = (-1) ** (seed // 2)  # the rail ends at 1
        env.set_state(np.array([0.995 * side, *env.data.qpos[1:]]), np.array([2.0 * side, *env.data.qvel[1:]]))


@functools.cache
def steps_of_both(env_id: str, mirror: Mirror) -> tuple[np.ndarray, np.ndarray]:
    """What follows a state and its mirror image: observations [K, S], rewards and ends, [K, S + 2] of each.

    Args:
        env_id: of both environments.
        mirror: makes the other's actions; observations are returned as they are.
    """
    one, other = gymnasium.make(env_id).unwrapped, gymnasium.make(env_id).unwrapped
    one.action_space.seed(0)
    discrete = isinstance(one.action_space, gymnasium.spaces.Discrete)
    rows, rows_there = [], []
    for seed in range(10):
        for env in (one, other):
            env.reset(seed=seed)
            if env_id.startswith("Lunar"):
                env.np_random = NoDispersion()
        if seed % 4:
            put_where_all_entries_matter(env_id, one, seed)
        for _ in range(30):
            put_in_mirrored_state(env_id, one, other)
            action = one.action_space.sample()
            mirrored = mirror.action.sources[action] - 1 if discrete else mirror.action(action)
            (seen, reward, end, *_), (seen_there, reward_there, end_there, *_) = one.step(action), other.step(mirrored)
            rows.append([*seen, reward, end])
            rows_there.append([*seen_there, reward_there, end_there])
            if end or end_there:
                break
    assert len(rows) > 40
    return np.array(rows), np.array(rows_there)


def differences(env_id: str, mirror: Mirror) -> np.ndarray:
    """Between the mirrored observations and the mirrored states', and between rewards and ends, [K, S + 2]."""
    rows, rows_there = steps_of_both(env_id, Mirror(known(env_id).observation, mirror.action))
    rows = np.concatenate([mirror.observation(rows[:, :-2]), rows[:, -2:]], axis=1)
    return np.abs(rows - rows_there)


def with_one_error(entries: Entries) -> dict[int, Entries]:
    """An entry → the entries if it alone was wrong: another sign, or not exchanged with its partner."""
    wrong = {}
    for i, source in enumerate(entries.sources):
        sources, partner = list(entries.sources), abs(source) - 1
        if partner == i:
            sources[i] = -source
        else:
            sources[i], sources[partner] = i + 1, partner + 1
        wrong[i] = Entries(tuple(sources), entries.offsets if partner == i else ())
    return wrong


@pytest.mark.parametrize("env_id", IDS)
def test_a_known_mirror_is_true(env_id):
    """In four of five steps: the solver treats one leg's contacts with the ground before the other's."""
    assert np.quantile(differences(env_id, known(env_id)).max(axis=1), 0.8) < IDS[env_id]


# -- EnvPool's environments, whose states cannot be set --


@functools.cache
def transitions(env_id: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations [K, S], random actions [K, A] and next observations [K, S] of 64 environments."""
    envs = make_vector_env(find_environment(env_id), 64, "envpool", 1)
    before, rows = envs.reset(0)[0], []
    size = len(known(env_id).action.sources)
    for actions in np.random.default_rng(0).uniform(-1, 1, (200, 64, size)).astype(np.float32):
        envs.groups[0].send(actions)
        after = envs.groups[0].recv()
        going_on = ~(after.terminated | after.truncated)
        rows.append([before[going_on], actions[going_on], after.observations[going_on]])
        before = np.array(after.observations)
    envs.close()
    before, actions, after = (np.concatenate(column).astype(np.float64) for column in zip(*rows))
    return before, actions, after


def inputs(observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return np.concatenate([observations, actions, np.ones((len(actions), 1))], axis=1)  # [K, S + A + 1]


@functools.cache
def linear_model(env_id: str) -> np.ndarray:
    """The next observation from observation and action, [S + A + 1, S]."""
    before, actions, after = transitions(env_id)
    return np.linalg.lstsq(inputs(before, actions), after, rcond=None)[0]


def prediction_errors_in_the_mirror(env_id: str, mirror: Mirror) -> np.ndarray:
    """How much larger a linear model's error is for mirrored steps, [S]."""
    (before, actions, after), model = transitions(env_id), linear_model(env_id)
    errors = after - inputs(before, actions) @ model  # [K, S]
    images = mirror.observation(after) - inputs(mirror.observation(before), mirror.action(actions)) @ model  # [K, S]
    return np.sqrt((images**2).mean(axis=0) / (errors**2).mean(axis=0))


CONTACTS = {"BipedalWalker-v3": {8, 13}, "BipedalWalkerHardcore-v3": {8, 13}, "LunarLanderContinuous-v3": {6, 7}}


@pytest.mark.parametrize("env_id", CONTACTS)
def test_steps_of_envpool_are_as_predictable_in_the_mirror(env_id):
    pytest.importorskip("envpool")
    mirror = known(env_id)
    assert prediction_errors_in_the_mirror(env_id, mirror).max() < 1.06
    wrong = {i: Mirror(entries, mirror.action) for i, entries in with_one_error(mirror.observation).items()}
    for i in set(wrong) - CONTACTS[env_id]:  # contacts follow from little
        assert prediction_errors_in_the_mirror(env_id, wrong[i]).max() > 1.1, i
    if env_id != "LunarLanderContinuous-v3":  # whose engines act less in one step than its random sparks
        for i, entries in with_one_error(mirror.action).items():
            assert prediction_errors_in_the_mirror(env_id, Mirror(mirror.observation, entries)).max() > 1.1, i


def test_every_known_mirror_is_tested_and_fits_its_environment():
    assert {name(env_id) for env_id in IDS} == set(KNOWN)
    for env_id in IDS:
        env = gymnasium.make(env_id)
        found = mirror_of(PPOConfig(env=env_id, symmetry=True), env.observation_space, env.action_space)
        assert found == known(env_id)
        assert mirror_of(PPOConfig(env=env_id), env.observation_space, env.action_space) is None


def test_an_older_version_whose_sides_differ_has_no_known_mirror():
    space = gymnasium.make("Walker2d-v5").observation_space
    with pytest.raises(UserError, match="no mirror of Walker2d-v4 is known"):
        mirror_of(PPOConfig(env="Walker2d-v4", symmetry=True), space, Box(-1, 1, (6,)))


def test_a_mirror_moves_entries_and_changes_signs():
    entries = Entries((1, -2, 4, 3))
    rows = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
    expected = [[1, -2, 4, 3], [5, -6, 8, 7]]
    np.testing.assert_array_equal(entries(rows), expected)
    np.testing.assert_array_equal(rows @ entries.matrix, expected)
    assert entries(rows).dtype == entries.matrix.dtype == np.float32
    np.testing.assert_array_equal(entries.unsigned(rows), np.abs(expected))
    assert Mirror(Entries((2, 1)), Entries((-1,))).joint == Entries((2, 1, -3))


def test_a_mirror_adds_what_differs_between_both_sides():
    entries = Entries((2, 1), (0.5, -0.5))
    rows = np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_array_equal(entries(rows), [[2.5, 0.5], [4.5, 2.5]])
    np.testing.assert_array_equal(entries(entries(rows)), rows)
    np.testing.assert_array_equal(rows @ entries.matrix + entries.offset, entries(rows))
    assert entries.linear == Entries((2, 1))
    assert Mirror(entries, Entries((-1,))).joint == Entries((2, 1, -3), (0.5, -0.5, 0.0))


SPACES = Box(-1, 1, (3,)), Box(np.array([-1, 0], np.float32), np.array([1, 2], np.float32))
OWN = {"observation": (1, 3, 2), "action": (-1, 2)}
GIVEN = {"env": "tests/Own-v0", "symmetry": True, "mirror": OWN}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"action": ()}, "no mirror of tests/Own-v0 is known: add --mirror with observation and action"),
        ({"observation": (1, 2)}, "mirror observation has 2 entries: expected 3"),
        ({"observation": (1, 2, 4)}, "mirror observation: entry 3 is 4: expected 1 to 3, or -1 to -3"),
        ({"observation": (0, 2, 3)}, "mirror observation: entry 1 is 0: expected 1 to 3"),
        ({"observation": (2, 3, 1)}, "mirror observation: entry 1 is 2 and entry 2 is 3: expected entries with"),
        ({"observation": (-2, 1, 3)}, "mirror observation: entry 1 is -2 and entry 2 is 1: expected entries with"),
        ({"offset": (0, 1)}, "mirror offset has 2 entries: expected 3, one for each number"),
        ({"offset": (0, 1, 0)}, "mirror offset: entry 2 is 1 and entry 3 is 0: expected entries with"),
        (
            {"observation": (1, -3, -2), "offset": (0, 1, 0)},
            "mirror offset: entry 2 is 1 and entry 3 is 0: expected entries with",
        ),
        ({"offset": (0.5, 1, -1)}, "mirror offset: entry 1 is 0.5 and entry 1 is 0.5: expected entries with"),
        ({"action": (1, -2)}, "mirror action: entry 2 is -2, whose range becomes -2 to 0 in the mirror: exp"),
        ({"action": (2, 1)}, "mirror action: entry 1 is 2, whose range becomes 0 to 2 in the mirror: expected"),
    ],
)
def test_a_wrong_mirror_is_refused_in_a_line_that_names_the_entry(changes, line):
    with pytest.raises(UserError) as error:
        mirror_of(PPOConfig(**GIVEN | {"mirror": OWN | changes}), *SPACES)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_offsets_are_added_to_a_mirror_given_or_known():
    given = mirror_of(PPOConfig(**GIVEN | {"mirror": OWN | {"offset": (0.0, 0.3, -0.3)}}), *SPACES)
    assert given.observation == Entries((1, 3, 2), (0.0, 0.3, -0.3))
    walker = gymnasium.make("BipedalWalker-v3")
    offsets = tuple({4: -0.2, 9: 0.2}.get(i, 0.0) for i in range(24))
    config = PPOConfig(env="BipedalWalker-v3", symmetry=True, mirror={"offset": offsets})
    changed = mirror_of(config, walker.observation_space, walker.action_space)
    known = mirror_of(config.replace(mirror={}), walker.observation_space, walker.action_space)
    assert changed.observation.offsets == offsets != known.observation.offsets
    assert (changed.observation.sources, changed.action) == (known.observation.sources, known.action)


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ((2, 1, 3, 4, 5), ""),
        ((3, 4, 1, 2, 5), ""),
        ((5, 2, 3, 4, 1), "mirror action: entries 1 and 2 are choices of one number, but their mirror images 5 and 2"),
        ((-1, 2, 3, 4, 5), "mirror action: entry 1 is -1: a choice has no sign"),
        ((2, 1, 3, 4), "mirror action has 4 entries: expected 5, one for each number"),
        ((2, 3, 1, 4, 5), "mirror action: entry 1 is 2 and entry 2 is 3: expected entries with"),
    ],
)
def test_choices_of_one_number_stay_together(entries, line):
    config = PPOConfig(**GIVEN | {"mirror": OWN | {"action": entries}})
    if not line:
        assert mirror_of(config, SPACES[0], MultiDiscrete([2, 2, 1])).action.sources == entries
        return
    with pytest.raises(UserError, match=line):
        mirror_of(config, SPACES[0], MultiDiscrete([2, 2, 1]))


def test_images_have_no_mirror():
    with pytest.raises(UserError, match="shows images: give --no-symmetry"):
        mirror_of(PPOConfig(symmetry=True), Box(0, 255, (8, 8, 3), np.uint8), SPACES[1])


@pytest.mark.parametrize(
    ("mirror", "line"),
    [
        ({"actions": [1]}, "mirror names actions: expected some of observation, action, offset, weight, check"),
        ({"weight": 2}, "mirror: weight is 2.0: expected 0 to 1"),
        ({"action": 1}, "mirror: action is 1: expected a tuple"),
        ("[1]", "mirror is '[1]': expected a JSON object"),
    ],
)
def test_a_part_of_another_kind_is_refused(mirror, line):
    with pytest.raises(UserError) as error:
        PPOConfig(symmetry=True, mirror=mirror)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
