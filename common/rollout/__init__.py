"""Playing in environments: collecting trajectories, repeating them, validating and evaluating. No TensorFlow."""
