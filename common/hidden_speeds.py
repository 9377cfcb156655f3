"""Wrappers that hide speeds, for tasks that need a memory: `--wrappers common.hidden_speeds:CartPoleWithoutSpeeds`."""

from typing import Any

import gymnasium


class _Hiding(gymnasium.ObservationWrapper):
    """Shows some numbers of an observation: those at the positions `shown`, of `size` in all."""

    size: int
    shown: tuple[int, ...]

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or space.shape != (self.size,):
            raise ValueError(f"it is for observations of {self.size} numbers")
        low, high = (bound[list(self.shown)] for bound in (space.low, space.high))
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        """Of all numbers, those that are shown."""
        return observation[list(self.shown)]


class CartPoleWithoutSpeeds(_Hiding):
    """CartPole's position and angle."""

    size, shown = 4, (0, 2)


class PendulumWithoutSpeed(_Hiding):
    """Pendulum's cosine and sine."""

    size, shown = 3, (0, 1)


class LunarLanderWithoutSpeeds(_Hiding):
    """LunarLander's position, angle, and whether its legs touch the ground."""

    size, shown = 8, (0, 1, 4, 6, 7)
