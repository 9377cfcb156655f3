"""DDPG and TD3: settings, presets, replay buffer, networks and trainer."""

import common  # noqa: F401  sets variables that TensorFlow reads when it is imported
