"""Networks of a user's own that act through Keras; their dropout draws random numbers in every update."""

import gymnasium
import keras


def make_networks(observation_space: gymnasium.Space, action_space: gymnasium.Space, config: object) -> keras.Model:
    """See docs/own-network.md."""
    inputs = keras.Input(observation_space.shape)
    return keras.Model(inputs, keras.layers.Dropout(0.05)(keras.layers.Dense(16, "gelu")(inputs)))
