"""Proximal policy optimisation: settings, presets, batch, losses and networks."""

import common  # noqa: F401  sets variables that TensorFlow reads when it is imported
