"""Trained agents that come with the project, in agents/NAME; python -m programs ship writes them.

They are loaded without TensorFlow, but for those that see images.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from common.config import TrainingConfig
from common.envs.environment import Environment, played_environment_of
from common.envs.spaces import ActionMap, action_map
from common.envs.stored_spaces import SpacesAlone
from common.errors import UserError
from common.rollout import policy_file
from common.rollout.policies import SamplingPolicy
from common.runs import run_folder
from common.state import State
from programs.methods import config_to_play, new_agent

AGENTS = Path(__file__).resolve().parents[1] / "agents"
CARD, RECORDED, EXPORT = "agent.json", "recorded.npz", "export"
Stage = Literal["untrained", "half-way", "trained"]
STAGES: dict[str, str] = {"untrained": "untrained.npz", "half-way": "half-way.npz", "trained": "policy.npz"}
"""Stage of training → the file with its policy."""
ACTOR = "actor"  # the kind of a file with a Keras actor's weights, for policies that see images


@dataclass(frozen=True)
class ShippedAgent:
    """An agent that can act and be scored, but not learn."""

    policy: SamplingPolicy  # maps raw observations to actions
    action_map: ActionMap  # maps them to the environment's
    sees_images: bool = False

    def acting_policy(self) -> SamplingPolicy:
        """The policy, mapping raw observations to actions."""
        return self.policy


def names(agents: Path | None = None) -> list[str]:
    """The names of all agents in a folder, by default the project's own, in alphabetical order."""
    folder = agents or AGENTS
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.name[0] != "." and (path / CARD).is_file())


def folder_of(run: Path) -> Path:
    """The folder of a run, or of an agent with this name if no run has it; UserError if there is neither."""
    is_one = any((run / file).exists() for file in (CARD, run_folder.CONFIG))
    if len(run.parts) == 1 and run.name in names() and not is_one:
        return AGENTS / run.name
    if run.exists() or len(run.parts) != 1:
        return run
    near = difflib.get_close_matches(run.name, names(), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UserError(
        f"no agent is named {run.name!r:.40}: {hint}there are {', '.join(names())}, and runs/NAME for runs"
    )


def is_shipped(folder: Path) -> bool:
    """Whether a folder holds an agent that was shipped, not a run."""
    return (folder / CARD).is_file()


def load(folder: Path, stage: str = "trained", **typed: Any) -> tuple[ShippedAgent, TrainingConfig, Environment]:
    """An agent that was shipped, the settings it was trained with, and its environment.

    Args:
        typed: `env`, `env_kwargs`, `wrappers` and `networks` as the user typed them; see `run_folder.read_config`.

    Raises:
        UserError: a file is missing or damaged, or the environment cannot be made.
    """
    config = config_to_play(folder, **typed)
    path = policy_path(folder, stage)
    environment = played_environment_of(config)
    return agent_of(path, config, environment), config, environment


def policy_path(folder: Path, stage: str) -> Path:
    """The file with the policy of a stage; UserError if it is missing."""
    path = folder / STAGES[stage]
    if not path.exists():
        raise UserError(f"{folder} holds no {path.name}: this agent was shipped without its {stage} policy")
    return path


def agent_of(path: Path, config: TrainingConfig, environment: Environment | SpacesAlone) -> ShippedAgent:
    """The agent of a policy's file; of the environment only the spaces are used. UserError if it is damaged."""
    arrays = policy_file.read_arrays(path)
    try:
        sees_images = policy_file.layout_of(arrays).get("kind") == ACTOR
        if sees_images:
            agent: Any = new_agent(config, environment)
            set_actor(agent, arrays)
        policy = agent.acting_policy() if sees_images else policy_file.of_arrays(arrays)
    except (ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read as a policy ({error}): use another copy") from None
    return ShippedAgent(policy, action_map(environment.action_space), sees_images)


def set_actor(agent: Any, arrays: State) -> None:
    """Put the weights of a file of kind ACTOR into an agent's actor; ValueError if they are those of another one."""
    weights = [arrays[f"{ACTOR}/{i}"] for i in range(len(arrays) - 1)]
    agent.actor.set_weights(weights)
    if ACTOR in (own := agent.parameters()):  # a vector of them, from which an off-policy agent acts
        agent.load_parameters(own | {ACTOR: np.concatenate([array.ravel() for array in weights])})
