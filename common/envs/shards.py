"""Into how many shards environments are divided if the settings do not say."""

from common.config import TrainingConfig
from common.envs.environment import Environment
from common.envs.spaces import is_image

# A policy is called once per shard and step. Workers that were asked for gain by many shards, which share the work
# evenly. In a run that may turn out to need no worker, cheap environments would notice more than a few.
WITH_WORKERS = 16
PERHAPS_WITHOUT = 4


def shards_for_workers(config: TrainingConfig) -> int:
    """How many, in a new run with workers."""
    return config.shards or min(config.num_envs, WITH_WORKERS)


def resolve_shards(config: TrainingConfig, backend: str, environment: Environment) -> int | None:
    """How many, in any run: some where `--backend auto` stands for Gymnasium, so that workers may step them.

    Args:
        backend: what the config's stands for.

    Returns:
        None: as many as the backend's environments come in.
    """
    if config.shards is not None:
        return config.shards
    divides = config.backend == "auto" and backend == "gymnasium" and not is_image(environment.observation_space)
    return min(config.num_envs, PERHAPS_WITHOUT) if divides else None
