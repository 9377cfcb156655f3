"""DDPG, TD3, SAC and TQC: settings, presets, replay buffer, networks and trainers."""

import common  # noqa: F401  sets variables that TensorFlow reads when it is imported
