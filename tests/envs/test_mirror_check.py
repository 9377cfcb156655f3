"""A mirror that the user describes is refused if random steps contradict it, and a true one never is."""

import functools
import os
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete

from common.envs.environment import find_environment
from common.envs.known_mirrors import KNOWN
from common.envs.mirror_check import check_mirror, contradicted, random_steps
from common.envs.mirrors import Entries, Mirror
from common.errors import UserError
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from tests.envs.test_mirrors import IDS, known, name, with_one_error

RARE = {  # entries from 0 that random steps hardly move
    "LunarLander-v3": {6, 7},
    "LunarLanderContinuous-v3": {6, 7},
    "InvertedDoublePendulum-v5": {8},
    "Ant-v5": set(range(27, 105)),
}


class Cart(gymnasium.Env):
    """A mass on a line, with a spring to the middle, and a lamp. It shows place, speed, a constant and the light."""

    action_space = Box(-1.0, 1.0, (2,))  # one pushes, the other dims

    def __init__(self, start=(-1.0, 1.0), prefers=0.0, lasts=200, dies=False, wind=0.0, numbers=4):
        self.observation_space = Box(-np.inf, np.inf, (numbers,))
        self.start, self.prefers, self.lasts, self.dies, self.wind = start, prefers, lasts, dies, wind

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v, self.light, self.steps = self.np_random.uniform(*self.start), 0.0, 0.0, 0
        return self.observation(), {}

    def observation(self):
        return np.array([self.x, self.v, 9.8, self.light], np.float32)

    def step(self, action):
        if self.dies and self.steps == 3:
            os._exit(7)
        push, dim = float(action[0]), float(action[1])
        self.v += 0.1 * (push + self.wind - self.x - self.v)
        self.x += 0.1 * self.v
        self.light += 0.1 * (1 - dim - self.light)
        self.steps += 1
        return self.observation(), -abs(self.x) + self.prefers * self.x, self.steps >= self.lasts, False, {}


class Buttons(Cart):
    """The same with choices: left, stay or right, and whether to dim."""

    action_space = MultiDiscrete([3, 2])

    def step(self, action):
        return super().step([float(action[0]) - 1, float(action[1])])


class Cliff(gymnasium.Env):
    """A walk on a line, which may end on one side; the last step may pay for one side, too."""

    observation_space = action_space = Box(-1.0, 1.0, (1,))

    def __init__(self, left=-0.25, right=0.25, pays=0.0):
        self.left, self.right, self.pays = left, right, pays

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.2, 0.2)
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x += 0.08 * float(action[0])
        ends = not self.left < self.x < self.right
        return np.array([self.x], np.float32), 1.0 + self.pays * np.sign(self.x) * ends, ends, False, {}


class Loose(Cart):
    """It fails in its third step, and changes the action that it is given."""

    def step(self, action):
        action *= 10.0
        if self.steps == 2:
            raise RuntimeError("a screw is loose")
        return super().step(action)


class Rattling(Cart):
    """It fails now and then."""

    def step(self, action):
        if self.steps == 50:
            raise RuntimeError("a screw is loose")
        return super().step(action)


class Slow(Cart):
    """Its third step takes for ever."""

    def step(self, action):
        if self.steps == 2:
            time.sleep(3600)
        return super().step(action)


class Failing(Cart):
    """Its observations are NaN now and then."""

    def observation(self):
        good = super().observation()
        return good * np.nan if self.steps % 40 == 39 else good


TRUE = {"observation": (-1, -2, 3, 4), "action": (-1, 2)}
WRONG_ACTION = TRUE | {"action": (1, 2)}


def refusal(changes=None, made=Cart, **arguments) -> str:
    """What is said of a mirror; empty if it is accepted."""
    mirror = TRUE | (changes or {})
    config = PPOConfig(env="function()", symmetry=True, mirror=mirror, backend="gymnasium")
    environment = find_environment("", maker=functools.partial(made, **arguments))
    try:
        check_mirror(config, environment, lambda line: pytest.fail(line))
    except UserError as error:
        return str(error)
    return ""


def test_a_true_mirror_is_accepted():
    assert refusal() == ""
    assert refusal(made=Failing) == "" and refusal(made=Rattling) == ""
    assert refusal({"action": (3, 2, 1, 4, 5)}, Buttons) == ""


@pytest.mark.parametrize(
    ("changes", "entry"),
    [
        ({"observation": (1, -2, 3, 4)}, "observation entry 1 (1)"),
        ({"observation": (-1, 2, 3, 4)}, "observation entry 2 (2)"),
        ({"observation": (-1, -2, -3, 4)}, "observation entry 3 (-3)"),
        ({"observation": (-1, -2, 3, -4)}, "observation entry 4 (-4)"),
        ({"observation": (-1, -2, 4, 3)}, "observation entry 3 (4)"),
        ({"observation": (2, 1, 3, 4)}, "observation entry 1 (2)"),
        ({"action": (1, 2)}, "action entry 1 (1)"),
        ({"action": (-1, -2)}, "action entry 2 (-2)"),
        ({"action": (2, 1)}, "action entry 1 (2)"),
    ],
)
def test_the_wrong_entry_is_named(changes, entry):
    line = refusal(changes)
    assert line.startswith("the mirror is contradicted by 4,096 random steps of Cart(), most in ") and entry in line
    assert line.endswith(': correct it, or add "check": false to it if it is right but episodes start on one side')
    assert "\n" not in line


@pytest.mark.parametrize("entries", [(1, 2, 3, 4, 5), (2, 1, 3, 4, 5), (3, 2, 1, 5, 4)])
def test_wrong_choices_are_named(entries):
    assert refusal({"action": entries}, Buttons).startswith("the mirror is contradicted by")


def test_a_reward_that_prefers_a_side_is_named():
    assert "the reward" in refusal(prefers=1.0)


ONE = {"observation": (-1,), "action": (-1,)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"right": 9.0}, "the end of episodes"),
        ({"pays": 3.0}, "the reward"),
    ],
)
def test_ends_of_episodes_and_what_they_pay_are_seen(changes, said):
    line = refusal(ONE, Cliff, **changes)
    assert said in line and bool(line) == bool(said)


LONG = {"observation": tuple(range(1, 502)), "action": (1, 2)}


@pytest.mark.parametrize(
    ("backend", "made", "mirror", "why"),
    [
        ("gymnasium", Loose, TRUE, ": RuntimeError: a screw is loose"),
        ("processes", Loose, TRUE, ": RuntimeError: a screw is loose"),
        ("processes", Slow, TRUE, ": its process did not answer within 15 s, see --environment-time-limit"),
        ("processes", functools.partial(Cart, dies=True), TRUE, ": its process died (exit code 7)"),
        ("gymnasium", functools.partial(Cart, lasts=4), WRONG_ACTION, ": random steps soon end its episodes"),
        ("auto", functools.partial(Cart, numbers=501), LONG, ", because it has more than 500 numbers"),
    ],
)
def test_what_cannot_be_tested_is_said_in_one_line(backend, made, mirror, why):
    lines = []
    config = PPOConfig(env="function()", symmetry=True, backend=backend, environment_time_limit=3.0, mirror=mirror)
    check_mirror(config, find_environment("", maker=made), lines.append)
    [line] = lines
    assert line.startswith("warning: the mirror of ") and line.endswith("was not tested" + why)


def test_a_world_that_favours_a_side_is_refused_unless_the_check_is_off():
    """A wind; or a start on one side, which makes a mirror no less true."""
    assert refusal(wind=2.0).startswith("the mirror is contradicted by")
    assert refusal(start=(0.5, 1.0)).startswith("the mirror is contradicted by")
    assert refusal({"check": False}, start=(0.5, 1.0)) == ""


@pytest.mark.parametrize("backend", ["gymnasium", "processes"])
def test_training_does_not_begin(backend):
    config = PPOConfig(env="function()", symmetry=True, backend=backend, mirror=WRONG_ACTION)
    with pytest.raises(UserError, match=r"action entry 1 \(1\)"):
        PPOAgentTrainer(config, make_env=Cart)


def test_arguments_may_break_a_known_mirror(monkeypatch):
    lander = {"env": "LunarLander-v3", "env_kwargs": {"continuous": True}, "symmetry": True, "backend": "gymnasium"}
    line = "^mirror action has 4 entries: expected 2, one for each number; the known mirror of LunarLander-v3 fits no"
    with pytest.raises(UserError, match=line):
        PPOAgentTrainer(PPOConfig(**lander))
    windy = PPOConfig(env="function()", symmetry=True, backend="gymnasium", mirror=TRUE)
    environment, said = find_environment("", maker=functools.partial(Cart, wind=2.0)), []
    for kwargs in ({}, {"wind": 2.0}):
        known_one = windy.replace(env="tests/Windy-v0", env_kwargs=kwargs, mirror={})
        monkeypatch.setitem(KNOWN, "tests/Windy", Mirror(*(Entries(entries) for entries in TRUE.values())))
        try:
            check_mirror(known_one, environment, said.append)
        except UserError as error:
            said.append(str(error))
    [line] = said
    assert (
        line.startswith("the mirror is contradicted by")
        and "the known mirror does not hold with these --env-kwargs" in line
    )


def test_no_check_without_a_mirror_of_ones_own():
    environment = find_environment("CartPole-v1")
    config = PPOConfig(env="CartPole-v1", symmetry=True, backend="gymnasium")
    check_mirror(config, environment, lambda line: pytest.fail(line))  # known
    with pytest.raises(UserError, match=r"action entry 1 \(1\)"):
        check_mirror(config.replace(mirror={"action": (1, 2)}), environment, lambda line: pytest.fail(line))


# -- how well it tells right from wrong, on mirrors that are known to be true --


@functools.cache
def steps_of(env_id: str) -> list[np.ndarray]:
    parts, fault = random_steps(find_environment(env_id), len(known(env_id).observation.sources))
    assert not fault
    return parts


def test_of_all_known_mirrors_none_is_refused():
    assert {name(env_id) for env_id in IDS} == set(KNOWN)
    for env_id in IDS:
        assert not contradicted(steps_of(env_id), known(env_id)), env_id


def single_errors(env_id: str):
    """What is named, its place from 0, and a mirror with one error there or at its partner."""
    mirror = known(env_id)
    discrete = not isinstance(gymnasium.make(env_id).action_space, Box)
    for i, entries in with_one_error(mirror.observation).items():
        if i not in RARE.get(env_id, set()):
            yield "observation", i, Mirror(Entries(entries.sources, mirror.observation.offsets), mirror.action)
    for i, entries in with_one_error(mirror.action).items():
        if not (discrete and min(entries.sources) < 0):  # a choice has no sign
            yield "action", i, Mirror(mirror.observation, entries)


def test_nearly_all_single_errors_are_noticed_and_named():
    errors = [(env_id, *error) for env_id in IDS for error in single_errors(env_id)]
    lines = [contradicted(steps_of(env_id), wrong) for env_id, _, _, wrong in errors]
    named = [
        any(f"{what} entry {k + 1} (" in line for k in {i, abs(place(env_id, what, i)) - 1})
        for line, (env_id, what, i, _) in zip(lines, errors)
    ]
    assert len(errors) > 150
    assert sum(map(bool, lines)) > 0.92 * len(errors)
    assert sum(named) > 0.85 * len(errors)


def place(env_id: str, what: str, i: int) -> int:
    mirror = known(env_id)
    return (mirror.observation if what == "observation" else mirror.action).sources[i]
