"""How every contestant is scored: whole episodes of the plain Gymnasium environment, with its own rewards."""

import time
from collections.abc import Callable

import gymnasium
import numpy as np

Act = Callable[[np.ndarray, bool, bool], np.ndarray]
"""Observations [n, S], whether to act deterministically, and whether n episodes begin with them → actions [n, ...] as
the environment takes them."""
Make = Callable[[], gymnasium.Env]
FIRST_SEED, LAST_SEED = 1_000_000, 2_000_000  # of the episodes during training, and of those after it


def returns_of(make: Make, act: Act, episodes: int, seed: int, deterministic: bool) -> list[float]:
    """Play one episode from each of the seeds `seed`, `seed` + 1, …, side by side; their undiscounted returns."""
    envs = [make() for _ in range(episodes)]
    seen = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])  # [n, S]
    returns, running, begins = np.zeros(episodes), np.ones(episodes, bool), True
    while running.any():
        actions = act(seen, deterministic, begins)  # of the ended ones too: a policy's noise may belong to its row
        begins = False
        for i in np.flatnonzero(running):
            observation, reward, terminated, truncated, _ = envs[i].step(actions[i])
            seen[i], running[i] = observation, not (terminated or truncated)
            returns[i] += float(reward)
    for env in envs:
        env.close()
    return [float(f"{value:.6g}") for value in returns]


class Curve:
    """Scores of a training at equal parts of its steps, and of its end.

    Args:
        make: makes the environment.
        steps: of the training.
        parts: how many times it is scored on the way.
        episodes: how many are played each time, deterministically, and as many with sampled actions.
    """

    def __init__(self, make: Make, steps: int, parts: int = 50, episodes: int = 20) -> None:
        self._make, self._episodes = make, episodes
        self._every, self._scored = steps / parts, 0
        self.steps: list[int] = []
        self.deterministic: list[list[float]] = []
        self.sampled: list[list[float]] = []
        self.seconds = 0.0  # that scoring took
        self.validation_steps = 0  # of the episodes that the training played for itself

    def follow(self, steps: int, act: Act, is_last: bool = False) -> None:
        """Score the policy if another part of the steps is done; steps that scoring takes are not counted.

        Args:
            steps: of the training so far.
            act: the policy.
            is_last: whether the training has ended, maybe before all its steps.
        """
        if self.steps[-1:] == [steps] or not (is_last or steps >= (self._scored + 1) * self._every):
            return
        began = time.perf_counter()
        self._scored = int(steps // self._every)
        self.steps.append(int(steps))
        self.deterministic.append(returns_of(self._make, act, self._episodes, FIRST_SEED, True))
        self.sampled.append(returns_of(self._make, act, self._episodes, FIRST_SEED, False))
        self.seconds += time.perf_counter() - began

    def final(self, act: Act, episodes: int = 100) -> dict[str, list[float]]:
        """Returns of the trained policy in fresh episodes."""
        return {
            "deterministic": returns_of(self._make, act, episodes, LAST_SEED, True),
            "sampled": returns_of(self._make, act, episodes, LAST_SEED, False),
        }
