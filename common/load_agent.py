"""A trained agent from its run folder, whichever method trained it."""

from pathlib import Path
from typing import Literal

from Agent import Agent
from common import run_folder
from common.config import TrainingConfig
from common.make_env import make_env
from common.off_policy_config import OffPolicyConfig
from companions.DDPGAgent import DDPGAgent
from companions.OffPolicyAgentTrainer import make_agent as make_off_policy_agent

WhichWeights = Literal["best", "last"]


def new_agent(config: TrainingConfig) -> Agent | DDPGAgent:
    """The agent that a run of these settings begins with.

    Raises:
        UserError: its environment cannot be made.
    """
    env = make_env(config.env, config.max_episode_steps)
    make = make_off_policy_agent if isinstance(config, OffPolicyConfig) else Agent
    agent = make(env.observation_space, env.action_space, config, config.seeds()[0])
    env.close()
    return agent


def load_agent(run: Path, weights: WhichWeights) -> tuple[Agent | DDPGAgent, TrainingConfig]:
    """The agent that a run ended with ("best") or that of its last checkpoint, and the run's settings.

    Raises:
        UserError: there is no run, its environment cannot be made, or its weights are missing or damaged.
    """
    _, config = run_folder.read_config(run)
    agent = new_agent(config)
    agent.read_weights(run / (run_folder.BEST_AGENT if weights == "best" else run_folder.WEIGHTS))
    return agent, config
