"""Fixtures of the tests that train."""

import pytest
import tiny_envs  # noqa: F401  registers the environments

from common.config import PPOConfig


@pytest.fixture
def tiny() -> PPOConfig:
    """Two epochs that take a moment; timeouts fall within an epoch."""
    return PPOConfig(
        env="Pendulum-v1",
        max_episode_steps=20,
        backend="gymnasium",
        num_envs=2,
        epochs=2,
        steps_per_epoch=64,
        hidden_sizes=(8,),
        mean_gain=0.5,
        passes=2,
        minibatch_size=32,
        learning_rate=1e-2,
    )


@pytest.fixture
def eager():
    """Runs compiled functions step by step: for a handful of gradient steps that is faster than compiling."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
