"""Atari games, stepped by ale-py's own threads."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from common.envs import atari
from common.envs.environment import Environment
from common.envs.groups import Fault, Step
from common.envs.seeded_episodes import Past, episode_seed


class AleGroup:
    """ale-py's vector environment, whose own threads step the games from `send` on.

    A reset with a seed builds new vector environments.

    ale-py presses FIRE only after a restart, and its report of lost lives hides a time limit in the same step. So both
    are done here, as in `atari.Lives`. Images are equal to Gymnasium's to the pixel, with one exception: where the
    time limit ends a game, the newest frame is the maximum of that step's third frame and the step before.

    Seeding an emulator takes as long as building it, so only every fiftieth game of an environment begins with its own
    seed. Only a game that is alone in its vector environment can be seeded that way and restored.

    Args:
        environment: what to build; it is an Atari game.
        num_envs: n, how many.
        num_threads: of a vector environment that all games share.
        alone: give every game its own vector environment.
    """

    GAMES_A_SEED = 50

    def __init__(self, environment: Environment, num_envs: int, num_threads: int, alone: bool = False) -> None:
        from ale_py import AtariVectorEnv

        self.num_envs = num_envs
        self.faults: list[Fault] = []  # stays empty: compiled environments do not raise
        self.parts = [slice(i, i + 1) for i in range(num_envs)] if alone else [slice(0, num_envs)]
        self._alone = alone
        assert environment.atari_game is not None, "`resolve_backend` makes sure of it"
        assert environment.max_episode_steps is not None, "`make_atari` sets one"
        self._make, self._rom = AtariVectorEnv, gymnasium.spec(environment.atari_game).kwargs["game"]
        self._options: dict[str, Any] = {
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
        self._envs: list[Any] = []  # one for each part
        self._restarted: dict[
            int, tuple[np.ndarray, dict[str, Any]]
        ] = {}  # parts that `send` reset with a new seed: stacks and info
        self._seed = 0

    def reset(self, seed: int | None) -> np.ndarray:
        """See `Group.reset`."""
        if seed is not None or not self._envs:
            self.close()
            self._seed = seed or 0
            self._games = np.full(self.num_envs, -1)  # [n] games begun before the running one
            self._restarts = np.zeros(self.num_envs, int)  # [n]
            self.lives = np.zeros(self.num_envs, int)  # [n]
            self._ended, self._first, self._replaced = (np.zeros(self.num_envs, bool) for _ in range(3))  # [n] each
            self._envs = [None] * len(self.parts)
        for number in range(len(self.parts)):
            self._begin(number, *self._next_game(number))
        return self._images

    def _next_game(self, number: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a part's next game, with its own seed or without; its stacks of images [n, C, H, W] and its info."""
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
        """Whether a part's running game is one of those that are seeded."""
        return self._alone and self._games[self.parts[number].start] % self.GAMES_A_SEED == 0

    def _begin(self, number: int, stacks: np.ndarray, info: dict[str, Any]) -> None:
        part = self.parts[number]
        self.lives[part], self._ended[part], self._first[part] = info["lives"], False, True
        self._lay_out(part, stacks)

    def bring_back(self, pasts: Mapping[int, Past]) -> np.ndarray:
        """See `Group.bring_back`.

        Raises:
            ValueError: the games share a vector environment.
        """
        if not self._alone:
            raise ValueError("games that share a vector environment cannot be restored: build them with alone=True")
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
        """See `Group.send`."""
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
        """See `Group.recv`; the next step overwrites the observations."""
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
        lost = (lives < self.lives[part]) & ~restarted  # [n]
        self.lives[part], self._ended[part], self._first[part] = lives, over | truncated, lost | restarted
        self._lay_out(part, stacks)
        return rewards, over | lost, truncated

    def _lay_out(self, part: slice, stacks: np.ndarray) -> None:
        """[n, C, H, W] → [n, H, W, C] by OpenCV, which takes a quarter of the time of NumPy (the log)."""
        import cv2

        for stack, image in zip(stacks, self._images[part]):
            cv2.merge(list(stack), image)

    def close(self) -> None:
        """Drop every vector environment, which ends its threads."""
        self._envs = []
        self._restarted.clear()
