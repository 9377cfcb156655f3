"""Environments small enough to know everything about them; importing this module registers them.

All have Box spaces. Ids start with "tests/".
"""

import os
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text

from common.envs.atari import LIFE_LOST


class Tiny(gymnasium.Env):
    """Shows two random numbers and counts the steps of an episode, unless a class below says otherwise."""

    observation_space = Box(-1.0, 1.0, (2,))
    action_space = Box(-1.0, 1.0, (1,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def _observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}


class Target(Tiny):
    """Hit a target that the observation tells: reward −Σ((a − target) / scale)², so the best return is 0.

    Three steps an episode, each with a new observation. The action bounds are not symmetric and the
    target of each dimension follows the other dimension's observation. Always choosing the centre of
    the bounds returns −1.28 an episode on average.
    """

    action_space = Box(np.array([-2.0, 1.0], np.float32), np.array([0.0, 5.0], np.float32))
    centre, scale = np.array([-1.0, 3.0]), np.array([1.0, 2.0])

    @classmethod
    def target(cls, observation):
        return cls.centre + cls.scale * 0.8 * np.asarray(observation)[..., ::-1]

    def _observe(self):
        self._observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._observation

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = -float(np.square((action - self.target(self._observation)) / self.scale).sum())
        self._steps += 1
        return self._observe(), reward, self._steps == 3, False, {}


class Reaching(Tiny):
    """Four steps an episode; a success, which a coin decides, pays 1 and is told in info, as is the step's number."""

    def step(self, action):
        self._steps += 1
        over = self._steps == 4
        success = over and bool(self.np_random.integers(2))
        info = {"is_success": success, "time/steps": np.array([self._steps]), "words": "no number"}
        return self._observe(), float(success), over, False, info


class Endless(Tiny):
    """Reward 1 for ever; registered with a limit of 5 steps. With γ = 0.9 its true value is 10."""

    observation_space = Box(-1.0, 1.0, (1,))

    def _observe(self):
        return np.full(1, 0.5, np.float32)

    def step(self, action):
        return self._observe(), 1.0, False, False, {}


class Recall(Tiny):
    """The first observation, −1 or 1, tells which action the last of four steps rewards; all others are 0.

    Whoever does not remember is right half of the time.
    """

    observation_space = Box(-1.0, 1.0, (1,))
    action_space = Discrete(2)

    def reset(self, seed=None, options=None):
        super(Tiny, self).reset(seed=seed)
        self._steps, self._right = 0, int(self.np_random.integers(2))
        return np.full(1, 2 * self._right - 1, np.float32), {}

    def step(self, action):
        self._steps += 1
        over = self._steps == 4
        return np.zeros(1, np.float32), float(over and action == self._right), over, False, {}


class Schedule(Tiny):
    """What it pays depends on its own age alone, so it is known which epoch is the best, and by which metric.

    For trajectories of 24 steps of one environment, the autoreset steps counted in:

    trajectory   steps an episode   reward a step   total   an episode   reward · steps
        0                2               0.5          8          1              2
        1                2               1.0         16          2              4
        2               11               0.5         11          5.5           60.5
        3               23               0.2          4.6        4.6          105.8
        4 and on         2               0.1          1.6        0.2            0.4
    """

    TRAJECTORY = 24
    PHASES = ((2, 0.5), (2, 1.0), (11, 0.5), (23, 0.2), (2, 0.1))
    BEST_EPOCH = {"total_reward": 1, "mean_episode_reward": 2, "reward_times_steps": 3}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self._age = -1  # the first reset belongs to no step

    def reset(self, seed=None, options=None):
        self._age += 1
        return super().reset(seed=seed)

    def step(self, action):
        length, reward = self.PHASES[min(self._age // self.TRAJECTORY, len(self.PHASES) - 1)]
        self._age += 1
        self._steps += 1
        return self._observe(), reward, self._steps >= length, False, {}


class Falls(Schedule):
    """Episodes of two steps that end with a fall, a reward of −100. The step before pays more as the environment ages,
    and then nothing again: for trajectories of 24 steps of one environment, the autoreset steps counted in, the
    episodes' rewards sum to −100, 20, 200 and −100 for ever.
    """

    PAYS = (0.0, 120.0, 300.0, 0.0)

    def step(self, action):
        pays = self.PAYS[min(self._age // self.TRAJECTORY, len(self.PAYS) - 1)]
        self._age += 1
        self._steps += 1
        falls = self._steps == 2
        return self._observe(), -100.0 if falls else pays, falls, False, {}


class Lengths(Tiny):
    """Episodes of 1 + seed % 7 steps, each paying its number; can be filmed. `seeds` lists what it was reset with."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    seeds: list = []  # noqa: RUF012

    @staticmethod
    def length(seed):
        return 1 + seed % 7

    def reset(self, seed=None, options=None):
        Lengths.seeds.append(seed)
        self._length = self.length(seed or 0)
        return super().reset(seed=seed)

    def step(self, action):
        self._steps += 1
        return self._observe(), float(self._steps), self._steps == self._length, False, {}

    def render(self):
        return np.full((48, 64, 3), 20 * self._steps, np.uint8)


class Faulty(Tiny):
    """Returns NaN on its `fault_at`-th step (0: on its first reset), as a reward or in an observation.

    A `strict` one does not take actions that are not numbers, like many real environments.
    """

    def __init__(self, render_mode=None, fault_at=40, what="observation", strict=False):
        self.render_mode = render_mode
        self.fault_at, self.what, self.strict = fault_at, what, strict
        self._age = 0

    def _observe(self):
        faulty = self.what == "observation" and self._age == self.fault_at
        return np.array([0.1, np.nan if faulty else 0.2], np.float32)

    def step(self, action):
        assert not self.strict or np.isfinite(action).all(), f"no number: {action}"
        self._age += 1
        reward = np.nan if self.what == "reward" and self._age == self.fault_at else 1.0
        return self._observe(), reward, False, False, {}


class Raising(Tiny):
    """An episode's step number is its observation; fails in its first episode's step 20, in the way `how` says.

    Args:
        how: "raise" an error, "die" (the process), "hang".
        where: "step" 20, its "reset", or when it is built, "init".
        marks: folder in which one that failed leaves a file, so that no other does, over all processes; None lets
            each fail whenever it comes there.
    """

    observation_space = Box(-np.inf, np.inf, (1,))

    def __init__(self, render_mode=None, how="raise", where="step", marks=None):
        self.render_mode = render_mode
        self.how, self.where, self.marks = how, where, marks
        if where == "init":
            self._fail()

    def _observe(self):
        return np.array([self._steps], np.float32)

    def reset(self, seed=None, options=None):
        if self.where == "reset":
            self._fail()
        return super().reset(seed=seed)

    def step(self, action):
        self._steps += 1
        if self._steps == 20 and self.where == "step" and self._is_the_first():
            self._fail()
        return self._observe(), 1.0, False, self._steps == 30, {}

    def _fail(self):
        if self.how == "raise":
            raise RuntimeError("the floor gave way\nand so did the roof")
        if self.how == "die":
            os._exit(7)
        time.sleep(3600)

    def _is_the_first(self):
        if self.marks is None:
            return True
        try:
            (Path(self.marks) / "failed").touch(exist_ok=False)
            return True
        except FileExistsError:
            return False


class Unsound(Tiny):
    """Five steps that pay 1 each; in the third one with seed 4k fails, with 4k + 1 or 4k + 2 returns NaN.

    `repaired`: only in the first environment that plays the seed.
    """

    played: set = set()  # noqa: RUF012  seeds

    def __init__(self, render_mode=None, repaired=False):
        self.render_mode, self.repaired = render_mode, repaired

    def reset(self, seed=None, options=None):
        self._fault = (
            "none" if self.repaired and seed in Unsound.played else ("error", "reward", "nan", "none")[seed % 4]
        )
        Unsound.played.add(seed)
        return np.zeros(2, np.float32), super().reset(seed=seed)[1]

    def step(self, action):
        assert np.isfinite(action).all()
        self._steps += 1
        fault = self._fault if self._steps == 3 else "none"
        if fault == "error":
            raise RuntimeError("the third step is loose\nmind it")
        observation = np.full(2, np.nan if fault == "nan" else 0.0, np.float32)
        return observation, np.nan if fault == "reward" else 1.0, self._steps == 5, False, {}


class Plain(gymnasium.Env):
    """Knows nothing of rendering, not even the argument."""

    observation_space = Box(-1.0, 1.0, (2,))
    action_space = Box(-1.0, 1.0, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Unlucky(Tiny):
    """Resets fail by the seed: most seeds of four environments have one that fails."""

    def reset(self, seed=None, options=None):
        first = super().reset(seed=seed)
        if self.np_random.random() < 0.4:
            raise OSError("drawn badly")
        return first

    def step(self, action):
        return self._observe(), 1.0, False, False, {}


class Still:
    """A policy that does nothing."""

    is_plain = True

    def act(self, observations, noise=None):
        return np.zeros((len(observations), 1), np.float32)


class Odd(gymnasium.Env):
    """Spaces for which there is no network or no policy; nobody steps it."""

    def __init__(self, render_mode=None, observation_space=Plain.observation_space, action_space=Plain.action_space):
        self.render_mode = render_mode
        self.observation_space, self.action_space = observation_space, action_space


class Matching(Tiny):
    """Name what the observation names: 1 for each number of the action that does; four steps an episode.

    The observation is a Dict of a Discrete (whose value the first number should have), a Box (whose sign says the
    second) and a MultiBinary (which is the third). Guessing scores 4 · (1/3 + 1/2 + 1/2) = 5.33, knowing 12.
    """

    observation_space = Dict(number=Discrete(3, start=5), sign=Box(-1.0, 1.0, (1,)), bit=MultiBinary(1))
    action_space = MultiDiscrete([3, 2, 2], start=[1, 0, 0])
    metadata = {"render_modes": []}  # noqa: RUF012

    def _observe(self):
        rng = self.np_random
        self._answer = np.array([rng.integers(3), rng.integers(2), rng.integers(2)])
        sign = np.array([rng.uniform(0.2, 1) * (2 * self._answer[1] - 1)], np.float32)
        return {"number": 5 + self._answer[0], "sign": sign, "bit": self._answer[2:].astype(np.int8)}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float((action - [1, 0, 0] == self._answer).sum())
        self._steps += 1
        return self._observe(), reward, self._steps == 4, False, {}


class Nested(Matching):
    """The same with a Dict within the Dict."""

    observation_space = Dict(sign=Box(-1.0, 1.0, (1,)), inner=Dict(number=Discrete(3, start=5), bit=MultiBinary(1)))

    def _observe(self):
        seen = super()._observe()
        return {"sign": seen.pop("sign"), "inner": seen}


class Wandering(Tiny):
    """A walk without a step limit that seldom ends: at one in `lasting` steps, of which each pays 1."""

    def __init__(self, render_mode=None, lasting=10**9):
        self.render_mode, self.lasting = render_mode, lasting

    def step(self, action):
        over = bool(self.np_random.integers(self.lasting) == 0)
        return self._observe(), 1.0, over, False, {}


class Strolling(Wandering):
    """One that can be filmed."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def render(self):
        return np.zeros((48, 64, 3), np.uint8)


class Wide(Tiny):
    """Observations of 2 KB, so that a trajectory kept by mistake shows in the memory."""

    observation_space = Box(-1.0, 1.0, (512,))

    def _observe(self):
        return np.zeros(512, np.float32)

    def step(self, action):
        return np.ones(512, np.float32), float(action[0]), False, False, {}


class Dot(Tiny):
    """Name the third of the image that the dot is in: reward 1 where the action does; eight steps an episode.

    The image is 12 × 12 × 1. Guessing scores 2.67, knowing 8.
    """

    observation_space = Box(0, 255, (12, 12, 1), np.uint8)
    action_space = Discrete(3)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def _observe(self):
        row, self._column = self.np_random.integers(12, size=2)
        self._image = np.zeros((12, 12, 1), np.uint8)
        self._image[row, self._column] = 255
        return self._image

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(action == self._column // 4)
        self._steps += 1
        return self._observe(), reward, self._steps == 8, False, {}

    def render(self):
        return np.repeat(np.repeat(self._image, 4, 0), 4, 1).repeat(3, 2)


class DotAndSign(Dot):
    """Name the third that the dot is in, and whether the number shown with it is positive: a point for each of them.

    The observation is Dict(eye=Dict(image [1, 12, 12] uint8), sign=Box). Guessing scores 6.67, knowing 16.
    """

    observation_space = Dict(eye=Dict(image=Box(0, 255, (1, 12, 12), np.uint8)), sign=Box(-1.0, 1.0, (1,)))
    action_space = MultiDiscrete([3, 2])

    def _observe(self):
        image = super()._observe()
        self._sign = self.np_random.choice([-0.5, 0.5])
        return {"eye": {"image": image.transpose(2, 0, 1)}, "sign": np.array([self._sign], np.float32)}

    def step(self, action):
        reward = float(action[0] == self._column // 4) + float(action[1] == (self._sign > 0))
        self._steps += 1
        return self._observe(), reward, self._steps == 8, False, {}


class PointAtDot(DotAndSign):
    """The same with one action from −1 to 1: where the dot is, from left to right; the reward is −distance."""

    action_space = Box(-1.0, 1.0, (1,))

    def step(self, action):
        reward = -abs(float(action[0]) - (self._column - 5.5) / 5.5)
        self._steps += 1
        return self._observe(), reward, self._steps == 8, False, {}


class PointAtDotAlone(PointAtDot):
    """The same without the number: the observation is the image alone, [12, 12, 1] uint8."""

    observation_space = Dot.observation_space
    _observe = Dot._observe  # noqa: SLF001  of a base class


class Lives(Tiny):
    """Games of three lives of two steps each that pay 1, 2, 3, …; the last life's end is the game's.

    A `short` one's time is up after four steps. The image's first number is the step.
    """

    observation_space = Box(0, 255, (4, 4, 1), np.uint8)
    action_space = Discrete(2)

    def __init__(self, render_mode=None, short=False):
        self.render_mode, self.short = render_mode, short

    def _observe(self):
        image = np.zeros((4, 4, 1), np.uint8)
        image[0, 0] = self._steps
        return image

    def step(self, action):
        self._steps += 1
        out_of_time = self.short and self._steps == 4
        info = {LIFE_LOST: self._steps % 2 == 0}
        return self._observe(), float(self._steps), self._steps == 6, out_of_time, info


class Awkward(gymnasium.Env):
    """A reward of one number in an array, no info at all times, observations of another type, no way to close it."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 0.5}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.observation_space, self.action_space = Box(0, 255, (3,), np.uint8), Box(-1.0, 1.0, (1,))
        self.render_mode, self._steps = render_mode, 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(3), {}

    def step(self, action):
        self._steps += 1
        over = self._steps == 6
        return np.full(3, float(self._steps)), -(action**2), over, False, {"cannot be pickled": lambda: 0}

    def render(self):
        return np.full((16, 16, 4), self._steps, np.uint8)

    def close(self):
        raise AttributeError("there is no window")


class Doors(gymnasium.Env):
    """Pass five walls of 40 doors, of which two are open: the first pays 1 and leads to the next wall, the other out.

    The observation is the number of the wall, and which doors are open depends on it alone. A closed door costs
    one of 20 steps, or raises where it is `strict`. Knowing scores 5, guessing among the open doors 31/32.

    Args:
        how: "info" or "method" offers the mask; "nothing", "closed" and "short" are mistakes from step 3 on.
    """

    observation_space = Discrete(5)
    action_space = Discrete(40, start=2)
    DOORS = 40

    def __init__(self, render_mode=None, how="info", strict=True):
        self.render_mode, self.how, self.strict = render_mode, how, strict
        if how == "method":
            self.action_masks = self._open

    def _open(self):
        mask = np.zeros(self.DOORS, bool)
        mask[[7 * self._wall % self.DOORS + 3, 7 * self._wall % self.DOORS + 5]] = True
        return mask

    def _info(self):
        if self.how == "method" or (self.how == "nothing" and self._steps >= 3):
            return {}
        mask = self._open() & ~(self.how == "closed" and self._steps >= 3)
        return {"action_mask": mask[: 7 if self.how == "short" and self._steps >= 3 else None].astype(np.int8)}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._wall = self._steps = 0
        return self._wall, self._info()

    def step(self, action):
        self._steps += 1
        first, other = np.flatnonzero(self._open()) + 2
        assert action in (first, other) or not self.strict, f"door {action} is closed"
        passed = action == first
        self._wall += passed
        over = bool(action == other or self._wall == 5)
        self._wall = min(self._wall, 4)
        return self._wall, float(passed), over, self._steps == 20, self._info()


def make_networks(observation_space, action_space, config):
    """Hidden layers of one's own, for `--networks tiny_envs:make_networks`."""
    import keras  # here, since processes that step environments need no TensorFlow

    return keras.Sequential([keras.Input(observation_space.shape), keras.layers.Dense(3), keras.layers.Dense(3)])


gymnasium.register("tests/Target-v0", Target)
gymnasium.register("tests/Doors-v0", Doors)
gymnasium.register("tests/LooseDoors-v0", Doors, kwargs={"strict": False})
gymnasium.register("tests/DoorsByMethod-v0", Doors, kwargs={"how": "method"})
gymnasium.register("tests/Reaching-v0", Reaching)
gymnasium.register("tests/Dot-v0", Dot)
gymnasium.register("tests/DotAndSign-v0", DotAndSign)
gymnasium.register("tests/PointAtDot-v0", PointAtDot)
gymnasium.register("tests/PointAtDotAlone-v0", PointAtDotAlone)
gymnasium.register("tests/Lives-v0", Lives)
gymnasium.register("tests/LivesShort-v0", Lives, kwargs={"short": True})
gymnasium.register("tests/Endless-v0", Endless, max_episode_steps=5)
gymnasium.register("tests/Recall-v0", Recall)
gymnasium.register("tests/Schedule-v0", Schedule)
gymnasium.register("tests/Falls-v0", Falls)
gymnasium.register("tests/Lengths-v0", Lengths)
gymnasium.register("tests/Faulty-v0", Faulty)
gymnasium.register("tests/FaultyStrict-v0", Faulty, kwargs={"strict": True})
gymnasium.register("tests/FaultyReward-v0", Faulty, kwargs={"what": "reward"})
gymnasium.register("tests/FaultyReset-v0", Faulty, kwargs={"fault_at": 0})
for name, how in (("Raising", "raise"), ("Dying", "die"), ("Hanging", "hang")):
    gymnasium.register(f"tests/{name}-v0", Raising, kwargs={"how": how})
    gymnasium.register(f"tests/{name}InReset-v0", Raising, kwargs={"how": how, "where": "reset"})
    gymnasium.register(f"tests/{name}WhenBuilt-v0", Raising, kwargs={"how": how, "where": "init"})
gymnasium.register("tests/Texts-v0", Odd, kwargs={"action_space": Text(3)})
gymnasium.register("tests/Sequences-v0", Odd, kwargs={"observation_space": Sequence(Discrete(3))})
gymnasium.register("tests/Matching-v0", Matching)
gymnasium.register("tests/Nested-v0", Nested)
gymnasium.register("tests/Plain-v0", Plain, max_episode_steps=10)
gymnasium.register("tests/Unsound-v0", Unsound)
gymnasium.register("tests/UnsoundOnce-v0", Unsound, kwargs={"repaired": True})
gymnasium.register("tests/Wandering-v0", Wandering)
gymnasium.register("tests/Strolling-v0", Strolling)
gymnasium.register("tests/WanderingShort-v0", Wandering, kwargs={"lasting": 20})
gymnasium.register("tests/Wide-v0", Wide, max_episode_steps=50)
