"""DDPG, TD3, SAC, TQC and CrossQ: settings, presets, replay buffer, networks and trainers."""

import common  # noqa: F401  sets variables that TensorFlow reads when it is imported
