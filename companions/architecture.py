"""Networks of DDPG and TD3, as Keras functional models."""

import keras
import numpy as np

from common.envs.mirrors import Mirror
from common.learning.mirrored import mean_of_heads, mean_of_values, with_mirror_image
from common.learning.networks import Torso, value_head


class Glorot:
    """Glorot-uniform kernels (Keras's default), each with a seed of its own drawn from one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, _: float) -> keras.initializers.Initializer:
        """The next kernel's initializer (Glorot & Bengio 2010); it has no gain."""
        return keras.initializers.GlorotUniform(seed=int(self._rng.integers(2**31)))


def deterministic_actor(
    observation_size: int,
    action_size: int,
    sizes: tuple[int, ...],
    activation: str,
    seed: int,
    mirror: Mirror | None = None,
) -> keras.Model:
    """observations [B, S] → actions [B, A] in [−1, 1]."""
    kernel, torso = Glorot(seed), Torso((observation_size,), sizes, activation)
    inputs = torso.inputs()
    features = torso(with_mirror_image(inputs, mirror), kernel)  # [B, units], or [2B, units]
    action = keras.layers.Dense(action_size, "tanh", kernel_initializer=kernel(1.0), name="mean")
    [actions] = mean_of_heads([action(features)], mirror)  # [B, A]
    return keras.Model(inputs, actions, name="actor")


def action_critic(
    observation_size: int,
    action_size: int,
    sizes: tuple[int, ...],
    activation: str,
    seed: int,
    mirror: Mirror | None = None,
) -> keras.Model:
    """observations and actions side by side [B, S + A] → value [B, 1]."""
    kernel, torso = Glorot(seed), Torso((observation_size + action_size,), sizes, activation)
    inputs = torso.inputs()
    both = None if mirror is None else Mirror(mirror.joint, mirror.action)
    features = torso(with_mirror_image(inputs, both), kernel)  # [B, units], or [2B, units]
    return keras.Model(inputs, mean_of_values(value_head(features, kernel), mirror), name="critic")
