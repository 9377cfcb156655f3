"""Proximal policy optimisation: settings, presets, batch, losses and networks."""
