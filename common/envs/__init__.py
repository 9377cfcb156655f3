"""Environments: made, wrapped, described by one record, and stepped side by side. No TensorFlow."""
