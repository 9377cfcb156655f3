"""Into how many shards environments are divided if the settings do not say."""

from common.config import TrainingConfig
from common.envs.environment import Environment
from common.envs.spaces import is_image

# A policy is called once per shard and step. Workers gain by many shards, which share the work evenly. In a run
# without workers, cheap environments would notice more than a few; with these it can be resumed with workers.
WITH_WORKERS = 16
WITHOUT = 4


def shards_for_workers(config: TrainingConfig) -> int:
    """How many, in a new run with workers."""
    return config.shards or min(config.num_envs, WITH_WORKERS)


def resolve_shards(config: TrainingConfig, backend: str, environment: Environment) -> int | None:
    """How many, in any run: some where `--backend auto` stands for Gymnasium, so that workers may step them later.

    Args:
        backend: what the config's stands for.

    Returns:
        None: as many as the backend's environments come in.
    """
    if config.shards is not None:
        return config.shards
    divides = config.backend == "auto" and backend == "gymnasium" and not is_image(environment.observation_space)
    return min(config.num_envs, WITHOUT) if divides else None
