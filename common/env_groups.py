"""Groups of environments that are stepped together: in this process, in processes of their own, in EnvPool, in ale-py.

All restart an ended environment on its next step (next-step autoreset): that step ignores its action
and returns the reset observation.
"""

import contextlib
import functools
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import gymnasium
import numpy as np

from common import atari
from common.environment import Environment
from common.environment_check import cannot_start
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


class Fault(NamedTuple):
    """An environment that failed in the last step and was built anew."""

    index: int  # in its group
    error: str  # one line
    details: str  # its traceback; empty where there is none


class Group(Protocol):
    """Environments that are stepped together. `send` starts a step, `recv` waits for its result.

    An environment that fails in a step seems to have stood still in it and to be truncated by it: its observation
    is the one before, its reward 0. It is built anew, and the next step resets it like any other. `faults` lists
    the failures of the last step until somebody empties it.
    """

    num_envs: int
    faults: list[Fault]

    def reset(self, seed: int | None) -> np.ndarray:
        """First observations [n, *shape] of new episodes; a seed fixes everything from here on, None goes on.

        Raises:
            UserError: an environment cannot be started.
        """

    def send(self, actions: np.ndarray) -> None:
        """Start a step with these actions [n, *action]."""

    def recv(self) -> Step:
        """What came of the step that was started last."""

    def close(self) -> None:
        """End processes and threads; `reset` with a seed begins anew."""


class BoxVectorEnv(gymnasium.vector.SyncVectorEnv):
    """`SyncVectorEnv` for Box spaces and next-step autoreset, without infos.

    Where there is one environment its general `step` takes 12% longer than this one with the walker (LOG.md).
    An environment that raises is built anew; see `Group`.

    Attributes:
        life_lost, ended: [n] bool; the last step lost a life, by its info of that name; it ended the episode.
    """

    def __init__(
        self, makers: list[Callable[[], gymnasium.Env]], seed: int, faults: list[Fault], name: str = "the environment"
    ) -> None:
        super().__init__(makers, copy=False)
        self._name = name  # of the environment, in messages
        self._fault_seeds = np.random.default_rng(seed)
        self._faults = faults
        self.life_lost = np.zeros(self.num_envs, bool)  # [n]
        self.ended = self._autoreset_envs  # [n]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """As `SyncVectorEnv.step`; the arrays it returns are used again by the next step."""
        for i, env in enumerate(self.envs):
            info = {}
            try:
                if self._autoreset_envs[i]:
                    self._observations[i], _ = env.reset()
                    self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
                else:
                    (self._observations[i], self._rewards[i], self._terminations[i], self._truncations[i], info) = (
                        env.step(actions[i])
                    )
            except Exception as error:  # somebody else's code: whatever it raises is a fault of the environment
                self._build_anew(i, error)
            self.life_lost[i] = info.get("life_lost", False)
        self.ended = self._autoreset_envs = self._terminations | self._truncations
        return self._observations, self._rewards, self._terminations, self._truncations, {}

    def _build_anew(self, i: int, error: Exception) -> None:
        self._faults.append(Fault(i, describe(error), own_traceback(error)))
        with contextlib.suppress(Exception):
            self.envs[i].close()
        try:
            env = self.env_fns[i]()
            env.reset(seed=int(self._fault_seeds.integers(2**31)))  # the next step resets it again, so seeded
        except Exception as second:
            raise cannot_start(self._name, second) from second
        self.envs = (*self.envs[:i], env, *self.envs[i + 1 :])
        self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, True


class GymnasiumGroup:
    """Gymnasium's vector environment: steps in this thread, when its result is asked for.

    A given seed always builds new environments: what BipedalWalker does after a seeded reset still
    depends on the world it had before.
    """

    def __init__(self, environment: Environment, num_envs: int) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []
        self._env_id = environment.id
        self._makers = [environment.make] * num_envs
        self._envs: BoxVectorEnv | None = None
        self._actions: np.ndarray | None = None

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or self._envs is None:
            self.close()
            self._envs = BoxVectorEnv(self._makers, seed or 0, self.faults, self._env_id)
        try:
            return self._envs.reset(seed=seed)[0]
        except Exception as error:
            raise cannot_start(self._env_id, error) from error

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> Step:
        observations, rewards, terminated, truncated, _ = self._envs.step(self._actions)
        return Step(observations, rewards, terminated | self._envs.life_lost, truncated, self._envs.ended)

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None


class EnvPoolGroup:
    """EnvPool: steps in threads of its own from `send` on. A given seed always builds a new pool.

    Stepping goes through EnvPool's native `_send` and `_recv`: its Python layer around them costs 5% of
    an epoch (LOG.md). `tests/test_rollout.py` holds both ways together.
    """

    def __init__(self, environment: Environment, num_envs: int, num_threads: int) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []  # compiled environments raise nothing
        self._ids = np.arange(num_envs, dtype=np.int32)
        self._options = {"env_type": "gymnasium", "num_envs": num_envs, "num_threads": num_threads}
        if environment.max_episode_steps is not None:  # EnvPool's own are not always Gymnasium's
            self._options["max_episode_steps"] = environment.max_episode_steps
        self._env_id = environment.gymnasium_id
        self._pool = None

    def reset(self, seed: int | None) -> np.ndarray:
        import envpool

        with _quiet_gymnasium():  # it warns about a space that nobody reads here
            if seed is not None or self._pool is None:
                self.close()
                self._pool = envpool.make(self._env_id, seed=seed or 0, **self._options)
                keys = self._pool._state_keys
                self._wanted = [keys.index(key) for key in ("obs", "reward", "done", "trunc")]
                self._action_type = self._pool.action_space.dtype  # not always Gymnasium's
            return self._pool.reset()[0]

    def send(self, actions: np.ndarray, which: np.ndarray | None = None) -> None:
        """Start a step; `which` [k]: of these environments alone, whose results `recv` then returns in this order."""
        actions = np.ascontiguousarray(actions, dtype=self._action_type)
        ids = self._ids if which is None else which.astype(np.int32)
        self._pool._send([ids, ids, actions])  # environments, players, actions

    def recv(self) -> Step:
        state = self._pool._recv()
        observations, rewards, done, truncated = (state[i] for i in self._wanted)  # [n, S], [n], [n], [n]
        return Step(observations, rewards, done & ~truncated, truncated, done | truncated)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class AleGroup:
    """ale-py's vector environment: steps in threads of its own from `send` on. A given seed always builds a new one.

    Its own FIRE comes only after a restart, and its own report of lost lives hides a time limit in the same step, so
    both are done here, as `atari.Lives` does them. Its images are Gymnasium's to the pixel, except that where the time
    limit ends a game the newest frame is the maximum of that step's third frame and the step before.
    """

    def __init__(self, environment: Environment, num_envs: int, num_threads: int) -> None:
        from ale_py import AtariVectorEnv

        self.num_envs = num_envs
        self.faults: list[Fault] = []  # compiled environments raise nothing
        self._make, self._rom = AtariVectorEnv, gymnasium.spec(environment.atari_game).kwargs["game"]
        self._options = {
            "num_threads": num_threads,
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
        self._envs = None

    def reset(self, seed: int | None) -> np.ndarray:
        seeds = None
        if seed is not None or self._envs is None:
            self.close()
            self._envs = self._make(self._rom, self.num_envs, **self._options)
            self._fire = atari.fire([action.name for action in self._envs.ale.get_action_set()])
            seeds = ((seed or 0) + np.arange(self.num_envs)) % 2**31  # [n]
        stacks, info = self._envs.reset(seed=seeds)
        self._lives = info["lives"]  # [n]
        self._ended = np.zeros(self.num_envs, bool)  # [n]
        self._first = ~self._ended  # [n] whose next step is a life's first
        return self._lay_out(stacks)

    def send(self, actions: np.ndarray) -> None:
        if self._fire is not None and self._first.any():
            actions = np.where(self._first, self._fire, actions)  # [n]
        self._envs.send(actions.astype(np.int64, copy=False))

    def recv(self) -> Step:
        """The next step; its observations are overwritten by the one after."""
        stacks, rewards, over, truncated, info = self._envs.recv()  # [n, C, H, W], [n], [n], [n]
        lives, restarted = info["lives"], self._ended  # [n], [n]
        lost = (lives < self._lives) & ~restarted  # [n]
        self._lives, self._ended, self._first = lives, over | truncated, lost | restarted
        return Step(self._lay_out(stacks), rewards, over | lost, truncated, self._ended)

    def _lay_out(self, stacks: np.ndarray) -> np.ndarray:
        """[n, C, H, W] → [n, H, W, C]: OpenCV takes a quarter of the time of NumPy's plane by plane (LOG.md)."""
        import cv2

        for stack, image in zip(stacks, self._images):
            cv2.merge(list(stack), image)
        return self._images

    def close(self) -> None:
        self._envs = None  # its threads end with it


class ProcessGroup:
    """Gymnasium's asynchronous vector environment: a process for each environment.

    A process that dies, or does not answer within `time_limit` seconds, ends the episodes of the whole group: all
    of them are built anew.
    """

    def __init__(self, environment: Environment, num_envs: int, time_limit: float = 60.0) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []
        self._env_id, self._time_limit = environment.id, time_limit
        self._makers = [functools.partial(_make_in_process, environment)] * num_envs
        self._envs: gymnasium.vector.AsyncVectorEnv | None = None

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None or self._envs is None:
            self.close()
            self._fault_seeds = np.random.default_rng(seed)
            self._start(seed)
        else:
            self._reset_all(None)
        return self._observations

    def _start(self, seed: int | None) -> None:
        self._envs = gymnasium.vector.AsyncVectorEnv(self._makers, copy=False)
        self._reset_all(seed)
        self._failed = False

    def _reset_all(self, seed: int | None) -> None:
        try:
            with _quiet_gymnasium():
                self._envs.reset_async(seed=seed)
                self._observations, _ = self._envs.reset_wait(self._time_limit)  # [n, *shape], shared
        except Exception as error:
            self._kill()
            raise cannot_start(self._env_id, error) from error

    def send(self, actions: np.ndarray) -> None:
        self._before = self._observations.copy()  # [n, *shape]; those that do not fail write theirs all the same
        if self._failed:
            return  # this step resets, like any after an episode's end
        with contextlib.suppress(OSError):  # of a dead process; `recv` finds out which
            self._envs.step_async(actions)

    def recv(self) -> Step:
        nothing, never = np.zeros(self.num_envs), np.zeros(self.num_envs, bool)
        if self._failed:
            self._start(int(self._fault_seeds.integers(2**31)))
            return Step(self._observations, nothing, never, never, never)
        try:
            with _quiet_gymnasium():
                observations, rewards, terminated, truncated, info = self._envs.step_wait(self._time_limit)
        except Exception as error:
            self.faults += self._who_failed(error)
            self._kill()
            self._failed, self._observations = True, self._before
            return Step(self._before, nothing, never, ~never, ~never)
        ended = terminated | truncated  # [n]
        return Step(observations, rewards, terminated | info.get("life_lost", never), truncated, ended)

    def _who_failed(self, error: Exception) -> list[Fault]:
        """The processes that are dead or silent; else the one whose error it is, which Gymnasium has closed."""
        time.sleep(0.1)  # so that a process that is dying is dead
        dead, silent, raised = [], [], []
        for i, (process, pipe) in enumerate(zip(self._envs.processes, self._envs.parent_pipes)):
            if pipe is None:
                raised.append(Fault(i, describe(error), own_traceback(error)))
            elif not process.is_alive():
                dead.append(Fault(i, f"its process died (exit code {process.exitcode})", ""))
            elif not pipe.poll(0):
                silent.append(Fault(i, f"its process did not answer within {self._time_limit:g} s", ""))
        return raised or dead or silent or [Fault(0, describe(error), "")]

    def _kill(self) -> None:
        """Ends the processes without asking them anything, since one of them may hang."""
        for process in self._envs.processes:
            process.kill()
            process.join()
        for pipe in self._envs.parent_pipes:
            if pipe is not None:
                pipe.close()
        self._envs.closed = True
        self._envs = None

    def close(self) -> None:
        if self._envs is not None:
            self._kill()


def _make_in_process(environment: Environment) -> gymnasium.Env:
    """`Environment.make`; a worker process leaves Ctrl-C and SIGTERM to the process that trains."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return environment.make()


@contextlib.contextmanager
def _quiet_gymnasium() -> Iterator[None]:
    """Gymnasium's own warnings and errors are kept back: ours say the same in fewer words."""
    level = gymnasium.logger.min_level
    gymnasium.logger.min_level = gymnasium.logger.ERROR + 1
    try:
        yield
    finally:
        gymnasium.logger.min_level = level
