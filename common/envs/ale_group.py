"""Atari games, stepped by ale-py's own threads."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from common.envs import atari
from common.envs.environment import Environment
from common.envs.groups import Fault, Step
from common.envs.seeded_episodes import RestorePoint, episode_seed


class AleGroup:
    """ale-py's vector environments, one for each game, whose own threads step the games from `send` on.

    ale-py presses FIRE only after a restart, and its report of lost lives hides a time limit in the same step. So both
    are done here, as in `atari.FireEachLife`. Images are equal to Gymnasium's to the pixel, with one exception: where
    the time limit ends a game, the newest frame is the maximum of that step's third frame and the step before.

    Seeding an emulator takes as long as building it, so only every fiftieth game of an environment begins with its own
    seed.
    """

    GAMES_A_SEED = 50

    def __init__(self, environment: Environment, num_envs: int) -> None:
        self.num_envs = num_envs
        self.faults: list[Fault] = []  # stays empty: compiled environments do not raise
        self.parts = [slice(i, i + 1) for i in range(num_envs)]
        assert environment.atari_game is not None, "`resolve_backend` makes sure of it"
        assert environment.max_episode_steps is not None, "`make_atari` sets one"
        size = environment.image_size
        self._rom = gymnasium.spec(environment.atari_game).kwargs["game"]
        self._options: dict[str, Any] = {
            "num_threads": 1,
            "max_num_frames_per_episode": atari.FRAMES_A_STEP * environment.max_episode_steps,
            "repeat_action_probability": 0.0,
            "img_height": size,
            "img_width": size,
            "stack_num": atari.STACKED,
            "frameskip": atari.FRAMES_A_STEP,
            "noop_max": atari.IDLE_FRAMES,
            "use_fire_reset": False,
            "reward_clipping": False,
            "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP,
        }
        self._images = np.empty((num_envs, size, size, atari.STACKED), np.uint8)  # [n, H, W, C]
        self._envs: list[Any] = []
        self._seed = 0

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is not None or not self._envs:
            self._seed = seed or 0
            self._envs = [None] * self.num_envs
            self._games = np.full(self.num_envs, -1)  # [n] games begun before the running one
            self._restarts, self.lives = np.zeros((2, self.num_envs), int)  # [n] each
            self._ended, self._first, self._replaced, self._begun = np.zeros((4, self.num_envs), bool)  # [n] each
        for i in range(self.num_envs):
            self._begin(i)
        return self._images

    def _begin(self, i: int) -> None:
        """Begin an environment's next game, with its own seed or without."""
        self._games[i] += 1
        game, restart, seed = int(self._games[i]), int(self._restarts[i]), None
        if self._envs[i] is None or game % self.GAMES_A_SEED == 0:
            from ale_py import AtariVectorEnv

            number = episode_seed(self._seed, i, restart, game) if restart or game else self._seed + i
            seed = np.array([number % 2**31])  # [1]
            self._envs[i] = AtariVectorEnv(self._rom, 1, **self._options)
            self._fire = atari.fire([action.name for action in self._envs[i].ale.get_action_set()])
        [stack], info = self._envs[i].reset(seed=seed)
        self.lives[i], self._ended[i], self._first[i] = info["lives"][0], False, True
        self._lay_out(i, stack)

    def restore(self, points: Mapping[int, RestorePoint]) -> np.ndarray:
        """See `Group.restore`."""
        for i, point in points.items():
            self._envs[i], self._restarts[i] = None, point.restart
            self._games[i] = point.episode // self.GAMES_A_SEED * self.GAMES_A_SEED - 1
            while self._games[i] < point.episode:
                self._begin(i)
        for t in range(max(len(point.actions) for point in points.values())):
            playing = [i for i, point in points.items() if t < len(point.actions)]
            for i in playing:
                self._send(i, int(points[i].actions[t]))
            for i in playing:
                self._recv(i)
        return self._images[list(points)]  # [k, H, W, C]

    def send(self, actions: np.ndarray) -> None:
        """See `Group.send`."""
        for i, action in enumerate(actions):
            self._send(i, int(action))

    def _send(self, i: int, action: int) -> None:
        ended, self._replaced[i] = self._ended[i], False
        self._begun[i] = ended and (self._games[i] + 1) % self.GAMES_A_SEED == 0
        if self._begun[i]:
            self._begin(i)
            return
        self._games[i] += ended
        if self._fire is not None and self._first[i]:
            self._replaced[i], action = not ended, self._fire
        self._envs[i].send(np.array([action]))

    def recv(self) -> Step:
        """See `Group.recv`; the next step overwrites the observations."""
        rewards, terminated, truncated = zip(*(self._recv(i) for i in range(self.num_envs)))  # [n] each
        ends = np.array(terminated), np.array(truncated)
        return Step(self._images, np.array(rewards), *ends, self._ended.copy(), replaced=self._replaced.copy())

    def _recv(self, i: int) -> tuple[float, bool, bool]:
        """An environment's reward, and whether its step terminated or truncated the episode."""
        if self._begun[i]:
            return 0.0, False, False
        [stack], [reward], [over], [truncated], info = self._envs[i].recv()
        restarted, lives = self._ended[i], info["lives"][0]
        lost = lives < self.lives[i] and not restarted
        self.lives[i], self._ended[i], self._first[i] = lives, over or truncated, lost or restarted
        self._lay_out(i, stack)
        return float(reward), bool(over or lost), bool(truncated)

    def _lay_out(self, i: int, stack: np.ndarray) -> None:
        """[C, H, W] → [H, W, C] by OpenCV, which takes a quarter of the time of NumPy (the log)."""
        import cv2

        cv2.merge(list(stack), self._images[i])

    def close(self) -> None:
        """Drop every vector environment, which ends its threads."""
        self._envs = []
