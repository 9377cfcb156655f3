"""Groups of environments that are stepped together: in this process, in EnvPool, in ale-py; see also `process_group`.

All restart an ended environment on its next step (next-step autoreset): that step ignores its action
and returns the reset observation.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from common import atari
from common.environment import Environment
from common.environment_check import cannot_start
from common.episodes import AS_IN_FORMAT_1, Past, SeededEpisodes, episode_seed
from common.user_code import describe, own_traceback


class Step(NamedTuple):
    """What a step of n environments returned.

    `terminated | truncated` is not always `ended`: where a game loses a life `terminated` says that nothing may be
    bootstrapped across it, but the game goes on, and the next step is an ordinary one.
    """

    observations: np.ndarray  # [n, *shape]
    rewards: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool: the task ended, or a life of it
    truncated: np.ndarray  # [n] bool: the time was up
    ended: np.ndarray  # [n] bool: the episode is over, the next step restarts it
    failed: np.ndarray | None = None  # [n] bool: the environment failed, so this was no step; None: in none
    replaced: np.ndarray | None = None  # [n] bool: another action was taken than the one sent; None: in none


class Fault(NamedTuple):
    """An environment that failed in the last step."""

    index: int  # in its group
    error: str  # one line
    details: str  # its traceback; empty where there is none


class Group(Protocol):
    """Environments that are stepped together. `send` starts a step, `recv` waits for its result.

    An environment that fails in a step seems to have stood still in it: its observation is the one before, its
    reward 0, its episode over, but neither terminated nor truncated. The next step begins another episode in a new
    environment. `faults` lists the failures of the last step until somebody empties it.

    What `recv` returns is valid until the next `send`.

    Attributes:
        parts: slices of environments that can only be brought back together.
    """

    num_envs: int
    faults: list[Fault]
    parts: list[slice]

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode in every environment; a seed decides it and all that follow. Observations [n, *shape]."""

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        """Bring some environments to where they were; `reset` with the seed of that time must have been before.

        Args:
            pasts: by the environment's index in the group; of a part all or none.

        Returns:
            Their last observations [len(pasts), *shape].

        Raises:
            UserError: an environment cannot be started.
        """

    def send(self, actions: np.ndarray) -> None:
        """Start a step with these actions [n, *action]."""

    def recv(self) -> Step:
        """What came of the step that was started last."""

    def close(self) -> None:
        """End processes and threads; `reset` with a seed begins again."""


class BoxVectorEnv(gymnasium.vector.SyncVectorEnv):
    """`SyncVectorEnv` for Box spaces and next-step autoreset, without infos.

    Where there is one environment its general `step` takes 12% longer than this one with the walker (LOG.md).
    An environment that raises begins another episode; see `Group`.

    Args:
        name: of the environment, for messages.
        faults: new ones are appended to it.

    Attributes:
        life_lost, replaced, failed, ended: [n] bool; the last step lost a life, or took another action than it was
            given, by its info; the environment failed in it; it ended the episode.
    """

    def __init__(self, makers: list[Callable[[], SeededEpisodes]], name: str, faults: list[Fault]) -> None:
        super().__init__(makers, copy=False)
        self._name, self._faults = name, faults
        self.life_lost, self.replaced, self.failed = (np.zeros(self.num_envs, bool) for _ in range(3))  # [n] each
        self.ended = self._autoreset_envs  # [n]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """As `SyncVectorEnv.step`; the arrays it returns are used again by the next step."""
        failed_before, self.failed = self.failed, np.zeros(self.num_envs, bool)  # [n]
        for i, env in enumerate(self.envs):
            info = {}
            try:
                if self._autoreset_envs[i]:
                    self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
                    self._observations[i], _ = env.reset()
                else:
                    (self._observations[i], self._rewards[i], self._terminations[i], self._truncations[i], info) = (
                        env.step(actions[i])
                    )
            except Exception as error:  # somebody else's code: whatever it raises is a fault of the environment
                if failed_before[i]:
                    raise cannot_start(self._name, error) from error
                self._note_fault(i, error)
            self.life_lost[i] = info.get("life_lost", False)
            self.replaced[i] = info.get("action_replaced", False)
        self.ended = self._autoreset_envs = self._terminations | self._truncations | self.failed
        return self._observations, self._rewards, self._terminations, self._truncations, {}

    def _note_fault(self, i: int, error: Exception) -> None:
        self._faults.append(Fault(i, describe(error), own_traceback(error)))
        self.envs[i].give_up()
        self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
        self.failed[i] = True

    def bring_back(self, i: int, past: Past) -> np.ndarray:
        """The last observation of an environment that was brought back."""
        self.envs[i].past = past
        self._observations[i], _ = self.envs[i].reset()
        self._autoreset_envs[i] = self.failed[i] = False  # if the episode is over, the environment knows it
        return self._observations[i]


class GymnasiumGroup:
    """Gymnasium's vector environment: steps in this thread, when its result is asked for.

    Args:
        rebuild: see `SeededEpisodes`.
    """

    def __init__(self, environment: Environment, num_envs: int, rebuild: bool = False) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []
        self.parts = [slice(i, i + 1) for i in range(num_envs)]
        self._environment, self._rebuild = environment, rebuild
        self._envs: BoxVectorEnv | None = None
        self._actions: np.ndarray | None = None

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or self._envs is None:
            self.close()
            known = self._environment
            spaces = known.observation_space, known.action_space
            makers = [
                functools.partial(SeededEpisodes, known.make, *spaces, seed or 0, i, self._rebuild)
                for i in range(self.num_envs)
            ]
            self._envs = BoxVectorEnv(makers, known.id, self.faults)
        try:
            return self._envs.reset()[0]
        except Exception as error:
            raise cannot_start(self._environment.id, error) from error

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        try:
            return np.stack([self._envs.bring_back(i, past) for i, past in pasts.items()])  # [k, *shape]
        except Exception as error:
            raise cannot_start(self._environment.id, error) from error

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> Step:
        envs = self._envs
        observations, rewards, terminated, truncated, _ = envs.step(self._actions)
        return Step(
            observations, rewards, terminated | envs.life_lost, truncated, envs.ended, envs.failed, envs.replaced
        )

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None


class EnvPoolGroup:
    """EnvPool: steps in threads of its own from `send` on. A given seed always builds new pools.

    Stepping goes through EnvPool's native `_send` and `_recv`: its Python layer around them costs 5% of
    an epoch (LOG.md). `tests/test_rollout.py` holds both ways together.

    EnvPool seeds environments when it builds them and never again. Where they draw random numbers in resets alone,
    as many resets and the actions of the running episode bring one back.

    Args:
        num_parts: how many pools; each can be built again for itself.
    """

    def __init__(self, environment: Environment, num_envs: int, num_threads: int, num_parts: int = 1) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []  # compiled environments raise nothing
        bounds = np.linspace(0, num_envs, min(num_parts, num_envs) + 1).astype(int).tolist()
        self.parts = [slice(first, last) for first, last in pairwise(bounds)]
        self._ids = [np.arange(part.stop - part.start, dtype=np.int32) for part in self.parts]
        self._options = {"env_type": "gymnasium", "num_threads": num_threads}
        if environment.max_episode_steps is not None:  # EnvPool's own are not always Gymnasium's
            self._options["max_episode_steps"] = environment.max_episode_steps
        self._env_id = environment.gymnasium_id
        self._pools = []
        self._seed = 0

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or not self._pools:
            self.close()
            self._seed = seed or 0
            self._pools = [self._build(part, 0) for part in self.parts]
            keys = self._pools[0]._state_keys
            self._wanted = [keys.index(key) for key in ("obs", "reward", "done", "trunc")]
            self._action_type = self._pools[0].action_space.dtype  # not always Gymnasium's
        with quiet_gymnasium():
            return np.concatenate([pool.reset()[0] for pool in self._pools])  # [n, S]

    def _build(self, part: slice, restart: int) -> Any:
        import envpool

        seed = self._seed + part.start if restart <= 0 else episode_seed(self._seed, part.start, restart, 0)
        with quiet_gymnasium():  # it warns about a space that nobody reads here
            return envpool.make(self._env_id, num_envs=part.stop - part.start, seed=seed % 2**31, **self._options)

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        numbers = [number for number, part in enumerate(self.parts) if part.start in pasts]
        members = [[pasts[i] for i in range(part.start, part.stop)] for part in (self.parts[n] for n in numbers)]
        pools = [self._rebuild(number, past[0].restart) for number, past in zip(numbers, members)]
        observations = _repeat(pools, members, self._wanted[0], self._action_type)
        back = {}
        for number, seen in zip(numbers, observations):
            part = self.parts[number]
            back |= zip(range(part.start, part.stop), seen)
        return np.stack([back[i] for i in pasts])  # [k, S]

    def _rebuild(self, number: int, restart: int) -> Any:
        """Close a pool and build it again; one `restart` for all its environments."""
        self._pools[number].close()
        self._pools[number] = self._build(self.parts[number], restart)
        return self._pools[number]

    def send(self, actions: np.ndarray, which: np.ndarray | None = None) -> None:
        """Start a step; `which` [k]: of these environments of a group of one pool alone, in whose order `recv` then
        returns their results.
        """
        actions = np.ascontiguousarray(actions, dtype=self._action_type)
        if which is not None:
            ids = which.astype(np.int32)
            self._pools[0]._send([ids, ids, actions])
            return
        for pool, ids, part in zip(self._pools, self._ids, self.parts):
            pool._send([ids, ids, actions[part]])  # environments, players, actions

    def recv(self) -> Step:
        states = [pool._recv() for pool in self._pools]
        observations, rewards, done, truncated = (
            states[0][i] if len(states) == 1 else np.concatenate([state[i] for state in states]) for i in self._wanted
        )  # [n, S], [n], [n], [n]
        return Step(observations, rewards, done & ~truncated, truncated, done | truncated)

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
        self._pools = []


def _repeat(pools: list[Any], pasts: list[list[Past]], key: int, action_type: np.dtype) -> list[np.ndarray]:
    """Reset new pools as often, and step them with the same actions, as their environments have been.

    All pools work at the same time: each gets its call before the first answer is waited for.

    Args:
        pasts: of all environments of each pool, in their order.
        key: where a pool's answer has the observations.

    Returns:
        The last observations of each pool, [n, S].
    """
    with quiet_gymnasium():
        observations = [pool.reset()[0].copy() for pool in pools]  # [n, S] each

    def receive(called: list[int]) -> None:
        for p in called:
            answer = pools[p]._recv()
            observations[p][answer[0]] = answer[key]

    resets = [np.array([past.episode for past in of_pool]) for of_pool in pasts]  # [n] each
    for k in range(max(of_pool.max() for of_pool in resets)):
        called = [p for p, of_pool in enumerate(resets) if of_pool.max() > k]
        for p in called:
            pools[p]._reset(np.flatnonzero(resets[p] > k).astype(np.int32))
        receive(called)
    calls = [_calls(of_pool, action_type) for of_pool in pasts]
    for t in range(max(len(of_pool) for of_pool in calls)):
        called = [p for p, of_pool in enumerate(calls) if len(of_pool) > t]
        for p in called:
            pools[p]._send(calls[p][t])
        receive(called)
    return observations


def _calls(pasts: list[Past], action_type: np.dtype) -> list[list[np.ndarray]]:
    """What a pool is sent to repeat its running episodes: environments [k], players [k] and actions [k, A] a step."""
    steps = np.array([len(past.actions) for past in pasts])  # [n]
    order = np.argsort(-steps, kind="stable").astype(np.int32)  # [n]; the longest first
    longest = pasts[order[0]].actions
    actions = np.zeros((len(longest), len(pasts), *longest.shape[1:]), action_type)  # [T, n, A]
    for column, i in enumerate(order):
        actions[: steps[i], column] = pasts[i].actions
    running = [int((steps > t).sum()) for t in range(len(longest))]
    return [[order[:k], order[:k], row[:k]] for k, row in zip(running, actions)]


class AleGroup:
    """ale-py's vector environment: steps in threads of its own from `send` on. A given seed always builds new ones.

    Its own FIRE comes only after a restart, and its own report of lost lives hides a time limit in the same step, so
    both are done here, as `atari.Lives` does them. Its images are Gymnasium's to the pixel, except that where the time
    limit ends a game the newest frame is the maximum of that step's third frame and the step before.

    Seeding an emulator takes as long as building it, so only every fiftieth game of an environment begins with a seed
    of its own. Only a game that is alone in its vector environment can be seeded then, and brought back.

    Args:
        alone: a vector environment for every game.
    """

    GAMES_A_SEED = 50

    def __init__(self, environment: Environment, num_envs: int, num_threads: int, alone: bool = False) -> None:
        from ale_py import AtariVectorEnv

        self.num_envs = num_envs
        self.faults: list[Fault] = []  # compiled environments raise nothing
        self.parts = [slice(i, i + 1) for i in range(num_envs)] if alone else [slice(0, num_envs)]
        self._alone = alone
        self._make, self._rom = AtariVectorEnv, gymnasium.spec(environment.atari_game).kwargs["game"]
        self._options = {
            "num_threads": 1 if alone else num_threads,
            "max_num_frames_per_episode": atari.FRAMES_A_STEP * environment.max_episode_steps,
            "repeat_action_probability": 0.0,
            "img_height": atari.SIZE,
            "img_width": atari.SIZE,
            "stack_num": atari.STACKED,
            "frameskip": atari.FRAMES_A_STEP,
            "noop_max": atari.IDLE_FRAMES,
            "use_fire_reset": False,
            "episodic_life": False,
            "life_loss_info": False,
            "reward_clipping": False,
            "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP,
        }
        self._images = np.empty((num_envs, atari.SIZE, atari.SIZE, atari.STACKED), np.uint8)  # [n, H, W, C]
        self._envs: list[Any] = []  # of a part each
        self._restarted: dict[int, tuple[np.ndarray, dict[str, Any]]] = {}  # parts that `send` gave a new seed
        self._seed = 0

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or not self._envs:
            self.close()
            self._seed = seed or 0
            self._games = np.full(self.num_envs, -1)  # [n] that were begun before the running one
            self._restarts = np.zeros(self.num_envs, int)  # [n]
            self._lives = np.zeros(self.num_envs, int)  # [n]
            self._ended, self._first, self._replaced = (np.zeros(self.num_envs, bool) for _ in range(3))  # [n] each
            self._envs = [None] * len(self.parts)
        for number in range(len(self.parts)):
            self._begin(number, *self._next_game(number))
        return self._images

    def _next_game(self, number: int) -> tuple[np.ndarray, dict[str, Any]]:
        """The next game of a part, with a seed of its own or without; its stacks [n, C, H, W] and its info."""
        part = self.parts[number]
        self._games[part] += 1
        seeds, games, restart = None, int(self._games[part.start]), int(self._restarts[part.start])
        if self._envs[number] is None or self._needs_seed(number):
            seeds = (self._seed + np.arange(part.start, part.stop)) % 2**31  # [n]
            if self._alone and (restart > 0 or games > 0):
                seeds = np.array([episode_seed(self._seed, part.start, restart, games)])  # [1]
            envs = self._envs[number] = self._make(self._rom, len(seeds), **self._options)
            self._fire = atari.fire([action.name for action in envs.ale.get_action_set()])
        return self._envs[number].reset(seed=seeds)

    def _needs_seed(self, number: int) -> bool:
        """Whether a part's present game is one of those that are seeded."""
        part = self.parts[number]
        seeded = self._restarts[part.start] != AS_IN_FORMAT_1
        return self._alone and seeded and self._games[part.start] % self.GAMES_A_SEED == 0

    def _begin(self, number: int, stacks: np.ndarray, info: dict[str, Any]) -> None:
        part = self.parts[number]
        self._lives[part], self._ended[part], self._first[part] = info["lives"], False, True
        self._lay_out(part, stacks)

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        if not self._alone:
            raise ValueError("only games that are alone can be brought back")
        for i, past in pasts.items():
            self._envs[i], self._restarts[i] = None, past.restart
            self._games[i] = past.episode // self.GAMES_A_SEED * self.GAMES_A_SEED - 1
            while self._games[i] < past.episode:
                game = self._next_game(i)
            self._begin(i, *game)
        for t in range(max(len(past.actions) for past in pasts.values())):
            playing = [i for i, past in pasts.items() if t < len(past.actions)]
            for i in playing:
                self._send(i, np.asarray(pasts[i].actions[t]).reshape(1))
            for i in playing:
                self._recv(i)
        return self._images[list(pasts)]  # [k, H, W, C]

    def send(self, actions: np.ndarray) -> None:
        for number, part in enumerate(self.parts):
            self._send(number, actions[part])

    def _send(self, number: int, actions: np.ndarray) -> None:
        part = self.parts[number]
        ended = self._ended[part]  # [n]
        self._games[part] += ended
        if ended[0] and self._needs_seed(number):
            self._games[part] -= 1
            self._restarted[number] = self._next_game(number)
            return
        self._replaced[part] = False
        if self._fire is not None:
            self._replaced[part] = self._first[part] & ~ended
            actions = np.where(self._first[part], self._fire, actions)  # [n]
        self._envs[number].send(actions.astype(np.int64, copy=False))

    def recv(self) -> Step:
        """The next step; its observations are overwritten by the one after."""
        columns = [self._recv(number) for number in range(len(self.parts))]
        rewards, terminated, truncated = (np.concatenate(column) for column in zip(*columns))  # [n] each
        return Step(self._images, rewards, terminated, truncated, self._ended.copy(), replaced=self._replaced.copy())

    def _recv(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards, terminated and truncated of a part, [n] each."""
        part = self.parts[number]
        if number in self._restarted:
            self._begin(number, *self._restarted.pop(number))
            self._replaced[part] = False
            return np.zeros(1), np.zeros(1, bool), np.zeros(1, bool)
        stacks, rewards, over, truncated, info = self._envs[number].recv()  # [n, C, H, W], [n], [n], [n]
        lives, restarted = info["lives"], self._ended[part].copy()  # [n], [n]
        lost = (lives < self._lives[part]) & ~restarted  # [n]
        self._lives[part], self._ended[part], self._first[part] = lives, over | truncated, lost | restarted
        self._lay_out(part, stacks)
        return rewards, over | lost, truncated

    def _lay_out(self, part: slice, stacks: np.ndarray) -> None:
        """[n, C, H, W] → [n, H, W, C]: OpenCV takes a quarter of the time of NumPy's plane by plane (LOG.md)."""
        import cv2

        for stack, image in zip(stacks, self._images[part]):
            cv2.merge(list(stack), image)

    def close(self) -> None:
        self._envs = []  # their threads end with them
        self._restarted.clear()


@contextlib.contextmanager
def quiet_gymnasium() -> Iterator[None]:
    """Gymnasium's own warnings and errors are kept back: ours say the same in fewer words."""
    level = gymnasium.logger.min_level
    gymnasium.logger.min_level = gymnasium.logger.ERROR + 1
    try:
        yield
    finally:
        gymnasium.logger.min_level = level
