"""A trained agent from its run folder, whichever method trained it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from common import run_folder
from common.config import TrainingConfig
from common.environment import Environment, look_up
from common.errors import UserError
from common.make_env import MakeEnv
from common.off_policy_config import OffPolicyConfig

if TYPE_CHECKING:
    from Agent import Agent
    from companions.DDPGAgent import DDPGAgent

WhichWeights = Literal["best", "last"]


def new_agent(config: TrainingConfig, environment: Environment) -> "Agent | DDPGAgent":
    """The agent that a run of these settings begins with."""
    if isinstance(config, OffPolicyConfig):
        from companions.OffPolicyAgentTrainer import make_agent as make
    else:
        from Agent import Agent as make
    return make(environment.observation_space, environment.action_space, config, config.seeds()[0])


def load_agent(
    run: Path,
    weights: WhichWeights = "best",
    make_env: MakeEnv | None = None,
    *,
    env: str | None = None,
    env_kwargs: str | Mapping[str, object] | None = None,
    device: str | None = None,
) -> tuple["Agent | DDPGAgent", TrainingConfig, Environment]:
    """The agent that a run ended with ("best") or that of its last checkpoint, the run's settings and environment.

    Args:
        make_env: builds the environment, where the run was trained with such a function.
        env, env_kwargs: what was typed as the run's environment; see `run_folder.read_config`.
        device: what TensorFlow computes on; None takes the run's own choice.

    Raises:
        UserError: there is no run, its environment cannot be made or must be typed again, or its weights are missing
            or damaged.
    """
    _, config = run_folder.read_config(run, env, env_kwargs)
    path = run / (run_folder.BEST_AGENT if weights == "best" else run_folder.WEIGHTS)
    if not path.exists() and (run / run_folder.WEIGHTS).exists():
        raise UserError(
            f"{run} has no {path.name}, since its training has not ended: continue it with --resume {run}, or take "
            "its last weights with --weights last"
        )
    if not path.exists():
        raise UserError(f"{run} holds no {path.name}: train it until its first checkpoint at least")
    if device is not None:
        config = config.replace(device=device)
    environment = look_up(config.env, config.max_episode_steps, config.env_kwargs, make_env)
    agent = new_agent(config, environment)
    agent.read_weights(path)
    return agent, config, environment
