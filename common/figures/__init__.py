"""Figures, drawn from arrays."""
